/**
 * Runs one program on untrusted data with limits of time, CPU time, memory and output, and with an
 * environment that only contains what the caller passes. It ends by itself, by a limit, by the
 * caller's abort, or with this process; its process group has ended when the promise settles.
 *
 * The limits of the operating system (`ulimit`) need a shell, and the check of resident memory
 * needs `/proc`. The time limit works on every system.
 */
import { type ChildProcess, type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';
import type { Clock } from '../../core/clock.ts';
import { lowerPriority } from '../../core/lower-priority.ts';

export interface SandboxLimits {
  readonly timeoutMs: number;
  readonly cpuSeconds: number;
  readonly memoryBytes: number;
  readonly fileBytes: number;
}

export interface SandboxRun {
  readonly command: string;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>> | undefined;
  readonly limits: SandboxLimits;
  readonly signal: AbortSignal;
  readonly clock: Clock;
  readonly onLine?: (line: string) => void;
}

/** `time` and `memory`: a limit ended it; `crash`: it died by a signal of its own. */
export type SandboxOutcome =
  | { readonly ended: 'exit'; readonly code: number; readonly errorText: string }
  | { readonly ended: 'time' | 'memory' | 'crash'; readonly errorText: string }
  | { readonly ended: 'missing' };

const MEMORY_WATCH_MS = 100;
/** Characters of standard error kept for the log; the last ones count. */
const ERROR_CHARACTERS = 4_000;
const PAGE_BYTES = 4096;
/** Programs reserve much more address space than they use; this limit only stops extreme cases. */
const ADDRESS_SPACE_FACTOR = 8;
const LEAST_ADDRESS_SPACE = 16_000_000_000;
/**
 * The program gets no input. A second process waits on the pipe that this process holds; when the
 * pipe closes, because the work is done or this process was killed, it kills the whole group.
 */
const LIFELINE = 'exec 3<&0; ( read _ <&3; kill -9 0 ) >/dev/null 2>&1 & exec "$@" </dev/null 3<&-';

/** `ulimit` uses blocks of 512 bytes for files and kilobytes for memory; its errors are ignored. */
function limited(run: SandboxRun): { command: string; args: string[] } {
  if (process.platform === 'win32') return { command: run.command, args: [...run.args] };
  const { cpuSeconds, fileBytes, memoryBytes } = run.limits;
  const bounds = [
    ['t', Math.ceil(cpuSeconds)],
    ['f', Math.ceil(fileBytes / 512)],
    ['v', Math.ceil(Math.max(memoryBytes * ADDRESS_SPACE_FACTOR, LEAST_ADDRESS_SPACE) / 1024)],
    ['c', 0],
  ];
  const script = bounds.map(([flag, value]) => `ulimit -${flag} ${value} 2>/dev/null;`).join(' ');
  return {
    command: '/bin/sh',
    args: ['-c', `${script} ${LIFELINE}`, 'sh', run.command, ...run.args],
  };
}

function killGroup(child: ChildProcess): void {
  if (child.pid === undefined || child.exitCode !== null) return;
  try {
    if (process.platform === 'win32') child.kill('SIGKILL');
    else process.kill(-child.pid, 'SIGKILL');
  } catch {
    // The program ended between the check and the signal.
  }
}

/** Resident bytes of a process; `undefined` if the system does not report it. */
async function residentBytes(pid: number): Promise<number | undefined> {
  try {
    const pages = (await readFile(`/proc/${pid}/statm`, 'utf8')).split(' ')[1];
    return Number(pages) * PAGE_BYTES;
  } catch {
    // No such file system, or the process has ended.
    return undefined;
  }
}

/** Runs a program to its end; rejects with the abort reason of `signal`. */
export type RunSandboxed = (run: SandboxRun) => Promise<SandboxOutcome>;

/** Runs a program to its end. Rejects only with the abort reason of `signal`. */
export async function runSandboxed(run: SandboxRun): Promise<SandboxOutcome> {
  const { limits, signal, clock } = run;
  signal.throwIfAborted();
  const { command, args } = limited(run);
  const child = spawn(command, args, {
    env: { ...run.env },
    stdio: ['pipe', 'pipe', 'pipe'],
    // A process group of its own, so that its child processes end with it.
    detached: process.platform !== 'win32',
    windowsHide: true,
  });
  lowerPriority(child);
  let exceeded: 'time' | 'memory' | undefined;
  const stop = (bound: 'time' | 'memory'): void => {
    exceeded ??= bound;
    killGroup(child);
  };
  const cancelTimer = clock.after(limits.timeoutMs, () => stop('time'));
  const cancelWatch = clock.every(MEMORY_WATCH_MS, () => {
    if (child.pid === undefined) return;
    void residentBytes(child.pid).then((bytes) => {
      if (bytes !== undefined && bytes > limits.memoryBytes) stop('memory');
    });
  });
  const onAbort = (): void => killGroup(child);
  signal.addEventListener('abort', onAbort, { once: true });
  try {
    const outcome = await ending(child, run.onLine);
    signal.throwIfAborted();
    if (exceeded === undefined || outcome.ended === 'missing') return outcome;
    return { ended: exceeded, errorText: outcome.errorText };
  } finally {
    cancelTimer();
    cancelWatch();
    signal.removeEventListener('abort', onAbort);
  }
}

async function ending(
  child: ChildProcessWithoutNullStreams,
  onLine: SandboxRun['onLine'],
): Promise<SandboxOutcome> {
  let errorText = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    errorText = (errorText + text).slice(-ERROR_CHARACTERS);
  });
  createInterface({ input: child.stdout }).on('line', (line) => onLine?.(line));
  child.once('exit', () => child.stdin.destroy());
  return await new Promise<SandboxOutcome>((resolve) => {
    child.once('error', () => resolve({ ended: 'missing' }));
    child.once('close', (code, signal) => {
      if (code === null) resolve({ ended: signal === 'SIGXCPU' ? 'time' : 'crash', errorText });
      // 127: the shell did not find the program.
      else resolve(code === 127 ? { ended: 'missing' } : { ended: 'exit', code, errorText });
    });
  });
}
