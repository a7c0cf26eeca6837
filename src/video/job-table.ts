/**
 * The only access to `video_job`. Every change of state is one conditional UPDATE that names the
 * previous state and, for a worker, the lease of its process. So exactly one of several processes
 * changes a job, and a delayed one changes nothing.
 */
import { MINUTE_MS } from '../core/clock.ts';
import { type LeaseOptions, LeasedTable, NO_LEASE, type Queryable, oneAtATime } from '../db/db.ts';
import type { EnginePlace, EngineRef } from '../engines/media/media.ts';
import {
  JOB_COLUMNS,
  type JobFailure,
  type JobState,
  type NewJob,
  type VideoJob,
  jobOf,
} from './job.ts';

const PPM = 1e6;
const BATCH = 100;
/** A hold takes a second; a job that is `admitting` for this long was left by a dead process. */
const ABANDONED_MS = 10 * MINUTE_MS;
const OPEN = `state IN ('queued', 'submitted', 'running', 'storing')`;
const AT_ENGINE = `state IN ('submitted', 'running')`;

export interface StoredMedia {
  readonly sizeBytes: number;
  readonly mimeType: string;
  /** Time until it expires. */
  readonly keepMs: number;
}

export interface JobTrace {
  readonly state: JobState;
  readonly hasMedia: boolean;
}

export class JobTable extends LeasedTable<VideoJob> {
  constructor(options: LeaseOptions) {
    super({ ...options, table: 'video_job', columns: JOB_COLUMNS, jobOf, open: OPEN });
  }

  /** Inserts a job unless its account already has `maxOpen` open jobs; returns whether it did. */
  async insert(job: NewJob, maxOpen: number): Promise<boolean> {
    return await this.store.transaction(async (tx) => {
      await oneAtATime(tx, this.store.dialect, `video_job ${job.accountId}`);
      const rows = await tx.query(
        `INSERT INTO video_job (id, account_id, key_id, model_id, state, quote_nano, request, inputs,
           engine, engine_model, engine_job_id, attempts, progress_ppm, created_ms, started_ms,
           finished_ms, execution_ms, due_ms, lease_owner, lease_until_ms, failure, media_bytes,
           media_type, media_until_ms, has_media, download_hash, webhook_url, webhook_attempts,
           webhook_due_ms, input_bytes, tags, has_sound,
           list_nano, costs)
         SELECT $1, $2, $3, $4, 'admitting', $5, $6, $7, '', '', '', 0, 0, now_ms($8), 0, 0, 0, now_ms($8), '', 0,
           '', 0, '', 0, 0, $9, $10, 0, 0, $11, $12, $13, $14, $15
         WHERE $16 > (SELECT count(*) FROM video_job
           WHERE account_id = $2 AND state NOT IN ('completed', 'failed'))
         RETURNING id`,
        [
          job.id,
          job.accountId,
          job.keyId,
          job.modelId,
          job.quoteNano,
          JSON.stringify(job.request),
          JSON.stringify(job.inputs),
          job.createdMs,
          job.downloadHash,
          job.webhookUrl,
          job.inputBytes,
          job.tags === undefined ? null : JSON.stringify(job.tags),
          job.hasSound ? 1 : 0,
          job.listNano ?? null,
          job.costs === undefined ? null : JSON.stringify(job.costs),
          maxOpen,
        ],
      );
      return rows.length === 1;
    });
  }

  /** admitting → queued. */
  async admit(tx: Queryable, id: string, nowMs: number): Promise<boolean> {
    const rows = await tx.query(
      `UPDATE video_job SET state = 'queued', due_ms = now_ms($2) WHERE id = $1 AND state = 'admitting'
       RETURNING id`,
      [id, nowMs],
    );
    return rows.length === 1;
  }

  /** Deletes a job whose hold was rejected. */
  async withdraw(id: string): Promise<void> {
    await this.store.query(`DELETE FROM video_job WHERE id = $1 AND state = 'admitting'`, [id]);
  }

