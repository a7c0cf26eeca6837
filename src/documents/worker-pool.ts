/**
 * A small number of worker processes for one role, a bounded queue before them, and a kill timer
 * on each job. A job that hangs, crashes or eats memory costs its process and nothing else; the next
 * job gets a fresh one. Jobs of one caller do not overtake those of others.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import type { Readable, Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { assert } from '../core/assert.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { siblingUrl } from '../core/sibling.ts';
import { encodeFrame, type Frame, FrameReader } from './frames.ts';
import type { Job, JobHeader, ReplyHeader, WorkerRole } from './jobs.ts';

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
  | { readonly ok: true; readonly reply: Frame<ReplyHeader> }
  | { readonly ok: false; readonly reason: 'timeout' | 'crash' };

const MAX_QUEUED_JOBS = 64;
const MAX_QUEUED_BYTES = 256_000_000;
/** A caller may hold this part of the queue. */
const MAX_QUEUED_JOBS_PER_CALLER = 16;
/** The code of a process is fresh again after so many jobs: parsers leak. */
const MAX_JOBS_PER_PROCESS = 200;
const IDLE_MS = 120_000;
/** Loading the libraries comes on top of the first job's own time. */
const START_ALLOWANCE_MS = 5_000;
/** Text is cut long before; a larger reply comes from a broken worker. */
const MAX_REPLY_BYTES = 160_000_000;
/** The heap gets this part of the memory; the rest is for buffers. */
const HEAP_SHARE = 0.6;

interface Task {
  readonly job: Job;
  readonly payload: Uint8Array;
  readonly options: RunOptions;
  readonly resolve: (outcome: RunOutcome) => void;
  readonly reject: (error: unknown) => void;
  dispose: () => void;
}

interface Process {
  readonly child: ChildProcess;
  readonly stdin: Writable;
  task: Task | undefined;
  jobs: number;
  stopTimer: () => void;
}

export class WorkerPool {
  readonly #options: WorkerPoolOptions;
  readonly #processes = new Set<Process>();
  #queue: Task[] = [];
  #queuedBytes = 0;
  #isClosed = false;

  constructor(options: WorkerPoolOptions) {
    this.#options = options;
  }

  /** Runs one job; throws `SERVICE_UNAVAILABLE` when the queue is full, and the abort's reason. */
  async run(job: Job, payload: Uint8Array, options: RunOptions): Promise<RunOutcome> {
    options.signal?.throwIfAborted();
    this.#admit(payload, options);
    return await new Promise<RunOutcome>((resolve, reject) => {
      const task: Task = { job, payload, options, resolve, reject, dispose: () => undefined };
      const { signal } = options;
      if (signal !== undefined) {
        const abort = (): void => this.#abort(task);
        signal.addEventListener('abort', abort, { once: true });
        task.dispose = () => signal.removeEventListener('abort', abort);
      }
      this.#queue.push(task);
      this.#queuedBytes += payload.byteLength;
      this.#dispatch();
    });
  }

  /** Kills every process; waiting and running jobs end as crashed. */
  async close(): Promise<void> {
    this.#isClosed = true;
    for (const task of this.#queue.splice(0)) finish(task, { ok: false, reason: 'crash' });
    const exits = [...this.#processes].map(async (process) => {
      if (process.child.exitCode !== null || process.child.signalCode !== null) return;
      await new Promise<void>((resolve) => {
        process.child.once('close', () => resolve());
        process.child.kill('SIGKILL');
      });
    });
    await Promise.all(exits);
  }

