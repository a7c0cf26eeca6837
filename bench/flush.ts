/**
 * Preloaded into a server to replace the disk flush. `BENCH_FLUSH=none` removes it,
 * `BENCH_FLUSH=<milliseconds>` delays it.
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
