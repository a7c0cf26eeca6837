/**
 * The engine calls of an embeddings request: one, or several where the engine takes smaller
 * batches, a few at a time. Vectors keep the order of the inputs. The first batch that fails ends
 * the others.
 */
import type { EngineResponse, EngineCall, EngineFailure, Replica } from '../engines/engines.ts';
import type { EmbedRun } from './embed-run.ts';
import {
  type EmbeddingEncoding,
  type EmbeddingInput,
  type EmbeddingsBatch,
  engineEmbeddings,
  MAX_INPUTS,
} from './embeddings-request.ts';
import { type EngineEmbeddings, readEmbeddingsInTurns } from './embeddings-response.ts';

/** Batches that run at once: more keep engines busy that a single batch does not fill. */
const PARALLEL_BATCHES = 4;
/** 2048 vectors of 4096 numbers as JSON text. */
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** A large batch is answered when all of it is done. */
const TIME_LIMITS = { firstByteMs: 600_000 };

export interface EmbeddedBatch {
  readonly embeddings: EngineEmbeddings;
  readonly answer: EngineResponse;
}

/** Batches in the order of their inputs, without those that failed or were not run. */
export interface BatchesOutcome {
  readonly done: readonly EmbeddedBatch[];
  readonly failure: EngineFailure | undefined;
}

export async function runBatches(
  run: EmbedRun,
  inputs: readonly EmbeddingInput[] | undefined,
): Promise<BatchesOutcome> {
  const { request, model, signal } = run;
  const maxBatch = model.embedding?.maxBatch ?? MAX_INPUTS;
  const count = Math.ceil(request.inputs.length / maxBatch);
  // Made once for each name that engines give the model, and each encoding.
  const made = new Map<string, readonly EmbeddingsBatch[]>();
  const batchFor =
    (at: number): BatchFor =>
    (replica, encoding) => {
      const { model: name } = replica;
      const key = `${encoding} ${name}`;
      const form = { model: name, encoding, maxBatch };
      const batches = made.get(key) ?? engineEmbeddings(request, form, inputs);
      made.set(key, batches);
      const batch = batches[at];
      if (batch === undefined) throw new Error('Every replica gets the same batches');
      return batch;
    };
  if (count === 1) {
    const only = await runBatch(run, batchFor(0), signal);
    if ('embeddings' in only) return { done: [only], failure: undefined };
    return { done: [], failure: only };
  }
  const done: (EmbeddedBatch | undefined)[] = Array.from({ length: count }, () => undefined);
  const stop = new AbortController();
  const both = AbortSignal.any([signal, stop.signal]);
  let failure: EngineFailure | undefined;
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count && failure === undefined) {
      const at = next;
      next += 1;
      const outcome = await runBatch(run, batchFor(at), both);
      if ('embeddings' in outcome) {
        done[at] = outcome;
      } else if (failure === undefined) {
        failure = outcome;
        stop.abort();
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(PARALLEL_BATCHES, count) }, work));
  return { done: done.filter((batch) => batch !== undefined), failure };
}

type BatchFor = (replica: Replica, encoding: EmbeddingEncoding) => EmbeddingsBatch;

/** Whether an engine refuses the encoding: validation names the field or its value. */
function isOverEncoding({ status, body }: EngineFailure): boolean {
  return (status === 400 || status === 422) && /encoding|base64/i.test(String(body ?? ''));
}

async function runBatch(
  { parts, context, model, request }: EmbedRun,
  batchFor: BatchFor,
  signal: AbortSignal,
): Promise<EmbeddedBatch | EngineFailure> {
  const { floatReplicas } = parts;
  let count = 0;
  let askedAgain: Replica | undefined;
  const call: EngineCall = {
    work: 'embeddings',
    replicas: model.replicas,
    method: 'POST',
    path: '/embeddings',
    contentType: 'application/json',
    buildBody: (replica, refusal) => {
      let encoding = floatReplicas.has(replica) ? 'float' : request.encoding;
      if (refusal !== undefined) {
        // Clients ask for base64 unless told otherwise, and not every engine has heard of it.
        if (encoding !== 'base64' || askedAgain === replica || !isOverEncoding(refusal)) {
          return undefined;
        }
        askedAgain = replica;
        encoding = 'float';
      }
      const batch = batchFor(replica, encoding);
      count = batch.count;
      return batch.body;
    },
    canAmend: true,
    caller: context.caller.accountId,
    signal,
    maxResponseBytes: MAX_RESPONSE_BYTES,
    timeLimits: TIME_LIMITS,
  };
  const answer = await parts.engines.collectRead(call, (body) =>
    // The engines report it as `garbage` when no replica gives a usable answer.
    readEmbeddingsInTurns(body, count, model.embedding?.dimensions).catch(() => undefined),
  );
  if (!answer.ok) return answer;
  if (askedAgain === answer.replica) floatReplicas.add(askedAgain);
  return { embeddings: answer.read, answer };
}
