/**
 * Leases of parts of shared counters. A counter is a number in the database that may not pass a
 * bound: credit, a cap, a rate window, the requests in flight of a caller. A process leases a part
 * of it and counts in memory. This file is the one implementation of what all of them share:
 *
 * - A request that the part does not cover waits for a call to the database. All requests of a turn
 *   of the event loop share a call, and a counter is in one call at a time.
 * - If other processes lease what a request needs, it recalls their unused parts and tries again.
 *   For `CONTESTED_MS` after that, no process leases more of this counter than its requests need.
 * - An unused part is returned when another process recalls it, or when `giveBack` is called.
 *
 * The code that uses this class defines the parts and the amount that a process leases: usually the
 * free amount divided by `shareDivisor`, so that the other processes can lease the same.
 */
import { assert } from '../../core/assert.ts';
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import type { SharedStore } from '../contract.ts';
import { RECALL_MS, Recalls } from './recalls.ts';

const CONTESTED_MS = 2 * SECOND_MS;

/** The divisor of the free amount, of which a process leases one part. */
export function shareDivisor(processes: number): number {
  return 2 * processes;
}

export interface Counter<P> {
  readonly name: string;
  /** Amounts that this process may lease; an account has a part for each set of caps. */
  readonly parts: P[];
  /** A call for it is running: its parts do not change. */
  isBusy: boolean;
  contestedUntilMs: number;
  /** The number of times that another process has returned its part of it. */
  returns: number;
}

export interface Waiting<Q, R> {
  readonly request: Q;
  readonly resolve: (result: R) => void;
  readonly reject: (error: unknown) => void;
  /** The monotonic time at which retries after recalls end; 0 before the first recall. */
  recallUntilMs: number;
}

export interface Part<P, Q, R> {
  readonly counter: Counter<P>;
  waiting: Waiting<Q, R>[];
  /** It goes with the next call. */
  isDue: boolean;
  /** Called when the next call that includes it has ended. */
  onNextEnd: (() => void)[];
  /** Called when the running call that includes it has ended; `undefined` without one. */
  onEnd: (() => void)[] | undefined;
}

/** Amounts that one call requests for a part. */
export interface PartCall<P, Q, R> {
  readonly part: P;
  readonly waiting: readonly Waiting<Q, R>[];
}

export interface PartResult<R> {
  readonly result: R;
  /** Other processes lease what the request lacks; their names, if the database has them. */
  readonly heldBy?: readonly string[] | 'unknown' | undefined;
}

export interface LeasedPartsOptions<P, Q, R, C, G> {
  readonly store: SharedStore;
  readonly clock: Clock;
  readonly holder: () => string;
  readonly prefix: string;
  readonly maxCalls: number;
  readonly maxCounters: number;
  readonly maxRequests: number;
  /** Reads the state of a part for a call that starts now. */
  readonly callOf: (part: P, waiting: readonly Waiting<Q, R>[]) => C;
  /** Grants all calls in one transaction; returns a grant for each. */
  readonly grant: (calls: readonly C[]) => Promise<readonly G[]>;
  /** Changes the part by what was granted; returns a result for each request. */
  readonly granted: (call: C, grant: G) => readonly PartResult<R>[];
  /** The outcome of a call is unknown. */
  readonly failed: (call: C) => void;
  readonly hasUnused: (part: P) => boolean;
  /** Whether a recalling process may wait for the reply of this one. */
  readonly repliesFor: (counter: Counter<P> | undefined) => boolean;
  readonly received?: (kind: string, text: string) => void;
}

export class LeasedParts<P extends Part<P, Q, R>, Q, R, C extends PartCall<P, Q, R>, G> {
  readonly recalls: Recalls;
  readonly #options: LeasedPartsOptions<P, Q, R, C, G>;
  readonly #counters = new Map<string, Counter<P>>();
  #due: P[] = [];
  #isScheduled = false;
  #calls = 0;

  constructor(options: LeasedPartsOptions<P, Q, R, C, G>) {
    const { received = () => undefined } = options;
    this.#options = options;
    this.recalls = new Recalls({
      ...options,
      received,
      comply: async (name) => {
        const counter = this.#counters.get(name);
        if (counter !== undefined) this.contest(counter);
        await this.giveBack(name);
        return options.repliesFor(counter);
      },
      returned: (name) => {
        const counter = this.#counters.get(name);
        if (counter !== undefined) counter.returns += 1;
      },
    });
  }

  counter(name: string): Counter<P> | undefined {
    return this.#counters.get(name);
  }

  /** Adds a part to a counter, with the state of its user. */
  open(name: string, state: Omit<P, keyof Part<P, Q, R>>): P {
    let counter = this.#counters.get(name);
    if (counter === undefined) {
      counter = { name, parts: [], isBusy: false, contestedUntilMs: 0, returns: 0 };
      this.#counters.set(name, counter);
    }
    const common = { counter, waiting: [], isDue: false, onNextEnd: [], onEnd: undefined };
    const part = { ...state, ...common } as unknown as P; // its own and the common members
    counter.parts.push(part);
    return part;
  }

