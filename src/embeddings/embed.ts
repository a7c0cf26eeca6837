/**
 * The embeddings flow: resolve, hold, check the length of every input, run the engine in batches,
 * put the vectors together in order, settle, and only then answer. The body is written in slices,
 * so that thousands of vectors do not hold up other requests.
 */
import { boundFor, chargeFor } from '../catalog/catalog.ts';
import type { EngineFailure } from '../engines/engines.ts';
import type { Clock } from '../core/clock.ts';
import { reasonOf } from '../core/log.ts';
import { formatUsd, toUsdNumber } from '../core/money.ts';
import { tokensAbout, tokensAtMost, tokensBehindIds } from '../core/token-count.ts';
import { NO_TOKENS, type Settlement } from '../billing/ledger/ledger.ts';
import { type EmbeddingsRequest, refuseDimensions } from './embeddings-request.ts';
import {
  type EngineEmbeddings,
  embeddingsEnd,
  joinEmbeddings,
  type VectorFormat,
  vectorPieces,
} from './embeddings-response.ts';
import { type EmbeddedBatch, runBatches } from './embed-batches.ts';
import { fitInputs } from './embed-inputs.ts';
import type { EmbedAnswer, EmbedCall, EmbedParts, EmbedRun } from './embed-run.ts';
import { engineFault } from '../engines/engine-refusal.ts';
import { requireSold } from '../catalog/sold-model.ts';

export type { EmbedAnswer, EmbedCall, EmbedParts } from './embed-run.ts';

/** Time that writing a body may take at a stretch. */
const SLICE_MS = 5;

/** Answers, or gives `undefined` when the caller has left. Throws Faults. */
export async function embed(parts: EmbedParts, call: EmbedCall): Promise<EmbedAnswer | undefined> {
  const run = await admit(parts, call);
  try {
    const inputs = await fitInputs(run);
    const batches = await runBatches(run, inputs);
    if (batches.ok) return await answer(run, batches.batches);
    if (batches.failure.reason !== 'aborted') throw engineFault(batches.failure, run.model.id);
    await settleAborted(run, batches.done, batches.failure);
    return undefined;
  } catch (error) {
    await releaseAfter(run, error);
    if (call.signal.aborted) return undefined;
    throw error;
  }
}

async function admit(parts: EmbedParts, call: EmbedCall): Promise<EmbedRun> {
  const { caller, request } = call;
  const { model, deprecation } = parts.catalog.require(request.model, 'embedding');
  call.resolved(model, deprecation);
  const price = requireSold(model, caller);
  const { dimensions = 0, customDimensions = false } = model.embedding ?? {};
  refuseDimensions(request, model.id, { native: dimensions, canCut: customDimensions });
  const isOwn = model.embedding?.tokenIds === 'own';
  const behindIds = isOwn ? request.tokenIdCount : tokensBehindIds(request.tokenIdCount);
  const tokensBound =
    tokensAtMost(request.textBytes) + behindIds + FRAME_TOKENS * request.inputs.length;
  const bound = boundFor({ promptTokens: tokensBound }, price);
  const rate = parts.rateOf(caller, model);
  const admission = await parts.charge.admit({
    requestId: call.requestId,
    caller,
    kind: 'embeddings',
    modelId: model.id,
    tier: model.tier,
    rate,
    tokensEstimate: tokensAbout(request.textBytes) + request.tokenIdCount,
    minNano: bound,
    maxNano: bound,
    priceVersion: price.version,
  });
  call.admitted(admission, rate);
  return { parts, call, model, price, rate, deprecation, admission, tokensBound };
}

/** Begin and end marks that models put around an input. */
const FRAME_TOKENS = 4;

async function answer(run: EmbedRun, batches: readonly EmbeddedBatch[]): Promise<EmbedAnswer> {
  const { parts, call, price, admission, model } = run;
  const joined = joinEmbeddings(batches.map((batch) => batch.embeddings));
  const vectors = await written(joined, call.request, parts.clock);
  const counted = joined.promptTokens ?? tokensOfRequest(call.request);
  const promptTokens = Math.min(counted, run.tokensBound);
  const attempts = batches.reduce((sum, batch) => sum + batch.answer.attempts, 0);
  const costNano = chargeFor({ promptTokens }, price);
  const first = batches[0]?.answer;
  const answered = (settlement: Settlement): EmbedAnswer => {
    const cost = { usd: toUsdNumber(settlement.usdNano), diem: toUsdNumber(settlement.diemNano) };
    return {
      ...run,
      replica: first?.replica.engine,
      attempts: attempts - batches.length + 1,
      remainingNano: settlement.after.usdNano,
      body: [...vectors, embeddingsEnd({ model: model.id, promptTokens, cost })],
      promptTokens,
      costUsd: formatUsd(costNano),
    };
  };
  const { keep } = call;
  const outcome = {
    costNano,
    status: 'completed' as const,
    tokens: { ...NO_TOKENS, prompt: promptTokens },
    countedBy: joined.promptTokens === undefined ? ('bytes' as const) : ('engine' as const),
    attempts,
    extras: batches.length > 1 ? { engine_calls: batches.length } : {},
    ...(first === undefined
      ? {}
      : { replica: first.replica.engine, firstTokenMs: first.firstByteMs }),
  };
  const settlement = await parts.charge.settle(
    admission,
    outcome,
    keep === undefined ? undefined : (tx, settled) => keep(tx, answered(settled)),
  );
  return answered(settlement);
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

/** A fair count where an engine gives none: ids are exact, text is prose. */
function tokensOfRequest(request: EmbeddingsRequest): number {
  return request.tokenIdCount + tokensAbout(request.textBytes);
}

/** The caller left: what the engine had to read is billed, as far as it is known. */
async function settleAborted(
  run: EmbedRun,
  done: readonly EmbeddedBatch[],
  failure: EngineFailure,
): Promise<void> {
  const { parts, price, admission, call } = run;
  const reported = joinEmbeddings(done.map((batch) => batch.embeddings)).promptTokens ?? 0;
  const started = tokensOfRequest(call.request);
  const promptTokens = Math.min(Math.max(reported, started), run.tokensBound);
  await parts.charge.settle(admission, {
    costNano: chargeFor({ promptTokens }, price),
    status: 'aborted',
    tokens: { ...NO_TOKENS, prompt: promptTokens },
    countedBy: 'bytes',
    attempts: failure.attempts,
    ...(failure.replica === null ? {} : { replica: failure.replica.engine }),
  });
}

/** Settling twice is harmless, so every way out may end the hold. */
async function releaseAfter(run: EmbedRun, error: unknown): Promise<void> {
  try {
    await run.parts.charge.release(run.admission, { status: 'failed' });
  } catch (failure) {
    // The epoch of this process gives the hold back later; the first error is the caller's.
    const fields = { requestId: run.call.requestId, reason: reasonOf(failure) };
    run.parts.log.error({ ...fields, after: reasonOf(error) }, 'A hold could not be released');
  }
}
