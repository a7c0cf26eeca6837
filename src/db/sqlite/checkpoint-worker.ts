/**
 * Worker thread: copies the write-ahead log into the database file on its own connection, so that
 * the flushes of a checkpoint never stop the event loop of the server.
 */
import { DatabaseSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import type { LogStep } from './checkpointer.ts';

const database = new DatabaseSync(String(workerData));
// To cut the log, commits are paused: a reader of another process is not worth a longer pause.
database.exec('PRAGMA synchronous = NORMAL; PRAGMA busy_timeout = 20');

const MODES = { copy: 'PASSIVE', cut: 'TRUNCATE' } as const;

parentPort?.on('message', (step: LogStep | 'close') => {
  if (step === 'close') {
    database.close();
    parentPort?.close();
    return;
  }
  let isDone = false;
  try {
    const row = database.prepare(`PRAGMA wal_checkpoint(${MODES[step]})`).get();
    isDone = row?.['busy'] === 0;
  } catch {
    // What is not copied now is copied next time.
  }
  parentPort?.postMessage(isDone);
});
