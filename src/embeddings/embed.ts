/**
 * The embeddings flow: resolve, hold, check the length of every input, run the engine in batches,
 * put the vectors together in order, settle, and only then answer. The body is written in slices,
 * so that thousands of vectors do not hold up other requests.
 */
import { boundFor, chargeFor } from '../catalog/catalog.ts';
import type { EngineFailure } from '../engines/engines.ts';
import type { Clock } from '../core/clock.ts';
import { formatUsd, toUsdNumber } from '../core/money.ts';
import { tokensAbout, tokensAtMost, tokensBehindIds } from '../core/token-count.ts';
import { NO_TOKENS } from '../billing/ledger/ledger.ts';
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
import type { EmbedCall, EmbedParts, EmbedRun, SoldEmbeddings } from './embed-run.ts';
import { engineFault } from '../engines/engine-refusal.ts';
import { requireSold } from '../catalog/model-access.ts';

export type { EmbedCall, EmbedFacts, EmbedParts } from './embed-run.ts';

/** Time that writing a body may take at a stretch. */
const SLICE_MS = 5;

/** Answers, or gives `undefined` when the caller has left. Throws Faults. */
export async function embed(
  parts: EmbedParts,
  call: EmbedCall,
): Promise<SoldEmbeddings | undefined> {
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
  const wanted = {
    requestId: call.requestId,
    caller,
    kind: 'embeddings',
    modelId: model.id,
    tier: model.tier,
    rate,
    tokensEstimate: tokensAbout(request.textBytes) + request.tokenIdCount,
    price: { minNano: bound, maxNano: bound },
    priceVersion: price.version,
    signal: call.signal,
    keeper: call.keeper,
  };
  return await parts.sales.sell(wanted, async (admission) => {
    call.admitted(admission, rate);
    const run = { parts, call, model, price, rate, deprecation, admission, tokensBound };
    const batches = await runBatches(run, await fitInputs(run));
    if (batches.ok) return await answer(run, batches.batches);
    if (batches.failure.reason !== 'aborted') throw engineFault(batches.failure, run.model.id);
    await settleAborted(run, batches.done, batches.failure);
    return undefined;
  });
}

/** Begin and end marks that models put around an input. */
const FRAME_TOKENS = 4;

async function answer(run: EmbedRun, batches: readonly EmbeddedBatch[]): Promise<SoldEmbeddings> {
  const { parts, call, price, admission, model } = run;
  const joined = joinEmbeddings(batches.map((batch) => batch.embeddings));
  const vectors = await written(joined, call.request, parts.clock);
  const counted = joined.promptTokens ?? tokensOfRequest(call.request);
  const promptTokens = Math.min(counted, run.tokensBound);
  const attempts = batches.reduce((sum, batch) => sum + batch.answer.attempts, 0);
  const costNano = chargeFor({ promptTokens }, price);
  const first = batches[0]?.answer;
  return await admission.answer(
    {
      costNano,
      status: 'completed',
      tokens: { ...NO_TOKENS, prompt: promptTokens },
      countedBy: joined.promptTokens === undefined ? 'bytes' : 'engine',
      attempts,
      extras: batches.length > 1 ? { engine_calls: batches.length } : {},
      ...(first === undefined
        ? {}
        : { replica: first.replica.engine, firstTokenMs: first.firstByteMs }),
    },
    ({ usdNano, diemNano, after }) => {
      const cost = { usd: toUsdNumber(usdNano), diem: toUsdNumber(diemNano) };
      return call.answer({
        ...run,
        replica: first?.replica.engine,
        attempts: attempts - batches.length + 1,
        remainingNano: after.usdNano,
        body: [...vectors, embeddingsEnd({ model: model.id, promptTokens, cost })],
        promptTokens,
        costUsd: formatUsd(costNano),
      });
    },
  );
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
  const { price, admission, call } = run;
  const reported = joinEmbeddings(done.map((batch) => batch.embeddings)).promptTokens ?? 0;
  const started = tokensOfRequest(call.request);
  const promptTokens = Math.min(Math.max(reported, started), run.tokensBound);
  await admission.settle({
    costNano: chargeFor({ promptTokens }, price),
    status: 'aborted',
    tokens: { ...NO_TOKENS, prompt: promptTokens },
    countedBy: 'bytes',
    attempts: failure.attempts,
    ...(failure.replica === null ? {} : { replica: failure.replica.engine }),
  });
}
