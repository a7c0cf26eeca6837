/** `POST /embeddings`: parses the body, runs the flow, and gives its answer headers. */
import { type EmbedAnswer, type EmbedParts, embed } from '../../../flows/embed.ts';
import {
  type EmbeddingsRequest,
  parseEmbeddingsRequest,
} from '../../../wire/embeddings-request.ts';
import { AnswerHeaders, GatheredHeaders } from '../../answer-headers.ts';
import type { Exchange } from '../../exchange.ts';
import { LARGE_BODY_BYTES, type LargeBodies } from '../../large-bodies.ts';
import { JSON_BODY, type Route } from '../../route.ts';
import { EMBEDDINGS_DESCRIPTION } from './describe.ts';

const JSON_TYPE = 'application/json; charset=utf-8';

export interface EmbeddingsParts extends EmbedParts {
  readonly serviceName: string;
}

export function embeddingsRoute(parts: EmbeddingsParts, largeBodies: LargeBodies): Route {
  const make = new AnswerHeaders(parts);
  return {
    method: 'POST',
    path: '/embeddings',
    auth: 'key-or-wallet',
    body: JSON_BODY,
    sells: 'embeddings',
    describe: EMBEDDINGS_DESCRIPTION,
    handle: async (exchange) => {
      const headers = new GatheredHeaders(exchange, make);
      await headers.during(async () => {
        const { body } = exchange;
        const request =
          body.length < LARGE_BODY_BYTES
            ? parseEmbeddingsRequest(body)
            : await largeBodies.embeddings(body);
        await handle(parts, exchange, request, headers);
      });
    },
  };
}

async function handle(
  parts: EmbeddingsParts,
  exchange: Exchange,
  request: EmbeddingsRequest,
  headers: GatheredHeaders,
): Promise<void> {
  const setHeaders = (answer: EmbedAnswer): void => {
    headers.answered(answer);
    exchange.set('content-type', JSON_TYPE);
  };
  const maxBytes = exchange.keeper?.maxBytes;
  const answer = await embed(parts, {
    requestId: exchange.requestId,
    caller: exchange.caller,
    request,
    signal: exchange.workSignal,
    resolved: (model, deprecation) => {
      exchange.notes.model = model.id;
      headers.resolved(model, deprecation);
    },
    admitted: (admission, rate) => headers.admitted(admission, rate),
    keep:
      maxBytes === undefined
        ? undefined
        : async (tx, done) => {
            setHeaders(done);
            const sizeBytes = done.body.reduce((sum, piece) => sum + piece.length, 0);
            const body = sizeBytes > maxBytes ? undefined : Buffer.concat(done.body);
            await exchange.keepAnswer(200, body, tx);
          },
  });
  if (answer === undefined) return;
  const { costUsd, promptTokens, body } = answer;
  Object.assign(exchange.notes, { costUsd, promptTokens });
  setHeaders(answer);
  await exchange.json(200, Buffer.concat(body));
}
