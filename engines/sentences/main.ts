/**
 * Entry file of the sentence engine: `POST /v1/embeddings` for texts (floats or base64, as in the
 * OpenAI API) and `POST /v1/rerank` (as in the Cohere API).
 *
 * Documents are ranked by the cosine between their vector and that of the query. Both are encoded
 * separately (a bi-encoder): faster and less precise than a model that reads both together.
 */
import { nextTurn } from '../../src/core/event-loop.ts';
import { onDemand } from '../../src/core/on-demand.ts';
import { floatsToBase64 } from '../../src/core/vectors.ts';
import * as z from 'zod';
import { engineQueue } from '../server/engine-queue.ts';
import { sendBytes, sendJson, serveEngine } from '../server/server.ts';
import { readJson } from '../server/request-body.ts';
import { SentenceModel } from './sentence-model.ts';
import {
  MAX_RERANKED,
  RERANK_MODEL,
  SENTENCE_MODEL,
} from '../../src/engines/embedded/program-contract.ts';

const MAX_INPUTS = 2_048;
/** Vectors that are written as JSON in one turn of the event loop. */
const VECTORS_AT_ONCE = 16;
const MAX_BODY_BYTES = 64_000_000;
/** About a thousand tokens of a document: as much as most rerank models read. */
const MAX_DOCUMENT_CHARACTERS = 4_000;

const Text = z.string().min(1);
const EmbedBody = z.object({
  input: z.union([Text, z.array(Text).min(1).max(MAX_INPUTS)]),
  encoding_format: z.enum(['float', 'base64']).nullish(),
});
const RerankBody = z.object({
  query: Text,
  documents: z.array(z.string()).min(1).max(MAX_RERANKED),
  top_n: z.int().min(1).optional(),
});

serveEngine(async () => {
  // The model has 120 MB, which a server without embeddings does not need. The first caller waits
  // about half a second for it.
  const load = onDemand(() => SentenceModel.load());
  const queue = engineQueue({ running: 1, waiting: 64, retryAfterSeconds: 2 });
  return {
    models: [SENTENCE_MODEL, RERANK_MODEL],
    routes: {
      'POST /v1/embeddings': async ({ raw, caller, signal }, response) => {
        const body = await readJson(raw, MAX_BODY_BYTES, EmbedBody);
        const { input, encoding_format: format } = body;
        const inputs = typeof input === 'string' ? [input] : input;
        const model = await load();
        // A queue turn covers a few texts, so that a request with thousands does not block others.
        const { vectors, tokens } = await model.embed(inputs, queue.turnsOf(caller, signal));
        const items: string[] = [];
        for (const [index, vector] of vectors.entries()) {
          const embedding = format === 'base64' ? floatsToBase64(vector) : [...vector];
          items.push(JSON.stringify({ object: 'embedding', index, embedding }));
          // Thousands of vectors take seconds to write.
          if ((index + 1) % VECTORS_AT_ONCE === 0) await nextTurn();
        }
        const facts = JSON.stringify({
          object: 'list',
          model: SENTENCE_MODEL,
          usage: usageOf(tokens),
        });
        const json = `{"data":[${items.join(',')}],${facts.slice(1)}`;
        sendBytes(response, 200, 'application/json', Buffer.from(json));
      },
      'POST /v1/rerank': async ({ raw, caller, signal }, response) => {
        const { query, documents, top_n: most } = await readJson(raw, MAX_BODY_BYTES, RerankBody);
        const texts = documents.map((text) => text.slice(0, MAX_DOCUMENT_CHARACTERS));
        const turn = queue.turnsOf(caller, signal);
        const model = await load();
        const { vectors, tokens } = await model.embed([query, ...texts], turn);
        const results = ranked(vectors).slice(0, most);
        sendJson(response, 200, { results, usage: usageOf(tokens) });
      },
    },
  };
});

function usageOf(tokens: number) {
  return { prompt_tokens: tokens, total_tokens: tokens };
}

/** Sorted by score, the best first. All vectors have length 1, so the dot product is the cosine. */
function ranked([query, ...documents]: readonly Float32Array[]) {
  return documents
    .map((vector, index) => {
      const relevance_score = vector.reduce(
        (sum, value, at) => sum + value * (query?.[at] ?? 0),
        0,
      );
      return { index, relevance_score };
    })
    .toSorted((a, b) => b.relevance_score - a.relevance_score || a.index - b.index);
}
