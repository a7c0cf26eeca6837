/**
 * A connection to a SQLite file. The store has one that writes and one that reads, and the thread of
 * long reads one of its own.
 */
import { DatabaseSync } from 'node:sqlite';
import { reasonOf } from '../../core/log.ts';

/** How long a second process (a command line beside the server) is waited for. */
export const BUSY_TIMEOUT_MS = 5_000;

/** A connection to the file, with the settings that all have. Throws an error that names the file. */
export function openConnection(path: string): DatabaseSync {
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
