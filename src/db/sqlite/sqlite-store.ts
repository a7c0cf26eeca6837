/**
 * The store on one SQLite file: one writer connection, one reader connection, write-ahead log.
 *
 * Group commit: transactions that arrive in one turn of the event loop share one SQLite
 * transaction, each inside its own savepoint. The commit writes the log without a flush
 * (`synchronous = NORMAL`); the answer of a durable transaction waits for one shared `fdatasync`
 * on the thread pool: one at a time, and whoever committed before it began is covered by it. What
 * comes during one waits for its end in any case, so it is committed then, together.
 * Checkpoints run on a worker thread, reads of very many rows in a process. So the event loop never waits
 * for the disk, and a promise that has resolved is on it. Nor does it wait for the lock of another
 * process: that is asked for again and again, and whoever comes meanwhile is answered after it.
 *
 * A disk that refuses to write (full, read-only, broken), or a lock that is not given back, makes the
 * store unavailable: what fails by it is a `StoreUnavailable`, and the store tries to write until that
 * works again. After a failed flush the pages may be lost while the kernel calls them clean, so that is
 * never tried again: everything fails until the process is restarted.
 */
import { closeSync, fdatasync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import { type DiskFailure, StoreUnavailable, diskFailure, isLocked } from '../failures.ts';
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

/** Transactions that share one commit, at most: bounds how long the loop works in one go. */
const MAX_GROUP = 256;
/** How often a lock of another process is asked for. */
const BUSY_POLL_MS = 10;
/** Nothing breaks a statement off here; the bound is the same as on PostgreSQL. */
const MIGRATION_TIMEOUT_MS = 600_000;
/** How often a store whose disk refused to write tries again. */
const RETRY_WRITE_MS = 2 * SECOND_MS;
/** What the disk has to take before it counts as usable again: some hundred requests. */
const RETRY_WRITE_BYTES = 1024 * 1024;

export type Flush = (fileDescriptor: number, done: (error: Error | null) => void) => void;

export const flushFile: Flush = fdatasync;

/** A work whose own writes were undone. */
interface Refused {
  readonly work: FileWork;
  readonly reason: unknown;
}

/** A transaction whose caller waits for a promise. */
class BodyWork<T> implements FileWork {
  readonly durable: boolean;
  readonly #body: () => Promise<T>;
  readonly #resolve: (value: T) => void;
  readonly #reject: (error: unknown) => void;
  /** What the body gave, until its commit is on disk. */
  #given: { readonly value: T } | undefined;

  constructor(
    body: () => Promise<T>,
    durable: boolean,
    ends: Pick<PromiseWithResolvers<T>, 'resolve' | 'reject'>,
  ) {
    this.durable = durable;
    this.#body = body;
    this.#resolve = ends.resolve;
    this.#reject = ends.reject;
  }

  async run(): Promise<void> {
    this.#given = { value: await this.#body() };
  }

  done(): void {
    if (this.#given !== undefined) this.#resolve(this.#given.value);
  }

  failed(error: unknown): void {
    this.#reject(error);
  }
}

export interface SqliteOptions {
  /** The database file; its folder is made. */
  readonly path: string;
  readonly clock: Clock;
  readonly log: Log;
  /** For tests: another flush, for example a slow or a failing one. */
  readonly flush?: Flush;
  /** For tests: when the log is copied and begun anew. */
  readonly logLimits?: Partial<LogLimits>;
}

export class SqliteStore implements FileStore {
  readonly dialect = 'sqlite';
  readonly #overviews: OverviewReader;
  /** Transactions that were committed. */
  commits = 0;
  changes = 0;
  readonly #writer: DatabaseSync;
  readonly #reader: DatabaseSync;
  readonly #write: Statements;
  readonly #read: Statements;
  /** Asks for a number that is another one after a commit of another connection, and only then. */
  readonly #dataVersion: StatementSync;
  #seenVersion: unknown;
  #isNoticed = false;
  readonly #flush: Flush;
  readonly #checkpointer: Checkpointer;
  readonly #logFile: number;
  readonly #clock: Clock;
  readonly #diskLog: Log;
  /** Why the disk does not take writes, until it does. */
  #refusing: string | undefined;
  #stopRetrying: (() => void) | undefined;
  /** `query` names its row type at the call. */
  readonly #tx: Queryable = {
    query: async <R>(sql: string, parameters: readonly Parameter[] = []) =>
      this.#write.rows(sql, parameters) as R[],
    run: async (statements: readonly Statement[]) => {
      for (const { sql, parameters } of statements) this.#write.rows(sql, parameters);
    },
  };
  readonly #drainSoon = (): void => void this.#drain();
  readonly #nextTurn = (): void => {
    this.#isNoticed = false;
  };
  #queue: FileWork[] = [];
  #draining = false;
  /** Committed, and waiting for a flush that begins later. */
  #unflushed: FileWork[] = [];
  #isFlushing = false;
  #flushFailure: StoreUnavailable | undefined;
  #closed = false;

  constructor(options: SqliteOptions) {
    this.#clock = options.clock;
    this.#diskLog = options.log;
    makeFolder(dirname(options.path));
    this.#writer = openConnection(options.path);
    this.#writer.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0');
    // The first write makes the log file, whose descriptor the flush needs.
    this.#writer.exec('CREATE TABLE IF NOT EXISTS store_migration (id TEXT PRIMARY KEY)');
    this.#writer.exec('BEGIN IMMEDIATE; DELETE FROM store_migration WHERE 0; COMMIT');
    // Left by a process that was killed while it tried whether the disk takes writes again.
    this.#writer.exec('DROP TABLE IF EXISTS store_retry');
    // From here on it is waited for outside SQLite, which would hold up the event loop.
    this.#writer.exec('PRAGMA busy_timeout = 0');
    this.#reader = openConnection(options.path);
    this.#reader.exec('PRAGMA query_only = 1');
    this.#write = new Statements(this.#writer);
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

  /** Unless it is said, from the writer: the reader reads its pages anew after each commit. */
  readNow(
    sql: string,
    parameters: readonly Parameter[],
    from = this.#writer.isTransaction ? this.#read : this.#write,
  ): readonly Row[] {
    try {
      return from.rows(sql, parameters);
    } catch (error) {
      // A disk that fails can fail a read first.
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
    const ends = Promise.withResolvers<T>();
    this.write(new BodyWork(() => body(this.#tx), options.durable ?? true, ends));
    return ends.promise;
  }

  write(work: FileWork): void {
    if (this.#closed) return work.failed(new Error('The store is closed'));
    if (this.#flushFailure !== undefined) return work.failed(this.#flushFailure);
    this.#queue.push(work);
    // It is begun when this flush ends, with all that has come by then.
    if (work.durable && this.#isFlushing) return;
    this.#drainLater();
  }

  /** At the end of this turn of the event loop, so that what comes in it goes together. */
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
    while (this.#draining || this.#isFlushing)
      await new Promise((resolve) => setImmediate(resolve));
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
      // Alone, a body needs no savepoint: what it undoes is all there is.
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
    } catch (error) {
      // BEGIN, COMMIT or the only body failed: nobody of the group got anything.
      if (this.#writer.isTransaction) this.#writer.exec('ROLLBACK');
      this.changes += 1;
      const reason = this.#reasonOf(error);
      for (const work of group) work.failed(reason);
    }
    log.commits += 1;
    if (log.commits % log.lookEvery === 0) log.look();
    // What is left is for the next turn, so that others have theirs.
    if (this.#queue.length > 0) setImmediate(this.#drainSoon);
    else this.#draining = false;
  }

  /** Begins a transaction; `false` while another process has the lock, an error from `untilMs` on. */
  #hasBegun(untilMs: number): boolean {
    try {
      this.#write.execute('BEGIN IMMEDIATE', NOTHING);
      return true;
    } catch (error) {
      // Most hold it for milliseconds.
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
   * A body's writes stand or are undone by themselves; its neighbours stand either way. What was undone
   * is added to `refused` and hears of it later, once: the commit may fail for all.
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
        // A disk failure can have undone the whole transaction: nobody of the group got anything.
        if (!this.#writer.isTransaction) throw error;
        // The body refused or failed: only its own writes are undone.
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
      // A lost flush means lost commits: nothing after it can be trusted.
      if (error !== null && this.#flushFailure === undefined) {
        const told = 'The database could not be flushed to disk';
        this.#flushFailure = new StoreUnavailable(told, { cause: error });
        const fields = { reason: told, advice: 'look at the disk, then start the server anew' };
        this.#diskLog.error(fields, 'The database takes no writes until the server is restarted');
      }
      this.#flushed(covered);
    });
  }

  #flushed(covered: readonly FileWork[]): void {
    for (const work of covered) {
      if (this.#flushFailure === undefined) work.done();
      else work.failed(this.#flushFailure);
    }
    if (this.#queue.length > 0) this.#drainLater();
    if (this.#unflushed.length > 0) this.#flushCommits();
    else this.#isFlushing = false;
  }

  /** The error as its caller gets it; a disk that refuses makes the store unavailable. */
  #reasonOf(error: unknown): unknown {
    const refusing = diskFailure(error);
    if (refusing === undefined) return error;
    if (this.#refusing === undefined && !this.#closed) this.#becomeUnavailable(refusing);
    return new StoreUnavailable(refusing.told, { cause: error });
  }

  #becomeUnavailable({ told, advice, isDamage }: DiskFailure): void {
    this.#refusing = told;
    this.#diskLog.error({ reason: told, advice }, 'The database takes no writes');
    // Elsewhere in the file a write may succeed, and a damaged place stays damaged.
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
    this.#diskLog.info({}, 'The database takes writes again');
  }

  /** Writes something large for a moment: one small row may still fit on a disk that is full. */
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
      // Not yet; the next try is due soon.
      return false;
    }
  }
}

const NOTHING: readonly Parameter[] = [];

const READ = /^\s*(?:SELECT\b|WITH\b(?![\s\S]*\b(?:INSERT|UPDATE|DELETE)\b))/i;

function isRead(sql: string): boolean {
  return READ.test(sql);
}
