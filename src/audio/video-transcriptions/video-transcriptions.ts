/** `POST /video/transcriptions`: what is said in the media of a public URL. */
import { type TranscribeParts, type Transcription, transcribe } from '../transcribe.ts';
import { AnswerHeaders } from '../../http/answer-headers.ts';
import { type ReadLargeJson, readJson } from '../../http/json-body.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import { TRANSCRIPTION } from './describe.ts';
import { TranscriptionRequest } from './schema.ts';

export interface TranscriptionsParts extends TranscribeParts {
  readonly serviceName: string;
  readonly readLargeJson: ReadLargeJson;
}

export function videoTranscriptionsRoute(parts: TranscriptionsParts): Route {
  const headers = new AnswerHeaders(parts);
  return {
    method: 'POST',
    path: '/video/transcriptions',
    auth: 'key-or-wallet',
    body: JSON_BODY,
    sells: 'transcription',
    describe: TRANSCRIPTION,
    handle: async (context) => {
      const request = await readJson(context, TranscriptionRequest, parts.readLargeJson);
      const answer = answerIn(request.response_format ?? 'json');
      const heard = await transcribe(parts, {
        requestId: context.requestId,
        caller: context.caller,
        model: request.model ?? undefined,
        url: request.url,
        signal: context.workSignal,
        note: (notes) => Object.assign(context.notes, notes),
        keeper: context.keeper,
        answer: (facts) => {
          context.setAll(headers.answered(facts));
          return { type: answer.type, body: answer.body(facts) };
        },
      });
      if (heard !== undefined) await context.bytes(200, heard.type, heard.body);
    },
  };
}

interface AnswerForm {
  readonly type: string;
  readonly body: (heard: Transcription) => Buffer;
}

function answerIn(format: 'json' | 'text'): AnswerForm {
  if (format === 'text') {
    return { type: 'text/plain; charset=utf-8', body: (heard) => Buffer.from(heard.text) };
  }
  return {
    type: 'application/json; charset=utf-8',
    body: (heard) => Buffer.from(JSON.stringify({ transcript: heard.text, lang: heard.language })),
  };
}
