/**
 * Entry file of the sentence encoder's child. It speaks as OpenAI does: `POST /v1/embeddings` with
 * texts, in floats or base64.
 */
import type { IncomingMessage } from 'node:http';
import { z } from 'zod';
import { Fault } from '../../core/faults.ts';
import { JobQueue } from '../../core/job-queue.ts';
import { useEnginePackages } from '../local/engine-loader.ts';
import { answerJson, serveLocal } from '../local/local-server.ts';
import { readBody } from '../local/upload.ts';
import { SentenceModel } from './sentence-model.ts';
import { SENTENCE_MODEL } from './sentences.ts';

/** OpenAI's bound for one request. */
const MAX_INPUTS = 2_048;
const MAX_BODY_BYTES = 64_000_000;
const MAX_WAITING = 64;
const RETRY_AFTER_SECONDS = 2;

const Text = z.string().min(1);
const Body = z.object({
  input: z.union([Text, z.array(Text).min(1).max(MAX_INPUTS)]),
  encoding_format: z.enum(['float', 'base64']).nullish(),
});

serveLocal(async (_settings, _report, dataFolder) => {
  useEnginePackages('sentences', dataFolder);
  const model = await SentenceModel.load();
  const queue = new JobQueue({
    running: 1,
    waiting: MAX_WAITING,
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });
  return {
    async handle({ path, method, raw, signal }, response) {
      if (path === '/v1/models' && method === 'GET') {
        const data = [{ id: SENTENCE_MODEL, object: 'model', owned_by: 'farebox' }];
        return answerJson(response, 200, { object: 'list', data });
      }
      if (path !== '/v1/embeddings') throw new Fault('NOT_FOUND');
      if (method !== 'POST') throw new Fault('METHOD_NOT_ALLOWED');
      const { input, encoding_format: format } = await bodyOf(raw);
      const inputs = typeof input === 'string' ? [input] : input;
      const { vectors, tokens } = await queue.run(() => model.embed(inputs, signal), signal);
      const data = vectors.map((vector, index) => ({
        object: 'embedding',
        index,
        embedding: format === 'base64' ? base64Of(vector) : [...vector],
      }));
      const usage = { prompt_tokens: tokens, total_tokens: tokens };
      answerJson(response, 200, { object: 'list', model: SENTENCE_MODEL, data, usage });
    },
  };
});

async function bodyOf(raw: IncomingMessage): Promise<z.infer<typeof Body>> {
  const text = (await readBody(raw, MAX_BODY_BYTES)).toString('utf8');
  try {
    return Body.parse(JSON.parse(text));
  } catch (error) {
    // No JSON, or not these fields: the caller's flow checks both before it asks.
    throw new Fault('INVALID_REQUEST', { message: 'input must be text or texts', cause: error });
  }
}

/** Little-endian float32, as OpenAI clients decode it. */
function base64Of({ buffer, byteOffset, byteLength }: Float32Array): string {
  return Buffer.from(buffer, byteOffset, byteLength).toString('base64');
}
