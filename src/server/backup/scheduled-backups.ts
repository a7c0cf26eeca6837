/**
 * Starts the backups that the section `backup` schedules, in a worker thread, and knows when the last one succeeded.
 * One process starts them: the one that runs the jobs of all. A second start would only make a second backup.
 */
import { Worker } from 'node:worker_threads';
import { HOUR_MS, MINUTE_MS } from '../../core/clock.ts';
import { reasonOf } from '../../core/log.ts';
import { siblingUrl } from '../../core/sibling.ts';
import type { Feature } from '../../http/route.ts';
import type { FeatureParts } from '../feature-parts.ts';
import type { BackupRequest } from './backup-worker.ts';
import { lockBackups } from './backup-lock.ts';

const RETRY_MS = HOUR_MS;
/** A run without an end after this time was killed. */
const LONGEST_RUN_MS = 6 * HOUR_MS;
const KEPT_RUNS = 100;
/** A run that is later by more was made before the clock was set back. */
const CLOCK_SLACK_MS = 10 * MINUTE_MS;

export interface BackupRun {
  readonly startedMs: number;
  /** 0 while it runs. */
  readonly endedMs: number;
  /** The destination; empty if an earlier version has made it. */
  readonly place: string;
  readonly location: string;
  readonly bytes: number;
  /** Why it failed; empty otherwise. */
  readonly problem: string;
}

interface BackupOptions {
  /** Input of the worker, which stores the files of the configuration; without it nothing is scheduled. */
  readonly request: BackupRequest | undefined;
  /** Receives `lastSuccessMs` after each refresh; 0 if scheduled backups never succeeded. */
  readonly onRead: (lastSuccessMs: number | undefined) => void;
  /** Called with the reason after a scheduled backup has failed. */
  readonly onFailed: (reason: string) => Promise<void>;
}

export class ScheduledBackups implements Feature {
  readonly routes = [];
  readonly perProcessJob = (): Promise<void> => this.refresh();
  readonly leaderJob = (): Promise<void> => this.#startDue();
  readonly #parts: FeatureParts;
  readonly #options: BackupOptions;
  #running: Promise<void> | undefined;
  #worker: Worker | undefined;
  /** Monotonic time of the next try after a failure, of which there can be no row. */
  #restsUntilMs = 0;
  /** Unix time in ms; `undefined` if no backup has succeeded, or none was read yet. */
  lastSuccessMs: number | undefined;

  constructor(parts: FeatureParts, options: BackupOptions) {
    this.#parts = parts;
    this.#options = options;
  }

  get isScheduled(): boolean {
    const { to, everyHours } = this.#parts.config.current.backup;
    return this.#options.request !== undefined && to !== undefined && everyHours > 0;
  }

  /** Reads `lastSuccessMs`: of backups to the configured place, or without one to any. */
  async refresh(): Promise<void> {
    const { config, stores } = this.#parts;
    const rows = await stores.store.query<{ last: bigint | null }>(
      `SELECT max(ended_ms) AS last FROM backup_run
       WHERE ended_ms > 0 AND ended_ms <= $1 AND problem = '' AND (place IN ('', $2) OR $2 = '')`,
      [this.#latestMs(), config.current.backup.to ?? ''],
    );
    const last = rows[0]?.last ?? undefined;
    this.lastSuccessMs = last === undefined ? undefined : Number(last);
    this.#options.onRead(this.lastSuccessMs ?? (this.isScheduled ? 0 : undefined));
  }

  /** Latest time of a run that was not made before the clock was set back. */
  #latestMs(): number {
    return this.#parts.clock.nowMs() + CLOCK_SLACK_MS;
  }

  /** Starts a backup if one is due; does not wait for it. */
  async #startDue(): Promise<void> {
    if (!this.isScheduled || this.#running !== undefined) return;
    const { config, stores, clock } = this.#parts;
    if (clock.monotonicMs() < this.#restsUntilMs) return;
    await this.#endKilled();
    const { to, everyHours } = config.current.backup;
    const runs = (await this.runs(KEPT_RUNS)).filter(
      ({ startedMs }) => startedMs <= this.#latestMs(),
    );
    // Two backups of a data folder cannot run at the same time.
    if (runs.some((run) => run.place !== to && isRunning(run, clock.nowMs()))) return;
    const last = runs.find(({ place }) => place === to || place === '');
    const everyMs = everyHours * HOUR_MS;
    if (last !== undefined && clock.nowMs() < dueMs(last, everyMs)) return;
    await stores.store.query(
      `DELETE FROM backup_run WHERE id NOT IN (
         SELECT id FROM backup_run WHERE started_ms <= $1 ORDER BY started_ms DESC LIMIT ${KEPT_RUNS})`,
      [this.#latestMs()],
    );
    this.#running = this.#run().finally(() => {
      this.#running = undefined;
    });
  }