  #admit(payload: Uint8Array, { caller }: RunOptions): void {
    const own = this.#queue.filter((task) => task.options.caller === caller).length;
    const isFull =
      this.#isClosed ||
      this.#queue.length >= MAX_QUEUED_JOBS ||
      this.#queuedBytes + payload.byteLength > MAX_QUEUED_BYTES ||
      (caller !== undefined && own >= MAX_QUEUED_JOBS_PER_CALLER);
    if (isFull) {
      const message = 'Too many documents are being read';
      throw new Fault('SERVICE_UNAVAILABLE', { message, retryAfterSeconds: 5 });
    }
  }

  #dispatch(): void {
    while (this.#queue.length > 0 && !this.#isClosed) {
      const idle = [...this.#processes].find((process) => process.task === undefined);
      if (idle === undefined && this.#processes.size >= this.#options.size) return;
      const task = this.#takeTask();
      if (task === undefined) return;
      this.#start(idle ?? this.#spawn(), task);
    }
  }

  /** The first job of the caller that has the fewest running. */
  #takeTask(): Task | undefined {
    const running = [...this.#processes].map((process) => process.task?.options.caller);
    const load = (task: Task): number =>
      running.filter((caller) => caller !== undefined && caller === task.options.caller).length;
    let best = this.#queue[0];
    for (const task of this.#queue) if (best !== undefined && load(task) < load(best)) best = task;
    if (best !== undefined) this.#remove(best);
    return best;
  }

  #start(process: Process, task: Task): void {
    const { timeoutMs } = task.options;
    process.stopTimer();
    process.task = task;
    const allowanceMs = process.jobs === 0 ? START_ALLOWANCE_MS : 0;
    process.jobs += 1;
    process.stopTimer = this.#options.clock.after(timeoutMs + allowanceMs, () => {
      this.#end(process, { ok: false, reason: 'timeout' });
    });
    const header: JobHeader = { job: task.job, timeoutMs: timeoutMs + allowanceMs };
    for (const piece of encodeFrame(header, task.payload)) process.stdin.write(piece);
  }

  #spawn(): Process {
    const { role, memoryMb } = this.#options;
    const flags = [
      `--max-old-space-size=${Math.floor(memoryMb * HEAP_SHARE)}`,
      '--permission',
      '--allow-fs-read=*',
      '--allow-worker',
      '--no-warnings',
    ];
    const entry = fileURLToPath(siblingUrl(import.meta.url, 'worker-process'));
    const memoryBytes = memoryMb * 1_000_000;
    const parameters = [role, String(memoryBytes), String(process.pid)];
    const child = spawn(process.execPath, [...flags, entry, ...parameters], {
      env: {}, // secrets of the server are none of its business
      stdio: ['pipe', 'ignore', 'ignore', 'pipe'],
      windowsHide: true,
    });
    const [stdin, , , output] = child.stdio;
    assert(stdin !== null && output instanceof Object, 'pipes were asked for');
    const record: Process = { child, stdin, task: undefined, jobs: 0, stopTimer: () => undefined };
    this.#processes.add(record);
    this.#listen(record, output as Readable); // descriptor 3 is only written by the child
    return record;
  }

  #listen(process: Process, output: Readable): void {
    const frames = new FrameReader<ReplyHeader>(MAX_REPLY_BYTES);
    const crash = (error?: unknown): void => {
      if (process.task !== undefined || error !== undefined) {
        this.#options.log.warn(
          { role: this.#options.role, cause: error === undefined ? 'exit' : reasonOf(error) },
          'A document worker ended',
        );
      }
      this.#end(process, { ok: false, reason: 'crash' });
    };
    output.on('data', (chunk: Buffer) => {
      try {
        for (const reply of frames.push(chunk)) this.#reply(process, reply);
      } catch (error) {
        crash(error); // what does not parse comes from a worker that is not itself any more
      }
    });
    process.child.on('error', crash);
    process.child.on('close', () => crash());
    // A pipe of a dying process breaks; its exit says all there is to say.
    process.stdin.on('error', () => undefined);
    output.on('error', () => undefined);
  }

  #reply(process: Process, reply: Frame<ReplyHeader>): void {
    const { task } = process;
    if (task === undefined) return;
    process.task = undefined;
    process.stopTimer();
    if (process.jobs >= MAX_JOBS_PER_PROCESS) this.#discard(process);
    else process.stopTimer = this.#options.clock.after(IDLE_MS, () => this.#discard(process));
    finish(task, { ok: true, reply });
    this.#dispatch();
  }

  /** The process is no use any more: killed, and its job told why. */
  #end(process: Process, outcome: RunOutcome): void {
    const { task } = process;
    process.task = undefined;
    this.#discard(process);
    if (task !== undefined) finish(task, outcome);
    this.#dispatch();
  }

  #discard(process: Process): void {
    process.stopTimer();
    this.#processes.delete(process);
    process.child.kill('SIGKILL');
  }

  #abort(task: Task): void {
    const running = [...this.#processes].find((process) => process.task === task);
    if (running === undefined) this.#remove(task);
    else running.task = undefined;
    task.dispose();
    task.reject(task.options.signal?.reason);
    if (running !== undefined) this.#end(running, { ok: false, reason: 'crash' });
  }

  #remove(task: Task): void {
    const index = this.#queue.indexOf(task);
    if (index === -1) return;
    this.#queue.splice(index, 1);
    this.#queuedBytes -= task.payload.byteLength;
  }
}

function finish(task: Task, outcome: RunOutcome): void {
  task.dispose();
  task.resolve(outcome);
}
