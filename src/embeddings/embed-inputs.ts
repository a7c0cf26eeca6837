/**
 * Prepares the inputs for the engine: counts their tokens if their size alone does not prove that
 * they fit, and decodes token ids of a public vocabulary. A worker process counts; a text that it
 * cannot count within its limits counts as too long.
 */
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { tokensAtMost } from '../core/token-count.ts';
import type { Tokenizer } from '../documents/documents.ts';
import type { Engines } from '../engines/engines.ts';
import type { LearnedReplicas } from '../engines/learned-replicas.ts';
import type { HeldWork, SellingParts } from '../http/sell-work.ts';
import {
  type EmbeddingInput,
  type EmbeddingsRequest,
  MAX_INPUT_TOKENS,
} from './embeddings-request.ts';

export interface EmbeddingsParts extends SellingParts {
  readonly engines: Engines;
  readonly clock: Clock;
  readonly tokenizer: Tokenizer;
  /** Replicas that rejected `encoding_format` and accepted the request without it. */
  readonly plainReplicas: LearnedReplicas;
}

export interface EmbedRun extends HeldWork {
  readonly parts: EmbeddingsParts;
  readonly request: EmbeddingsRequest;
  readonly tokensBound: number;
}

/** Characters whose tokens one job counts; a job takes a fraction of a second. */
const MAX_JOB_CHARS = 2_000_000;

type Encoding = 'cl100k' | 'o200k';

/** For models with an unknown tokenizer. */
const DEFAULT_VOCABULARY: Encoding = 'cl100k';

interface CountJob {
  readonly texts: string[];
  readonly places: number[];
}

/**
 * Returns the inputs to send, or `undefined` for those of the request. Throws `TOO_MANY_TOKENS`.
 */
export async function fitInputs(run: EmbedRun): Promise<readonly EmbeddingInput[] | undefined> {
  const { request, model } = run;
  const { tokenIds, maxInputTokens = MAX_INPUT_TOKENS } = model.embedding ?? {};
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
