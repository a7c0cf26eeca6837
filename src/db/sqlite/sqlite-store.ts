/**
 * The store on one SQLite file: one writer connection, one reader connection, write-ahead log.
 *
 * Group commit: transactions that arrive in one turn of the event loop share one SQLite
 * transaction, each inside its own savepoint. The commit writes the log without a flush
 * (`synchronous = NORMAL`); the answer of a durable transaction waits for one shared `fdatasync`
 * on the thread pool. Checkpoints run on a worker thread. So the event loop never waits for the
 * disk, and a promise that has resolved is on it.
 *
 * A disk that refuses to write (full, read-only, broken) makes the store unavailable: what fails by
 * it is a `StoreUnavailable`, and the store tries to write until that works again.
 */
import { closeSync, openSync } from 'node:fs';
import { dirname } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import { StoreUnavailable, diskFailure } from '../failures.ts';
import { makeFolder } from './make-folder.ts';
import { migrateWith } from '../migrate.ts';
import type { Migration, Parameter, Queryable, Store, WriteOptions } from '../contract.ts';
import { Checkpointer, type LogLimits } from './checkpointer.ts';
import { type Flush, Flusher, flushFile } from './flusher.ts';
import { Statements } from './statements.ts';

/** Transactions that share one commit, at most: bounds how long the loop works in one go. */
const MAX_GROUP = 256;
/** How long a second process (a command line beside the server) is waited for. */
const BUSY_TIMEOUT_MS = 5_000;
/** Nothing breaks a statement off here; the bound is the same as on PostgreSQL. */
const MIGRATION_TIMEOUT_MS = 600_000;
/** How often a store whose disk refused to write tries again. */
const RETRY_WRITE_MS = 2 * SECOND_MS;
/** What the disk has to take before it counts as usable again: some hundred requests. */
const RETRY_WRITE_BYTES = 1024 * 1024;

interface Job {
  readonly body: (tx: Queryable) => Promise<unknown>;
  readonly durable: boolean;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
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

export class SqliteStore implements Store {
  readonly dialect = 'sqlite';
  readonly #writer: DatabaseSync;
  readonly #reader: DatabaseSync;
  readonly #write: Statements;
  readonly #read: Statements;
  readonly #flusher: Flusher;
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
      this.#write.run(sql, parameters) as R[],
  };
  #queue: Job[] = [];
  #draining = false;
  #closed = false;

  constructor(options: SqliteOptions) {
    this.#clock = options.clock;
    this.#diskLog = options.log;
    makeFolder(dirname(options.path));
    this.#writer = openConnection(options.path);
    this.#writer.exec('PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0');
    // The first write makes the log file, whose descriptor the flusher needs.
    this.#writer.exec('CREATE TABLE IF NOT EXISTS store_migration (id TEXT PRIMARY KEY)');
    this.#writer.exec('BEGIN IMMEDIATE; DELETE FROM store_migration WHERE 0; COMMIT');
    // Left by a process that was killed while it tried whether the disk takes writes again.
    this.#writer.exec('DROP TABLE IF EXISTS store_retry');
    this.#reader = openConnection(options.path);
    this.#reader.exec('PRAGMA query_only = 1');
    this.#write = new Statements(this.#writer);
    this.#read = new Statements(this.#reader);
    this.#logFile = openSync(`${options.path}-wal`, 'a+');
    this.#flusher = new Flusher(this.#logFile, options.flush ?? flushFile);
    this.#checkpointer = new Checkpointer(options.path, options.logLimits);
  }

  async query<R>(sql: string, parameters: readonly Parameter[] = []): Promise<readonly R[]> {
    if (!isRead(sql)) return this.transaction((tx) => tx.query<R>(sql, parameters));
    try {
      return this.#read.run(sql, parameters) as R[]; // the caller names its row
    } catch (error) {
      // A disk that fails can fail a read first.
      throw this.#reasonOf(error);
    }
  }

  transaction<T>(body: (tx: Queryable) => Promise<T>, options: WriteOptions = {}): Promise<T> {
    if (this.#closed) return Promise.reject(new Error('The store is closed'));
    return new Promise<T>((resolve, reject) => {
      this.#queue.push({
        body,
        durable: options.durable ?? true,
        resolve: resolve as (value: unknown) => void, // the job carries its own T
        reject,
      });
      if (!this.#draining) {
        this.#draining = true;
        setImmediate(() => void this.#drain());
      }
    });
  }

