/**
 * Runs at most `running` jobs at once, with at most `waiting` in the queue; further jobs are
 * rejected at once, which bounds memory. The next job is one of the caller with the fewest running
 * jobs, in turn among equals, so that no caller waits for another's long queue. With
 * `runningOfCaller`, one caller never takes all slots, so that a short job does not wait for
 * another caller's long ones.
 */
import { FairQueue } from './fair-queue.ts';
import { Fault } from './faults.ts';

export interface JobQueueLimits {
  readonly running: number;
  /** Default: `running`. Jobs without a caller count one by one. */
  readonly runningOfCaller?: number;
  readonly waiting: number;
  readonly waitingOfCaller?: number;
  readonly retryAfterSeconds?: number;
  readonly full?: () => Error;
}

/** Runs one piece of a request's work when it is its caller's turn. */
export type Turn = <T>(work: () => Promise<T>) => Promise<T>;

interface Waiter {
  readonly line: string;
  readonly start: () => void;
}

export class JobQueue {
  readonly #limits: JobQueueLimits;
  readonly #waiters = new FairQueue<Waiter>();
  readonly #running: string[] = [];
  #anonymousJobs = 0;

  constructor(limits: JobQueueLimits) {
    this.#limits = limits;
  }

  /** Whether this many further jobs would be accepted; a job without a caller has its own line. */
  hasRoom(caller = '', jobs = 1): boolean {
    const { running, runningOfCaller = running, waiting } = this.#limits;
    const { waitingOfCaller = waiting } = this.#limits;
    const mustWait = Math.max(
      this.#running.length + jobs - running,
      caller === '' ? 0 : this.#runningOf(caller) + jobs - runningOfCaller,
    );
    if (mustWait <= 0) return true;
    const own = caller === '' ? 0 : this.#waiters.sizeOf(caller);
    return this.#waiters.size + mustWait <= waiting && own + mustWait <= waitingOfCaller;
  }

  /** Runs `work` when a slot is free. Throws MODEL_AT_CAPACITY; an abort leaves the queue. */
  async run<T>(
    work: () => Promise<T>,
    signal?: AbortSignal,
    caller = '',
    isAdmitted = false,
  ): Promise<T> {
    signal?.throwIfAborted();
    const line = caller === '' ? this.#anonymousLine() : caller;
    // `#startNext` counts the jobs that had to wait.
    if (this.#canStart(line)) this.#running.push(line);
    else if (isAdmitted || this.hasRoom(caller)) await this.#wait(signal, line);
    else {
      const { retryAfterSeconds = 1, full } = this.#limits;
      throw full?.() ?? new Fault('MODEL_AT_CAPACITY', { retryAfterSeconds });
    }
    try {
      return await work();
    } finally {
      this.#running.splice(this.#running.indexOf(line), 1);
      this.#startNext();
    }
  }

  /** Runs a request in pieces; only the first piece is rejected if the queue is full. */
  turnsOf(caller: string, signal: AbortSignal): Turn {
    let isAdmitted = false;
    return (work) => {
      const isContinued = isAdmitted;
      isAdmitted = true;
      return this.run(work, signal, caller, isContinued);
    };
  }

  #anonymousLine(): string {
    this.#anonymousJobs += 1;
    return ` ${this.#anonymousJobs}`;
  }

  #runningOf(line: string): number {
    return this.#running.filter((one) => one === line).length;
  }

  #canStart(line: string): boolean {
    const { running, runningOfCaller = running } = this.#limits;
    return this.#running.length < running && this.#runningOf(line) < runningOfCaller;
  }

  #startNext(): void {
    const { running, runningOfCaller = running } = this.#limits;
    for (let most = 0; this.#waiters.size > 0 && most < runningOfCaller; most += 1) {
      const next = this.#waiters.next((line) => this.#runningOf(line) <= most);
      if (next === undefined) continue;
      this.#running.push(next.line);
      return next.start();
    }
  }

  async #wait(signal: AbortSignal | undefined, line: string): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      const start = (): void => {
        signal?.removeEventListener('abort', leave);
        resolve();
      };
      const waiter: Waiter = { line, start };
      const leave = (): void => {
        this.#waiters.remove(line, waiter);
        // The abort reason, which need not be an error.
        reject(signal?.reason as Error);
      };
      signal?.addEventListener('abort', leave, { once: true });
      this.#waiters.add(line, waiter);
    });
  }
}
