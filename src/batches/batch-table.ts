/**
 * The only access to `batches_batch`. Every change of state is one conditional UPDATE that names the
 * previous state and, for a worker, the lease of its process. So exactly one of several processes
 * changes a batch, and a delayed one changes nothing.
 */
import {
  type LeaseOptions,
  LeasedTable,
  NO_LEASE,
  type Queryable,
  deleteInBatches,
  oneAtATime,
} from '../db/db.ts';
import {
  BATCH_COLUMNS,
  type Batch,
  type BatchEnd,
  type BatchProblem,
  type BatchState,
  type NewBatch,
  batchOf,
} from './batch.ts';
import { type BatchUse, NO_USE, USE_COLUMNS, useValues } from './batch-use.ts';

const OPEN = `state IN ('validating', 'in_progress', 'finalizing', 'cancelling')`;
const DELETED_AT_ONCE = 100;

/** A position before every batch of a list. */
const NEWEST = { createdMs: Number.MAX_SAFE_INTEGER, id: '' };

export interface Progress {
  readonly completed: number;
  readonly failed: number;
  readonly resultBytes: number;
  readonly use: BatchUse;
}

/** One file of a result; without lines there is no file, and its id is empty. */
export interface ResultFile {
  readonly fileId: string;
  readonly lines: number;
}

export class BatchTable extends LeasedTable<Batch> {
  constructor(options: LeaseOptions) {
    const columns = BATCH_COLUMNS;
    super({ ...options, table: 'batches_batch', columns, jobOf: batchOf, open: OPEN });
  }

  /** Runs a transaction; those of the same account run one at a time. */
  async alone<T>(accountId: string, work: (tx: Queryable) => Promise<T>): Promise<T> {
    return await this.store.transaction(async (tx) => {
      await oneAtATime(tx, this.store.dialect, `batches_batch ${accountId}`);
      return await work(tx);
    });
  }

  /**
   * Inserts a batch, which expires by the clock of the database. Returns `undefined` if its account
   * already has `maxOpen` open batches.
   */
  async insert(tx: Queryable, batch: NewBatch, maxOpen: number): Promise<Batch | undefined> {
    const rows = await tx.query(
      `INSERT INTO batches_batch (id, account_id, key_id, cap_id, country, endpoint, input_file_id,
         output_file_id, error_file_id, state, metadata, problems, keep_ms, total, completed, failed,
         ${USE_COLUMNS.join(', ')}, result_bytes, created_ms, expires_ms, in_progress_ms,
         finalizing_ms, cancelling_ms, ended_ms, due_ms, lease_owner, lease_until_ms)
       SELECT $1, $2, $3, $4, $5, $6, $7, '', '', 'validating', $8, '[]', $9, 0, 0, 0,
         ${useValues(NO_USE).join(', ')}, 0, $10, now_ms($10) - $10 + $11, 0, 0, 0, 0, now_ms($10), '', 0
       WHERE $12 > (SELECT count(*) FROM batches_batch WHERE account_id = $2 AND ${OPEN})
       RETURNING ${BATCH_COLUMNS}`,
      [
        batch.id,
        batch.accountId,
        batch.keyId,
        batch.capId,
        batch.country ?? null,
        batch.endpoint,
        batch.inputFileId,
        JSON.stringify(batch.metadata),
        batch.keepMs,
        batch.createdMs,
        batch.expiresMs,
        maxOpen,
      ],
    );
    return rows.map(batchOf)[0];
  }

  async find(accountId: string, id: string): Promise<Batch | undefined> {
    const sql = `SELECT ${BATCH_COLUMNS} FROM batches_batch WHERE id = $1 AND account_id = $2`;
    return (await this.jobs(sql, [id, accountId]))[0];
  }

  /** Batches of an account, newest first, after the one of `after`. */
  async list(accountId: string, limit: number, after = NEWEST): Promise<Batch[]> {
    return await this.jobs(
      `SELECT ${BATCH_COLUMNS} FROM batches_batch
       WHERE account_id = $1 AND (created_ms, id) < ($3, $4)
       ORDER BY created_ms DESC, id DESC LIMIT $2`,
      [accountId, limit, after.createdMs, after.id],
    );
  }

  /** Whether an open batch reads a file. */
  async reads(tx: Queryable, fileId: string): Promise<boolean> {
    const rows = await tx.query(
      `SELECT id FROM batches_batch WHERE input_file_id = $1 AND ${OPEN} LIMIT 1`,
      [fileId],
    );
    return rows.length > 0;
  }

  /** Bytes of the results of open batches, of one account and of all. */
  async resultBytes(accountId: string): Promise<{ callerBytes: number; allBytes: number }> {
    const sum = (of: string): string => `CAST(COALESCE(SUM(${of}), 0) AS BIGINT)`;
    const [row] = await this.store.query<{ of_caller: bigint; of_all: bigint }>(
      `SELECT ${sum('CASE WHEN account_id = $1 THEN result_bytes ELSE 0 END')} AS of_caller,
         ${sum('result_bytes')} AS of_all FROM batches_batch WHERE ${OPEN}`,
      [accountId],
    );
    return { callerBytes: Number(row?.of_caller ?? 0n), allBytes: Number(row?.of_all ?? 0n) };
  }

