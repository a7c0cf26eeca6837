/**
 * Requests in flight per caller, in one process. A slot is given back exactly once.
 */
export class Concurrency {
  readonly #inFlight = new Map<string, number>();

  /** A function that gives the slot back, or `undefined` when `limit` requests are in flight. */
  enter(caller: string, limit: number): (() => void) | undefined {
    const running = this.#inFlight.get(caller) ?? 0;
    if (running >= limit) return undefined;
    this.#inFlight.set(caller, running + 1);
    let left = false;
    return () => {
      if (left) return;
      left = true;
      const now = this.#inFlight.get(caller) ?? 1;
      if (now <= 1) this.#inFlight.delete(caller);
      else this.#inFlight.set(caller, now - 1);
    };
  }
}
