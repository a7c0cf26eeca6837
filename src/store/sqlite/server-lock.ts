/**
 * One server a data folder: an exclusive lock on a file of its own, which the operating system
 * drops when the process ends, however it ends. No stale lock files.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** A held lock; `undefined` when another process has it. */
export interface ServerLock {
  release(): void;
}

export function lockDataFolder(folder: string): ServerLock | undefined {
  mkdirSync(folder, { recursive: true });
  const database = new DatabaseSync(join(folder, 'server.lock'));
  try {
    database.exec('PRAGMA busy_timeout = 0; PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE');
  } catch (error) {
    database.close();
    if (error instanceof Error && error.message.includes('locked')) return undefined;
    throw error;
  }
  return { release: () => database.close() };
}