  /** Newest first. */
  async runs(limit: number): Promise<readonly BackupRun[]> {
    const rows = await this.#parts.stores.store.query<{
      started_ms: bigint;
      ended_ms: bigint;
      place: string;
      location: string;
      bytes: bigint;
      problem: string;
    }>(
      `SELECT started_ms, ended_ms, place, location, bytes, problem FROM backup_run
       ORDER BY started_ms DESC LIMIT $1`,
      [limit],
    );
    return rows.map((row) => ({
      startedMs: Number(row.started_ms),
      endedMs: Number(row.ended_ms),
      place: row.place,
      location: row.location,
      bytes: Number(row.bytes),
      problem: row.problem,
    }));
  }

  async #run(): Promise<void> {
    const { config, clock, log } = this.#parts;
    const { request, onFailed } = this.#options;
    const entry = siblingUrl(import.meta.url, './backup-worker');
    try {
      const hasEnded = await new Promise<boolean>((resolve, reject) => {
        this.#worker = new Worker(entry, {
          workerData: { ...request, inForce: config.current },
          env: { ...request?.env },
        });
        this.#worker.once('message', () => resolve(true));
        this.#worker.once('error', reject);
        this.#worker.once('exit', () => resolve(false));
      });
      // The stop of the server has terminated the worker.
      if (!hasEnded) return await this.#endInterrupted();
      await this.refresh();
      const [run] = await this.runs(1);
      if (run?.problem === '')
        log.info({ location: run.location, bytes: run.bytes }, 'Backup stored');
    } catch (error) {
      this.#restsUntilMs = clock.monotonicMs() + RETRY_MS;
      log.error(
        { reason: reasonOf(error) },
        'The scheduled backup failed; the next try is in an hour',
      );
      await onFailed(reasonOf(error)).catch((problem: unknown) => {
        log.error({ reason: reasonOf(problem) }, 'The alert about the backup was not queued');
      });
    }
  }

  /** Ends the run of a terminated worker, if it has begun one, so that the next one is due in an hour. */
  async #endInterrupted(): Promise<void> {
    const [run] = await this.runs(1);
    if (run?.endedMs !== 0) return;
    await this.#parts.stores.store.query(
      'UPDATE backup_run SET ended_ms = $2, problem = $3 WHERE started_ms = $1 AND ended_ms = 0',
      [run.startedMs, this.#parts.clock.nowMs(), 'The server was stopped during the backup'],
    );
  }

  /** Ends the runs of killed processes. A SQLite file is backed up under the lock of its data folder. */
  async #endKilled(): Promise<void> {
    const { config, stores, clock } = this.#parts;
    if (stores.store.dialect !== 'sqlite') return;
    const open = await stores.store.query('SELECT id FROM backup_run WHERE ended_ms = 0 LIMIT 1');
    const lock = open.length === 0 ? undefined : lockBackups(config.current);
    if (lock === undefined) return;
    try {
      await stores.store.query(
        'UPDATE backup_run SET ended_ms = $1, problem = $2 WHERE ended_ms = 0',
        [clock.nowMs(), 'The process was killed during the backup'],
      );
    } finally {
      lock.release();
    }
  }

  start(): void {
    // Without the database the next minute reads it.
    this.refresh().catch(() => undefined);
  }

  async close(): Promise<void> {
    await this.#worker?.terminate();
    await this.#running;
  }
}

function isRunning({ startedMs, endedMs }: BackupRun, nowMs: number): boolean {
  return endedMs === 0 && nowMs < startedMs + LONGEST_RUN_MS;
}

function dueMs({ startedMs, endedMs, problem }: BackupRun, everyMs: number): number {
  if (endedMs === 0) return startedMs + Math.max(everyMs, LONGEST_RUN_MS);
  return startedMs + (problem === '' ? everyMs : Math.min(everyMs, RETRY_MS));
}
