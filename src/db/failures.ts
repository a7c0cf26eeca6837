/** Classifies database errors: lost connection, conflict to retry, or invalid statement. */

/** The database is unreachable. New work is rejected with 503. */
export class StoreUnavailable extends Error {
  override readonly name = 'StoreUnavailable';
}

/**
 * The write may have taken effect: its flush failed, or the reply to its commit was lost. So no error may
 * say that nothing happened.
 */
export class CommitUncertain extends StoreUnavailable {}

/** A large read exceeded its time limit; repeating it would exceed the limit again. */
export class ReadTooLong extends Error {
  override readonly name = 'ReadTooLong';
  readonly limitMs: number;

  constructor(limitMs: number, options?: ErrorOptions) {
    super('The read took too long', options);
    this.limitMs = limitMs;
  }
}

const LOCK_TIMEOUT = '55P03';
const CONFLICTS = new Set([
  '40001', // serialization failure
  '40P01', // deadlock
  LOCK_TIMEOUT, // the role has a `lock_timeout`
  '25P03', // idle in transaction: this process was paused, and the database has ended the connection
  'CR000', // retry, of CockroachDB
]);

export function isSerializationFailure(error: unknown): boolean {
  return CONFLICTS.has(codeOf(error));
}

const LOST_CODES = new Set([
  'ECONNREFUSED',
  'ECONNRESET',
  'EPIPE',
  'ETIMEDOUT',
  'ENOENT',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'ENOTFOUND',
  'EAI_AGAIN',
  '57P01', // admin shutdown
  '57P02', // crash shutdown
  '57P03', // cannot connect now
  '25006', // read-only transaction: a demoted primary
]);
const LOST_TEXT =
  /Connection terminated|Query read timeout|Client has encountered a connection error/;
/** The `pg-pool` error for a timeout in its queue, as opposed to a failed connection. */
const WAITED_TEXT = 'timeout exceeded when trying to connect';

export function isConnectionFailure(error: unknown): boolean {
  const code = codeOf(error);
  if (code.startsWith('08') || LOST_CODES.has(code)) return true;
  return error instanceof Error && LOST_TEXT.test(error.message);
}

/** Returns the error code of Node or of PostgreSQL (five characters); empty if there is none. */
export function codeOf(error: unknown): string {
  if (!(error instanceof Error) || !('code' in error)) return '';
  return typeof error.code === 'string' ? error.code : '';
}

/** All connections were in use for the whole time limit of the call: nothing was sent. */
export function isPoolWait(error: unknown): boolean {
  return error instanceof Error && error.message === WAITED_TEXT;
}

export function isOverload(error: unknown): boolean {
  return OVERLOADS.has(codeOf(error));
}

/** A statement has waited for a lock for the whole `lock_timeout`. */
export function isLockTimeout(error: unknown): boolean {
  return codeOf(error) === LOCK_TIMEOUT;
}

export function isStatementTimeout(error: unknown): boolean {
  return codeOf(error) === STATEMENT_TIMEOUT;
}

/** PostgreSQL text cannot contain NUL; a text with one came from a client. */
export function isUnstorableText(error: unknown): boolean {
  return codeOf(error) === '22021';
}

/** A prepared statement is missing, or already exists: a pooler has switched the connection. */
export function isLostStatement(error: unknown): boolean {
  return LOST_STATEMENTS.has(codeOf(error));
}

const LOST_STATEMENTS = new Set(['26000', '42P05']);

const STATEMENT_TIMEOUT = '57014';
const OVERLOADS = new Set([STATEMENT_TIMEOUT, '53300']);

export interface DiskFailure {
  readonly problem: string;
  readonly advice: string;
  /** The file itself is damaged: later writes do not fix it. */
  readonly isDamage?: true;
}

/** Returns why a SQLite file or its disk cannot be used; `undefined` for other errors. */
export function diskFailure(error: unknown): DiskFailure | undefined {
  return DISK_FAILURES.get(resultCode(error));
}

export function isLocked(error: unknown): boolean {
  return resultCode(error) === LOCKED;
}

/** SQLite's result code; the low byte is the category (https://sqlite.org/rescode.html). */
function resultCode(error: unknown): number {
  return error instanceof Error && 'errcode' in error ? Number(error.errcode) & 0xff : 0;
}

const LOCKED = 5;

const DISK_FAILURES: ReadonlyMap<number, DiskFailure> = new Map([
  [
    LOCKED,
    {
      problem: 'Another process has locked the database file',
      advice: 'end that process, or set "database" to another file',
    },
  ],
  [
    8,
    {
      problem: 'The database file is read-only',
      advice: 'allow this user to write the file and its folder',
    },
  ],
  [10, { problem: 'The disk of the database reports errors', advice: 'check the disk' }],
  [
    11,
    {
      problem: 'The database file is damaged',
      advice: 'replace it by a backup, and delete its -wal and -shm files',
      isDamage: true,
    },
  ],
  [13, { problem: 'The disk of the database is full', advice: 'free disk space' }],
  [
    14,
    {
      problem: 'A file of the database cannot be opened',
      advice: 'set "database" to a file, not a folder, in a folder that this user can write',
    },
  ],
  [
    26,
    {
      problem: 'The database file is not a SQLite database',
      advice: 'set "database" to another file, or replace it by a backup',
      isDamage: true,
    },
  ],
]);

/** Whether an error comes from the database or its connection, and not from our own code. */
export function isDatabaseError(error: unknown): boolean {
  return error instanceof StoreUnavailable || codeOf(error) !== '';
}

/** Whether a unique constraint rejected the row, on both databases. */
export function isUniqueViolation(error: unknown): boolean {
  if (codeOf(error) === '23505') return true;
  return error instanceof Error && error.message.includes('UNIQUE constraint failed');
}
