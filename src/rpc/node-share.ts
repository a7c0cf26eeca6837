/**
 * Shares the connections and the calls per second of one node between callers.
 *
 * Invariants: a caller may use at most as many connections as remain free, so that another caller
 * can always proceed, however many slow calls a few callers have. Waiting requests are ordered by
 * weighted fair queueing: each caller has a count of its served calls, and the request that leaves
 * the lowest count goes first. So a single call never waits for a batch of another caller that has
 * not begun. The queue is bounded. This file does not know nodes or requests.
 */
import type { Cancelling } from '../core/cancellation.ts';
import type { Clock } from '../core/clock.ts';

/** Requests waiting for one node; above it the caller with the most loses its newest one. */
const MAX_WAITING = 4_096;
/** Callers in memory; above it those without connections are dropped. */
const MAX_HOLDERS = 10_000;
const SECOND_MS = 1_000;

export class Holder {
  inUse = 0;
  /** Calls served, on the scale of `NodeShare.#servedCalls`. */
  servedCalls = 0;
  /** Waiting requests, the next one first. */
  readonly waiting: Waiter[] = [];
}

interface Waiter {
  readonly calls: number;
  go(isAdmitted: boolean): void;
}

export class NodeShare {
  readonly #clock: Clock;
  readonly #ratePerSecond: number;
  /** Entries are kept, because changing a number is cheaper than changing the map. */
  readonly #holders = new Map<string, Holder>();
  readonly #queue: Holder[] = [];
  #waiting = 0;
  /** The lowest count of waiting callers, at which an idle caller starts. It never decreases. */
  #servedCalls = 0;
  #free: number;
  #tokens: number;
  #tokensAtMs: number;
  #cancelTimer: (() => void) | undefined;

  /** `ratePerSecond` counts the items of a batch; 0 is unlimited. */
  constructor(connections: number, ratePerSecond: number, clock: Clock) {
    this.#free = connections;
    this.#ratePerSecond = ratePerSecond;
    this.#clock = clock;
    this.#tokens = ratePerSecond;
    this.#tokensAtMs = clock.monotonicMs();
  }

