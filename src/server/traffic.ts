/**
 * Counts requests from their first byte until the answer has left and the handler has ended, so
 * that a closing server knows when the last hold is settled. Once closing, new work is refused.
 */
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';

const POLL_MS = 20;
/** Another server behind the same address can answer at once. */
const RETRY_AFTER_SECONDS = 1;

export class Traffic {
  #open = 0;
  #isClosing = false;

  /** Requests that have not ended. */
  get open(): number {
    return this.#open;
  }

  get isClosing(): boolean {
    return this.#isClosing;
  }

  enter(): void {
    this.#open += 1;
  }

  leave(): void {
    this.#open -= 1;
  }

  /** From here on new work is refused. */
  close(): void {
    this.#isClosing = true;
  }

  /** Why new work is refused, once it is. */
  refusal(): Fault | undefined {
    if (!this.#isClosing) return undefined;
    return new Fault('SHUTTING_DOWN', { retryAfterSeconds: RETRY_AFTER_SECONDS });
  }

  /** Waits until nothing is open, at most `limitMs`; says whether that came true. */
  async drained(clock: Clock, limitMs: number): Promise<boolean> {
    const untilMs = clock.monotonicMs() + limitMs;
    while (this.#open > 0 && clock.monotonicMs() < untilMs) await clock.sleep(POLL_MS);
    return this.#open === 0;
  }
}
