/**
 * The disk of a world: what a flush has made lasting, and what a crash leaves of a SQLite database.
 *
 * A database is its file and its write-ahead log. Commits only append to the log, so that a crash
 * keeps the flushed part of the log and any prefix of the rest, also one that ends within a frame.
 * The copy of the log into the file flushes both, in one step.
 */
import { EventEmitter } from 'node:events';
import fs from 'node:fs';
import { join, relative } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { world } from './world.ts';

/** Folder of videos and their inputs. */
export const MEDIA = 'media';
/** Beside it the database with its log, and settles that PostgreSQL could not take. Locks end with their process. */
const LASTING = /^(?:|farebox\.db|farebox\.db-wal|journal|media)(?:$|\/(?!.*\.lock$))/;
/** Files of which a crash keeps a part. */
const APPENDED = /-wal$|\.journal$|^media\//;
/** The log begins with a header, in which salts change when it is written from its start again. */
const SALT_AT = 16;
const SALT_BYTES = 8;

interface Flushed {
  /** Length of the log that is lasting. */
  bytes: number;
  salt: bigint;
}

const flushes = new Map<number, Flushed>();
const databases = new Set<DatabaseSync>();

/** Replaces `fdatasync`: what is in the file now lasts when it has ended. */
export function flushLater(file: number, done: (error: Error | null) => void): void {
  const { ino, size } = fs.fstatSync(file);
  const { failsFlush: doesFail, flushMs } = world().weather;
  const salt = saltAt(file);
  world().schedule(world().random.between(1, flushMs), () => {
    if (doesFail)
      return done(Object.assign(new Error('EIO: i/o error, fdatasync'), { code: 'EIO' }));
    flushes.set(ino, { bytes: size, salt });
    done(null);
  });
}

/** Opens a file; nothing of a new one is flushed, as nothing of one that had its number before. */
export function openedFile(path: string, flags: string): number {
  const file = fs.openSync(path, flags);
  if (flags === 'w') flushes.delete(fs.fstatSync(file).ino);
  return file;
}

export function diskFull(): Error {
  return Object.assign(new Error('ENOSPC: no space left on device, write'), { code: 'ENOSPC' });
}

/** Replaces `open` of `fs.promises`: files that are written in order, and flushed. */
export async function openNow(path: string, flags = 'r'): Promise<object> {
  const file = openedFile(path, flags);
  const flush = (): Promise<void> =>
    new Promise((resolve, reject) =>
      flushLater(file, (error) => (error === null ? resolve() : reject(error))),
    );
  return {
    fd: file,
    appendFile: async (text: string) => {
      if (!world().weather.isFull) return fs.appendFileSync(file, text);
      fs.appendFileSync(file, text.slice(0, world().random.between(0, text.length - 1)));
      throw diskFull();
    },
    stat: async () => fs.fstatSync(file),
    truncate: async (size: number) => fs.ftruncateSync(file, size),
    datasync: flush,
    sync: flush,
    close: async () => fs.closeSync(file),
  };
}

const SQLITE_FULL = 13;
const realPrepare = Reflect.get(DatabaseSync.prototype, 'prepare');

/**
 * Replaces the method `prepare` of SQLite. A commit appends to the log; on a full disk it fails, and
 * SQLite then rolls the whole transaction back.
 */
export function prepareOn(database: DatabaseSync, sql: string): StatementSync {
  databases.add(database);
  const statement = realPrepare.call(database, sql);
  if (sql !== 'COMMIT') return statement;
  const get = statement.get.bind(statement);
  return Object.assign(statement, {
    get: () => {
      if (!world().weather.isFull) return get();
      database.exec('ROLLBACK');
      world().note('the disk is full');
      const code = { code: 'ERR_SQLITE_ERROR', errcode: SQLITE_FULL };
      throw Object.assign(new Error('database or disk is full'), code);
    },
  });
}

/** SQLite flushes the log before it copies it. */
function markFlushed(log: string): void {
  const { ino, size: bytes, salt } = stateOf(log);
  flushes.set(ino, { bytes, salt });
}

function stateOf(path: string) {
  const file = fs.openSync(path, 'r');
  const { ino, size } = fs.fstatSync(file);
  const salt = saltAt(file);
  fs.closeSync(file);
  return { ino, size, salt };
}

const salts = Buffer.alloc(SALT_BYTES);

/** The salts of a log, which is empty after a cut. A folder has none. */
function saltAt(file: number): bigint {
  salts.fill(0);
  if (fs.fstatSync(file).isFile()) fs.readSync(file, salts, 0, SALT_BYTES, SALT_AT);
  return salts.readBigInt64LE();
}

/** Closes databases of dead servers, whose files would stay open otherwise. */
export function closeDatabases(folder = ''): void {
  for (const database of databases) {
    if (database.isOpen && !database.location()?.startsWith(folder)) continue;
    databases.delete(database);
    if (database.isOpen) database.close();
  }
}

/** Copies what a crash leaves of `folder` into `to`, and closes the files of `folder`. */
export function keepAfterCrash(folder: string, to: string): void {
  // A folder that servers share is on a machine of its own.
  const lasts = (path: string): boolean =>
    LASTING.test(relative(folder, path)) && !fs.lstatSync(path).isSymbolicLink();
  fs.cpSync(folder, to, { recursive: true, filter: lasts });
  for (const name of fs.readdirSync(to, { recursive: true, encoding: 'utf8' }).toSorted()) {
    const [log, copy] = [join(folder, name), join(to, name)];
    if (APPENDED.test(name) && fs.statSync(log).isFile()) keepPart(log, copy);
  }
  closeDatabases(`${folder}/`);
}

function keepPart(log: string, copy: string): void {
  const { ino, size, salt } = stateOf(log);
  const flushed = flushes.get(ino);
  const lasting = flushed?.salt === salt ? Math.min(flushed.bytes, size) : 0;
  const kept = world().random.between(lasting, size);
  fs.truncateSync(copy, kept);
  markFlushed(copy);
  world().note(`a crash keeps ${kept - lasting} of ${size - lasting} bytes that were not flushed`);
}

/** Replaces the worker thread that copies the log into the file: one step, a moment later. */
export class SimulatedCheckpoint extends EventEmitter {
  readonly #database: DatabaseSync;
  readonly #path: string;

  constructor(module: URL | string, { workerData: path }: { readonly workerData?: unknown } = {}) {
    super();
    if (!String(module).includes('checkpoint-worker')) {
      throw new Error(`The simulation has no worker ${String(module)}`);
    }
    this.#path = String(path);
    this.#database = new DatabaseSync(this.#path);
    this.#database.exec('PRAGMA synchronous = OFF; PRAGMA busy_timeout = 0');
  }

  postMessage(step: 'copy' | 'cut' | 'close'): void {
    world().schedule(1, () => {
      if (step === 'close') {
        this.#database.close();
        this.emit('exit', 0);
        return;
      }
      if (world().weather.isFull) return void this.emit('message', false);
      const mode = step === 'copy' ? 'PASSIVE' : 'TRUNCATE';
      const row = this.#database.prepare(`PRAGMA wal_checkpoint(${mode})`).get();
      markFlushed(`${this.#path}-wal`);
      this.emit('message', row?.['busy'] === 0);
    });
  }

  // The loop of the world keeps the process alive.
  ref(): void {}
  unref(): void {}
}
