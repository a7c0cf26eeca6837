/**
 * Worker thread: copies the write-ahead log into the database file on its own connection, so that
 * the flushes of a checkpoint never stop the event loop of the server.
 */
import { DatabaseSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import type { LogStep } from './checkpointer.ts';

const database = new DatabaseSync(String(workerData));
database.exec('PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 2000');

const MODES = { copy: 'PASSIVE', cut: 'TRUNCATE' } as const;

parentPort?.on('message', (step: LogStep | 'close') => {
  if (step === 'close') {
    database.close();
    parentPort?.close();
    return;
  }
  let failure: string | undefined;
  try {
    database.prepare(`PRAGMA wal_checkpoint(${MODES[step]})`).all();
  } catch (error) {
    // What is not copied now is copied next time.
    failure = error instanceof Error ? error.message : String(error);
  }
  parentPort?.postMessage(failure);
});
