/** A batch as it is stored, and as callers see it. */
import { type BatchUse, USE_COLUMNS, type UseRow, useBody, useOfRow } from './batch-use.ts';

/** Its life. From the first three it can be cancelled; the last four are its end. */
export const BATCH_STATES = [
  'validating',
  'in_progress',
  'finalizing',
  'cancelling',
  'completed',
  'failed',
  'expired',
  'cancelled',
] as const;
export type BatchState = (typeof BATCH_STATES)[number];
export type BatchEnd = Extract<BatchState, 'completed' | 'expired' | 'cancelled'>;

/** What is wrong with the file of a batch. */
export interface BatchProblem {
  readonly code: string;
  readonly message: string;
  readonly param: string | null;
  /** From 1; null for what is wrong with the file. */
  readonly line: number | null;
}

export interface NewBatch {
  readonly id: string;
  readonly accountId: string;
  /** Empty for a wallet. */
  readonly keyId: string;
  /** The cap of a wallet's token; empty without one. */
  readonly capId: string;
  /** Where it was asked for from, where the settings name a header for it. */
  readonly country: string | undefined;
  /** As its caller wrote it: `/v1/chat/completions`. */
  readonly endpoint: string;
  readonly inputFileId: string;
  readonly metadata: Readonly<Record<string, string>> | null;
  /** How long its results are kept after its end. */
  readonly keepMs: number;
  readonly createdMs: number;
  readonly expiresMs: number;
}

export interface Batch extends NewBatch {
  readonly state: BatchState;
  /** Empty until there is one. */
  readonly outputFileId: string;
  readonly errorFileId: string;
  readonly problems: readonly BatchProblem[];
  readonly counts: BatchCounts;
  /** `undefined` for a batch from before it was counted. */
  readonly use: BatchUse | undefined;
  /** 0 for what has not come yet. */
  readonly inProgressMs: number;
  readonly finalizingMs: number;
  readonly cancellingMs: number;
  readonly endedMs: number;
}

export interface BatchCounts {
  readonly total: number;
  readonly completed: number;
  readonly failed: number;
}

export interface BatchRow extends Omit<UseRow, 'usd_nano'> {
  readonly id: string;
  readonly account_id: string;
  readonly key_id: string;
  readonly cap_id: string;
  readonly country: string | null;
  readonly endpoint: string;
  readonly input_file_id: string;
  readonly output_file_id: string;
  readonly error_file_id: string;
  readonly state: string;
  readonly metadata: string;
  readonly problems: string;
  readonly keep_ms: bigint;
  readonly total: bigint;
  readonly completed: bigint;
  readonly failed: bigint;
  /** With the other figures of its use: null in a batch from before they were counted. */
  readonly usd_nano: bigint | null;
  readonly created_ms: bigint;
  readonly expires_ms: bigint;
  readonly in_progress_ms: bigint;
  readonly finalizing_ms: bigint;
  readonly cancelling_ms: bigint;
  readonly ended_ms: bigint;
}

export const BATCH_COLUMNS = `id, account_id, key_id, cap_id, country, endpoint, input_file_id,
  output_file_id, error_file_id, state, metadata, problems, keep_ms, total, completed, failed,
  ${USE_COLUMNS.join(', ')}, created_ms, expires_ms, in_progress_ms, finalizing_ms, cancelling_ms, ended_ms`;

export function batchOf(row: BatchRow): Batch {
  return {
    id: row.id,
    accountId: row.account_id,
    keyId: row.key_id,
    capId: row.cap_id,
    country: row.country ?? undefined,
    endpoint: row.endpoint,
    inputFileId: row.input_file_id,
    outputFileId: row.output_file_id,
    errorFileId: row.error_file_id,
    // Written by this folder only.
    state: row.state as BatchState,
    metadata: JSON.parse(row.metadata) as Batch['metadata'],
    problems: JSON.parse(row.problems) as BatchProblem[],
    keepMs: Number(row.keep_ms),
    counts: {
      total: Number(row.total),
      completed: Number(row.completed),
      failed: Number(row.failed),
    },
    use: row.usd_nano === null ? undefined : useOfRow({ ...row, usd_nano: row.usd_nano }),
    createdMs: Number(row.created_ms),
    expiresMs: Number(row.expires_ms),
    inProgressMs: Number(row.in_progress_ms),
    finalizingMs: Number(row.finalizing_ms),
    cancellingMs: Number(row.cancelling_ms),
    endedMs: Number(row.ended_ms),
  };
}

/** The batch in OpenAI's form. */
export function batchBody(batch: Batch) {
  const at = (isSo: boolean, ms: number): number | null => (isSo && ms > 0 ? seconds(ms) : null);
  const { state, endedMs, problems, use } = batch;
  return {
    id: batch.id,
    object: 'batch' as const,
    endpoint: batch.endpoint,
    errors: problems.length === 0 ? null : { object: 'list' as const, data: [...problems] },
    input_file_id: batch.inputFileId,
    completion_window: COMPLETION_WINDOW,
    status: state,
    output_file_id: batch.outputFileId || null,
    error_file_id: batch.errorFileId || null,
    created_at: seconds(batch.createdMs),
    in_progress_at: at(true, batch.inProgressMs),
    expires_at: seconds(batch.expiresMs),
    finalizing_at: at(true, batch.finalizingMs),
    completed_at: at(state === 'completed', endedMs),
    failed_at: at(state === 'failed', endedMs),
    expired_at: at(state === 'expired', endedMs),
    cancelling_at: at(true, batch.cancellingMs),
    cancelled_at: at(state === 'cancelled', endedMs),
    request_counts: batch.counts,
    ...(use && useBody(use)),
    metadata: batch.metadata,
  };
}

export const COMPLETION_WINDOW = '24h';

export function seconds(ms: number): number {
  return Math.floor(ms / 1_000);
}