  async find(by: 'id' | 'download_hash', value: string): Promise<VideoJob | undefined> {
    const sql = `SELECT ${JOB_COLUMNS} FROM video_job WHERE ${by} = $1`;
    return (await this.jobs(sql, [value]))[0];
  }

  /** Whether a job was queued more than `ageMs` ago by the clock of the database. */
  async isOlder(id: string, ageMs: number): Promise<boolean> {
    const sql = 'SELECT id FROM video_job WHERE id = $1 AND created_ms < now_ms($2) - $3';
    return (await this.store.query(sql, [id, this.clock.nowMs(), ageMs])).length === 1;
  }

  /**
   * At least `limit` of an account's jobs, newest first, created before `beforeMs`: also all jobs of the
   * millisecond of the last one, so that the next page can begin before it.
   */
  async list(accountId: string, beforeMs: number, limit: number): Promise<VideoJob[]> {
    const isListed = `account_id = $1 AND created_ms < $2 AND state <> 'admitting'`;
    return await this.jobs(
      `SELECT ${JOB_COLUMNS} FROM video_job WHERE ${isListed} AND created_ms >= (
         SELECT min(created_ms) FROM (SELECT created_ms FROM video_job WHERE ${isListed}
           ORDER BY created_ms DESC LIMIT $3) AS page)
       ORDER BY created_ms DESC, id`,
      [accountId, beforeMs, limit],
    );
  }

  /**
   * Bytes on disk of one account and of all: inputs of open jobs, `resultBytes` per open job for
   * its result, and results of completed jobs.
   */
  async storedBytes(
    accountId: string,
    resultBytes: number,
  ): Promise<{ callerBytes: number; allBytes: number }> {
    const sum = (condition: string): string =>
      `CAST(COALESCE(SUM(CASE WHEN ${condition} THEN bytes ELSE 0 END), 0) AS BIGINT)`;
    const [row] = await this.store.query<{ of_caller: bigint; of_all: bigint }>(
      `SELECT ${sum('account_id = $1')} AS of_caller, ${sum('1 = 1')} AS of_all FROM (
         SELECT account_id, input_bytes + $2 AS bytes FROM video_job
         WHERE state = 'admitting' OR ${OPEN}
         UNION ALL
         SELECT account_id, media_bytes AS bytes FROM video_job WHERE has_media = 1
       ) AS stored`,
      [accountId, resultBytes],
    );
    return { callerBytes: Number(row?.of_caller ?? 0n), allBytes: Number(row?.of_all ?? 0n) };
  }

  /** Time since which the engine of a job does not respond; 0 if it does. */
  async silentSince(id: string, sinceMs: number): Promise<void> {
    await this.step(id, 'silent_since_ms = $3', '', [sinceMs]);
  }

  /**
   * Records the engine before a create request is sent, and adds `added` to the requests without a
   * response. If the process dies in between, the next worker searches for the engine's job.
   */
  async ordering(id: string, at: EnginePlace, added: number): Promise<boolean> {
    const set = 'engine = $3, engine_model = $4, unclear = unclear + $5';
    return await this.step(id, set, `state = 'queued'`, [at.engine, at.engineModel, added]);
  }

  /** Removes one such record: the engine has no job. */
  async notOrdered(id: string): Promise<void> {
    const set = `unclear = unclear - 1,
      engine = CASE WHEN unclear = 1 THEN '' ELSE engine END,
      engine_model = CASE WHEN unclear = 1 THEN '' ELSE engine_model END`;
    await this.step(id, set, `state = 'queued' AND unclear > 0`);
  }

  /** queued → submitted. */
  async submitted(tx: Queryable, id: string, at: EngineRef, nowMs: number): Promise<boolean> {
    const set = `state = 'submitted', engine = $3, engine_model = $4, engine_job_id = $5,
      attempts = attempts + 1, unclear = 0, silent_since_ms = 0,
      started_ms = CASE WHEN started_ms = 0 THEN $6 ELSE started_ms END`;
    const { engine, engineModel, engineJobId } = at;
    const values = [engine, engineModel, engineJobId, nowMs];
    return await this.step(id, set, `state = 'queued'`, values, tx);
  }

