/** Runs an endless read on the SQLite file that the first argument names, until a test kills it. */
import { systemClock } from '../../src/core/clock.ts';
import { silentLog } from '../../src/core/log.ts';
import { SqliteStore } from '../../src/db/sqlite/sqlite-store.ts';

const path = String(process.argv[2]);
const reader = new SqliteStore({ path, clock: systemClock(), log: silentLog }).readerFor('');
await reader.query('SELECT 1');
const endless = reader.query(
  'WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n) SELECT sum(at) FROM n',
);
process.stdout.write('started\n');
await endless;
