/**
 * A small number of worker processes for one role, a bounded queue before them, and a time limit
 * on each job. A job that hangs, crashes or eats memory costs its process and nothing else; the next
 * job gets a fresh one.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { JobQueue } from '../core/job-queue.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { siblingUrl } from '../core/sibling.ts';
import { encodeFrame, type Frame, FrameReader } from './frames.ts';
import type { Job, JobHeader, SentHeader, WorkerRole } from './jobs.ts';

export interface WorkerPoolOptions {
  readonly role: WorkerRole;
  readonly size: number;
  /** Resident memory at which a process is killed. */
  readonly memoryMb: number;
  readonly clock: Clock;
  readonly log: Log;
}

export interface RunOptions {
  /** From the start of the job, not from queueing. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  /** Whose job it is, so that one caller's queue is not everybody's. */
  readonly caller?: string | undefined;
}

export type RunOutcome =
  | { readonly ok: true; readonly reply: Frame<SentHeader> }
  | { readonly ok: false; readonly reason: 'timeout' | 'crash' };

const MAX_QUEUED_JOBS = 64;
const MAX_QUEUED_BYTES = 256_000_000;
/** A caller may hold this part of the queue. */
const MAX_QUEUED_JOBS_PER_CALLER = 16;
const RETRY_AFTER_SECONDS = 5;
/** The code of a process is fresh again after so many jobs: parsers leak. */
const MAX_JOBS_PER_PROCESS = 200;
const IDLE_MS = 120_000;
/** Loading the libraries comes on top of the first job's own time. */
const START_ALLOWANCE_MS = 5_000;
/** Text is cut long before; a larger reply comes from a broken worker. */
const MAX_REPLY_BYTES = 160_000_000;
/** The heap gets this part of the memory; the rest is for buffers. */
const HEAP_SHARE = 0.6;

export class WorkerPool {
  readonly #options: WorkerPoolOptions;
  readonly #queue: JobQueue;
  /** All that live; those without a job are the idle ones. */
  readonly #processes = new Set<WorkerProcess>();
  #queuedBytes = 0;
  #isClosed = false;

  constructor(options: WorkerPoolOptions) {
    this.#options = options;
    this.#queue = new JobQueue({
      running: options.size,
      waiting: MAX_QUEUED_JOBS,
      waitingOfCaller: MAX_QUEUED_JOBS_PER_CALLER,
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  }

