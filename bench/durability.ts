/**
 * Cost of durable billing: a server that flushes to disk, one with a database in memory, and one
 * whose disk flush takes 10 ms. The responses of a batch share a flush, so a slow disk adds latency
 * but hardly any CPU.
 *
 * Run: node bench/durability.ts
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import {
  chatBody,
  compare,
  report,
  startGateway,
  startProcess,
  stopAll,
  temporaryFolder,
} from './harness.ts';

const ROUNDS = Number(process.env['ROUNDS'] ?? '5');
const MEMORY = '/dev/shm';

const upstream = await startProcess('./upstream.ts');
const memory = existsSync(MEMORY) ? mkdtempSync(`${MEMORY}/farebox-bench-`) : temporaryFolder();

function farebox(name: string, folder: string, flush?: string) {
  const env = { FAREBOX_DATA: folder };
  if (flush === undefined) return startGateway(upstream, { name, env });
  return startGateway(upstream, {
    name,
    env: { ...env, BENCH_FLUSH: flush },
    preload: ['./flush.ts'],
  });
}

try {
  const targets = [
    await farebox('in memory, no flush', memory, 'none'),
    await farebox('durable', temporaryFolder()),
    await farebox('durable, 10 ms a flush', temporaryFolder(), '10'),
  ];
  const load = { path: '/chat/completions', connections: 64, windowMs: 1_000, body: chatBody() };
  report('64 callers', await compare(targets, load, ROUNDS));
  report('one caller', await compare(targets, { ...load, connections: 1 }, ROUNDS));
} finally {
  await stopAll();
  rmSync(memory, { recursive: true, force: true });
}
