/** `POST /video/transcriptions`: what is said in the media of a public URL. */
import { type TranscribeParts, transcribe } from '../../../flows/transcribe.ts';
import { answerHeaders } from '../../answer-headers.ts';
import { readJson } from '../../json-body.ts';
import { JSON_BODY, type Route } from '../../route.ts';
import { TRANSCRIPTION } from './describe.ts';
import { TranscriptionRequest } from './schema.ts';

export function videoTranscriptionsRoute(parts: TranscribeParts & { serviceName: string }): Route {
  return {
    method: 'POST',
    path: '/video/transcriptions',
    auth: 'key-or-wallet',
    body: JSON_BODY,
    sells: 'transcription',
    describe: TRANSCRIPTION,
    handle: async (exchange) => {
      const request = readJson(exchange, TranscriptionRequest);
      const heard = await transcribe(parts, {
        requestId: exchange.requestId,
        caller: exchange.caller,
        model: request.model ?? undefined,
        url: request.url,
        signal: exchange.signal,
        note: (notes) => Object.assign(exchange.notes, notes),
      });
      const facts = { ...heard, flags: {} };
      exchange.setAll(answerHeaders(facts, parts.serviceName, parts.clock.nowMs()));
      if (request.response_format === 'text') {
        return exchange.bytes(200, 'text/plain; charset=utf-8', Buffer.from(heard.text));
      }
      return exchange.json(200, { transcript: heard.text, lang: heard.language });
    },
  };
}
