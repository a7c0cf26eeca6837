/**
 * Cost of durable billing: a server that flushes to disk, one with a database in memory, and one
 * whose disk flush takes 10 ms. The responses of a batch share a flush, so a slow disk adds latency
 * but hardly any CPU.
 *
 * Run: node bench/durability.ts
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { compare, report, startProcess, stopAll, temporaryFolder } from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const MEMORY = '/dev/shm';

const upstream = await startProcess('./upstream.ts');
const memory = existsSync(MEMORY) ? mkdtempSync(`${MEMORY}/farebox-bench-`) : temporaryFolder();

async function farebox(name: string, folder: string, flush?: string) {
  const one = await startProcess('./gateway.ts', {
    args: [upstream.url],
    env: { FAREBOX_DATA: folder, ...(flush === undefined ? {} : { BENCH_FLUSH: flush }) },
    preload: flush === undefined ? [] : ['./flush.ts'],
  });
  return { name, ...one, headers: { authorization: `Bearer ${one.extra['key']}` } };
}

try {
  const targets = [
    await farebox('in memory, no flush', memory, 'none'),
    await farebox('durable', temporaryFolder()),
    await farebox('durable, 10 ms a flush', temporaryFolder(), '10'),
  ];
  const body = Buffer.from(
    JSON.stringify({
      model: 'bench-model',
      messages: [{ role: 'user', content: 'a '.repeat(500) }],
    }),
  );
  const load = { path: '/chat/completions', connections: 64, windowMs: 1_000, body };
  report('64 callers', await compare(targets, load, ROUNDS));
  report('one caller', await compare(targets, { ...load, connections: 1 }, ROUNDS));
} finally {
  await stopAll();
  rmSync(memory, { recursive: true, force: true });
}
