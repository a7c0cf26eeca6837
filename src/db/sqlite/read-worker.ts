/** Worker thread: runs the reads that it is sent, one by one, on a connection that cannot write. */
import { parentPort, workerData } from 'node:worker_threads';
import { openConnection } from './connection.ts';
import type { ReadAnswer, ReadQuestion } from './read-thread.ts';
import { Statements } from './sqlite-store.ts';

const database = openConnection(String(workerData));
database.exec('PRAGMA query_only = 1');
const statements = new Statements(database);

parentPort?.on('message', ({ sql, parameters }: ReadQuestion) => {
  let rows: ReadAnswer;
  try {
    rows = statements.rows(sql, parameters);
  } catch {
    // The store itself is asked, and says why it fails.
  }
  parentPort?.postMessage(rows);
});
