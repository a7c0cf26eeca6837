/**
 * Entry file of the sentence engine: `POST /v1/embeddings` for texts (floats or base64, as in the
 * OpenAI API) and `POST /v1/rerank` (as in the Cohere API).
 *
 * Documents are ranked by the cosine between their vector and that of the query. Both are encoded
 * separately (a bi-encoder): faster and less precise than a model that reads both together.
 */
import { floatsToBase64 } from '../../src/core/vectors.ts';
import type { IncomingMessage } from 'node:http';
import { z } from 'zod';
import { Fault } from '../../src/core/faults.ts';
import { JobQueue } from '../../src/core/job-queue.ts';
import { answerJson, serveEngine } from '../server/server.ts';
import { readBody } from '../server/request-body.ts';
import { SentenceModel } from './sentence-model.ts';
import {
  MAX_RERANKED,
  RERANK_MODEL,
  SENTENCE_MODEL,
} from '../../src/engines/embedded/sentences.ts';

const MAX_INPUTS = 2_048;
const MAX_BODY_BYTES = 64_000_000;
const MAX_WAITING = 64;
/** Leaves queue slots for other callers. */
const MAX_WAITING_OF_CALLER = 48;
const RETRY_AFTER_SECONDS = 2;

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
  const model = await SentenceModel.load();
  const queue = new JobQueue({
    running: 1,
    waiting: MAX_WAITING,
    waitingOfCaller: MAX_WAITING_OF_CALLER,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
  return {
    async handle({ path, method, raw, caller, signal }, response) {
      if (path === '/v1/models' && method === 'GET') {
        const data = [SENTENCE_MODEL, RERANK_MODEL].map((id) => {
          return { id, object: 'model', owned_by: 'farebox' };
        });
        return answerJson(response, 200, { object: 'list', data });
      }
      const isRerank = path === '/v1/rerank';
      if (!isRerank && path !== '/v1/embeddings') throw new Fault('NOT_FOUND');
      if (method !== 'POST') throw new Fault('METHOD_NOT_ALLOWED');
      // A queue turn covers a few texts, so that a request with thousands does not block others.
      const turn = queue.turnsOf(caller, signal);
      if (isRerank) {
        const { query, documents, top_n: most } = await bodyOf(raw, RerankBody);
        const texts = documents.map((text) => text.slice(0, MAX_DOCUMENT_CHARACTERS));
        const { vectors, tokens } = await model.embed([query, ...texts], turn);
        const results = ranked(vectors).slice(0, most);
        return answerJson(response, 200, { results, usage: usageOf(tokens) });
      }
      const { input, encoding_format: format } = await bodyOf(raw, EmbedBody);
      const inputs = typeof input === 'string' ? [input] : input;
      const { vectors, tokens } = await model.embed(inputs, turn);
      const data = vectors.map((vector, index) => ({
        object: 'embedding',
        index,
        embedding: format === 'base64' ? floatsToBase64(vector) : [...vector],
      }));
      const usage = usageOf(tokens);
      answerJson(response, 200, { object: 'list', model: SENTENCE_MODEL, data, usage });
    },
  };
});

async function bodyOf<T extends z.ZodType>(raw: IncomingMessage, schema: T): Promise<z.infer<T>> {
  const text = (await readBody(raw, MAX_BODY_BYTES)).toString('utf8');
  try {
    return schema.parse(JSON.parse(text));
  } catch (error) {
    // The gateway validates the body first, so this is not expected.
    const message = 'Must be texts: input, or query and documents';
    throw new Fault('INVALID_REQUEST', { message, cause: error });
  }
}

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
