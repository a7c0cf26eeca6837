/** A batch in the database and in the format of OpenAI. */
import * as z from 'zod';
import { type Row, Whole, jsonText, maybe, rowShape } from '../db/db.ts';
import { MAYBE_USE_SHAPE, useBody, useOfRow } from './batch-use.ts';

/** A batch can be cancelled in the first two states; the last four are final. */
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

const Problem = z.object({
  code: z.string(),
  message: z.string(),
  param: z.string().nullable(),
  /** From 1; null for a problem of the whole file. */
  line: z.number().nullable(),
});
export type BatchProblem = Readonly<z.infer<typeof Problem>>;

/** Times of future events are 0. */
const SHAPE = rowShape({
  id: z.string(),
  accountId: z.string(),
  /** Empty for a wallet. */
  keyId: z.string(),
  /** The cap of a wallet's token; empty without one. */
  capId: z.string(),
  /** The caller's country, if the settings name a header for it. */
  country: maybe(z.string()),
  /** In the spelling of the caller, such as `/v1/chat/completions`. */
  endpoint: z.string(),
  inputFileId: z.string(),
  /** Empty before the end, and without lines. */
  outputFileId: z.string(),
  errorFileId: z.string(),
  state: z.enum(BATCH_STATES),
  metadata: jsonText(z.record(z.string(), z.string()).nullable()),
  problems: jsonText(z.array(Problem)),
  /** Time for which result files are kept after the end. */
  keepMs: Whole,
  total: Whole,
  completed: Whole,
  failed: Whole,
  createdMs: Whole,
  expiresMs: Whole,
  inProgressMs: Whole,
  finalizingMs: Whole,
  cancellingMs: Whole,
  endedMs: Whole,
  ...MAYBE_USE_SHAPE,
});
export const BATCH_COLUMNS = SHAPE.columns;

export type Batch = ReturnType<typeof batchOf>;

export function batchOf(row: Row) {
  const { total, completed, failed, ...batch } = SHAPE.parse(row);
  return { ...batch, counts: { total, completed, failed }, use: useOfRow(batch) };
}

export type NewBatch = Pick<
  Batch,
  | 'id'
  | 'accountId'
  | 'keyId'
  | 'capId'
  | 'country'
  | 'endpoint'
  | 'inputFileId'
  | 'metadata'
  | 'keepMs'
  | 'createdMs'
  | 'expiresMs'
>;

/** A batch in the format of OpenAI. */
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
