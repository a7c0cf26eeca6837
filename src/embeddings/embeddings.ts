/** `POST /embeddings`: parses the body, runs the flow, and gives its answer headers. */
import { type EmbedParts, embed } from './embed.ts';
import { type EmbeddingsRequest, parseEmbeddingsRequest } from './embeddings-request.ts';
import { AnswerHeaders, GatheredHeaders } from '../http/answer-headers.ts';
import type { RequestContext } from '../http/request-context.ts';
import { LARGE_BODY_BYTES } from '../http/read-request.ts';
import { JSON_BODY, type Route } from '../http/route.ts';
import { EMBEDDINGS_DESCRIPTION } from './describe.ts';

const JSON_TYPE = 'application/json; charset=utf-8';

export interface EmbeddingsParts extends EmbedParts {
  readonly serviceName: string;
}

export function embeddingsRoute(
  parts: EmbeddingsParts,
  readLarge: (body: Buffer) => Promise<EmbeddingsRequest>,
): Route {
  const make = new AnswerHeaders(parts);
  return {
    method: 'POST',
    path: '/embeddings',
    auth: 'key-or-wallet',
    body: JSON_BODY,
    sells: 'embeddings',
    describe: EMBEDDINGS_DESCRIPTION,
    handle: async (context) => {
      const headers = new GatheredHeaders(context, make);
      await headers.during(async () => {
        const { body } = context;
        const request =
          body.length < LARGE_BODY_BYTES ? parseEmbeddingsRequest(body) : await readLarge(body);
        await handle(parts, context, request, headers);
      });
    },
  };
}

async function handle(
  parts: EmbeddingsParts,
  context: RequestContext,
  request: EmbeddingsRequest,
  headers: GatheredHeaders,
): Promise<void> {
  const answer = await embed(parts, {
    requestId: context.requestId,
    caller: context.caller,
    request,
    signal: context.workSignal,
    resolved: (model, deprecation) => {
      context.notes.model = model.id;
      headers.resolved(model, deprecation);
    },
    admitted: (admission, rate) => headers.admitted(admission, rate),
    keeper: context.keeper,
    answer: (facts) => {
      const { costUsd, promptTokens } = facts;
      Object.assign(context.notes, { costUsd, promptTokens });
      headers.answered(facts);
      return { type: JSON_TYPE, body: Buffer.concat(facts.body) };
    },
  });
  if (answer !== undefined) await context.bytes(200, answer.type, answer.body);
}
