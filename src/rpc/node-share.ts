/**
 * Who may ask a node now: its connections and its calls per second, shared by the callers.
 *
 * Invariant: a caller holds at most as many connections as are left free. However many slow calls
 * a few callers have, some stay free, and a further caller goes ahead at once. What must wait
 * waits in turns over the callers, bounded. It knows no node and no request.
 */
import type { Cancelling } from '../core/cancellation.ts';
import type { Clock } from '../core/clock.ts';
import { FairQueue } from '../core/fair-queue.ts';

/** Calls that wait for one node; above it the newest of whoever waits for most gives way. */
const MAX_WAITING = 4_096;
/** Callers remembered; above it those that hold nothing are forgotten. */
const MAX_HOLDERS = 10_000;
const SECOND_MS = 1_000;

/** A caller, and how many connections it holds. */
export interface Holder {
  held: number;
}

interface Waiter {
  readonly holder: Holder;
  readonly calls: number;
  go(isAdmitted: boolean): void;
}

export class NodeShare {
  readonly #clock: Clock;
  readonly #ratePerSecond: number;
  readonly #queue = new FairQueue<Waiter>();
  /** Entries stay: a request changes a number here, not the map. */
  readonly #holders = new Map<string, Holder>();
  #free: number;
  #tokens: number;
  #tokensAtMs: number;
  #cancelTimer: (() => void) | undefined;
  readonly #mayHold = (caller: string): boolean => this.#holder(caller).held < this.#free;

  /** `ratePerSecond` counts the items of a batch; 0 is unlimited. */
  constructor(connections: number, ratePerSecond: number, clock: Clock) {
    this.#free = connections;
    this.#ratePerSecond = ratePerSecond;
    this.#clock = clock;
    this.#tokens = ratePerSecond;
    this.#tokensAtMs = clock.monotonicMs();
  }

  /** Takes a connection and `calls` of this second when there is room now. Give it back once. */
  take(caller: string, calls: number): Holder | undefined {
    const holder = this.#holder(caller);
    if (holder.held >= this.#free) return undefined;
    if (this.#ratePerSecond > 0 && (this.#queue.size > 0 || !this.#hasToken())) return undefined;
    this.#admit(holder, calls);
    return holder;
  }

  /** The same, waiting for it. Undefined: the time is over, the caller left, or too many wait. */
  async wait(
    caller: string,
    calls: number,
    timeoutMs: number,
    signal: Cancelling | undefined,
  ): Promise<Holder | undefined> {
    if (signal?.aborted === true) return undefined;
    if (this.#queue.size >= MAX_WAITING) {
      const last = this.#queue.takeLastOfLongest(caller);
      if (last === undefined) return undefined;
      last.go(false);
    }
    const holder = this.#holder(caller);
    return new Promise((resolve) => {
      const leave = (): void => {
        this.#queue.remove(caller, waiter);
        waiter.go(false);
      };
      const cancel = this.#clock.after(timeoutMs, leave);
      const waiter: Waiter = {
        holder,
        calls,
        go: (isAdmitted) => {
          cancel();
          signal?.removeEventListener('abort', leave);
          resolve(isAdmitted ? holder : undefined);
        },
      };
      signal?.addEventListener('abort', leave);
      this.#queue.add(caller, waiter);
      this.#serve();
    });
  }

  /** Gives a connection back. */
  give(holder: Holder): void {
    holder.held -= 1;
    this.#free += 1;
    if (this.#queue.size > 0) this.#serve();
  }

  /** Ends all waiting. */
  close(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    for (let next = this.#queue.next(); next !== undefined; next = this.#queue.next())
      next.go(false);
  }

  #serve(): void {
    while (this.#queue.size > 0) {
      if (this.#ratePerSecond > 0 && !this.#hasToken()) return this.#serveLater();
      const waiter = this.#queue.next(this.#mayHold);
      if (waiter === undefined) return;
      this.#admit(waiter.holder, waiter.calls);
      waiter.go(true);
    }
  }

  #serveLater(): void {
    const missing = 1 - this.#tokens;
    this.#cancelTimer ??= this.#clock.after((missing * SECOND_MS) / this.#ratePerSecond, () => {
      this.#cancelTimer = undefined;
      this.#serve();
    });
  }

  #admit(holder: Holder, calls: number): void {
    holder.held += 1;
    this.#free -= 1;
    // A batch may borrow from the next second.
    if (this.#ratePerSecond > 0) this.#tokens -= calls;
  }

  #hasToken(): boolean {
    const nowMs = this.#clock.monotonicMs();
    const earned = ((nowMs - this.#tokensAtMs) * this.#ratePerSecond) / SECOND_MS;
    // A rate below one a second saves up for one call all the same.
    this.#tokens = Math.min(Math.max(1, this.#ratePerSecond), this.#tokens + earned);
    this.#tokensAtMs = nowMs;
    return this.#tokens >= 1;
  }

  #holder(caller: string): Holder {
    let holder = this.#holders.get(caller);
    if (holder !== undefined) return holder;
    if (this.#holders.size >= MAX_HOLDERS) this.#forget();
    holder = { held: 0 };
    this.#holders.set(caller, holder);
    return holder;
  }

  #forget(): void {
    for (const [caller, { held }] of this.#holders)
      if (held === 0 && this.#queue.sizeOf(caller) === 0) this.#holders.delete(caller);
  }
}
