/**
 * Child process: runs the reads that it receives, one at a time, on a read-only connection. The
 * parent kills it if a read takes too long. A second thread kills it when the parent has ended,
 * because a running read blocks the first one.
 */
import { Socket } from 'node:net';
import { Worker, isMainThread } from 'node:worker_threads';
import { openConnection } from './connection.ts';
import type { ReadResult, ReadRequest } from './overview-reader.ts';
import { Statements } from './statements.ts';

const PARENT_PIPE = 0;

if (isMainThread) serve();
else endWithParent();

function serve(): void {
  new Worker(new URL(import.meta.url)).unref();
  const database = openConnection(String(process.argv[2]));
  database.exec('PRAGMA query_only = 1');
  const statements = new Statements(database);
  process.on('message', (request) => {
    const { sql, parameters } = request as ReadRequest; // the parent sends nothing else
    let rows: ReadResult;
    try {
      rows = statements.rows(sql, parameters);
    } catch {
      // The store repeats the read and reports the error.
    }
    // `null` means failed, since a message needs a value.
    process.send?.(rows ?? null);
  });
  // Signals reach every process of a service, but the current read should still finish.
  process.on('SIGINT', () => undefined);
  process.on('SIGTERM', () => undefined);
}

/** The system closes the pipe when the parent ends in any way. */
function endWithParent(): void {
  const pipe = new Socket({ fd: PARENT_PIPE });
  pipe.on('error', () => undefined); // followed by `close`
  pipe.on('close', () => process.kill(process.pid, 'SIGKILL'));
  pipe.resume();
}
