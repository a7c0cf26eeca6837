/**
 * At most `running` jobs at once and at most `waiting` in line. A job that finds the line full is
 * refused at once, so that a queue is bounded in length and in memory. The next to run is a job of
 * the caller with the fewest running, and among those of each in turn: nobody waits for the long line
 * of another.
 */
import { FairQueue } from './fair-queue.ts';
import { Fault } from './faults.ts';

export interface JobQueueLimits {
  readonly running: number;
  readonly waiting: number;
  /** Of one caller; `waiting` when absent. */
  readonly waitingOfCaller?: number;
  /** `Retry-After` of the fault MODEL_AT_CAPACITY, or another error, if the line is full. */
  readonly retryAfterSeconds?: number;
  readonly full?: () => Error;
}

/** Runs one piece of the work of a request, when it is the turn of its caller. */
export type Turn = <T>(work: () => Promise<T>) => Promise<T>;

interface Waiter {
  readonly line: string;
  readonly start: () => void;
}

export class JobQueue {
  readonly #limits: JobQueueLimits;
  readonly #waiters = new FairQueue<Waiter>();
  /** The line of each job that runs. */
  readonly #running: string[] = [];
  #nobodys = 0;

  constructor(limits: JobQueueLimits) {
    this.#limits = limits;
  }

  /** Whether so many further jobs would be taken now. Jobs without a caller have a line each. */
  hasRoom(caller = '', jobs = 1): boolean {
    const { running, waiting, waitingOfCaller = waiting } = this.#limits;
    const mustWait = this.#running.length + jobs - running;
    if (mustWait <= 0) return true;
    const own = caller === '' ? 0 : this.#waiters.sizeOf(caller);
    return this.#waiters.size + mustWait <= waiting && own + mustWait <= waitingOfCaller;
  }

  /**
   * Runs `work` when it may. Faults: MODEL_AT_CAPACITY, unless it goes on with what was let in
   * before; an abort leaves the line at once.
   */
  async run<T>(
    work: () => Promise<T>,
    signal?: AbortSignal,
    caller = '',
    isLetIn = false,
  ): Promise<T> {
    signal?.throwIfAborted();
    const line = caller === '' ? this.#lineOfNobody() : caller;
    // Whoever ends a job counts the one that it starts.
    if (this.#running.length < this.#limits.running) this.#running.push(line);
    else if (isLetIn || this.hasRoom(caller)) await this.#wait(signal, line);
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

  /**
   * Splits the work of one request into turns, so that others run between two pieces of a long one.
   * Only the first piece can be rejected because the line is full.
   */
  turnsOf(caller: string, signal: AbortSignal): Turn {
    let isLetIn = false;
    return (work) => {
      const goesOn = isLetIn;
      isLetIn = true;
      return this.run(work, signal, caller, goesOn);
    };
  }

  #lineOfNobody(): string {
    this.#nobodys += 1;
    return ` ${this.#nobodys}`;
  }

  #startNext(): void {
    const runningOf = (line: string): number => this.#running.filter((one) => one === line).length;
    for (let most = 0; this.#waiters.size > 0; most += 1) {
      const next = this.#waiters.next((line) => runningOf(line) <= most);
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
        // The reason of whoever aborted, which need not be an error.
        reject(signal?.reason as Error);
      };
      signal?.addEventListener('abort', leave, { once: true });
      this.#waiters.add(line, waiter);
    });
  }
}
