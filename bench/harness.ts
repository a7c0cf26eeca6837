/**
 * Shared parts of all benchmarks: processes for an upstream, a bare proxy and a farebox, a load
 * generator, and alternating windows, so that noise of the machine affects both.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Pool } from 'undici';

export interface Target {
  readonly name: string;
  readonly url: string;
  readonly pid: number;
  /** Further processes of the target, whose CPU time counts. */
  readonly pids?: readonly number[];
  /** Number of processes that share the requests. Default: 1. */
  readonly processes?: number;
  readonly headers?: Readonly<Record<string, string>>;
  /** API keys, one per connection in turn. */
  readonly keys?: readonly string[];
  /** Headers of the next request of a connection. */
  readonly headersOf?: (connection: number) => Readonly<Record<string, string>>;
}

export interface Figures {
  readonly perSecond: number;
  readonly cpuMicroseconds: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** A farebox with an API key of its owner. */
export interface Gateway extends Target {
  readonly key: string;
  readonly child: ChildProcess;
}

const started: ChildProcess[] = [];
const folders: string[] = [];

/** Starts a file of this folder, which sends its address as a message. */
export async function startProcess(
  file: string,
  options: {
    readonly args?: readonly string[];
    readonly env?: Record<string, string>;
    /** Modules that are loaded before the file. */
    readonly preload?: readonly string[];
  } = {},
): Promise<{
  readonly url: string;
  readonly pid: number;
  readonly extra: Record<string, string>;
  readonly child: ChildProcess;
}> {
  const child = fork(new URL(file, import.meta.url), [...(options.args ?? [])], {
    env: { ...process.env, ...options.env },
    execArgv: (options.preload ?? []).flatMap((one) => [
      '--import',
      new URL(one, import.meta.url).href,
    ]),
    stdio: ['ignore', 'ignore', 'inherit', 'ipc'],
  });
  started.push(child);
  const message = await new Promise<{ url: string } & Record<string, string>>((resolve, reject) => {
    child.once('message', (value) => resolve(value as { url: string }));
    child.once('exit', (code) => reject(new Error(`${file} ended with ${code}`)));
  });
  return { url: message.url, pid: child.pid ?? 0, extra: message, child };
}

interface GatewayOptions {
  readonly name?: string;
  readonly env?: Record<string, string>;
  readonly preload?: readonly string[];
}

/** Starts a farebox in front of an upstream, with a new data folder unless `env` has one. */
export async function startGateway(
  upstream: { readonly url: string },
  { name = 'farebox', env, preload = [] }: GatewayOptions = {},
): Promise<Gateway> {
  const { extra, ...gateway } = await startProcess('./gateway.ts', {
    args: [upstream.url],
    env: { FAREBOX_DATA: temporaryFolder(), ...env },
    preload,
  });
  const key = extra['key'] ?? '';
  return { ...gateway, name, key, headers: { authorization: `Bearer ${key}` } };
}

/** Starts the bare proxy and a farebox in front of the same upstream. */
export async function startPair(
  upstream: { readonly url: string },
  env?: Record<string, string>,
): Promise<readonly [Target, Gateway]> {
  const bare = await startProcess('./bare-proxy.ts', { args: [upstream.url] });
  const gateway = await startGateway(upstream, env === undefined ? {} : { env });
  return [{ name: 'bare undici proxy', ...bare }, gateway];
}

/** The body of a chat with a prompt of this length. */
export function chatBody(promptBytes = 1_000, more: object = {}): Buffer {
  const content = 'a '.repeat(promptBytes / 2);
  const messages = [{ role: 'user', content }];
  return Buffer.from(JSON.stringify({ model: 'bench-model', messages, ...more }));
}

/** Creates a folder that is removed at the end. */
export function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-bench-'));
  folders.push(folder);
  return folder;
}

/** Ends every process that `start` has started. */
export async function stopAll(): Promise<void> {
  for (const child of started) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    const gone = new Promise((resolve) => child.once('exit', resolve));
    child.kill('SIGKILL');
    await gone;
  }
  for (const folder of folders) rmSync(folder, { recursive: true, force: true });
}

/** Resident memory of a process in megabytes (Linux), or 0 elsewhere. */
export function residentMegabytes(pid: number): number {
  try {
    const kilobytes = /^VmRSS:\s+(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
    return Number(kilobytes ?? 0) / 1024;
  } catch {
    // There is no /proc on this system.
    return 0;
  }
}

/** The median of a list of numbers. */
export function median(figures: readonly number[]): number {
  const sorted = figures.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? 0;
}

/** CPU time that a process has used, in microseconds (Linux), or 0 elsewhere. */
export function cpuOf(pid: number): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]?.split(' ') ?? [];
    return (Number(fields[11]) + Number(fields[12])) * 10_000;
  } catch {
    // There is no /proc on this system.
    return 0;
  }
}