  /** submitted → running, or an update of running; progress never decreases. */
  async progressed(id: string, fraction: number): Promise<void> {
    const set = `state = 'running', silent_since_ms = 0,
      progress_ppm = CASE WHEN progress_ppm > $3 THEN progress_ppm ELSE $3 END`;
    await this.step(id, set, AT_ENGINE, [Math.round(fraction * PPM)]);
  }

  /** submitted or running → storing. */
  async storing(id: string): Promise<boolean> {
    return await this.step(id, `state = 'storing', silent_since_ms = 0`, AT_ENGINE);
  }

  /** Back to queued: the engine lost the job. */
  async requeued(id: string): Promise<void> {
    const set = `state = 'queued', engine = '', engine_model = '', engine_job_id = '',
      due_ms = now_ms($3), ${NO_LEASE}, silent_since_ms = 0`;
    await this.step(id, set, `(${AT_ENGINE} OR state = 'storing')`, [this.clock.nowMs()]);
  }

  /**
   * storing → completed. Returns the job if this call completed it. Its media expires by the clock of
   * the database.
   */
  async completed(
    tx: Queryable,
    id: string,
    media: StoredMedia,
    nowMs: number,
  ): Promise<VideoJob | undefined> {
    const rows = await tx.query(
      `UPDATE video_job SET state = 'completed', progress_ppm = 1000000, finished_ms = $3,
         execution_ms = $3 - started_ms, media_bytes = $4, media_type = $5,
         media_until_ms = now_ms($3) + $6, has_media = 1, inputs = '[]', ${NO_LEASE},
         webhook_due_ms = CASE WHEN webhook_url = '' THEN 0 ELSE $3 END
       WHERE id = $1 AND lease_owner = $2 AND state = 'storing' RETURNING ${JOB_COLUMNS}`,
      [id, this.owner, nowMs, media.sizeBytes, media.mimeType, media.keepMs],
    );
    return rows.map(jobOf)[0];
  }

  /**
   * Ends a job without a video. Returns the job if this call ended it.
   * - `worker`: any open state, if this process leases the job
   * - `caller`: any state before the engine is done, whichever process leases the job
   * - `nobody`: a job that a dead process left while placing the hold; it sends no webhook
   */
  async failed(
    tx: Queryable,
    id: string,
    by: 'worker' | 'caller' | 'nobody',
    failure: JobFailure,
    nowMs: number,
  ): Promise<VideoJob | undefined> {
    const condition = {
      worker: `lease_owner = $4 AND ${OPEN}`,
      caller: `(state = 'queued' OR ${AT_ENGINE})`,
      nobody: `state = 'admitting'`,
    }[by];
    const webhookDue = by === 'nobody' ? '0' : `CASE WHEN webhook_url = '' THEN 0 ELSE $2 END`;
    const rows = await tx.query(
      `UPDATE video_job SET state = 'failed', finished_ms = $2, failure = $3, inputs = '[]',
         request = '{}', execution_ms = CASE WHEN started_ms = 0 THEN 0 ELSE $2 - started_ms END,
         ${NO_LEASE}, webhook_due_ms = ${webhookDue}
       WHERE id = $1 AND ${condition} RETURNING ${JOB_COLUMNS}`,
      [id, nowMs, JSON.stringify(failure), ...(by === 'worker' ? [this.owner] : [])],
    );
    return rows.map(jobOf)[0];
  }