  /** Drops a part; returns `false` if a call or a request needs it. */
  close(part: P): boolean {
    const { counter, isDue, waiting } = part;
    if (counter.isBusy || isDue || waiting.length > 0) return false;
    counter.parts.splice(counter.parts.indexOf(part), 1);
    if (counter.parts.length === 0) this.#counters.delete(counter.name);
    return true;
  }

  isContested({ contestedUntilMs }: Counter<P>): boolean {
    return this.#options.clock.monotonicMs() < contestedUntilMs;
  }

  contest(counter: Counter<P>): void {
    counter.contestedUntilMs = this.#options.clock.monotonicMs() + CONTESTED_MS;
  }

  request(part: P, request: Q): Promise<R> {
    const { promise, resolve, reject } = Promise.withResolvers<R>();
    part.waiting.push({ request, resolve, reject, recallUntilMs: 0 });
    this.add(part);
    return promise;
  }

  /** Returns the unused parts of a counter; resolves when the database has them. */
  async giveBack(name: string, except?: P): Promise<void> {
    const parts = this.#counters.get(name)?.parts.filter((part) => part !== except) ?? [];
    await Promise.all(parts.map((part) => this.#return(part)));
  }

  async #return(part: P): Promise<void> {
    const running = part.onEnd;
    // The running call may lease more.
    if (running !== undefined) await new Promise<void>((resolve) => void running.push(resolve));
    if (!this.#options.hasUnused(part)) return;
    await new Promise<void>((resolve) => {
      part.onNextEnd.push(resolve);
      this.add(part);
    });
  }

  /** Includes a part in the next call, which starts at the end of this turn. */
  add(part: P): void {
    if (!part.isDue) {
      part.isDue = true;
      this.#due.push(part);
    }
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      this.#start();
    });
  }

  #start(): void {
    const { maxCalls, maxCounters } = this.#options;
    while (this.#calls < maxCalls) {
      const batch: P[] = [];
      const left: P[] = [];
      const counters = new Set<Counter<P>>();
      for (const part of this.#due) {
        const { counter } = part;
        const fits = counters.has(counter) || counters.size < maxCounters;
        if (counter.isBusy || !fits) left.push(part);
        else {
          counters.add(counter);
          batch.push(part);
        }
      }
      if (batch.length === 0) return;
      this.#due = left;
      void this.#send(batch, counters);
    }
  }

  async #send(batch: readonly P[], counters: ReadonlySet<Counter<P>>): Promise<void> {
    const { callOf, grant, granted, failed, maxRequests } = this.#options;
    this.#calls += 1;
    for (const counter of counters) counter.isBusy = true;
    const returns = batch.map(({ counter }) => counter.returns);
    const calls = batch.map((part) => {
      part.isDue = false;
      part.onEnd = part.onNextEnd;
      part.onNextEnd = [];
      const waiting = part.waiting.splice(0, maxRequests);
      if (part.waiting.length > 0) this.add(part);
      return callOf(part, waiting);
    });
    const given = await grant(calls).catch((error: unknown) => ({ error }));
    this.#calls -= 1;
    for (const counter of counters) counter.isBusy = false;
    for (const [at, call] of calls.entries()) {
      if ('error' in given) {
        failed(call);
        for (const { reject } of call.waiting) reject(given.error);
        continue;
      }
      const grant = given[at];
      assert(grant !== undefined, 'each call has its grant');
      this.#deliver(call, granted(call, grant), returns[at] ?? 0);
    }
    for (const part of batch) {
      const { onEnd = [] } = part;
      part.onEnd = undefined;
      for (const resolve of onEnd) resolve();
    }
    this.#start();
  }

  #deliver({ part, waiting }: C, results: readonly PartResult<R>[], returns: number): void {
    for (const [at, one] of waiting.entries()) {
      const given = results[at];
      assert(given !== undefined, 'each request has its result');
      const { result, heldBy } = given;
      if (heldBy === undefined || !this.#mayRecall(one, heldBy !== 'unknown')) one.resolve(result);
      else void this.#again(part, one, heldBy, returns);
    }
  }

  /**
   * Whether to recall leased parts, perhaps again. A recall of known holders waits for all of them
   * and is sent once. A recall of unknown holders ends with the first reply and is repeated within
   * `RECALL_MS`.
   */
  #mayRecall(waiting: Waiting<Q, R>, isOnce: boolean): boolean {
    if (!this.recalls.areDelivered) return false;
    const nowMs = this.#options.clock.monotonicMs();
    if (waiting.recallUntilMs > 0) return !isOnce && nowMs < waiting.recallUntilMs;
    waiting.recallUntilMs = nowMs + RECALL_MS;
    return true;
  }

  async #again(
    part: P,
    waiting: Waiting<Q, R>,
    heldBy: readonly string[] | 'unknown',
    returns: number,
  ): Promise<void> {
    const { counter } = part;
    this.contest(counter);
    if (heldBy !== 'unknown') {
      const recall = this.recalls.recall(counter.name, heldBy);
      await Promise.all([recall, this.giveBack(counter.name, part)]);
    } else if (counter.returns === returns) {
      // Otherwise a process has returned its part since the call, and does not reply again.
      await this.recalls.recall(counter.name);
    }
    part.waiting.push(waiting);
    this.add(part);
  }
}
