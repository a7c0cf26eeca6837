/**
 * The capabilities of one node, learned from its responses: its methods, and the oldest block whose
 * state, logs or transactions it has. It only changes the order of nodes, and expires, because the operator
 * of the node may change it.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { History } from './catalogue.ts';
import { MethodPauses } from './method-pauses.ts';

const SLOW_MS = 10 * SECOND_MS;
const KNOWN_MS = 300 * SECOND_MS;
/** A node may lack a newer block only for a moment. */
const MIN_AGE_BLOCKS = 64;

export class Capabilities {
  readonly slow: MethodPauses;
  readonly missing: MethodPauses;
  readonly #clock: Clock;
  readonly #oldest = new Map<History, { readonly block: number; readonly untilMs: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
    this.slow = new MethodPauses(SLOW_MS, clock);
    this.missing = new MethodPauses(KNOWN_MS, clock);
  }

  get hasAny(): boolean {
    return this.slow.hasAny || this.missing.hasAny || this.#oldest.size > 0;
  }

  /** The oldest block that the node has; `undefined` if no limit is known. */
  oldest(history: History): number | undefined {
    const known = this.#oldest.get(history);
    return known && this.#clock.monotonicMs() < known.untilMs ? known.block : undefined;
  }

  /** Records that the node lacks a block, whose newest one is `head`. */
  noteLack(history: History, block: number, head: number): void {
    if (block > head - MIN_AGE_BLOCKS) return;
    const oldest = Math.max(block + 1, this.oldest(history) ?? 0);
    this.#oldest.set(history, { block: oldest, untilMs: this.#clock.monotonicMs() + KNOWN_MS });
  }

  noteHas(history: History, block: number): void {
    if (this.#oldest.size > 0 && block < (this.oldest(history) ?? 0)) this.#oldest.delete(history);
  }
}
