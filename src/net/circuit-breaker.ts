/**
 * A circuit breaker: closed (all calls pass), open (all are rejected), half-open (one call passes
 * and its result decides). It opens when the failures in a sliding window exceed both a minimum
 * number and a minimum share. Each opening without a success in between lasts twice as long, up to
 * a limit.
 *
 * Invariant: a result counts only in the state in which its call was admitted. The ticket is the
 * number of that state, so a slow call from before an opening can neither close nor reopen it.
 */
import type { Clock } from '../core/clock.ts';

export interface BreakerSettings {
  readonly openMs: number;
  readonly maxOpenMs: number;
  /** Without a window it opens only by a call of `open`. */
  readonly window?: {
    readonly sizeMs: number;
    /** Fewest failures in the window that open it. */
    readonly minFailures: number;
    /** Smallest share of failures in the window that opens it, in (0, 1]. */
    readonly failureShare: number;
  };
}

export type BreakerState = 'closed' | 'open' | 'half-open';

/** Number of the state that admitted a call; `REFUSED` if the call was rejected. */
export type Ticket = number;
export const REFUSED: Ticket = 0;

const BUCKETS = 10;

export class CircuitBreaker {
  readonly #clock: Clock;
  readonly #settings: BreakerSettings;
  readonly #successes = new Uint32Array(BUCKETS);
  readonly #failures = new Uint32Array(BUCKETS);
  /** Number of the last written bucket, counted from the clock's start. */
  #bucket = 0;
  #state: BreakerState = 'closed';
  #ticket: Ticket = 1;
  #hasProbe = false;
  #probedAtMs = 0;
  #reopensAtMs = 0;
  #openings = 0;

  constructor(clock: Clock, settings: BreakerSettings) {
    this.#clock = clock;
    this.#settings = settings;
  }

  /** The current state; an open breaker whose period is over is half-open. */
  get state(): BreakerState {
    if (this.#state === 'open' && this.#clock.monotonicMs() >= this.#reopensAtMs) {
      this.#enter('half-open');
    }
    return this.#state;
  }

  get canAdmit(): boolean {
    if (this.#state === 'closed') return true;
    return this.state === 'half-open' && !this.#hasProbe;
  }

  /** Milliseconds until an open breaker lets a probe through; 0 in the other states. */
  get opensInMs(): number {
    return this.state === 'open' ? this.#reopensAtMs - this.#clock.monotonicMs() : 0;
  }

  /** Milliseconds since a half-open breaker has admitted its call; 0 without one. */
  get probesForMs(): number {
    return this.#hasProbe ? this.#clock.monotonicMs() - this.#probedAtMs : 0;
  }

  /** Admits a call, or returns `REFUSED`. Pass every ticket to `settle`, once. */
  admit(): Ticket {
    if (this.#state === 'closed') return this.#ticket;
    if (!this.canAdmit) return REFUSED;
    this.#hasProbe = true;
    this.#probedAtMs = this.#clock.monotonicMs();
    return this.#ticket;
  }

  /** Reports the result of an admitted call; `unknown` (the client disconnected) is not counted. */
  settle(ticket: Ticket, result: 'success' | 'failure' | 'unknown'): void {
    if (ticket !== this.#ticket || ticket === REFUSED) return;
    if (this.#state === 'half-open') {
      if (result === 'unknown') this.#hasProbe = false;
      else if (result === 'failure') this.open();
      else this.close();
      return;
    }
    const { window } = this.#settings;
    if (this.#state !== 'closed' || result === 'unknown' || window === undefined) return;
    const now = Math.floor(this.#clock.monotonicMs() / (window.sizeMs / BUCKETS));
    // Clear the buckets that have passed, which belong to the previous window.
    const passed = Math.min(now - this.#bucket, BUCKETS);
    for (let back = 0; back < passed; back += 1) {
      this.#successes[(now - back) % BUCKETS] = 0;
      this.#failures[(now - back) % BUCKETS] = 0;
    }
    this.#bucket = now;
    const counts = result === 'success' ? this.#successes : this.#failures;
    counts[now % BUCKETS] = (counts[now % BUCKETS] ?? 0) + 1;
    if (result === 'success') return;
    const failures = sum(this.#failures);
    const calls = failures + sum(this.#successes);
    if (failures >= window.minFailures && failures >= window.failureShare * calls) this.open();
  }

  open(): void {
    const { openMs, maxOpenMs } = this.#settings;
    const periodMs = Math.min(maxOpenMs, openMs * 2 ** Math.min(this.#openings, 30));
    this.#openings += 1;
    this.#reopensAtMs = this.#clock.monotonicMs() + periodMs;
    this.#enter('open');
  }

  close(): void {
    this.#openings = 0;
    this.#successes.fill(0);
    this.#failures.fill(0);
    this.#enter('closed');
  }

  #enter(state: BreakerState): void {
    this.#state = state;
    this.#ticket += 1;
    this.#hasProbe = false;
  }
}

function sum(counts: Uint32Array): number {
  let total = 0;
  for (const count of counts) total += count;
  return total;
}
