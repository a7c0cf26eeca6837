/**
 * The methods that one node does not have, according to its errors. The node is used last for them,
 * and is not called again after another node has returned an error that says what it lacks. Each
 * entry expires, because the operator of the node may enable the method.
 */
import type { Clock } from '../core/clock.ts';

const KNOWN_MS = 300_000;
/** Methods in memory; the oldest is dropped first. */
const MAX_METHODS = 200;

export class MissingMethods {
  readonly #clock: Clock;
  readonly #untilMs = new Map<string, number>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get hasAny(): boolean {
    return this.#untilMs.size > 0;
  }

  note(method: string): void {
    this.#untilMs.delete(method);
    this.#untilMs.set(method, this.#clock.monotonicMs() + KNOWN_MS);
    const [oldest] = this.#untilMs.keys();
    if (this.#untilMs.size > MAX_METHODS && oldest !== undefined) this.#untilMs.delete(oldest);
  }

  has(method: string): boolean {
    const untilMs = this.#untilMs.get(method);
    if (untilMs === undefined) return false;
    if (this.#clock.monotonicMs() < untilMs) return true;
    this.#untilMs.delete(method);
    return false;
  }
}
