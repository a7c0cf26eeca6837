/**
 * Child process: runs the reads that it is sent, one by one, on a connection that cannot write. It is
 * killed in the middle of one that takes too long, and ends with the channel to its parent.
 */
import { openConnection } from './connection.ts';
import type { ReadResult, ReadQuestion } from './overview-reader.ts';
import { Statements } from './statements.ts';

const database = openConnection(String(process.argv[2]));
database.exec('PRAGMA query_only = 1');
const statements = new Statements(database);

process.on('message', (question) => {
  const { sql, parameters } = question as ReadQuestion; // the parent sends nothing else
  let rows: ReadResult;
  try {
    rows = statements.rows(sql, parameters);
  } catch {
    // The store itself is asked, and says why it fails.
  }
  // `null` stands for it: a message has a value.
  process.send?.(rows ?? null);
});
// A terminal and a service manager signal every process of a service; what is read still is answered.
process.on('SIGINT', () => undefined);
process.on('SIGTERM', () => undefined);
