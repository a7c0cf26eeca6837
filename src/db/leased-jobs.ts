/**
 * Background jobs that are rows of a table, for any number of processes. A process leases a row,
 * works on it, and releases or ends it. If the lease is not renewed, it expires and another process
 * takes the row.
 *
 * The times of leases, and at which there is work, are those of the database (`now_ms`), so that no other
 * process waits for the end of a lease, or for work, that a process with a wrong clock has written.
 */
import { assert } from '../core/assert.ts';
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { type Parameter, type Queryable, type Row, type Store, placesFrom } from './contract.ts';

export const NO_LEASE = `lease_owner = '', lease_until_ms = 0`;

/** Longest time between two runs of a job. */
export const LONGEST_PAUSE_MS = 10 * MINUTE_MS;

export interface LeaseOptions {
  readonly store: Store;
  /** Unique for the process. */
  readonly owner: string;
  readonly leaseMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

export interface LeasedTableParts<Job> extends LeaseOptions {
  /** It has the columns `lease_owner` and `lease_until_ms`. */
  readonly table: string;
  /** Column of the primary key; default: `id`. */
  readonly key?: string;
  /** Column with the time at which there is work; default: `due_ms`. */
  readonly due?: string;
  /**
   * SQL of the longest pause in ms; default: `LONGEST_PAUSE_MS`. A time after it is due too: it was
   * written before the clock was set back.
   */
  readonly longestPause?: string;
  readonly columns: string;
  readonly jobOf: (row: Row) => Job;
  /** SQL condition for rows with work left. */
  readonly open: string;
}

export class LeasedTable<Job> {
  readonly #parts: Required<LeasedTableParts<Job>>;
  /** Rows that this process works on. */
  readonly #held = new Set<string>();
  readonly owner: string;
  protected readonly store: Store;
  protected readonly clock: Clock;
  protected readonly leaseMs: number;

  constructor(parts: LeasedTableParts<Job>) {
    const longestPause = String(LONGEST_PAUSE_MS);
    this.#parts = { key: 'id', due: 'due_ms', longestPause, ...parts };
    this.owner = parts.owner;
    this.store = parts.store;
    this.clock = parts.clock;
    this.leaseMs = parts.leaseMs;
  }

  /**
   * Leases due rows, except those of `running` and those that are held: a run can release its row
   * before it ends, and the row is claimed after the end. Also leaves out those of `accountIds`, for a
   * table with `account_id`.
   */
  async claim(
    limit: number,
    running: readonly { readonly id: string }[] = [],
    accountIds: readonly string[] = [],
  ): Promise<Job[]> {
    const { table, key, due, open, columns } = this.#parts;
    const ids = [...running.map(({ id }) => id), ...this.#held];
    const isIdle = ids.length === 0 ? '' : `AND ${key} NOT IN (${placesFrom(5, ids)})`;
    const isOther =
      accountIds.length === 0
        ? ''
        : `AND account_id NOT IN (${placesFrom(5 + ids.length, accountIds)})`;
    return await this.jobs(
      `UPDATE ${table} SET lease_owner = $1, lease_until_ms = now_ms($2) + $3
       WHERE ${this.#isFree('$1', 'now_ms($2)')} AND ${open} AND ${key} IN (
         SELECT ${key} FROM ${table}
         WHERE ${open} AND ${this.#isDue('now_ms($2)')} AND ${this.#isFree('$1', 'now_ms($2)')}
         ${isIdle} ${isOther} ORDER BY ${due} LIMIT $4)
       RETURNING ${columns}`,
      [this.owner, this.clock.nowMs(), this.leaseMs, limit, ...ids, ...accountIds],
    );
  }

  /** Rows that are due and without a lease, and stay so. `values` are those from `$4` on in `open`. */
  async due(
    limit: number,
    open = this.#parts.open,
    values: readonly Parameter[] = [],
  ): Promise<Job[]> {
    const { table, due, columns } = this.#parts;
    return await this.jobs(
      `SELECT ${columns} FROM ${table}
       WHERE (${open}) AND ${this.#isDue('now_ms($2)')} AND ${this.#isFree('$1', 'now_ms($2)')}
       ORDER BY ${due} LIMIT $3`,
      [this.owner, this.clock.nowMs(), limit, ...values],
    );
  }

  #isDue(now: string): string {
    const { due, longestPause } = this.#parts;
    return `(${due} <= ${now} OR ${due} > ${now} + ${longestPause})`;
  }

