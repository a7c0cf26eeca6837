/**
 * Requests in flight per caller, in one process. A slot is given back exactly once.
 */

/** Callers that have nothing in flight are forgotten when there are so many. */
const MAX_CALLERS = 10_000;

interface InFlightOfCaller {
  count: number;
}

export class Concurrency {
  /** Entries stay: a request changes a number here, not the map. */
  readonly #callers = new Map<string, InFlightOfCaller>();

  /** A function that gives the slot back, or `undefined` when `limit` requests are in flight. */
  enter(caller: string, limit: number): (() => void) | undefined {
    const running = this.#callers.get(caller) ?? this.#add(caller);
    if (running.count >= limit) return undefined;
    running.count += 1;
    let left = false;
    return () => {
      if (left) return;
      left = true;
      running.count -= 1;
    };
  }

  #add(caller: string): InFlightOfCaller {
    if (this.#callers.size >= MAX_CALLERS) {
      for (const [id, { count }] of this.#callers) if (count === 0) this.#callers.delete(id);
    }
    const added = { count: 0 };
    this.#callers.set(caller, added);
    return added;
  }
}
