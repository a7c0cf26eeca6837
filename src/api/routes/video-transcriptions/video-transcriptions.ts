/** `POST /video/transcriptions`: what is said in the media of a public URL. */
import { type TranscribeParts, type Transcription, transcribe } from '../../../flows/transcribe.ts';
import type { Queryable } from '../../../store/store.ts';
import { AnswerHeaders } from '../../answer-headers.ts';
import { readJson } from '../../json-body.ts';
import type { LargeBodies } from '../../large-bodies.ts';
import { JSON_BODY, type Route } from '../../route.ts';
import { TRANSCRIPTION } from './describe.ts';
import { TranscriptionRequest } from './schema.ts';

export interface TranscriptionsParts extends TranscribeParts {
  readonly serviceName: string;
  readonly largeBodies: LargeBodies;
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
    handle: async (exchange) => {
      const request = await readJson(exchange, TranscriptionRequest, parts.largeBodies);
      const answer = answerIn(request.response_format ?? 'json');
      const setHeaders = (heard: Transcription): void => {
        exchange.setAll(headers.answered(heard));
      };
      const keep = async (tx: Queryable, heard: Transcription): Promise<void> => {
        setHeaders(heard);
        exchange.set('content-type', answer.type);
        await exchange.keepAnswer(200, answer.body(heard), tx);
      };
      const heard = await transcribe(parts, {
        requestId: exchange.requestId,
        caller: exchange.caller,
        model: request.model ?? undefined,
        url: request.url,
        signal: exchange.workSignal,
        note: (notes) => Object.assign(exchange.notes, notes),
        ...(exchange.keeper && { keep }),
      });
      setHeaders(heard);
      await exchange.bytes(200, answer.type, answer.body(heard));
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