  /** An own lease can be too long: it was written before the clock was set back, and not released. */
  #isFree(owner: string, now: string): string {
    return `(lease_until_ms <= ${now}
      OR lease_owner = ${owner} AND lease_until_ms > ${now} + ${this.leaseMs})`;
  }

  /** Leases one row, due or not; `undefined` if another process has its lease or it is not open. */
  async take(id: string, open = this.#parts.open): Promise<Job | undefined> {
    const { table, key, columns } = this.#parts;
    const [job] = await this.jobs(
      `UPDATE ${table} SET lease_owner = $2, lease_until_ms = now_ms($3) + $4
       WHERE ${key} = $1 AND (${open}) AND (lease_owner = $2 OR lease_until_ms <= now_ms($3))
       RETURNING ${columns}`,
      [id, this.owner, this.clock.nowMs(), this.leaseMs],
    );
    return job;
  }

  /** Does not flush: an extension that a crash loses needs no recovery. */
  async extendLease(id: string): Promise<void> {
    const values = [this.clock.nowMs(), this.leaseMs];
    await this.store.transaction(
      async (tx) => await this.step(id, 'lease_until_ms = now_ms($3) + $4', '', values, tx),
      { durable: false },
    );
  }

  /** Renews the lease of a row while `work` runs. */
  async hold<T>(id: string, work: () => Promise<T>): Promise<T> {
    const { log } = this.#parts;
    this.#held.add(id);
    const stopRenewing = this.clock.every(this.leaseMs / 3, () => {
      this.extendLease(id).catch((error: unknown) => {
        // The lease expires, and another process continues.
        log.warn({ row: id, reason: reasonOf(error) }, 'A lease was not renewed');
      });
    });
    try {
      return await work();
    } finally {
      stopRenewing();
      this.#held.delete(id);
    }
  }

