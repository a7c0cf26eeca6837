/**
 * Exclusive locks between processes of one machine, each on a file of its own, which the operating
 * system drops when the process ends, however it ends. No stale lock files.
 */
import { mkdirSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** A held lock; `undefined` when another process has it. */
export interface ServerLock {
  release(): void;
}

/** The right to be the server of a data folder. */
export function lockDataFolder(folder: string): ServerLock | undefined {
  return lockFile(join(folder, 'server.lock'));
}

/** Locks a file that is there for nothing else; its folder is made. */
export function lockFile(path: string): ServerLock | undefined {
  mkdirSync(dirname(path), { recursive: true });
  const database = new DatabaseSync(path);
  try {
    database.exec('PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if (error instanceof Error && error.message.includes('locked')) return undefined;
    throw error;
  }
  return { release: () => database.close() };
}
