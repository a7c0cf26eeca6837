/**
 * `POST /embeddings`: holds the money, checks the length of every input, runs the engine in
 * batches, settles, and responds.
 */
import { answerWork, type FallbackRule, findModel, sellWithFallbacks } from '../http/sell-work.ts';
import { NO_TOKENS } from '../billing/ledger/ledger.ts';
import { boundFor, type CatalogModel, chargeFor } from '../catalog/catalog.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { tokensAbout, tokensAtMost, tokensBehindIds } from '../core/token-count.ts';
import { failedCall } from '../engines/engine-refusal.ts';
import type { EngineFailure } from '../engines/engines.ts';
import { LARGE_BODY_BYTES } from '../http/read-request.ts';
import type { RequestContext } from '../http/request-context.ts';
import { JSON_BODY, JSON_TYPE, type Route } from '../http/route.ts';
import { EMBEDDINGS_DESCRIPTION } from './describe.ts';
import { type BatchesOutcome, type EmbeddedBatch, runBatches } from './embed-batches.ts';
import { type EmbeddingsParts, type EmbedRun, fitInputs } from './embed-inputs.ts';
import {
  type EmbeddingInput,
  type EmbeddingsRequest,
  MAX_INPUT_TOKENS,
  parseEmbeddingsRequest,
  refuseDimensions,
} from './embeddings-request.ts';
import {
  embeddingsEnd,
  type EngineEmbeddings,
  joinEmbeddings,
  type VectorFormat,
  vectorPieces,
} from './embeddings-response.ts';

/** Time slice of writing a body, so that other requests can run. */
const SLICE_MS = 5;
/** Special tokens around an input. */
const FRAME_TOKENS = 4;

export function embeddingsRoute(
  parts: EmbeddingsParts,
  readLarge: (body: Buffer, caller: string) => Promise<EmbeddingsRequest>,
): Route {
  return {
    method: 'POST',
    path: '/embeddings',
    auth: 'key-or-wallet',
    body: JSON_BODY,
    sells: 'embeddings',
    describe: EMBEDDINGS_DESCRIPTION,
    handle: async (context) => {
      const { body } = context;
      const request =
        body.length < LARGE_BODY_BYTES
          ? parseEmbeddingsRequest(body)
          : await readLarge(body, context.caller.accountId);
      await embed(parts, context, request);
    },
  };
}

async function embed(
  parts: EmbeddingsParts,
  context: RequestContext,
  request: EmbeddingsRequest,
): Promise<void> {
  const found = findModel(parts, context, 'embedding', { name: request.model, work: 'embeddings' });
  const { model } = found;
  const { dimensions = 0, customDimensions = false } = model.embedding ?? {};
  refuseDimensions(request, model.id, { native: dimensions, canCut: customDimensions });
  const order = { kind: 'embeddings', tokensEstimate: tokensOf(request) };
  const rule: FallbackRule = {
    type: 'embedding',
    work: 'embeddings',
    boundOf: (one) => {
      requireEqual(one.model, model, request);
      return boundFor({ promptTokens: tokensBoundOf(one.model, request) }, one.price);
    },
  };
  await sellWithFallbacks(parts, context, found, { ...order, rule }, async (held) => {
    const tokensBound = tokensBoundOf(held.model, request);
    const run = { ...held, parts, request, tokensBound };
    const outcome = await runBatches(run, await fitInputs(run));
    const { done, processed, failure } = outcome;
    if (failure === undefined) await answer(run, done);
    // A server that closes aborts calls too, also those of requests with an idempotency key.
    else if (failure.reason === 'aborted' && held.signal.aborted && processed.length > 0)
      await settleAborted(run, outcome, failure);
    else return failedCall(failure, held.model.id);
    return undefined;
  });
}

/** Rejects a fallback that does not read the same inputs as the requested model. */
function requireEqual(one: CatalogModel, wanted: CatalogModel, request: EmbeddingsRequest): void {
  const [mine, theirs] = [one.embedding, wanted.embedding];
  const { maxInputTokens = MAX_INPUT_TOKENS } = mine ?? {};
  const isFit =
    (!request.hasTokenIds || mine?.tokenIds === theirs?.tokenIds) &&
    maxInputTokens >= (theirs?.maxInputTokens ?? MAX_INPUT_TOKENS);
  if (!isFit) throw new Fault('INVALID_MODEL');
}

