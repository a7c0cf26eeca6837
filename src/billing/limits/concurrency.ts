/** Requests in flight of callers, as one process counts them; `shared-slots.ts` does for several. */

/** Callers that have nothing in flight are forgotten when there are so many. */
const MAX_CALLERS = 10_000;

interface InFlightOfCaller {
  count: number;
  readonly leave: () => void;
}

/** Requests in flight per caller: of this process, or of all that share a database. */
export interface Slots {
  /** A function that gives the slot back, or `undefined` when `limit` requests are in flight. */
  enter(
    caller: string,
    limit: number,
  ): (() => void) | undefined | Promise<(() => void) | undefined>;
  /** Another process has ended for sure: its slots are free at once. */
  processEnded(processId: string): void | Promise<void>;
  close(): void | Promise<void>;
}

/** Requests in flight per caller, of one process. */
export class Concurrency implements Slots {
  /** Entries stay: a request changes a number here, not the map. */
  readonly #callers = new Map<string, InFlightOfCaller>();

  /**
   * A function that gives the slot back, to be called once, or `undefined` when `limit` requests are
   * in flight.
   */
  enter(caller: string, limit: number): (() => void) | undefined {
    const running = this.#callers.get(caller) ?? this.#add(caller);
    if (running.count >= limit) return undefined;
    running.count += 1;
    return running.leave;
  }

  processEnded(): void {
    // Nobody else counts.
  }

  close(): void {
    // The same.
  }

  #add(caller: string): InFlightOfCaller {
    if (this.#callers.size >= MAX_CALLERS) {
      for (const [id, { count }] of this.#callers) if (count === 0) this.#callers.delete(id);
    }
    const added: InFlightOfCaller = { count: 0, leave: () => void (added.count -= 1) };
    this.#callers.set(caller, added);
    return added;
  }
}
