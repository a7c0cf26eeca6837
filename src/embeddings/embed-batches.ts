/**
 * Runs the engine calls of an embeddings request: several if the engine limits the batch size. The
 * first batch that fails ends the others.
 */
import type { EngineResponse, EngineCall, EngineFailure, Replica } from '../engines/engines.ts';
import type { EmbedRun } from './embed-inputs.ts';
import {
  type EmbeddingEncoding,
  type EmbeddingInput,
  type EmbeddingsBatch,
  engineEmbeddings,
  MAX_INPUTS,
} from './embeddings-request.ts';
import { type EngineEmbeddings, readEmbeddings } from './embeddings-response.ts';

/** Concurrent batches, because one batch does not fill every engine. */
const PARALLEL_BATCHES = 4;
/** 2048 vectors of 4096 numbers as JSON text. */
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
/** The first byte arrives when the whole batch is done. */
const TIME_LIMITS = { firstByteMs: 600_000 };

export interface EmbeddedBatch {
  readonly embeddings: EngineEmbeddings;
  readonly answer: EngineResponse;
}

export interface BatchesOutcome {
  /** Batches in the order of their inputs, without failed ones. */
  readonly done: readonly EmbeddedBatch[];
  /** Inputs of the request in batches that an engine has processed or was processing. */
  readonly processed: readonly EmbeddingInput[];
  readonly failure: EngineFailure | undefined;
}

export async function runBatches(
  run: EmbedRun,
  inputs: readonly EmbeddingInput[] | undefined,
): Promise<BatchesOutcome> {
  const { request, model, signal } = run;
  const maxBatch = model.embedding?.maxBatch ?? MAX_INPUTS;
  const count = Math.ceil(request.inputs.length / maxBatch);
  // Cached by the engine's model name and the encoding.
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
    if ('embeddings' in only)
      return { done: [only], processed: request.inputs, failure: undefined };
    return { done: [], processed: wasProcessed(only) ? request.inputs : [], failure: only };
  }
  const done: (EmbeddedBatch | undefined)[] = Array.from({ length: count }, () => undefined);
  const processed: EmbeddingInput[] = [];
  const stop = new AbortController();
  const both = AbortSignal.any([signal, stop.signal]);
  let failure: EngineFailure | undefined;
  let next = 0;
  const work = async (): Promise<void> => {
    while (next < count && failure === undefined) {
      const at = next;
      next += 1;
      const outcome = await runBatch(run, batchFor(at), both);
      if (wasProcessed(outcome)) {
        processed.push(...request.inputs.slice(at * maxBatch, (at + 1) * maxBatch));
      }
      if ('embeddings' in outcome) {
        done[at] = outcome;
      } else if (failure === undefined) {
        failure = outcome;
        stop.abort();
      }
    }
  };
  await Promise.all(Array.from({ length: Math.min(PARALLEL_BATCHES, count) }, work));
  return { done: done.filter((batch) => batch !== undefined), processed, failure };
}

/** A call that is aborted while it waits for an engine or its pause costs nothing. */
function wasProcessed(outcome: EmbeddedBatch | EngineFailure): boolean {
  return 'embeddings' in outcome || outcome.wasWorking;
}

type BatchFor = (replica: Replica, encoding: EmbeddingEncoding | undefined) => EmbeddingsBatch;

/** Validation errors name the field or its value, except for those of Gemini. */
function rejectsEncoding({ reason, body }: EngineFailure): boolean {
  const words = /encoding|base64|request contains an invalid argument/i;
  return reason === 'refused' && words.test(String(body ?? ''));
}

async function runBatch(
  { parts, context, model, request }: EmbedRun,
  batchFor: BatchFor,
  signal: AbortSignal,
): Promise<EmbeddedBatch | EngineFailure> {
  const { plainReplicas } = parts;
  let count = 0;
  let retried: Replica | undefined;
  const call: EngineCall = {
    work: 'embeddings',
    replicas: model.replicas,
    method: 'POST',
    path: '/embeddings',
    contentType: 'application/json',
    buildBody: (replica, refusal) => {
      let encoding = plainReplicas.has(replica) ? undefined : request.encoding;
      if (refusal !== undefined) {
        // Clients request base64 by default, but some engines reject it, or any value.
        if (encoding === undefined || retried === replica || !rejectsEncoding(refusal)) {
          return undefined;
        }
        retried = replica;
        encoding = undefined;
      }
      const batch = batchFor(replica, encoding);
      count = batch.count;
      return batch.body;
    },
    canAmend: true,
    isOptionalPath: true,
    caller: context.caller.accountId,
    tries: context,
    signal,
    maxResponseBytes: MAX_RESPONSE_BYTES,
    timeLimits: TIME_LIMITS,
  };
  const answer = await parts.engines.collectRead(call, (body) =>
    // Reported as `garbage` if no replica returns a usable response.
    readEmbeddings(body, count, model.embedding?.dimensions).catch(() => undefined),
  );
  if (!answer.ok) return answer;
  if (retried === answer.replica) plainReplicas.add(retried);
  return { embeddings: answer.read, answer };
}
