/** Worker thread: copies the write-ahead log into the database, off the event loop. */
import { DatabaseSync } from 'node:sqlite';
import { parentPort, workerData } from 'node:worker_threads';
import type { LogStep } from './checkpointer.ts';

const database = new DatabaseSync(String(workerData));
// Cutting the log pauses commits, so wait only briefly for readers in other processes.
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
    // The rest is copied next time.
  }
  parentPort?.postMessage(isDone);
});
