/**
 * Time and CPU from the start of the command to the first response without engines, and memory while
 * idle: of a checkout, of its source without a bundle, and of the package if `npm run build` has
 * built it. Then the memory of the embedded engines while idle. The first start also fills the
 * compile cache.
 *
 * Run: npx node bench/cold-start.ts (another Node starts the pinned one, and measures itself)
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { freePort } from '../test/support/free-port.ts';
import {
  childrenOf,
  cpuOf,
  median,
  residentMegabytes,
  stopAll,
  temporaryFolder,
} from './harness.ts';

const STARTS = 5;
/** Longer than the time until the first check of the configuration file, which is the first job. */
const IDLE_MS = 8_000;
/** Enough for the start of all embedded engines, one after the other. */
const ENGINES_IDLE_MS = 40_000;
const ROOT = join(import.meta.dirname, '..');
const PROGRAMS = ['bin/farebox.mjs', 'src/main.ts', 'dist/main.js'].filter((path) =>
  existsSync(join(ROOT, path)),
);
const NO_ENGINES = 'embedded: { enabled: false }\ndiscovery: { enabled: false }\n';
const ENGINES = 'embedded: { download: false }\ndiscovery: { enabled: false }\n';

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

interface Started {
  readonly child: ChildProcess;
  readonly pid: number;
  readonly ms: number;
  readonly cpuMs: number;
}

async function start(program: string, cache: string, config: string): Promise<Started> {
  const folder = temporaryFolder();
  writeFileSync(join(folder, 'farebox.yaml'), config);
  const port = await freePort();
  const from = performance.now();
  // Replaces the compile cache that `bin/farebox.mjs` would set.
  const child = spawn(process.execPath, [join(ROOT, program), 'serve'], {
    cwd: folder,
    env: {
      ...process.env,
      PORT: String(port),
      FAREBOX_DATA: join(folder, 'data'),
      NODE_COMPILE_CACHE: cache,
    },
    stdio: 'ignore',
  });
  const pid = child.pid ?? 0;
  await firstResponse(`http://127.0.0.1:${port}/api/v1/models`);
  return { child, pid, ms: performance.now() - from, cpuMs: cpuOf(pid) / 1_000 };
}

async function stop({ child }: Started): Promise<void> {
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await ended;
}

async function measure(program: string, cache: string) {
  const started = await start(program, cache, NO_ENGINES);
  await delay(IDLE_MS);
  const megabytes = residentMegabytes(started.pid);
  await stop(started);
  return { ...started, megabytes };
}

/** Call it twice: the first start fills the compile cache of the engines, and uses more memory. */
async function measureEngines(program: string, cache: string): Promise<string> {
  const started = await start(program, cache, ENGINES);
  await delay(ENGINES_IDLE_MS);
  const engines = childrenOf(started.pid).map(residentMegabytes);
  const sum = engines.reduce((total, megabytes) => total + megabytes, 0);
  const own = residentMegabytes(started.pid);
  await stop(started);
  const count = engines.length;
  return `${own.toFixed(0)} MB resident, and ${sum.toFixed(0)} MB in ${count} engine processes`;
}

try {
  for (const program of PROGRAMS) {
    const cache = temporaryFolder();
    console.log(`\n${program}`);
    const first = await measure(program, cache);
    console.log(`first start, empty compile cache: ${first.ms.toFixed(0)} ms to a response`);
    const starts = [];
    for (let at = 0; at < STARTS; at += 1) starts.push(await measure(program, cache));
    const ms = median(starts.map((one) => one.ms)).toFixed(0);
    const cpuMs = median(starts.map((one) => one.cpuMs)).toFixed(0);
    console.log(`later starts: ${ms} ms to a response, ${cpuMs} ms of CPU`);
    console.log(`idle: ${median(starts.map((one) => one.megabytes)).toFixed(0)} MB resident`);
    await measureEngines(program, cache);
    console.log(`idle with engines: ${await measureEngines(program, cache)}`);
  }
} finally {
  await stopAll();
}