  /** Starts to cancel a batch; returns `undefined` if its state does not allow it. */
  async cancel(accountId: string, id: string, nowMs: number): Promise<Batch | undefined> {
    const [batch] = await this.jobs(
      `UPDATE batches_batch SET state = 'cancelling', cancelling_ms = $3, due_ms = now_ms($3)
       WHERE id = $1 AND account_id = $2 AND state IN ('validating', 'in_progress')
       RETURNING ${BATCH_COLUMNS}`,
      [id, accountId, nowMs],
    );
    return batch;
  }

  /** Renews the lease and stores the progress; returns `undefined` without the lease. */
  async renew(
    id: string,
    progress: Progress,
  ): Promise<{ readonly state: BatchState; readonly isExpired: boolean } | undefined> {
    const { completed, failed, resultBytes, use } = progress;
    const { leaseMs } = this;
    const nowMs = this.clock.nowMs();
    const [row] = await this.store.transaction(
      (tx) =>
        tx.query<{ state: BatchState; left_ms: bigint }>(
          `UPDATE batches_batch SET lease_until_ms = now_ms($3) + $4, completed = $5,
             failed = $6, result_bytes = $7, ${useSet(8)}
           WHERE id = $1 AND lease_owner = $2 AND ${OPEN}
           RETURNING state, expires_ms - now_ms($3) AS left_ms`,
          [id, this.owner, nowMs, leaseMs, completed, failed, resultBytes, ...useValues(use)],
        ),
      { durable: false },
    );
    return row && { state: row.state, isExpired: row.left_ms <= 0n };
  }

  /** validating → in_progress. */
  async started(id: string, total: number, nowMs: number): Promise<boolean> {
    const set = `state = 'in_progress', total = $3, in_progress_ms = $4`;
    return await this.step(id, set, `state = 'validating'`, [total, nowMs]);
  }

  /** validating → failed: the input file is invalid. */
  async rejected(id: string, problems: readonly BatchProblem[], nowMs: number): Promise<boolean> {
    const set = `state = 'failed', problems = $3, ended_ms = $4, ${NO_LEASE}`;
    const values = [JSON.stringify(problems), nowMs];
    return await this.step(id, set, `state = 'validating'`, values);
  }

  /** in_progress → finalizing: every line has a result. */
  async finalizing(id: string, nowMs: number): Promise<boolean> {
    const set = `state = 'finalizing', finalizing_ms = $3`;
    return await this.step(id, set, `state = 'in_progress'`, [nowMs]);
  }

  /**
   * Whether a batch is open. It cannot end before the transaction `tx` ends, so that its result files
   * include the lines that `tx` writes.
   */
  async isOpen(tx: Queryable, id: string): Promise<boolean> {
    // SQLite has one writer.
    const lock = this.store.dialect === 'postgres' ? 'FOR SHARE' : '';
    const sql = `SELECT id FROM batches_batch WHERE id = $1 AND ended_ms = 0 ${lock}`;
    return (await tx.query(sql, [id])).length === 1;
  }

  /** Ends a batch, in the transaction that creates its result files. */
  async ended(tx: Queryable, id: string, end: BatchEnd, nowMs: number): Promise<boolean> {
    const from = { completed: 'finalizing', cancelled: 'cancelling', expired: 'in_progress' }[end];
    const set = `state = $3, ended_ms = $4, result_bytes = 0`;
    return await this.step(id, set, `state = '${from}'`, [end, nowMs], tx);
  }

  async result(
    tx: Queryable,
    id: string,
    [output, errors]: readonly ResultFile[],
    use: BatchUse,
  ): Promise<void> {
    const set = `completed = $3, output_file_id = $4, failed = $5, error_file_id = $6, ${useSet(7)}`;
    const of = (file: ResultFile | undefined) => [file?.lines ?? 0, file?.fileId ?? ''];
    const values = [...of(output), ...of(errors), ...useValues(use)];
    await this.step(id, `${set}, ${NO_LEASE}`, '', values, tx);
  }

  /** Deletes batches that ended `keepMs` ago, when their files have expired. */
  async deleteOld(keepMs: number, nowMs: number): Promise<void> {
    await deleteInBatches(DELETED_AT_ONCE, () =>
      this.store.query(
        `DELETE FROM batches_batch WHERE id IN (
           SELECT id FROM batches_batch WHERE ended_ms > 0 AND ended_ms < now_ms($1) - $2
           LIMIT ${DELETED_AT_ONCE})
         RETURNING id`,
        [nowMs, keepMs],
      ),
    );
  }
}

/** Sets the usage columns from `$first` on; a batch from before they existed keeps NULL. */
function useSet(first: number): string {
  const figures = USE_COLUMNS.map((name, at) => {
    return `${name} = CASE WHEN usd_nano IS NULL THEN NULL ELSE CAST($${first + at} AS BIGINT) END`;
  });
  return figures.join(', ');
}

/** Number of open batches by state. */
export async function openBatches(store: Queryable): Promise<Partial<Record<BatchState, number>>> {
  const rows = await store.query<{ state: BatchState; batches: bigint }>(
    `SELECT state, count(*) AS batches FROM batches_batch WHERE ${OPEN} GROUP BY state`,
  );
  return Object.fromEntries(rows.map(({ state, batches }) => [state, Number(batches)]));
}
