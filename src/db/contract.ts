/**
 * The database seam: one SQL text for SQLite and PostgreSQL, asynchronous and set-based.
 *
 * - Placeholders are `$1`, `$2`, … on both. Integers come back as `bigint`, text as `string`, bytes
 *   as `Buffer`; booleans are stored as 0 and 1 in BIGINT columns.
 * - `FOR UPDATE` locks rows in a shared database and is left out for a file. A list of texts is the
 *   parameter `$n` of `SELECT json_array_elements_text($n::json)`, as JSON.
 * - `now_ms($n)` is the time in milliseconds since 1970: of a shared database by its own clock, the one
 *   that all processes share, and of a file the parameter. It is the same for all rows of a statement.
 * - A promise of `query` (for a writing statement) or `transaction` resolves when the change is
 *   durable on disk, unless the call says `{ durable: false }`.
 * - A transaction body awaits nothing but its own `tx`: on SQLite no other one writes meanwhile.
 *   It may be run again after a serialization failure, so it has no effect outside the database.
 *
 * The store does not know what a table means; a folder's tables carry the folder's prefix and are
 * named in its folder only.
 */

export type Dialect = 'sqlite' | 'postgres';

export type Parameter = string | number | bigint | boolean | null | Uint8Array;

export type Column = string | number | bigint | null | Buffer;

export type Row = Readonly<Record<string, Column>>;

export interface Statement {
  readonly sql: string;
  readonly parameters: readonly Parameter[];
}

export interface Queryable {
  /** Runs one statement; rows of a SELECT or a RETURNING clause. */
  query<R = Row>(sql: string, parameters?: readonly Parameter[]): Promise<readonly R[]>;
  /**
   * Runs statements one after the other, for what they change. Those of equal text that follow each
   * other may run as one, so that each changes another row. Within a transaction, one that fails may
   * reject only the transaction.
   */
  run(statements: readonly Statement[]): Promise<void>;
}

export interface WriteOptions {
  /** `false` lets the promise resolve before the change is on disk: for what a crash may undo. */
  readonly durable?: boolean;
  /** Each statement sees the rows as they were when the first one began. */
  readonly isSnapshot?: boolean;
  /** How long each statement may take, in milliseconds, when that is more than a request may wait. */
  readonly timeoutMs?: number;
}

export interface Store extends Queryable {
  readonly dialect: Dialect;
  /** Runs `body` in one transaction: all of it or nothing; retried on serialization failures. */
  transaction<T>(body: (tx: Queryable) => Promise<T>, options?: WriteOptions): Promise<T>;
  /** Applies the migrations that this database does not have yet, in the given order. */
  migrate(migrations: readonly Migration[]): Promise<void>;
  /**
   * For reads of many rows that may be a moment old: replicas, where there are any. Callers take turns,
   * where one read has to wait for another; the name is that of an account, empty for an operator's.
   */
  readerFor(caller: string): Queryable;
  /** Whether the database answers: `undefined`, or the reason why not. */
  unavailable(): string | undefined;
  close(): Promise<void>;
}

/** Words between the processes of one database; for what makes things quick, never for what is true. */
export interface Notices {
  /** Whether a word to ourselves came back a moment ago; without that nobody should rely on them. */
  readonly arrive: boolean;
  /** To every process that listens, this one too. Below 8,000 bytes. */
  say(word: string): Promise<void>;
  /** Hears nothing more. */
  close(): void;
}

/** The store of a database that processes share. */
export interface SharedStore extends Store {
  readonly dialect: 'postgres';
  /** How often it was lost since it was opened. */
  readonly losses: number;
  /**
   * Listens until either is closed, on one connection for all of this store; resolves when it was
   * tried whether words arrive.
   */
  listen(heard: (word: string) => void): Promise<Notices>;
  /** A statement that says a word when its transaction commits. */
  saying(word: string): Statement;
}

/**
 * For a statement of PostgreSQL that is its own transaction, as a column of what it selects: its
 * commit waits for the disk only under a condition, as a transaction that is not `durable` does not.
 */
export function flushedIf(condition: string): string {
  return `set_config('synchronous_commit',
    CASE WHEN ${condition} THEN current_setting('synchronous_commit') ELSE 'off' END, true)`;
}

export function isShared(store: Store): store is SharedStore {
  return store.dialect === 'postgres';
}

/** The store of one file, which one process writes. */
export interface FileStore extends Store {
  readonly dialect: 'sqlite';
  /** The rows of a SELECT as they were last committed, at once. */
  readNow(sql: string, parameters: readonly Parameter[]): readonly Row[];
  /**
   * Counts all that may have changed a row since it was read: each work as it begins to run, all that is
   * undone, and commits of other processes, which are noticed when a transaction begins.
   */
  readonly changes: number;
  /**
   * Notices them between transactions, once in a turn of the event loop: 8 µs, most of it for locks.
   * False while a transaction is open, whose writes are not committed.
   */
  noticeOthers(): boolean;
  /** Runs the work in the next transaction; it hears by `done` that it is on disk. */
  write(work: FileWork): void;
}

/** A transaction on a file while it is open: all is done at once. */
export interface FileTransaction {
  /** The rows of a SELECT, with what the transaction has written. */
  rows(sql: string, parameters: readonly Parameter[]): readonly Row[];
  execute(sql: string, parameters: readonly Parameter[]): void;
}

/** The work of one transaction that needs no promise: one of `done` and `failed` is called, once. */
export interface FileWork {
  /** Waits for nothing but the transaction. What it throws undoes it, and nothing beside it. */
  run(tx: FileTransaction): void | Promise<void>;
  /** It is on disk. */
  done(): void;
  /** Nothing of it stands; or it was lost on its way to the disk. */
  failed(error: unknown): void;
  /** `false` hears `done` at the commit, before the disk has it. */
  readonly durable: boolean;
}

/** Places of an `IN (…)` for so many values, of which the first is `$first`. */
export function placesFrom(first: number, values: readonly unknown[]): string {
  return values.map((_value, at) => `$${first + at}`).join(', ');
}

/** One step of the schema. `id` is `<folder>-<number>`, never changed once released. */
export interface Migration {
  readonly id: string;
  /** Statements separated by `;` at line ends, valid on both; or one text for each dialect. */
  readonly up: string | { readonly sqlite: string; readonly postgres: string };
}
