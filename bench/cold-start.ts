/**
 * Time from the start of the command to the first response without engines, and memory while idle.
 * The first start of a checkout also fills the compile cache.
 *
 * Run: node bench/cold-start.ts
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { median, residentMegabytes, stopAll, temporaryFolder } from './harness.ts';

const STARTS = 5;
/** Longer than the time until the first check of the configuration file, which is the first job. */
const IDLE_MS = 8_000;
const MAIN = join(import.meta.dirname, '..', 'src', 'main.ts');
const CACHE = temporaryFolder();

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  server.close();
  return typeof address === 'object' && address !== null ? address.port : 0;
}

async function firstResponse(url: string): Promise<void> {
  for (;;) {
    const answer = await fetch(url).catch(() => undefined); // the server does not listen yet
    if (answer !== undefined) {
      await answer.arrayBuffer();
      return;
    }
    await delay(5);
  }
}

async function start(): Promise<{ readonly ms: number; readonly megabytes: number }> {
  const folder = temporaryFolder();
  writeFileSync(
    join(folder, 'farebox.yaml'),
    'embedded: { enabled: false }\ndiscovery: { enabled: false }\n',
  );
  const port = await freePort();
  const from = performance.now();
  // Replaces the compile cache that `bin/farebox.mjs` would set.
  const child = spawn(process.execPath, [MAIN, 'serve'], {
    cwd: folder,
    env: {
      ...process.env,
      PORT: String(port),
      FAREBOX_DATA: join(folder, 'data'),
      NODE_COMPILE_CACHE: CACHE,
    },
    stdio: 'ignore',
  });
  await firstResponse(`http://127.0.0.1:${port}/api/v1/models`);
  const ms = performance.now() - from;
  await delay(IDLE_MS);
  const megabytes = residentMegabytes(child.pid ?? 0);
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
  return { ms, megabytes };
}

try {
  const first = await start();
  console.log(`first start, empty compile cache: ${first.ms.toFixed(0)} ms to a response`);
  const starts = [];
  for (let at = 0; at < STARTS; at += 1) starts.push(await start());
  console.log(`later starts: ${median(starts.map((one) => one.ms)).toFixed(0)} ms to a response`);
  console.log(`idle: ${median(starts.map((one) => one.megabytes)).toFixed(0)} MB resident`);
} finally {
  await stopAll();
}