  /** Jobs that a dead process was admitting: old ones, or all if no other process is running. */
  async abandoned(isAlone: boolean): Promise<VideoJob[]> {
    const isOld = isAlone ? '' : `AND due_ms < now_ms($1) - ${ABANDONED_MS}`;
    const sql = `SELECT ${JOB_COLUMNS} FROM video_job WHERE state = 'admitting' ${isOld} LIMIT ${BATCH}`;
    return await this.jobs(sql, isAlone ? [] : [this.clock.nowMs()]);
  }

  /** Marks the media as deleted and deletes the prompt. `true` if the media was present. */
  async mediaGone(id: string): Promise<boolean> {
    return (await this.#mediaGone('id = $1', id)).length === 1;
  }

  async expireMedia(nowMs: number): Promise<string[]> {
    const ids = `SELECT id FROM video_job WHERE has_media = 1 AND media_until_ms <= now_ms($1) LIMIT ${BATCH}`;
    return await this.#mediaGone(`id IN (${ids})`, nowMs);
  }

  async #mediaGone(condition: string, value: string | number): Promise<string[]> {
    const rows = await this.store.query<{ id: string }>(
      `UPDATE video_job SET has_media = 0, download_hash = NULL, request = '{}'
       WHERE has_media = 1 AND ${condition} RETURNING id`,
      [value],
    );
    return rows.map(({ id }) => id);
  }

  async revokeDownload(id: string): Promise<void> {
    await this.store.query('UPDATE video_job SET download_hash = NULL WHERE id = $1', [id]);
  }

  /** Deletes jobs that ended `keepMs` ago, except those with media. */
  async deleteOld(keepMs: number, nowMs: number): Promise<void> {
    await this.store.query(
      `DELETE FROM video_job WHERE id IN (
         SELECT id FROM video_job WHERE finished_ms > 0 AND finished_ms < now_ms($1) - $2
           AND has_media = 0 AND webhook_due_ms = 0
         LIMIT ${BATCH})`,
      [nowMs, keepMs],
    );
  }

  async executionTimes(modelId: string, limit: number): Promise<number[]> {
    const rows = await this.store.query<{ execution_ms: bigint }>(
      `SELECT execution_ms FROM video_job WHERE model_id = $1 AND state = 'completed'
       ORDER BY finished_ms DESC LIMIT $2`,
      [modelId, limit],
    );
    return rows.map((row) => Number(row.execution_ms));
  }

  /** Claims ended jobs whose callback is not yet queued. */
  async takeCallbacks(tx: Queryable): Promise<VideoJob[]> {
    const rows = await tx.query(
      `UPDATE video_job SET webhook_due_ms = 0 WHERE webhook_due_ms > 0 RETURNING ${JOB_COLUMNS}`,
    );
    return rows.map(jobOf);
  }

  async states(ids: readonly string[]): Promise<Map<string, JobTrace>> {
    if (ids.length === 0) return new Map();
    const places = ids.map((_, index) => `$${index + 1}`).join(', ');
    const rows = await this.store.query<{ id: string; state: JobState; has_media: bigint }>(
      `SELECT id, state, has_media FROM video_job WHERE id IN (${places})`,
      ids,
    );
    return new Map(
      rows.map((row) => [row.id, { state: row.state, hasMedia: row.has_media === 1n }]),
    );
  }
}

export interface JobPlace {
  readonly createdMs: number;
  readonly id: string;
}

/** The jobs of all accounts, newest first, from a cursor on; optionally of one state. */
export async function listAllJobs(
  store: Queryable,
  state: string | undefined,
  { limit, after }: { readonly limit: number; readonly after?: JobPlace | undefined },
): Promise<VideoJob[]> {
  const { createdMs, id } = after ?? { createdMs: Number.MAX_SAFE_INTEGER, id: '' };
  const rows = await store.query(
    `SELECT ${JOB_COLUMNS} FROM video_job
     WHERE (created_ms, id) < ($1, $2) AND ($3 = '' OR state = $3)
     ORDER BY created_ms DESC, id DESC LIMIT $4`,
    [createdMs, id, state ?? '', limit],
  );
  return rows.map(jobOf);
}