  /** Reserves a connection and `calls` of the rate if both are free now. Return it with `give`. */
  take(caller: string, calls: number): Holder | undefined {
    const holder = this.#holder(caller);
    if (holder.inUse >= this.#free) return undefined;
    if (this.#ratePerSecond > 0 && (this.#waiting > 0 || !this.#hasToken())) return undefined;
    // If no request waits for the rate, the caller's own count is the reference.
    this.#servedCalls = this.#countOf(holder);
    this.#admit(holder, calls);
    return holder;
  }

  /** The same, but waits. `undefined` after the timeout, on abort, or if too many wait. */
  async wait(
    caller: string,
    calls: number,
    timeoutMs: number,
    signal: Cancelling | undefined,
  ): Promise<Holder | undefined> {
    if (signal?.aborted === true) return undefined;
    const holder = this.#holder(caller);
    if (this.#waiting >= MAX_WAITING && !this.#makeSlot(holder)) return undefined;
    return new Promise((resolve) => {
      const leave = (): void => {
        this.#remove(holder, waiter);
        waiter.go(false);
      };
      const cancel = this.#clock.after(timeoutMs, leave);
      const waiter: Waiter = {
        calls,
        go: (isAdmitted) => {
          cancel();
          signal?.removeEventListener('abort', leave);
          resolve(isAdmitted ? holder : undefined);
        },
      };
      signal?.addEventListener('abort', leave);
      this.#add(holder, waiter);
      this.#serve();
    });
  }

  give(holder: Holder): void {
    holder.inUse -= 1;
    this.#free += 1;
    if (this.#waiting > 0) this.#serve();
  }

  close(): void {
    this.#cancelTimer?.();
    this.#cancelTimer = undefined;
    this.#waiting = 0;
    for (const { waiting } of this.#queue.splice(0))
      for (const waiter of waiting.splice(0)) waiter.go(false);
  }

  #serve(): void {
    while (this.#waiting > 0) {
      if (this.#ratePerSecond > 0 && !this.#hasToken()) return this.#serveLater();
      const holder = this.#next();
      const waiter = holder?.waiting[0];
      if (holder === undefined || waiter === undefined) return;
      this.#raise();
      this.#remove(holder, waiter);
      this.#admit(holder, waiter.calls);
      waiter.go(true);
    }
  }

  /** The caller whose next request leaves the lowest count and may use a connection. */
  #next(): Holder | undefined {
    let next: Holder | undefined;
    let lowest = Infinity;
    for (const holder of this.#queue) {
      const after = this.#countOf(holder) + (holder.waiting[0]?.calls ?? 0);
      if (after >= lowest || holder.inUse >= this.#free) continue;
      next = holder;
      lowest = after;
    }
    return next;
  }

  /** Raises the start count of idle callers to the lowest one of those waiting for the rate. */
  #raise(): void {
    let lowest = Infinity;
    for (const holder of this.#queue)
      if (holder.inUse < this.#free) lowest = Math.min(lowest, this.#countOf(holder));
    if (lowest < Infinity) this.#servedCalls = lowest;
  }

  /** The effective count of a caller: idle time earns no credit. */
  #countOf({ servedCalls }: Holder): number {
    return Math.max(servedCalls, this.#servedCalls);
  }

  #add(holder: Holder, waiter: Waiter): void {
    if (holder.waiting.push(waiter) === 1) {
      this.#raise();
      holder.servedCalls = this.#countOf(holder);
      this.#queue.push(holder);
    }
    this.#waiting += 1;
  }

  #remove(holder: Holder, waiter: Waiter): void {
    const at = holder.waiting.indexOf(waiter);
    if (at < 0) return;
    holder.waiting.splice(at, 1);
    this.#waiting -= 1;
    if (holder.waiting.length === 0) this.#queue.splice(this.#queue.indexOf(holder), 1);
  }

  /** Removes the newest request of the caller with the most, if these exceed `holder`'s. */
  #makeSlot(holder: Holder): boolean {
    let longest = holder;
    for (const one of this.#queue) if (one.waiting.length > longest.waiting.length) longest = one;
    const last = longest.waiting.at(-1);
    if (last === undefined || longest.waiting.length <= holder.waiting.length + 1) return false;
    this.#remove(longest, last);
    last.go(false);
    return true;
  }

  #serveLater(): void {
    const missing = 1 - this.#tokens;
    this.#cancelTimer ??= this.#clock.after((missing * SECOND_MS) / this.#ratePerSecond, () => {
      this.#cancelTimer = undefined;
      this.#serve();
    });
  }

  #admit(holder: Holder, calls: number): void {
    holder.inUse += 1;
    holder.servedCalls = this.#countOf(holder) + calls;
    this.#free -= 1;
    // A batch may borrow from the next second.
    if (this.#ratePerSecond > 0) this.#tokens -= calls;
  }

  #hasToken(): boolean {
    const nowMs = this.#clock.monotonicMs();
    const earned = ((nowMs - this.#tokensAtMs) * this.#ratePerSecond) / SECOND_MS;
    // A rate below one per second still accumulates to one call.
    this.#tokens = Math.min(Math.max(1, this.#ratePerSecond), this.#tokens + earned);
    this.#tokensAtMs = nowMs;
    return this.#tokens >= 1;
  }

  #holder(caller: string): Holder {
    let holder = this.#holders.get(caller);
    if (holder !== undefined) return holder;
    if (this.#holders.size >= MAX_HOLDERS) this.#dropIdle();
    holder = new Holder();
    this.#holders.set(caller, holder);
    return holder;
  }

  #dropIdle(): void {
    for (const [caller, { inUse, waiting, servedCalls }] of this.#holders)
      if (inUse === 0 && waiting.length === 0 && servedCalls <= this.#servedCalls)
        this.#holders.delete(caller);
  }
}
