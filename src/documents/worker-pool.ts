/**
 * A few worker processes for one role, with a bounded queue and a time limit per job. A job that
 * hangs, crashes or exceeds its memory only kills its process; the next job gets a new one.
 */
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { JobQueue } from '../core/job-queue.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { encodeFrame, type Frame, FrameReader } from './pipe-frames.ts';
import type { Job, JobHeader, SentHeader, WorkerRole } from './jobs.ts';
import type { StartedWorker, WorkerStarter } from './worker-starter.ts';

export interface WorkerPoolOptions {
  readonly role: WorkerRole;
  readonly starter: WorkerStarter;
  readonly size: number;
  readonly memoryMb: number;
  readonly clock: Clock;
  readonly log: Log;
}

export interface RunOptions {
  /** From the start of the job, without the time in the queue. */
  readonly timeoutMs: number;
  readonly signal?: AbortSignal | undefined;
  readonly caller?: string | undefined;
}

export type RunOutcome =
  | { readonly ok: true; readonly reply: Frame<SentHeader> }
  | { readonly ok: false; readonly reason: 'timeout' | 'crash' };

const MAX_QUEUED_JOBS = 64;
const MAX_QUEUED_BYTES = 256_000_000;
/** The largest job, so that the files of one caller leave memory for those of others. */
const MAX_QUEUED_BYTES_PER_CALLER = 140_000_000;
/** Limit per caller, so that one caller cannot fill the queue. */
const MAX_QUEUED_JOBS_PER_CALLER = 16;
const RETRY_AFTER_SECONDS = 5;
/** The process is replaced after this many jobs, because parsers leak memory. */
const MAX_JOBS_PER_PROCESS = 200;
const IDLE_MS = 120_000;
/** Added to the first job's time limit, for loading the libraries. */
const START_ALLOWANCE_MS = 30_000;
/** Text is truncated far below this size; a larger reply means a broken worker. */
const MAX_REPLY_BYTES = 160_000_000;

export class WorkerPool {
  readonly #options: WorkerPoolOptions;
  readonly #queue: JobQueue;
  readonly #processes = new Set<WorkerProcess>();
  #queuedBytes = 0;
  readonly #bytesOfCallers = new Map<string, number>();
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

  /** Runs one job; throws `SERVICE_UNAVAILABLE` if the queue is full, and the abort reason. */
  async run(job: Job, payload: Uint8Array, options: RunOptions): Promise<RunOutcome> {
    const { signal, caller } = options;
    signal?.throwIfAborted();
    let queuedBytes = payload.byteLength;
    const canQueue = this.#hasMemory(queuedBytes, caller) && this.#queue.hasRoom(caller);
    if (this.#isClosed || !canQueue) {
      throw new Fault('SERVICE_UNAVAILABLE', {
        message: 'The queue of documents is full',
        retryAfterSeconds: RETRY_AFTER_SECONDS,
      });
    }
    const leaveQueue = (): void => {
      this.#countQueued(-queuedBytes, caller);
      queuedBytes = 0;
    };
    this.#countQueued(queuedBytes, caller);
    const work = async (): Promise<RunOutcome> => {
      leaveQueue();
      signal?.throwIfAborted();
      if (this.#isClosed) return { ok: false, reason: 'crash' };
      return await this.#idleProcess().run(job, payload, options);
    };
    return await this.#queue.run(work, signal, caller).finally(leaveQueue);
  }

  #hasMemory(bytes: number, caller = ''): boolean {
    const ofCaller = caller === '' ? 0 : (this.#bytesOfCallers.get(caller) ?? 0);
    return (
      this.#queuedBytes + bytes <= MAX_QUEUED_BYTES &&
      ofCaller + bytes <= MAX_QUEUED_BYTES_PER_CALLER
    );
  }

  #countQueued(bytes: number, caller = ''): void {
    this.#queuedBytes += bytes;
    const ofCaller = (this.#bytesOfCallers.get(caller) ?? 0) + bytes;
    if (ofCaller === 0) this.#bytesOfCallers.delete(caller);
    else this.#bytesOfCallers.set(caller, ofCaller);
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

class WorkerProcess {
  readonly #options: WorkerPoolOptions;
  readonly #onEnd: () => void;
  readonly #worker: StartedWorker;
  readonly #gone: Promise<void>;
  #settle: ((outcome: RunOutcome) => void) | undefined;
  #jobs = 0;
  #isEnded = false;
  #stopTimer: () => void = () => undefined;

  /** `onEnd` is called when the process accepts no more jobs. */
  constructor(options: WorkerPoolOptions, onEnd: () => void) {
    this.#options = options;
    this.#onEnd = onEnd;
    this.#worker = options.starter.start(options.role, options.memoryMb);
    this.#gone = this.#follow();
  }

  /** Reads the replies of the worker until it ends. Never rejects. */
  async #follow(): Promise<void> {
    try {
      const { input, output } = await this.#worker.pipes;
      // The pipe of a dying process breaks; its exit is handled separately.
      input.on('error', () => undefined);
      output.on('error', () => undefined);
      const frames = new FrameReader<SentHeader>(MAX_REPLY_BYTES);
      output.on('data', (chunk: Buffer) => {
        try {
          for (const reply of frames.push(chunk)) this.#take(reply);
        } catch (error) {
          // An invalid frame means that the worker is compromised or broken.
          this.#crashed(reasonOf(error));
        }
      });
      if (!output.closed) await new Promise((closed) => output.once('close', closed));
      input.destroy();
      if (this.#settle !== undefined) this.#crashed('exit');
      this.#end('crash');
    } catch (error) {
      this.#crashed(reasonOf(error));
    }
  }

  get isIdle(): boolean {
    return this.#settle === undefined;
  }

  /** Rejects only with the abort reason of `signal`; the process is then killed. */
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
      this.#worker.pipes.then(
        ({ input }) => {
          for (const piece of encodeFrame(header, payload)) input.write(piece);
        },
        () => undefined, // reported by `#follow`
      );
    });
    signal?.removeEventListener('abort', abort);
    signal?.throwIfAborted();
    return outcome;
  }

  async end(reason: 'timeout' | 'crash'): Promise<void> {
    this.#end(reason);
    await this.#gone;
  }

  #end(reason: 'timeout' | 'crash'): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    this.#stopTimer();
    this.#worker.kill();
    this.#onEnd();
    this.#finish({ ok: false, reason });
  }

  #crashed(cause: string): void {
    if (this.#isEnded) return;
    this.#options.log.warn({ role: this.#options.role, cause }, 'A document worker ended');
    this.#end('crash');
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
