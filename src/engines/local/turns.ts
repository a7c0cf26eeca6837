/**
 * Turns: at most `running` pieces of work at once and at most `waiting` in line. Work that finds
 * the line full is refused at once, so that an engine's queue is bounded in length and in memory.
 * The next turn is that of the holder with the least work running: nobody waits for the long line
 * of another.
 */
import { Fault } from '../../core/faults.ts';

export interface TurnLimits {
  readonly running: number;
  readonly waiting: number;
  /** Of one holder; `waiting` when absent. */
  readonly waitingOfHolder?: number;
  /** What `Retry-After` says when the line is full. */
  readonly retryAfterSeconds: number;
}

interface Waiter {
  readonly holder: string;
  readonly take: () => void;
}

export class Turns {
  readonly #limits: TurnLimits;
  readonly #line: Waiter[] = [];
  /** Of each holder that has any. */
  readonly #runningOf = new Map<string, number>();
  #running = 0;

  constructor(limits: TurnLimits) {
    this.#limits = limits;
  }

  /** Runs `work` in its turn. Faults: MODEL_AT_CAPACITY; an abort leaves the line at once. */
  async run<T>(work: () => Promise<T>, signal: AbortSignal, holder = ''): Promise<T> {
    signal.throwIfAborted();
    if (this.#running < this.#limits.running) this.#count(holder, 1);
    // Whoever passes the turn on has counted it.
    else await this.#wait(signal, holder);
    try {
      return await work();
    } finally {
      this.#count(holder, -1);
      const next = this.#next();
      if (next !== undefined) {
        this.#line.splice(this.#line.indexOf(next), 1);
        this.#count(next.holder, 1);
        next.take();
      }
    }
  }

  #count(holder: string, by: 1 | -1): void {
    this.#running += by;
    const running = (this.#runningOf.get(holder) ?? 0) + by;
    if (running === 0) this.#runningOf.delete(holder);
    else this.#runningOf.set(holder, running);
  }

  #next(): Waiter | undefined {
    let next: Waiter | undefined;
    let least = Infinity;
    for (const waiter of this.#line) {
      const running = this.#runningOf.get(waiter.holder) ?? 0;
      if (running < least) {
        next = waiter;
        least = running;
      }
    }
    return next;
  }

  async #wait(signal: AbortSignal, holder: string): Promise<void> {
    const { waiting, waitingOfHolder = waiting, retryAfterSeconds } = this.#limits;
    const ofHolder = this.#line.filter((waiter) => waiter.holder === holder).length;
    if (this.#line.length >= waiting || ofHolder >= waitingOfHolder) {
      throw new Fault('MODEL_AT_CAPACITY', { retryAfterSeconds });
    }
    await new Promise<void>((resolve, reject) => {
      const waiter: Waiter = {
        holder,
        take: () => {
          signal.removeEventListener('abort', leave);
          resolve();
        },
      };
      const leave = (): void => {
        this.#line.splice(this.#line.indexOf(waiter), 1);
        reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
      };
      signal.addEventListener('abort', leave, { once: true });
      this.#line.push(waiter);
    });
  }
}
