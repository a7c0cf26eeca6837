/**
 * Loaded before a farebox: takes the place of the disk flush. `BENCH_FLUSH=none` leaves it out,
 * `BENCH_FLUSH=<milliseconds>` makes it that slow.
 */
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const wanted = process.env['BENCH_FLUSH'] ?? 'none';

function flush(_fileDescriptor: number, done: (error: null) => void): void {
  if (wanted === 'none') setImmediate(done, null);
  else setTimeout(done, Number(wanted), null);
}

Object.assign(fs, { fdatasync: flush });
syncBuiltinESMExports();
