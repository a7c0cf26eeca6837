/**
 * Turns: at most `running` pieces of work at once and at most `waiting` in line. Work that finds
 * the line full is refused at once, so that an engine's queue is bounded in length and in memory.
 */
import { Fault } from '../../kernel/faults.ts';

export interface TurnLimits {
  readonly running: number;
  readonly waiting: number;
  /** What `Retry-After` says when the line is full. */
  readonly retryAfterSeconds: number;
}

export class Turns {
  readonly #limits: TurnLimits;
  readonly #line: (() => void)[] = [];
  #running = 0;

  constructor(limits: TurnLimits) {
    this.#limits = limits;
  }

  /** Runs `work` in its turn. Faults: MODEL_AT_CAPACITY; an abort leaves the line at once. */
  async run<T>(work: () => Promise<T>, signal: AbortSignal): Promise<T> {
    signal.throwIfAborted();
    if (this.#running >= this.#limits.running) await this.#wait(signal);
    else this.#running += 1;
    try {
      return await work();
    } finally {
      const next = this.#line.shift();
      if (next === undefined) this.#running -= 1;
      // The turn passes on without being given back, so nobody can slip in between.
      else next();
    }
  }

  async #wait(signal: AbortSignal): Promise<void> {
    if (this.#line.length >= this.#limits.waiting) {
      throw new Fault('MODEL_AT_CAPACITY', { retryAfterSeconds: this.#limits.retryAfterSeconds });
    }
    await new Promise<void>((resolve, reject) => {
      const take = (): void => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      const leave = (): void => {
        this.#line.splice(this.#line.indexOf(take), 1);
        reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
      };
      signal.addEventListener('abort', leave, { once: true });
      this.#line.push(take);
    });
  }
}