/** CPU time of several processes together. */
export function cpuOfAll(pids: readonly number[]): number {
  return pids.reduce((sum, pid) => sum + cpuOf(pid), 0);
}

/** Ids of the processes that a process has started (Linux), or none elsewhere. */
export function childrenOf(pid: number): number[] {
  try {
    const text = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    return text === '' ? [] : text.split(' ').map(Number);
  } catch {
    // There is no /proc on this system.
    return [];
  }
}

export interface Load {
  readonly path: string;
  readonly body: Buffer;
  readonly headers?: Readonly<Record<string, string>>;
  readonly connections: number;
  readonly windowMs: number;
  /** Starts requests at this rate per second, instead of when a connection is free. */
  readonly ratePerSecond?: number;
}

/** One measurement of a load on a target. */
export async function runWindow(target: Target, load: Load): Promise<Figures> {
  const pool = new Pool(new URL(target.url).origin, {
    connections: load.connections,
    pipelining: 1,
  });
  const latencies: number[] = [];
  const until = performance.now() + load.windowMs;
  const pids = [target.pid, ...(target.pids ?? [])];
  const cpuBefore = cpuOfAll(pids);
  const begun = performance.now();
  let next = begun;
  const worker = async (at: number): Promise<void> => {
    const key = target.keys?.[at % target.keys.length];
    const keyed = key === undefined ? {} : { authorization: `Bearer ${key}` };
    while (performance.now() < until) {
      if (load.ratePerSecond !== undefined) {
        next += 1_000 / load.ratePerSecond;
        await delay(Math.max(0, next - performance.now()));
      }
      const from = performance.now();
      await requestOnce(pool, target, load, target.headersOf?.(at) ?? keyed);
      latencies.push(performance.now() - from);
    }
  };
  await Promise.all(Array.from({ length: load.connections }, (_, at) => worker(at)));
  const seconds = (performance.now() - begun) / 1000;
  const cpu = cpuOfAll(pids) - cpuBefore;
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
  headers: Readonly<Record<string, string>>,
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
          ...headers,
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

/**
 * Warms up both, because a cold server is several times as slow. V8 compiles code of a farebox in
 * the background for about 50,000 requests, and of a bare proxy for half as many.
 */
const WARM_REQUESTS = 50_000;
const WARM_AT_MOST_MS = 60_000;
/** Warms up a target with another load. */
const WARM_AGAIN_REQUESTS = 6_000;
const warm = new Set<number>();

/** Sends load until the code of a target is compiled, or until a time limit. */
export async function warmUp(target: Target, load: Load): Promise<void> {
  const { processes = 1 } = target;
  const untilMs = performance.now() + processes * WARM_AT_MOST_MS;
  const enough = warm.has(target.pid) ? WARM_AGAIN_REQUESTS : WARM_REQUESTS;
  warm.add(target.pid);
  let requests = 0;
  while (requests < processes * enough && performance.now() < untilMs) {
    const { perSecond } = await runWindow(target, { ...load, connections: 64, windowMs: 500 });
    requests += perSecond / 2;
  }
}

/** Alternates measurements of the targets; returns medians over the rounds. */
export async function compare(
  targets: readonly Target[],
  load: Load,
  rounds: number,
): Promise<Map<string, Figures>> {
  for (const target of targets) await warmUp(target, load);
  const all = new Map<string, Figures[]>(targets.map((target) => [target.name, []]));
  for (let round = 0; round < rounds; round += 1) {
    for (const target of targets) all.get(target.name)?.push(await runWindow(target, load));
  }
  return new Map([...all].map(([name, figures]) => [name, medians(figures)]));
}

/** The median of each number. */
export function medians(figures: readonly Figures[]): Figures {
  const middle = (pick: (one: Figures) => number): number => median(figures.map(pick));
  return {
    perSecond: middle((one) => one.perSecond),
    cpuMicroseconds: middle((one) => one.cpuMicroseconds),
    p50Ms: middle((one) => one.p50Ms),
    p99Ms: middle((one) => one.p99Ms),
  };
}

/** Prints a table with ratios to the first row. */
export function report(title: string, results: ReadonlyMap<string, Figures>): void {
  const rows = [...results];
  const base = rows[0]?.[1];
  console.log(`\n${title}`);
  console.log('target                     req/s  ÷ first   CPU µs   p50 ms   p99 ms');
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
