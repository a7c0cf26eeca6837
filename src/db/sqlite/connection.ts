/** Opens connections to a SQLite file, with common settings. */
import { DatabaseSync } from 'node:sqlite';
import { reasonOf } from '../../core/log.ts';

/** How long to wait for the lock of another process (a command beside the server). */
export const BUSY_TIMEOUT_MS = 5_000;

/** Opens the file with the common settings. Throws an error that names the file. */
export function openConnection(path: string): DatabaseSync {
  const database = openFile(path);
  database.exec(`PRAGMA busy_timeout = ${BUSY_TIMEOUT_MS}; PRAGMA synchronous = NORMAL`);
  // In KiB. A larger cache gives no speed, since a settle needs only a few pages.
  database.exec('PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY');
  return database;
}

/** Adds the path to the error, which SQLite leaves out. */
function openFile(path: string): DatabaseSync {
  try {
    return new DatabaseSync(path);
  } catch (error) {
    throw new Error(`The database file ${path} cannot be opened: ${reasonOf(error)}`, {
      cause: error,
    });
  }
}
