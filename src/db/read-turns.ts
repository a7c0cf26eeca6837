/**
 * Turns of reads that take long, of which a few run at once: whoever asks for many waits for each of
 * them, and another for one of each. What would wait behind too many is refused.
 */
import { SECOND_MS } from '../core/clock.ts';
import { FairQueue } from '../core/fair-queue.ts';
import { StoreUnavailable } from './failures.ts';

/** What one read may take of the turns of others; it is given up then, with `ReadTooLong`. */
export const MAX_READ_MS = 10 * SECOND_MS;
/** Reads that wait for their turn, of one caller and in all. */
const MAX_WAITING_OF_CALLER = 16;
const MAX_WAITING = 256;

export class ReadTurns {
  readonly #atOnce: number;
  readonly #waiting = new FairQueue<() => void>();
  #running = 0;

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /** Reads in the turn of a caller. Rejects with `StoreUnavailable` when too many wait. */
  async run<T>(caller: string, read: () => Promise<T>): Promise<T> {
    if (this.#running < this.#atOnce) this.#running += 1;
    else await this.#turn(caller);
    try {
      return await read();
    } finally {
      const next = this.#waiting.next();
      if (next === undefined) this.#running -= 1;
      else next();
    }
  }

  #turn(caller: string): Promise<void> {
    const { size } = this.#waiting;
    if (size >= MAX_WAITING || this.#waiting.sizeOf(caller) >= MAX_WAITING_OF_CALLER) {
      throw new StoreUnavailable('Too many overviews wait to be read');
    }
    return new Promise((resolve) => {
      this.#waiting.add(caller, resolve);
    });
  }
}
