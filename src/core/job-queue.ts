/**
 * At most `running` jobs at once and at most `waiting` in line. A job that finds the line full is
 * refused at once, so that a queue is bounded in length and in memory. The next to run is a job of
 * the caller with the fewest running: nobody waits for the long line of another.
 */
import { Fault } from './faults.ts';

export interface JobQueueLimits {
  readonly running: number;
  readonly waiting: number;
  /** Of one caller; `waiting` when absent. */
  readonly waitingOfCaller?: number;
  /** What `Retry-After` says when the line is full. */
  readonly retryAfterSeconds: number;
}

interface Waiter {
  readonly caller: string;
  readonly start: () => void;
}

export class JobQueue {
  readonly #limits: JobQueueLimits;
  readonly #line: Waiter[] = [];
  /** The caller of each job that runs. */
  readonly #running: string[] = [];

  constructor(limits: JobQueueLimits) {
    this.#limits = limits;
  }

  /** Whether so many further jobs would be taken now. Jobs without a caller have a line each. */
  hasRoom(caller = '', jobs = 1): boolean {
    const { running, waiting, waitingOfCaller = waiting } = this.#limits;
    const mustWait = this.#running.length + jobs - running;
    if (mustWait <= 0) return true;
    const own = caller === '' ? 0 : this.#line.filter((one) => one.caller === caller).length;
    return this.#line.length + mustWait <= waiting && own + mustWait <= waitingOfCaller;
  }

  /** Runs `work` when it may. Faults: MODEL_AT_CAPACITY; an abort leaves the line at once. */
  async run<T>(work: () => Promise<T>, signal?: AbortSignal, caller = ''): Promise<T> {
    signal?.throwIfAborted();
    // Whoever ends a job counts the one that it starts.
    if (this.#running.length < this.#limits.running) this.#running.push(caller);
    else await this.#wait(signal, caller);
    try {
      return await work();
    } finally {
      this.#running.splice(this.#running.indexOf(caller), 1);
      this.#startNext();
    }
  }

  #startNext(): void {
    const load = ({ caller }: Waiter): number =>
      caller === '' ? 0 : this.#running.filter((one) => one === caller).length;
    let [next] = this.#line;
    if (next === undefined) return;
    for (const waiter of this.#line) if (load(waiter) < load(next)) next = waiter;
    this.#line.splice(this.#line.indexOf(next), 1);
    this.#running.push(next.caller);
    next.start();
  }

  async #wait(signal: AbortSignal | undefined, caller: string): Promise<void> {
    const { retryAfterSeconds } = this.#limits;
    if (!this.hasRoom(caller)) throw new Fault('MODEL_AT_CAPACITY', { retryAfterSeconds });
    await new Promise<void>((resolve, reject) => {
      const start = (): void => {
        signal?.removeEventListener('abort', leave);
        resolve();
      };
      const waiter: Waiter = { caller, start };
      const leave = (): void => {
        this.#line.splice(this.#line.indexOf(waiter), 1);
        // The reason of whoever aborted, which need not be an error.
        reject(signal?.reason as Error);
      };
      signal?.addEventListener('abort', leave, { once: true });
      this.#line.push(waiter);
    });
  }
}