function tokensBoundOf({ embedding }: CatalogModel, request: EmbeddingsRequest): number {
  const { textBytes, tokenIdCount, inputs } = request;
  const behindIds = embedding?.tokenIds === 'own' ? tokenIdCount : tokensBehindIds(tokenIdCount);
  return tokensAtMost(textBytes) + behindIds + FRAME_TOKENS * inputs.length;
}

async function answer(run: EmbedRun, batches: readonly EmbeddedBatch[]): Promise<void> {
  const { parts, request, model, price } = run;
  const joined = joinEmbeddings(batches.map((batch) => batch.embeddings));
  const vectors = await written(joined, request, parts.clock);
  // Some engines that do not count report less than a token for each input.
  const reported = joined.promptTokens ?? 0;
  const isReported = reported >= request.inputs.length;
  const promptTokens = Math.min(isReported ? reported : tokensOf(request), run.tokensBound);
  const attempts = batches.reduce((sum, batch) => sum + batch.answer.attempts, 0);
  const first = batches[0]?.answer;
  const replica = first?.replica.engine;
  const outcome = {
    costNano: chargeFor({ promptTokens }, price),
    status: 'completed',
    tokens: { ...NO_TOKENS, prompt: promptTokens },
    countedBy: isReported ? 'engine' : 'bytes',
    attempts,
    extras: batches.length > 1 ? { engine_calls: batches.length } : {},
    ...(first && { replica: first.replica.engine, firstTokenMs: first.firstByteMs }),
  } as const;
  const by = { replica, attempts: attempts - batches.length + 1 };
  await answerWork(run, by, outcome, (cost) => {
    const end = embeddingsEnd({ model: model.id, promptTokens, cost });
    return { type: JSON_TYPE, body: Buffer.concat([...vectors, end]) };
  });
}

async function written(
  embeddings: EngineEmbeddings,
  format: VectorFormat,
  clock: Clock,
): Promise<Buffer[]> {
  const pieces: Buffer[] = [];
  let sliceEndMs = clock.monotonicMs() + SLICE_MS;
  for (const piece of vectorPieces(embeddings, format)) {
    pieces.push(piece);
    if (clock.monotonicMs() < sliceEndMs) continue;
    await clock.sleep(0);
    sliceEndMs = clock.monotonicMs() + SLICE_MS;
  }
  return pieces;
}

type SizedInputs = Pick<EmbeddingsRequest, 'textBytes' | 'tokenIdCount'>;

/** Token ids are exact; text is estimated. */
function tokensOf({ tokenIdCount, textBytes }: SizedInputs): number {
  return tokenIdCount + tokensAbout(textBytes);
}

/** The caller left: bills the inputs that an engine has processed or was processing. */
async function settleAborted(
  { price, sale, tokensBound }: EmbedRun,
  { done, processed }: Pick<BatchesOutcome, 'done' | 'processed'>,
  failure: EngineFailure,
): Promise<void> {
  const reported = joinEmbeddings(done.map((batch) => batch.embeddings)).promptTokens ?? 0;
  const promptTokens = Math.min(Math.max(reported, tokensOf(sizeOf(processed))), tokensBound);
  await sale.settle({
    costNano: chargeFor({ promptTokens }, price),
    status: 'aborted',
    tokens: { ...NO_TOKENS, prompt: promptTokens },
    countedBy: 'bytes',
    attempts: failure.attempts,
    ...(failure.replica === null ? {} : { replica: failure.replica.engine }),
  });
}

function sizeOf(inputs: readonly EmbeddingInput[]): SizedInputs {
  let textBytes = 0;
  let tokenIdCount = 0;
  for (const input of inputs) {
    if (typeof input === 'string') textBytes += Buffer.byteLength(input);
    else tokenIdCount += input.length;
  }
  return { textBytes, tokenIdCount };
}
