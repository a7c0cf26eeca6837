/**
 * Load by `wrk` (a Debian package), which uses far less CPU than a generator in JavaScript: the
 * measured processes get one core, `wrk` and the upstream another. Without `wrk`, `taskset` or a
 * second core, `findWrk` returns the reason and nothing is measured.
 */
import { execFile, execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import {
  type Figures,
  type Load,
  type Target,
  cpuOf,
  medians,
  temporaryFolder,
  warmUp,
} from './harness.ts';

const run = promisify(execFile);

const SERVER_CORE = 0;
const LOAD_CORE = 1;

/** Returns the reason why `wrk` cannot run here; `undefined` if it can. */
export function missingForWrk(): string | undefined {
  if (availableParallelism() < 2) return 'wrk needs a core of its own; this machine has one';
  for (const [program, argument] of [
    ['wrk', '-v'],
    ['taskset', '-V'],
  ] as const) {
    try {
      execFileSync(program, [argument], { stdio: 'ignore' });
    } catch (error) {
      // `wrk -v` exits with 1; only a missing program causes ENOENT.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') continue;
      return `${program} is not installed (Debian: apt install ${program === 'wrk' ? 'wrk' : 'util-linux'})`;
    }
  }
  return undefined;
}

/** Alternates measurements of the targets with `wrk`; returns medians over the rounds. */
export async function compareByWrk(
  targets: readonly Target[],
  upstreamPid: number,
  load: Load,
  rounds: number,
): Promise<Map<string, Figures>> {
  pin(upstreamPid, LOAD_CORE);
  for (const { pid } of targets) if (pid > 0) pin(pid, SERVER_CORE);
  for (const target of targets) await warmUp(target, load);
  const scripts = targets.map((target) => scriptFor(target, load));
  const all = targets.map((): Figures[] => []);
  for (let round = 0; round < rounds; round += 1) {
    for (const [at, target] of targets.entries()) {
      all[at]?.push(await runWrk(target, load, scripts[at] ?? ''));
    }
  }
  return new Map(targets.map(({ name }, at) => [name, medians(all[at] ?? [])]));
}

/** Keeps all threads of a process on one core. */
function pin(pid: number, core: number): void {
  execFileSync('taskset', ['-a', '-c', '-p', String(core), String(pid)], { stdio: 'ignore' });
}

/** Lua script of the request, with a summary as JSON. */
function scriptFor(target: Target, load: Load): string {
  const headers = { 'content-type': 'application/json', ...load.headers, ...target.headers };
  const lines = [
    'wrk.method = "POST"',
    `wrk.body = ${luaText(load.body.toString())}`,
    ...Object.entries(headers).map(
      ([name, value]) => `wrk.headers[${luaText(name)}] = ${luaText(value)}`,
    ),
    'done = function(summary, latency)',
    '  local e = summary.errors',
    '  io.write(string.format("\\nfigures %d %d %d %d %d\\n", summary.requests, summary.duration,',
    '    latency:percentile(50), latency:percentile(99), e.connect + e.read + e.write + e.status + e.timeout))',
    'end',
  ];
  const file = join(temporaryFolder(), 'request.lua');
  writeFileSync(file, lines.join('\n'));
  return file;
}

function luaText(text: string): string {
  return `"${text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')}"`;
}

async function runWrk(target: Target, load: Load, script: string): Promise<Figures> {
  const cpuBefore = cpuOf(target.pid);
  const seconds = Math.ceil(load.windowMs / 1_000);
  const flags = `-t 1 -c ${load.connections} -d ${seconds}s -s ${script}`.split(' ');
  const url = target.url.replace(/\/$/, '') + load.path;
  const { stdout } = await run('taskset', ['-c', String(LOAD_CORE), 'wrk', ...flags, url]);
  const cpu = cpuOf(target.pid) - cpuBefore;
  const [, ...figures] = /^figures (\d+) (\d+) (\d+) (\d+) (\d+)$/m.exec(stdout) ?? [];
  const [requests = 0, durationUs = 1, p50Us = 0, p99Us = 0, errors = 0] = figures.map(Number);
  if (requests === 0 || errors > 0) {
    throw new Error(
      `${target.name}: ${errors} of ${requests} requests failed under wrk\n${stdout}`,
    );
  }
  return {
    perSecond: (requests * 1_000_000) / durationUs,
    cpuMicroseconds: cpu / requests,
    p50Ms: p50Us / 1_000,
    p99Ms: p99Us / 1_000,
  };
}