  /** Runs one job; throws `SERVICE_UNAVAILABLE` when the queue is full, and the abort's reason. */
  async run(job: Job, payload: Uint8Array, options: RunOptions): Promise<RunOutcome> {
    const { signal, caller } = options;
    signal?.throwIfAborted();
    let queuedBytes = payload.byteLength;
    const hasRoom =
      this.#queuedBytes + queuedBytes <= MAX_QUEUED_BYTES && this.#queue.hasRoom(caller);
    if (this.#isClosed || !hasRoom) {
      throw new Fault('SERVICE_UNAVAILABLE', {
        message: 'Too many documents are being read',
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    }
    const leaveQueue = (): void => {
      this.#queuedBytes -= queuedBytes;
      queuedBytes = 0;
    };
    this.#queuedBytes += queuedBytes;
    const work = async (): Promise<RunOutcome> => {
      leaveQueue();
      signal?.throwIfAborted();
      if (this.#isClosed) return { ok: false, reason: 'crash' };
      return await this.#idleProcess().run(job, payload, options);
    };
    return await this.#queue.run(work, signal, caller).finally(leaveQueue);
  }

  /** Kills every process; waiting and running jobs end as crashed. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([...this.#processes].map((process) => process.end('crash')));
  }

  #idleProcess(): WorkerProcess {
    for (const process of this.#processes) if (process.isIdle) return process;
    const process = new WorkerProcess(this.#options, () => this.#processes.delete(process));
    this.#processes.add(process);
    return process;
  }
}

/** One process with at most one job. What ends it, ends its job. */
class WorkerProcess {
  readonly #options: WorkerPoolOptions;
  readonly #onEnd: () => void;
  readonly #child: ChildProcess;
  readonly #gone: Promise<void>;
  #settle: ((outcome: RunOutcome) => void) | undefined;
  #jobs = 0;
  #isEnded = false;
  #stopTimer: () => void = () => undefined;

  /** `onEnd` hears that it takes no job any more. */
  constructor(options: WorkerPoolOptions, onEnd: () => void) {
    this.#options = options;
    this.#onEnd = onEnd;
    this.#child = spawnWorker(options);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#gone = promise;
    this.#child.once('error', (error) => {
      this.#crashed(reasonOf(error));
      resolve();
    });
    this.#child.once('close', () => {
      if (this.#settle !== undefined) this.#crashed('exit');
      void this.end('crash');
      resolve();
    });
    const frames = new FrameReader<SentHeader>(MAX_REPLY_BYTES);
    const output = this.#child.stdio[3] as Readable; // descriptor 3 is only written by the child
    output.on('data', (chunk: Buffer) => {
      try {
        for (const reply of frames.push(chunk)) this.#take(reply);
      } catch (error) {
        // What does not parse comes from a worker that is not itself any more.
        this.#crashed(reasonOf(error));
      }
    });
    // A pipe of a dying process breaks; its exit says all there is to say.
    this.#child.stdin?.on('error', () => undefined);
    output.on('error', () => undefined);
  }

  get isIdle(): boolean {
    return this.#settle === undefined;
  }

  /** Rejects with the reason of `signal` only; the process then ends. */
  async run(job: Job, payload: Uint8Array, options: RunOptions): Promise<RunOutcome> {
    const { signal } = options;
    const timeoutMs = options.timeoutMs + (this.#jobs === 0 ? START_ALLOWANCE_MS : 0);
    this.#jobs += 1;
    this.#stopTimer();
    this.#stopTimer = this.#options.clock.after(timeoutMs, () => void this.end('timeout'));
    const abort = (): void => void this.end('crash');
    signal?.addEventListener('abort', abort, { once: true });
    const header: JobHeader = { job, timeoutMs };
    const outcome = await new Promise<RunOutcome>((resolve) => {
      this.#settle = resolve;
      for (const piece of encodeFrame(header, payload)) this.#child.stdin?.write(piece);
    });
    signal?.removeEventListener('abort', abort);
    signal?.throwIfAborted();
    return outcome;
  }

  /** Kills the process and resolves when it is gone. */
  async end(reason: 'timeout' | 'crash'): Promise<void> {
    if (!this.#isEnded) {
      this.#isEnded = true;
      this.#stopTimer();
      this.#child.kill('SIGKILL');
      this.#onEnd();
      this.#finish({ ok: false, reason });
    }
    await this.#gone;
  }

  #crashed(cause: string): void {
    if (this.#isEnded) return;
    this.#options.log.warn({ role: this.#options.role, cause }, 'A document worker ended');
    void this.end('crash');
  }

  #take(reply: Frame<SentHeader>): void {
    if (this.#settle === undefined) return;
    this.#stopTimer();
    this.#finish({ ok: true, reply });
    if (this.#jobs >= MAX_JOBS_PER_PROCESS || reply.header.isSpent === true) void this.end('crash');
    else this.#stopTimer = this.#options.clock.after(IDLE_MS, () => void this.end('crash'));
  }

  #finish(outcome: RunOutcome): void {
    const settle = this.#settle;
    this.#settle = undefined;
    settle?.(outcome);
  }
}

function spawnWorker({ role, memoryMb }: WorkerPoolOptions): ChildProcess {
  const flags = [
    `--max-old-space-size=${Math.floor(memoryMb * HEAP_SHARE)}`,
    '--permission',
    '--allow-fs-read=*',
    '--allow-worker',
    '--no-warnings',
  ];
  const entry = fileURLToPath(siblingUrl(import.meta.url, 'worker-process'));
  const parameters = [role, String(memoryMb * 1_000_000), String(process.pid)];
  return spawn(process.execPath, [...flags, entry, ...parameters], {
    env: {}, // secrets of the server are none of its business
    stdio: ['pipe', 'ignore', 'ignore', 'pipe'],
    windowsHide: true,
  });
}
