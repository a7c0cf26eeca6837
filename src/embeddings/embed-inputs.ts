/**
 * The inputs as the engine gets them: their length checked with a tokenizer where bytes alone do
 * not settle it, and token ids of a public vocabulary turned into text. The counting runs in a
 * worker process; a text that cannot be counted within its limits is too long.
 */
import { Fault } from '../core/faults.ts';
import { tokensAtMost } from '../core/token-count.ts';
import type { EmbedRun } from './embed-run.ts';
import { type EmbeddingInput, MAX_INPUT_TOKENS } from './embeddings-request.ts';

/** Texts of one counting job, in characters: a job of this size takes a fraction of a second. */
const MAX_JOB_CHARS = 2_000_000;

type Encoding = 'cl100k' | 'o200k';

/** Counts the texts of models whose own tokenizer is not known. */
const DEFAULT_VOCABULARY: Encoding = 'cl100k';

interface CountJob {
  readonly texts: string[];
  readonly places: number[];
}

/** The inputs to send, or `undefined` for those of the request. Throws `TOO_MANY_TOKENS`. */
export async function fitInputs(run: EmbedRun): Promise<readonly EmbeddingInput[] | undefined> {
  const { request, model } = run;
  const { tokenIds, maxInputTokens = MAX_INPUT_TOKENS } = model.embedding ?? {};
  // A model may take fewer tokens than the API allows.
  const limit = Math.min(MAX_INPUT_TOKENS, maxInputTokens);
  const vocabulary = tokenIds === 'o200k' ? 'o200k' : DEFAULT_VOCABULARY;
  if (request.hasTokenIds) {
    const long = request.inputs.findIndex((ids) => ids.length > limit);
    if (long !== -1) throw tooLong(long, limit);
    return tokenIds === 'own' ? undefined : decoded(run, vocabulary);
  }
  let job: CountJob = { texts: [], places: [] };
  let chars = 0;
  for (const [at, text] of request.inputs.entries()) {
    if (typeof text !== 'string' || tokensAtMost(Buffer.byteLength(text)) <= limit) continue;
    job.texts.push(text);
    job.places.push(at);
    chars += text.length;
    if (chars < MAX_JOB_CHARS) continue;
    await refuseLong(run, job, { vocabulary, limit });
    job = { texts: [], places: [] };
    chars = 0;
  }
  if (job.texts.length > 0) await refuseLong(run, job, { vocabulary, limit });
  return undefined;
}

async function refuseLong(
  { parts, context, signal }: EmbedRun,
  { texts, places }: CountJob,
  { vocabulary, limit }: { readonly vocabulary: Encoding; readonly limit: number },
): Promise<void> {
  const options = { signal, caller: context.caller.accountId };
  const counted = await parts.tokenizer.count(texts, vocabulary, options);
  const long = counted.ok ? counted.counts.findIndex((tokens) => tokens > limit) : 0;
  if (long === -1) return;
  const tokens = counted.ok ? `; it has ${counted.counts[long]} of ${vocabulary}` : '';
  throw tooLong(places[long] ?? 0, limit, tokens);
}

function tooLong(place: number, limit: number, tokens = ''): Fault {
  const message = `Input ${place} is longer than ${limit} tokens${tokens}`;
  return new Fault('TOO_MANY_TOKENS', { message });
}

async function decoded(
  { parts, context, request, signal }: EmbedRun,
  vocabulary: Encoding,
): Promise<string[]> {
  const options = { signal, caller: context.caller.accountId };
  const texts: string[] = [];
  for (const [at, ids] of request.inputs.entries()) {
    if (typeof ids === 'string') throw new Error('Inputs are all texts or all token ids');
    const text = await parts.tokenizer.decode(ids, vocabulary, options);
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
