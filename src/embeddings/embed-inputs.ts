/**
 * The inputs as the engine gets them: their length checked with a tokenizer where bytes alone do
 * not settle it, and token ids of a public vocabulary turned into text. The counting runs in a
 * worker process; a text that cannot be counted within its limits is too long.
 */
import { Fault } from '../core/faults.ts';
import { tokensAtMost } from '../core/token-count.ts';
import { type EmbeddingInput, MAX_INPUT_TOKENS } from './embeddings-request.ts';
import type { EmbedRun } from './embed-run.ts';

/** Texts of one counting job, in characters: a job of this size takes a fraction of a second. */
const MAX_JOB_CHARS = 2_000_000;

/** The inputs to send, or `undefined` for those of the request. Throws `TOO_MANY_TOKENS`. */
export async function fitInputs(run: EmbedRun): Promise<readonly EmbeddingInput[] | undefined> {
  const { call, model } = run;
  const vocabulary = model.embedding?.tokenIds ?? 'cl100k';
  if (!call.request.hasTokenIds) {
    await refuseLong(run);
    return undefined;
  }
  if (vocabulary === 'own') return undefined;
  return decoded(run, vocabulary);
}

async function refuseLong(run: EmbedRun): Promise<void> {
  const { request } = run.call;
  const limit = maxInputTokens(run);
  let job: { readonly text: string; readonly at: number }[] = [];
  let chars = 0;
  for (const [at, text] of request.inputs.entries()) {
    if (typeof text !== 'string' || tokensAtMost(Buffer.byteLength(text)) <= limit) continue;
    job.push({ text, at });
    chars += text.length;
    if (chars < MAX_JOB_CHARS) continue;
    await count(run, job, limit);
    job = [];
    chars = 0;
  }
  if (job.length > 0) await count(run, job, limit);
}

async function count(
  run: EmbedRun,
  job: readonly { readonly text: string; readonly at: number }[],
  limit: number,
): Promise<void> {
  const { tokenizer } = run.parts;
  const { caller, signal } = run.call;
  const texts = job.map((one) => one.text);
  const counted = await tokenizer.count(texts, 'cl100k', { signal, caller: caller.accountId });
  const long = counted.ok ? counted.counts.findIndex((tokens) => tokens > limit) : 0;
  if (long === -1) return;
  const tokens = counted.ok ? `; it has about ${counted.counts[long]}` : '';
  throw new Fault('TOO_MANY_TOKENS', {
    message: `Input ${job[long]?.at ?? 0} is longer than ${limit} tokens${tokens}`,
  });
}

/** `service.md`: 8192 tokens per input; a model may take fewer. */
function maxInputTokens(run: EmbedRun): number {
  return Math.min(MAX_INPUT_TOKENS, run.model.embedding?.maxInputTokens ?? MAX_INPUT_TOKENS);
}

async function decoded(run: EmbedRun, vocabulary: 'cl100k' | 'o200k'): Promise<string[]> {
  const { request, caller, signal } = run.call;
  const texts: string[] = [];
  for (const [at, ids] of request.inputs.entries()) {
    if (typeof ids === 'string') throw new Error('Inputs are all texts or all token ids');
    if (ids.length > maxInputTokens(run)) {
      const message = `Input ${at} is longer than ${maxInputTokens(run)} tokens`;
      throw new Fault('TOO_MANY_TOKENS', { message });
    }
    const options = { signal, caller: caller.accountId };
    const text = await run.parts.tokenizer.decode(ids, vocabulary, options);
    if (!text.ok || text.text === '') {
      const reason = text.ok ? 'is empty' : text.reason;
      throw new Fault('INVALID_REQUEST', {
        message: `Input ${at} ${reason}; send text, or token ids of ${vocabulary}`,
      });
    }
    texts.push(text.text);
  }
  return texts;
}
