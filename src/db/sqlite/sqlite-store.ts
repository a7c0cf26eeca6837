/**
 * The store on one SQLite file: one writer connection, one reader connection, write-ahead log.
 *
 * Group commit: transactions that arrive in one turn of the event loop share one SQLite
 * transaction, each in its own savepoint. The commit writes the log without a flush (`synchronous =
 * NORMAL`); a durable transaction resolves after a shared `fdatasync` on the thread pool. One flush
 * runs at a time and covers every commit from before it began; durable work that arrives during a
 * flush is committed after it, together. Checkpoints run on a worker thread, and large reads in a
 * child process. So the event loop never waits for the disk. The lock of another process is polled,
 * and waiting work follows in order.
 *
 * A disk that rejects writes (full, read-only, broken), or a lock that is not released, makes the
 * store unavailable: affected calls fail with `StoreUnavailable`, and the store retries until
 * writes succeed. A failed flush is never retried, because the kernel may have dropped the pages
 * and marked them clean: everything fails until the process is restarted. Whether commits that
 * waited for this flush are still there after the restart is unknown (`CommitUncertain`).
 */
import { closeSync, fdatasync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import {
  CommitUncertain,
  type DiskFailure,
  StoreUnavailable,
  diskFailure,
  isLocked,
} from '../failures.ts';
import { makeFolder } from './make-folder.ts';
import { migrateWith } from '../migrate.ts';
import type {
  FileStore,
  FileWork,
  Migration,
  Parameter,
  Queryable,
  Row,
  Statement,
  WriteOptions,
} from '../contract.ts';
import { Checkpointer, type LogLimits } from './checkpointer.ts';
import { BUSY_TIMEOUT_MS, openConnection } from './connection.ts';
import { OverviewReader } from './overview-reader.ts';
import { Statements } from './statements.ts';

/** Maximum number of transactions per commit: bounds how long the event loop is blocked. */
const MAX_GROUP = 256;
/**
 * Pages of a new file; an existing file keeps its size. A charge changes a small row in each of
 * seven tables and indexes, and writes their whole pages to the log: with 2 KiB about 40 % fewer
 * bytes than with 4 KiB, at the same CPU. With 1 KiB a group of charges needs 15 % more CPU.
 */
const PAGE_BYTES = 2_048;
const BUSY_POLL_MS = 10;
/** Statements are not cancelled here; the bound on waiting is the same as on PostgreSQL. */
const MIGRATION_TIMEOUT_MS = 600_000;
const RETRY_WRITE_MS = 2 * SECOND_MS;
/** Size of the test write that makes the disk usable again: some hundred requests. */
const RETRY_WRITE_BYTES = 1024 * 1024;

export type Flush = (fileDescriptor: number, done: (error: Error | null) => void) => void;

export const flushFile: Flush = fdatasync;

interface Refused {
  readonly work: FileWork;
  readonly reason: unknown;
}

export interface SqliteOptions {
  readonly path: string;
  readonly clock: Clock;
  readonly log: Log;
  /** For tests: another flush, for example a slow or a failing one. */
  readonly flush?: Flush;
  readonly logLimits?: Partial<LogLimits>;
}

export class SqliteStore implements FileStore {
  readonly dialect = 'sqlite';
  readonly #overviews: OverviewReader;
  commits = 0;
  changes = 0;
  readonly #writer: DatabaseSync;
  readonly #reader: DatabaseSync;
  readonly #write: Statements;
  readonly #read: Statements;
  /** Reads a number that changes only with a commit of another connection. */
  readonly #dataVersion: StatementSync;
  #seenVersion: unknown;
  #isNoticed = false;
  readonly #flush: Flush;
  readonly #checkpointer: Checkpointer;
  readonly #logFile: number;
  readonly #clock: Clock;
  readonly #diskLog: Log;
  #refusing: string | undefined;
  #stopRetrying: (() => void) | undefined;
  readonly #path: string;
  readonly #tx: Queryable;
  readonly #drainSoon = (): void => void this.#drain();
  readonly #nextTurn = (): void => {
    this.#isNoticed = false;
  };
  #queue: FileWork[] = [];
  #draining = false;
  /** Committed, and waiting for the next flush. */
  #unflushed: FileWork[] = [];
  #isFlushing = false;
  #flushFailure: StoreUnavailable | undefined;
  #closed = false;
  /** Lets `close` look again. */
  #becameIdle: (() => void) | undefined;

  constructor(options: SqliteOptions) {
    this.#path = options.path;
    this.#clock = options.clock;
    this.#diskLog = options.log;
    makeFolder(dirname(options.path));
    this.#writer = openConnection(options.path);
    this.#writer.exec(`PRAGMA page_size = ${PAGE_BYTES}; PRAGMA journal_mode = WAL`);
    this.#writer.exec('PRAGMA wal_autocheckpoint = 0');
    // The first write creates the log file, whose descriptor the flush needs.
    this.#writer.exec('CREATE TABLE IF NOT EXISTS store_migration (id TEXT PRIMARY KEY)');
    this.#writer.exec('BEGIN IMMEDIATE; DELETE FROM store_migration WHERE 0; COMMIT');
    // Left by a process that was killed during a test write.
    this.#writer.exec('DROP TABLE IF EXISTS store_retry');
    // From here on, waiting for locks happens outside SQLite, which would block the event loop.
    this.#writer.exec('PRAGMA busy_timeout = 0');
    this.#reader = openConnection(options.path);
    this.#reader.exec('PRAGMA query_only = 1');
    this.#write = new Statements(this.#writer);
    this.#tx = queryableOn(this.#write);
    this.#read = new Statements(this.#reader);
    this.#dataVersion = this.#writer.prepare('PRAGMA data_version');
    this.#dataVersion.setReturnArrays(true);
    this.#logFile = openSync(`${options.path}-wal`, 'a+');
    this.#flush = options.flush ?? flushFile;
    this.#checkpointer = new Checkpointer(options.path, options.logLimits);
    this.#overviews = new OverviewReader(options.path, this, options.clock);
  }

  readerFor(caller: string): Queryable {
    return this.#overviews.of(caller);
  }

  /** By default reads with the writer, because the reader re-reads its pages after each commit. */
  readNow(
    sql: string,
    parameters: readonly Parameter[],
    from = this.#writer.isTransaction ? this.#read : this.#write,
  ): readonly Row[] {
    try {
      return from.rows(sql, parameters);
    } catch (error) {
      // A failing disk can fail a read first.
      throw this.#reasonOf(error);
    }
  }

  noticeOthers(): boolean {
    if (this.#writer.isTransaction) return false;
    if (this.#isNoticed) return true;
    this.#isNoticed = true;
    setImmediate(this.#nextTurn);
    try {
      this.#countOthers();
    } catch (error) {
      throw this.#reasonOf(error);
    }
    return true;
  }

  #countOthers(): void {
    const [version] = this.#dataVersion.get() as unknown as readonly unknown[]; // an array, as set
    if (version === this.#seenVersion) return;
    this.#seenVersion = version;
    this.changes += 1;
  }

  async query<R>(sql: string, parameters: readonly Parameter[] = []): Promise<readonly R[]> {
    if (isRead(sql)) return this.readNow(sql, parameters, this.#read) as R[]; // the caller names its row
    return this.transaction((tx) => tx.query<R>(sql, parameters));
  }

  run(statements: readonly Statement[]): Promise<void> {
    return this.transaction((tx) => tx.run(statements));
  }

  transaction<T>(body: (tx: Queryable) => Promise<T>, options: WriteOptions = {}): Promise<T> {
    if (options.isSnapshot === true) return this.#snapshot(body);
    const { promise, resolve, reject } = Promise.withResolvers<T>();
    let ran: { readonly value: T } | undefined;
    this.write({
      durable: options.durable ?? true,
      run: async () => {
        ran = { value: await body(this.#tx) };
      },
      done: () => {
        if (ran !== undefined) resolve(ran.value);
      },
      failed: reject,
    });
    return promise;
  }

  /** Reads on a connection of its own, so that neither this server nor others wait for the end. */
  async #snapshot<T>(body: (tx: Queryable) => Promise<T>): Promise<T> {
    const database = openConnection(this.#path);
    try {
      database.exec('PRAGMA query_only = 1; BEGIN');
      return await body(queryableOn(new Statements(database)));
    } catch (error) {
      throw this.#reasonOf(error);
    } finally {
      database.close();
    }
  }

  write(work: FileWork): void {
    if (this.#closed) return work.failed(new Error('The store is closed'));
    if (this.#flushFailure !== undefined) return work.failed(this.#flushFailure);
    this.#queue.push(work);
    // It starts when this flush ends, with all work that has arrived by then.
    if (work.durable && this.#isFlushing) return;
    this.#drainLater();
  }

  /** Runs at the end of this turn of the event loop, to collect the work of the turn. */
  #drainLater(): void {
    if (this.#draining) return;
    this.#draining = true;
    setImmediate(this.#drainSoon);
  }

  async migrate(migrations: readonly Migration[]): Promise<void> {
    await migrateWith(this, migrations, MIGRATION_TIMEOUT_MS);
  }

  unavailable(): string | undefined {
    return this.#flushFailure?.message ?? this.#refusing;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#stopRetrying?.();
    while (this.#draining || this.#isFlushing) {
      await new Promise<void>((resolve) => (this.#becameIdle = resolve));
    }
    await this.#overviews.close();
    await this.#checkpointer.close();
    closeSync(this.#logFile);
    this.#reader.close();
    this.#writer.close();
    if (this.#flushFailure !== undefined) throw this.#flushFailure;
  }

  async #drain(): Promise<void> {
    const log = this.#checkpointer;
    if (log.pause !== undefined) await log.pause;
    const group = this.#queue.splice(0, MAX_GROUP);
    try {
      if (!this.#hasBegun(Infinity)) await this.#beginLater();
      this.#countOthers();
      const refused: Refused[] = [];
      let done: readonly FileWork[] = group;
      const [only] = group;
      // A single body needs no savepoint: a rollback undoes only its writes.
      if (group.length > 1) done = await this.#runInSavepoints(group, refused);
      else {
        this.changes += 1;
        const running = only?.run(this.#write);
        if (running !== undefined) await running;
      }
      this.#write.execute('COMMIT', NOTHING);
      this.commits += 1;
      for (const { work, reason } of refused) work.failed(reason);
      for (const work of done) {
        if (work.durable) this.#unflushed.push(work);
        else work.done();
      }
      if (this.#unflushed.length > 0 && !this.#isFlushing) this.#flushCommits();
      for (const work of done) work.committed?.();
    } catch (error) {
      // BEGIN, COMMIT or the only body failed: nothing of the group was applied.
      if (this.#writer.isTransaction) this.#writer.exec('ROLLBACK');
      this.changes += 1;
      const reason = this.#reasonOf(error);
      for (const work of group) work.failed(reason);
    }
    log.commits += 1;
    if (log.commits % log.checkEvery === 0) log.check();
    // The rest runs in the next turn, to let other work run.
    if (this.#queue.length > 0) setImmediate(this.#drainSoon);
    else {
      this.#draining = false;
      this.#becameIdle?.();
    }
  }

  /** Begins a transaction; `false` while another process has the lock, until `untilMs`. */
  #hasBegun(untilMs: number): boolean {
    try {
      this.#write.execute('BEGIN IMMEDIATE', NOTHING);
      return true;
    } catch (error) {
      // Usually released within milliseconds.
      if (isLocked(error) && this.#clock.monotonicMs() < untilMs) return false;
      throw error;
    }
  }

  async #beginLater(): Promise<void> {
    const untilMs = this.#clock.monotonicMs() + BUSY_TIMEOUT_MS;
    do await this.#clock.sleep(BUSY_POLL_MS);
    while (!this.#hasBegun(untilMs));
  }

  /**
   * Runs each body in a savepoint, so that a failing one does not affect the others. Failed work is
   * added to `refused` and notified later, once, since the commit may still fail for all.
   */
  async #runInSavepoints(
    group: readonly FileWork[],
    refused: Refused[],
  ): Promise<readonly FileWork[]> {
    const done: FileWork[] = [];
    for (const work of group) {
      this.#write.execute('SAVEPOINT job', NOTHING);
      try {
        this.changes += 1;
        const running = work.run(this.#write);
        if (running !== undefined) await running;
        done.push(work);
      } catch (error) {
        // A disk failure can roll back the whole transaction: nothing of the group was applied.
        if (!this.#writer.isTransaction) throw error;
        // The body failed: roll back only its own writes.
        this.#write.execute('ROLLBACK TO job', NOTHING);
        this.changes += 1;
        refused.push({ work, reason: this.#reasonOf(error) });
      }
      this.#write.execute('RELEASE job', NOTHING);
    }
    return done;
  }

  #flushCommits(): void {
    this.#isFlushing = true;
    const covered = this.#unflushed;
    this.#unflushed = [];
    if (this.#flushFailure !== undefined) return this.#flushed(covered);
    this.#flush(this.#logFile, (error) => {
      // A failed flush means lost commits: nothing after it can be trusted.
      if (error !== null && this.#flushFailure === undefined) {
        const problem = 'The database could not be flushed to disk';
        this.#flushFailure = new StoreUnavailable(problem, { cause: error });
        const fields = { reason: problem, advice: 'check the disk, then restart the server' };
        this.#diskLog.error(fields, 'The database rejects writes until the server is restarted');
      }
      this.#flushed(covered);
    });
  }

  #flushed(covered: readonly FileWork[]): void {
    const failure = this.#flushFailure;
    for (const work of covered) {
      if (failure === undefined) work.done();
      else work.failed(new CommitUncertain(failure.message, { cause: failure }));
    }
    // Work that has not run yet must have no effect.
    if (failure !== undefined) for (const work of this.#queue.splice(0)) work.failed(failure);
    if (this.#queue.length > 0) this.#drainLater();
    if (this.#unflushed.length > 0) this.#flushCommits();
    else {
      this.#isFlushing = false;
      this.#becameIdle?.();
    }
  }

  /** Returns the error for the caller; a disk failure makes the store unavailable. */
  #reasonOf(error: unknown): unknown {
    const refusing = diskFailure(error);
    if (refusing === undefined) return error;
    if (this.#refusing === undefined && !this.#closed) this.#becomeUnavailable(refusing);
    return new StoreUnavailable(refusing.problem, { cause: error });
  }

  #becomeUnavailable({ problem, advice, isDamage }: DiskFailure): void {
    this.#refusing = problem;
    this.#diskLog.error({ reason: problem, advice }, 'The database rejects writes');
    // With damage, a test write elsewhere in the file could succeed, so do not retry.
    if (isDamage === true) return;
    let isTrying = false;
    this.#stopRetrying = this.#clock.every(RETRY_WRITE_MS, () => {
      if (isTrying) return;
      isTrying = true;
      void this.#canWrite().then((can) => {
        isTrying = false;
        if (can && !this.#closed) this.#becomeAvailable();
      });
    });
  }

  #becomeAvailable(): void {
    this.#stopRetrying?.();
    this.#stopRetrying = undefined;
    this.#refusing = undefined;
    this.#diskLog.info({}, 'The database accepts writes again');
  }

  /** Writes a large row temporarily, since a small one may still fit on a full disk. */
  async #canWrite(): Promise<boolean> {
    try {
      await this.transaction(async (tx) => {
        await tx.query('CREATE TABLE IF NOT EXISTS store_retry (filler BLOB)');
        await tx.query('INSERT INTO store_retry (filler) VALUES (zeroblob($1))', [
          RETRY_WRITE_BYTES,
        ]);
      });
      await this.transaction((tx) => tx.query('DROP TABLE IF EXISTS store_retry'));
      return true;
    } catch {
      // Not yet; the next try follows.
      return false;
    }
  }
}

const NOTHING: readonly Parameter[] = [];

/** `query` names its row type at the call. */
function queryableOn(statements: Statements): Queryable {
  return {
    query: async <R>(sql: string, parameters: readonly Parameter[] = []) =>
      statements.rows(sql, parameters) as R[],
    run: async (all: readonly Statement[]) => {
      for (const { sql, parameters } of all) statements.rows(sql, parameters);
    },
  };
}

const READ = /^\s*(?:SELECT\b|WITH\b(?![\s\S]*\b(?:INSERT|UPDATE|DELETE)\b))/i;

function isRead(sql: string): boolean {
  return READ.test(sql);
}
