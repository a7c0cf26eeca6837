/**
 * The database interface: one SQL text for SQLite and PostgreSQL, asynchronous and set-based.
 *
 * - Placeholders are `$1`, `$2`, … on both. Integers are `bigint`, text is `string`, bytes are
 *   `Buffer`; a truth value is 0 or 1 in a BIGINT column.
 * - `FOR UPDATE` locks rows on PostgreSQL and is removed on SQLite. A list of texts is the
 *   parameter `$n` of `SELECT json_array_elements_text($n::json)`, as JSON.
 * - `now_ms($n)` is the Unix time in milliseconds: the database clock on PostgreSQL, which all
 *   processes share, and the parameter on SQLite. It is the same for all rows of a statement.
 * - `query` (for a writing statement) and `transaction` resolve when the change is durable on disk,
 *   unless called with `{ durable: false }`.
 * - A transaction body awaits nothing but its own `tx`, because on SQLite it blocks all other
 *   writers. It may run again after a serialization failure, so it has no effect outside the
 *   database.
 *
 * Tables carry the prefix of their folder and are used in that folder only.
 */

import { assert } from '../core/assert.ts';

export type Dialect = 'sqlite' | 'postgres';

export type Parameter = string | number | bigint | null | Uint8Array;

export type Column = string | number | bigint | null | Buffer;

export type Row = Readonly<Record<string, Column>>;

export interface Statement {
  readonly sql: string;
  readonly parameters: readonly Parameter[];
}

export interface Queryable {
  query<R = Row>(sql: string, parameters?: readonly Parameter[]): Promise<readonly R[]>;
  /**
   * Runs statements without returning rows. Consecutive writes may run as one statement, so none
   * may read what another one writes. Within a transaction, a failing statement may reject only the
   * transaction.
   */
  run(statements: readonly Statement[]): Promise<void>;
}

export interface WriteOptions {
  /** `false` resolves before the change is on disk, for changes that a crash may undo. */
  readonly durable?: boolean;
  /** All statements see the rows as of the first one; only reads, which no write waits for. */
  readonly isSnapshot?: boolean;
  /** Time limit per statement in milliseconds, if longer than that of a request. */
  readonly timeoutMs?: number;
  /** The body runs `SET_LOCK_TIMEOUT`: without the lock, it is not repeated at once. */
  readonly limitsLockWait?: boolean;
}

export interface Store extends Queryable {
  readonly dialect: Dialect;
  /** Runs `body` in one atomic transaction; retried on serialization failures. */
  transaction<T>(body: (tx: Queryable) => Promise<T>, options?: WriteOptions): Promise<T>;
  migrate(migrations: readonly Migration[]): Promise<void>;
  /**
   * Returns a reader for large reads that may be slightly stale; uses replicas if there are any.
   * Reads take turns by caller: an account, or an empty name for the operator.
   */
  readerFor(caller: string): Queryable;
  /** Returns why the database is unreachable, or `undefined`. */
  unavailable(): string | undefined;
  close(): Promise<void>;
}

/** Notifications between processes. They can be lost: use them for latency only. */
export interface Notices {
  /** Whether notifications are currently delivered, checked by a notification to this process. */
  readonly areDelivered: boolean;
  /** Notifies every listening process, this one included. A message is below 8,000 bytes. */
  notify(message: string): Promise<void>;
  close(): void;
}

export interface SharedStore extends Store {
  readonly dialect: 'postgres';
  /** Number of times the connection was lost since it was opened. */
  readonly losses: number;
  /** Listens until closed, on one connection per store; resolves after the first delivery check. */
  listen(received: (message: string) => void): Promise<Notices>;
  /** Returns a statement that sends a notification when its transaction commits. */
  notification(message: string): Statement;
}

export function isShared(store: Store): store is SharedStore {
  return store.dialect === 'postgres';
}

export interface FileStore extends Store {
  readonly dialect: 'sqlite';
  /** Returns the rows of a SELECT synchronously, as last committed. */
  readNow(sql: string, parameters: readonly Parameter[]): readonly Row[];
  /**
   * Counts events that may have changed rows: each work when it starts, each rollback, and commits
   * of other processes, which are detected when a transaction begins.
   */
  readonly changes: number;
  /**
   * Detects commits of other processes between transactions, once per turn of the event loop; costs
   * 8 µs, mostly for locks. Returns `false` while a transaction is open.
   */
  noticeOthers(): boolean;
  /** Runs the work in the next transaction, and calls its `done` when it is on disk. */
  write(work: FileWork): void;
}

/** Returns what is made for the kind of the store: a file of one server, or shared by processes. */
export function byStore<T>(
  store: Store,
  make: { readonly file: (store: FileStore) => T; readonly shared: (store: SharedStore) => T },
): T {
  if (isShared(store)) return make.shared(store);
  assert(isFile(store), 'a store is a file or shared');
  return make.file(store);
}

function isFile(store: Store): store is FileStore {
  return store.dialect === 'sqlite';
}

/** An open transaction on a file; all calls are synchronous. */
export interface FileTransaction {
  rows(sql: string, parameters: readonly Parameter[]): readonly Row[];
  execute(sql: string, parameters: readonly Parameter[]): void;
}

/** Work of one transaction without a promise: either `done` or `failed` is called, once. */
export interface FileWork {
  /** Awaits only the transaction. An error rolls back this work alone. */
  run(tx: FileTransaction): void | Promise<void>;
  /** Called after the commit, while the flush runs; must not throw. The changes can still be lost. */
  committed?(): void;
  done(): void;
  /** Called when the changes were rolled back, or lost before they were on disk. */
  failed(error: unknown): void;
  /** `false` calls `done` at the commit, before it is on disk. */
  readonly durable: boolean;
}

/**
 * On PostgreSQL every later statement on a table waits behind a change of the table that waits for a
 * long read, such as an audit or a backup. So a transaction that changes tables waits for a shorter
 * time than the statement timeout of a charge, and is not repeated at once. PostgreSQL ends an
 * automatic vacuum that is in the way after one second.
 */
export const SET_LOCK_TIMEOUT = 'SET LOCAL lock_timeout = 1500';

/** Returns the placeholders of an `IN (…)` list that starts with `$first`. */
export function placesFrom(first: number, values: readonly unknown[]): string {
  return values.map((_value, at) => `$${first + at}`).join(', ');
}

/** One step of the schema. `id` is `<folder>-<number>`, never changed once released. */
export interface Migration {
  readonly id: string;
  /** Statements separated by `;` at line ends, valid on both; or one text for each dialect. */
  readonly up: string | { readonly sqlite: string; readonly postgres: string };
}