  /** Leases a row and works on it, unless this or another process already does. */
  async withLease(
    id: string,
    work: (job: Job) => Promise<void>,
    open = this.#parts.open,
  ): Promise<void> {
    if (this.#held.has(id)) return;
    await this.hold(id, async () => {
      const job = await this.take(id, open);
      if (job !== undefined) await work(job);
    });
  }

  /** Ends the leases of all other owners, for a process that knows that they are dead. */
  async freeAll(): Promise<void> {
    const sql = `UPDATE ${this.#parts.table} SET ${NO_LEASE} WHERE lease_owner NOT IN ('', $1)`;
    await this.store.query(sql, [this.owner]);
  }

  /** Releases a job, which is due again after `pauseMs`. */
  async rest(id: string, pauseMs = 0): Promise<void> {
    assert(pauseMs <= LONGEST_PAUSE_MS, 'a job would be due before its pause has ended');
    const set = `${this.#parts.due} = now_ms($3) + $4, ${NO_LEASE}`;
    await this.step(id, set, '', [this.clock.nowMs(), pauseMs]);
  }

  protected async jobs(sql: string, values: readonly Parameter[]): Promise<Job[]> {
    return (await this.store.query(sql, values)).map(this.#parts.jobOf);
  }

  /**
   * Changes a job whose lease this process has, if the condition `from` holds (empty for any
   * state). The values are `$3` and the following. Returns `false` if nothing was changed.
   */
  protected async step(
    id: string,
    set: string,
    from: string,
    values: readonly Parameter[] = [],
    db: Queryable = this.store,
  ): Promise<boolean> {
    const { table, key } = this.#parts;
    const rows = await db.query(
      `UPDATE ${table} SET ${set}
       WHERE ${key} = $1 AND lease_owner = $2 ${from && `AND ${from}`} RETURNING ${key}`,
      [id, this.owner, ...values],
    );
    return rows.length === 1;
  }
}

export interface JobWorkerParts<Job> {
  readonly name: string;
  /** How often it checks for jobs. Default: only at `nudge()` and after a job has ended. */
  readonly tickMs?: number;
  /** Leases due rows, but not those of `running`, which would wait for the end of the lease. */
  readonly claim: (running: readonly Job[]) => Promise<readonly Job[]>;
  /** Runs a job until it is released or has ended; the signal aborts when the worker stops. */
  readonly run: (job: Job, signal: AbortSignal) => Promise<void>;
  readonly failed?: (job: Job) => Promise<void>;
  readonly renew?: { readonly everyMs: number; readonly lease: (job: Job) => Promise<unknown> };
  readonly clock: Clock;
  readonly log: Log;
}

/** Claims jobs and runs them, each at most once at a time in this process. */
export class JobWorker<Job extends { readonly id: string }> {
  readonly #parts: JobWorkerParts<Job>;
  readonly #aborter = new AbortController();
  readonly #running = new Map<string, { readonly job: Job; readonly ended: Promise<void> }>();
  #claiming: Promise<void> | undefined;
  #isNudged = false;
  /** Whether the last claim has failed. */
  #hasFailed = false;
  #stopTicking: (() => void) | undefined;

  constructor(parts: JobWorkerParts<Job>) {
    this.#parts = parts;
  }

  get signal(): AbortSignal {
    return this.#aborter.signal;
  }

  /** Starts to claim jobs, after `freeAll` has ended the leases of dead processes. */
  start(freeAll: () => Promise<void> = () => Promise.resolve()): void {
    const { clock, tickMs } = this.#parts;
    this.#stopTicking =
      tickMs === undefined ? () => undefined : clock.every(tickMs, () => this.nudge());
    this.#claiming = freeAll()
      // The leases expire by themselves.
      .catch((error: unknown) => this.#warn(error, 'Leases of dead processes were not ended'))
      .finally(() => {
        this.#claiming = undefined;
        this.nudge();
      });
  }

  /** Claims jobs soon. Does nothing before the start and after the stop. */
  nudge(): void {
    if (this.#stopTicking === undefined || this.signal.aborted) return;
    this.#isNudged = true;
    this.#claiming ??= this.#claimWhileNudged();
  }

  /** Claims no further job, aborts `signal`, and resolves when all runs have ended. */
  async stop(): Promise<void> {
    this.#stopTicking?.();
    this.#aborter.abort(new Error('The server is shutting down'));
    await this.#claiming;
    await Promise.all([...this.#running.values()].map(({ ended }) => ended));
  }

  async #claimWhileNudged(): Promise<void> {
    while (this.#isNudged && !this.signal.aborted) {
      this.#isNudged = false;
      try {
        const running = [...this.#running.values()].map(({ job }) => job);
        // A lease of this process can expire while the database is slow; the job still runs.
        for (const job of await this.#parts.claim(running))
          if (!this.#running.has(job.id)) this.#take(job);
        this.#hasFailed = false;
      } catch (error) {
        // The jobs stay in the table until the next tick. An outage has a tick each second.
        if (!this.#hasFailed) this.#warn(error, 'Jobs could not be claimed');
        this.#hasFailed = true;
      }
    }
    this.#claiming = undefined;
  }

  #take(job: Job): void {
    const { run, renew, failed, clock, log, name } = this.#parts;
    const renewLease = (): void => {
      renew?.lease(job).catch((error: unknown) => {
        // The lease expires, and another worker continues.
        log.debug({ worker: name, job: job.id, reason: reasonOf(error) }, 'No lease was renewed');
      });
    };
    const stopRenewing = renew && clock.every(renew.everyMs, renewLease);
    const ended = run(job, this.signal)
      .catch(async (error: unknown) => {
        // An abort, a full disk, an unreachable database: the job is taken again later.
        if (!this.signal.aborted) this.#warn(error, 'A job failed', job.id);
        await failed?.(job).catch(() => undefined); // its lease expires
      })
      .finally(() => {
        stopRenewing?.();
        this.#running.delete(job.id);
        this.nudge();
      });
    this.#running.set(job.id, { job, ended });
  }

  #warn(error: unknown, message: string, job?: string): void {
    const { log, name: worker } = this.#parts;
    log.warn({ worker, job, reason: reasonOf(error) }, message);
  }
}
