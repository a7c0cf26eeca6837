/**
 * Exclusive locks between processes of one machine, each on a file of its own. The operating system
 * releases a lock when its process ends in any way, so there are no stale locks.
 */
import { existsSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { reasonOf } from '../../core/log.ts';
import { accessProblem } from '../open-problem.ts';
import { makeFolder } from './make-folder.ts';

/** A held lock; functions return `undefined` if another process has it. */
export interface ServerLock {
  release(): void;
}

/** Locks a data folder and its SQLite file, which can be in another folder. */
export function lockData(folder: string, databaseUrl: string): ServerLock | undefined {
  const paths = [join(folder, 'server.lock')];
  if (databaseUrl.startsWith('sqlite:')) {
    const file = databaseUrl.slice('sqlite:'.length);
    // A symbolic link names the same file.
    paths.push(`${existsSync(file) ? realpathSync(file) : file}.lock`);
  }
  const locks: ServerLock[] = [];
  const release = (): void => locks.forEach((lock) => lock.release());
  for (const path of paths) {
    const lock = lockFile(path);
    if (lock === undefined) {
      release();
      return undefined;
    }
    locks.push(lock);
  }
  return { release };
}

/** Locks a file that serves no other purpose; creates its folder. */
export function lockFile(path: string): ServerLock | undefined {
  makeFolder(dirname(path));
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(path);
    database.exec('PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  } catch (error) {
    database?.close();
    const reason = reasonOf(error);
    if (reason.includes('locked')) return undefined;
    const why = accessProblem(path) ?? reason;
    throw new Error(`The file ${path} cannot be written: ${why}`, { cause: error });
  }
  const held = database;
  return { release: () => held.close() };
}
