/**
 * What every benchmark needs: an upstream, a bare proxy and a farebox in processes of their own, a
 * load generator, and windows of each in turn, so that a noisy machine is noisy for both.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Pool } from 'undici';

export interface Target {
  readonly name: string;
  readonly url: string;
  readonly pid: number;
  /** Further processes of the same target, for its CPU. */
  readonly pids?: readonly number[];
  readonly headers?: Readonly<Record<string, string>>;
  /** API keys that take turns, one a connection. */
  readonly keys?: readonly string[];
}

export interface Figures {
  readonly perSecond: number;
  readonly cpuMicroseconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

const started: ChildProcess[] = [];
const folders: string[] = [];

/** Starts one of the files beside this one; it reports its address by a message. */
export async function startProcess(
  file: string,
  options: { readonly args?: readonly string[]; readonly env?: Record<string, string> } = {},
): Promise<{ readonly url: string; readonly pid: number; readonly extra: Record<string, string> }> {
  const child = fork(new URL(file, import.meta.url), [...(options.args ?? [])], {
    env: { ...process.env, ...options.env },
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  started.push(child);
  const message = await new Promise<{ url: string } & Record<string, string>>((resolve, reject) => {
    child.once('message', (value) => resolve(value as { url: string }));
    child.once('exit', (code) => reject(new Error(`${file} ended with ${code}`)));
  });
  return { url: message.url, pid: child.pid ?? 0, extra: message };
}

/** A folder that is removed at the end. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-bench-'));
  folders.push(folder);
  return folder;
}

/** Ends every process that was started here. */
export async function stopAll(): Promise<void> {
  for (const child of started) {
    if (child.exitCode !== null) continue;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
  }
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
}

/** CPU time that a process has used, in microseconds (Linux), or 0 elsewhere. */
export function cpuOf(pid: number): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    return (Number(fields[11]) + Number(fields[12])) * 10_000;
  } catch {
    // No /proc on this system.
    return 0;
  }
}

function cpuOfAll(target: Target): number {
  return [target.pid, ...(target.pids ?? [])].reduce((sum, pid) => sum + cpuOf(pid), 0);
}

export interface Load {
  readonly path: string;
  readonly body: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
  readonly connections: number;
  readonly windowMs: number;
}

/** One window of load on one target. */
export async function runWindow(target: Target, load: Load): Promise<Figures> {
  const pool = new Pool(new URL(target.url).origin, {
    connections: load.connections,
    pipelining: 1,
  });
  const latencies: number[] = [];
  const until = performance.now() + load.windowMs;
  const cpuBefore = cpuOfAll(target);
  const begun = performance.now();
  const worker = async (at: number): Promise<void> => {
    const key = target.keys?.[at % target.keys.length];
    while (performance.now() < until) {
      const from = performance.now();
      await requestOnce(pool, target, load, key);
      latencies.push(performance.now() - from);
    }
  };
  await Promise.all(Array.from({ length: load.connections }, (_, at) => worker(at)));
  const seconds = (performance.now() - begun) / 1000;
  const cpu = cpuOfAll(target) - cpuBefore;
  await pool.destroy();
  latencies.sort((a, b) => a - b);
  return {
    perSecond: latencies.length / seconds,
    cpuMicroseconds: cpu / latencies.length,
    p50Ms: latencies[Math.floor(latencies.length * 0.5)] ?? 0,
    p99Ms: latencies[Math.floor(latencies.length * 0.99)] ?? 0,
  };
}

function requestOnce(
  pool: Pool,
  target: Target,
  load: Load,
  key: string | undefined,
): Promise<void> {
  return new Promise((resolve, reject) => {
    let status = 0;
    let text = '';
    pool.dispatch(
      {
        path: new URL(target.url).pathname.replace(/\/$/, '') + load.path,
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          ...load.headers,
          ...target.headers,
          ...(key === undefined ? {} : { authorization: `Bearer ${key}` }),
        },
        body: load.body,
      },
      {
        onRequestStart: () => undefined,
        onResponseStart: (_controller, code) => {
          status = code;
        },
        onResponseData: (_controller, chunk) => {
          if (status !== 200) text += chunk.toString();
        },
        onResponseEnd: () => {
          if (status === 200) resolve();
          else reject(new Error(`${target.name} answered ${status}: ${text.slice(0, 200)}`));
        },
        onResponseError: (_controller, error) => reject(error),
      },
    );
  });
}

/** Windows of each target in turn; medians over the rounds. */
export async function compare(
  targets: readonly Target[],
  load: Load,
  rounds: number,
): Promise<Map<string, Figures>> {
  for (const target of targets) await runWindow(target, { ...load, windowMs: load.windowMs / 2 });
  const all = new Map<string, Figures[]>(targets.map((target) => [target.name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const target of targets) all.get(target.name)?.push(await runWindow(target, load));
  }
  return new Map([...all].map(([name, figures]) => [name, medians(figures)]));
}

function medians(figures: readonly Figures[]): Figures {
  const median = (pick: (one: Figures) => number): number => {
    const sorted = figures.map(pick).sort((a, b) => a - b);
    return sorted[Math.floor(sorted.length / 2)] ?? 0;
  };
  return {
    perSecond: median((one) => one.perSecond),
    cpuMicroseconds: median((one) => one.cpuMicroseconds),
    p50Ms: median((one) => one.p50Ms),
    p99Ms: median((one) => one.p99Ms),
  };
}

/** A table with ratios to the first row. */
export function report(title: string, results: ReadonlyMap<string, Figures>): void {
  const rows = [...results];
  const base = rows[0]?.[1];
  console.log(`\n${title}`);
  console.log('target                     req/s   ÷ bare   CPU µs   p50 ms   p99 ms');
  for (const [name, one] of rows) {
    const ratio = base === undefined ? 0 : one.perSecond / base.perSecond;
    console.log(
      name.padEnd(24) +
        one.perSecond.toFixed(0).padStart(8) +
        ratio.toFixed(2).padStart(9) +
        one.cpuMicroseconds.toFixed(0).padStart(9) +
        one.p50Ms.toFixed(2).padStart(9) +
        one.p99Ms.toFixed(2).padStart(9),
    );
  }
}
