/**
 * The engine calls of an embeddings request: one, or several where the engine takes smaller
 * batches, a few at a time. Vectors keep the order of the inputs. The first batch that fails ends
 * the others.
 */
import type { EngineAnswer, EngineFailure, Replica } from '../engines/engines.ts';
import {
  type EmbeddingInput,
  type EmbeddingsBatch,
  engineEmbeddings,
  MAX_INPUTS,
} from './embeddings-request.ts';
import { type EngineEmbeddings, readEmbeddings } from './embeddings-response.ts';
import type { EmbedRun } from './embed-run.ts';

/** Batches that run at once: more keep engines busy that a single batch does not fill. */
const PARALLEL_BATCHES = 4;
/** 2048 vectors of 4096 numbers as JSON text. */
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** A large batch is answered when all of it is done. */
const FIRST_BYTE_MS = 600_000;

export interface EmbeddedBatch {
  readonly embeddings: EngineEmbeddings;
  readonly answer: EngineAnswer;
}

export type BatchesOutcome =
  | { readonly ok: true; readonly batches: readonly EmbeddedBatch[] }
  | {
      readonly ok: false;
      readonly failure: EngineFailure;
      readonly done: readonly EmbeddedBatch[];
    };

export async function runBatches(
  run: EmbedRun,
  inputs: readonly EmbeddingInput[] | undefined,
): Promise<BatchesOutcome> {
  const { request, signal } = run.call;
  const maxBatch = run.model.embedding?.maxBatch ?? MAX_INPUTS;
  const bodies = bodiesFor(run, inputs, maxBatch);
  const count = Math.ceil(request.inputs.length / maxBatch);
  const done: (EmbeddedBatch | undefined)[] = Array.from({ length: count }, () => undefined);
  const stop = new AbortController();
  const both = AbortSignal.any([signal, stop.signal]);
  let failure: EngineFailure | undefined;
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count && failure === undefined) {
      const at = next;
      next += 1;
      const outcome = await runBatch(run, (replica) => bodies(replica, at), both);
      if ('embeddings' in outcome) {
        done[at] = outcome;
      } else if (failure === undefined) {
        failure = outcome;
        stop.abort();
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(PARALLEL_BATCHES, count) }, work));
  const batches = done.filter((batch) => batch !== undefined);
  return failure === undefined ? { ok: true, batches } : { ok: false, failure, done: batches };
}

async function runBatch(
  run: EmbedRun,
  batchFor: (replica: Replica) => EmbeddingsBatch,
  signal: AbortSignal,
): Promise<EmbeddedBatch | EngineFailure> {
  let count = 0;
  let embeddings: EngineEmbeddings | undefined;
  const answer = await run.parts.engines.collect({
    work: 'embeddings',
    replicas: run.model.replicas,
    method: 'POST',
    path: '/embeddings',
    contentType: 'application/json',
    buildBody: (replica) => {
      const batch = batchFor(replica);
      count = batch.count;
      return batch.body;
    },
    caller: run.call.caller.accountId,
    signal,
    maxResponseBytes: MAX_RESPONSE_BYTES,
    timeLimits: { firstByteMs: FIRST_BYTE_MS },
    accept: ['application/json'],
    isUsable: (body) => {
      embeddings = readUsable(body, count, run.model.embedding?.dimensions);
      return embeddings !== undefined;
    },
  });
  if (!answer.ok) return answer;
  if (embeddings === undefined) throw new Error('A usable answer was read');
  return { embeddings, answer };
}

function readUsable(
  body: Buffer,
  count: number,
  dimensions: number | undefined,
): EngineEmbeddings | undefined {
  try {
    return readEmbeddings(body, count, dimensions);
  } catch {
    // The engines' door reports it as `garbage` when no replica gives a usable answer.
    return undefined;
  }
}

/** The body of each batch, made once for each name that engines give the model. */
function bodiesFor(
  run: EmbedRun,
  inputs: readonly EmbeddingInput[] | undefined,
  maxBatch: number,
): (replica: Replica, at: number) => EmbeddingsBatch {
  const { request } = run.call;
  const byModel = new Map<string, readonly EmbeddingsBatch[]>();
  return (replica, at) => {
    const made =
      byModel.get(replica.model) ??
      engineEmbeddings(request, {
        model: replica.model,
        maxBatch,
        takesBase64: request.encoding === 'base64',
        // Vectors are cut here: not every engine can, and all must give the same.
        takesDimensions: false,
        ...(inputs === undefined ? {} : { inputs }),
      });
    byModel.set(replica.model, made);
    const batch = made[at];
    if (batch === undefined) throw new Error('Every replica gets the same batches');
    return batch;
  };
}
