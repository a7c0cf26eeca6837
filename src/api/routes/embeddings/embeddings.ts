/** `POST /embeddings`: parses the body, runs the flow, and gives its answer headers. */
import { type EmbedParts, embed } from '../../../flows/embed.ts';
import { parseEmbeddingsRequest } from '../../../wire/embeddings-request.ts';
import { answerHeaders } from '../../answer-headers.ts';
import type { Exchange } from '../../exchange.ts';
import { JSON_BODY, type Route } from '../../route.ts';

export interface EmbeddingsParts extends EmbedParts {
  readonly serviceName: string;
}

export function embeddingsRoute(parts: EmbeddingsParts): Route {
  return {
    method: 'POST',
    path: '/embeddings',
    auth: 'key-or-wallet',
    body: JSON_BODY,
    sells: 'embeddings',
    handle: (exchange) => handle(parts, exchange),
  };
}

async function handle(parts: EmbeddingsParts, exchange: Exchange): Promise<void> {
  const request = parseEmbeddingsRequest(exchange.body);
  exchange.notes.model = request.model.slice(0, 100);
  const answer = await embed(parts, {
    requestId: exchange.requestId,
    caller: exchange.caller,
    request,
    signal: exchange.signal,
  });
  if (answer === undefined) return;
  const { costUsd, promptTokens, body } = answer;
  Object.assign(exchange.notes, { model: answer.model.id, costUsd, promptTokens });
  const facts = { ...answer, flags: {} };
  exchange.setAll(answerHeaders(facts, parts.serviceName, parts.clock.nowMs()));
  await exchange.json(200, body);
}