  async migrate(migrations: readonly Migration[]): Promise<void> {
    await migrateWith(this, migrations, MIGRATION_TIMEOUT_MS);
  }

  unavailable(): string | undefined {
    return this.#flusher.failure?.message ?? this.#refusing;
  }

  async close(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    this.#stopRetrying?.();
    while (this.#draining) await new Promise((resolve) => setImmediate(resolve));
    await this.#flusher.durable();
    await this.#checkpointer.close();
    closeSync(this.#logFile);
    this.#reader.close();
    this.#writer.close();
  }

  async #drain(): Promise<void> {
    while (this.#queue.length > 0) {
      if (this.#checkpointer.pause !== undefined) await this.#checkpointer.pause;
      const group = this.#queue.splice(0, MAX_GROUP);
      try {
        await this.#commitGroup(group);
      } catch (error) {
        // BEGIN, COMMIT or the only body failed: nobody of the group got anything.
        if (this.#writer.isTransaction) this.#writer.exec('ROLLBACK');
        const reason = this.#reasonOf(error);
        for (const job of group) job.reject(reason);
      }
      this.#checkpointer.committed();
    }
    this.#draining = false;
  }

  async #commitGroup(group: readonly Job[]): Promise<void> {
    const answers: (() => void)[] = [];
    this.#write.run('BEGIN IMMEDIATE', []);
    const [only] = group;
    if (group.length === 1 && only !== undefined) {
      // Alone, a body needs no savepoint: what it undoes is all there is.
      answers.push(this.#answer(only, await only.body(this.#tx)));
    } else {
      for (const job of group) answers.push(await this.#runInSavepoint(job));
    }
    this.#write.run('COMMIT', []);
    for (const answer of answers) answer();
  }

  /** The body's writes stand or are undone by themselves; its neighbours stand either way. */
  async #runInSavepoint(job: Job): Promise<() => void> {
    this.#write.run('SAVEPOINT job', []);
    try {
      const value = await job.body(this.#tx);
      this.#write.run('RELEASE job', []);
      return this.#answer(job, value);
    } catch (error) {
      // A disk failure can have undone the whole transaction: nobody of the group got anything.
      if (!this.#writer.isTransaction) throw error;
      // The body refused or failed: only its own writes are undone.
      this.#write.run('ROLLBACK TO job', []);
      this.#write.run('RELEASE job', []);
      const reason = this.#reasonOf(error);
      return () => job.reject(reason);
    }
  }

  /** The error as its caller gets it; a disk that refuses makes the store unavailable. */
  #reasonOf(error: unknown): unknown {
    const refusing = diskFailure(error);
    if (refusing === undefined) return error;
    if (this.#refusing === undefined && !this.#closed) this.#becomeUnavailable(refusing);
    return new StoreUnavailable(refusing, { cause: error });
  }

  #becomeUnavailable(refusing: string): void {
    this.#refusing = refusing;
    this.#diskLog.error({ reason: refusing }, 'The database takes no writes');
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

  #answer(job: Job, value: unknown): () => void {
    return job.durable ? this.#afterFlush(job, value) : () => job.resolve(value);
  }

  #afterFlush(job: Job, value: unknown): () => void {
    return () => {
      this.#flusher.durable().then(
        () => job.resolve(value),
        (error: unknown) => job.reject(error),
      );
    };
  }
}

function openConnection(path: string): DatabaseSync {
  const database = openFile(path);
  database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}; PRAGMA synchronous = NORMAL`);
  // In KiB. A larger cache fills for hours and gives no speed: what a settle needs is a few pages.
  database.exec('PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY');
  return database;
}

/** SQLite does not say which file it could not open. */
function openFile(path: string): DatabaseSync {
  try {
    return new DatabaseSync(path);
  } catch (error) {
    throw new Error(`The database file ${path} cannot be opened: ${reasonOf(error)}`, {
      cause: error,
    });
  }
}

const READ = /^\s*(?:SELECT\b|WITH\b(?![\s\S]*\b(?:INSERT|UPDATE|DELETE)\b))/i;

function isRead(sql: string): boolean {
  return READ.test(sql);
}
