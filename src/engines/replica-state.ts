/** What is known of one model on one engine: its breaker, its load, its failures and whose they were. */
import type { Clock } from '../core/clock.ts';
import { type BreakerSettings, CircuitBreaker, type Ticket } from '../net/circuit-breaker.ts';
import type { ReplicaStatus } from './contract.ts';
import type { Verdict } from './verdict.ts';

/** Half of at least five calls within 10 s: one odd request retried thrice does not open it. */
const WINDOW_MS = 10_000;
const BREAKER: BreakerSettings = {
  openMs: 1_000,
  maxOpenMs: 30_000,
  window: { sizeMs: WINDOW_MS, minFailures: 5, failureShare: 0.5 },
};
/** Callers whose failures make an opening hold for all; fewer may have caused it themselves. */
const MIN_CALLERS = 3;
/** Longest time for which a breaker is open; a certain failure outlasts it. */
const WITNESS_MS = BREAKER.maxOpenMs + WINDOW_MS;
/** A replica that says 429 without `Retry-After` is left alone for this long. */
const REST_MS = 1_000;
/** A `Retry-After` of an hour must not take a replica away for an hour. */
const MAX_REST_MS = 30_000;

/** What the last answer counts in the moving average of latencies. */
const SHARE_OF_LAST = 0.2;

/** What is known about one model on one engine. */
export class ReplicaState {
  readonly #model: string;
  readonly #clock: Clock;
  readonly #breaker: CircuitBreaker;
  #inFlight = 0;
  #calls = 0;
  #failures = 0;
  /** A moving average; below zero before the first answer. */
  #firstByteMs = -1;
  #restUntilMs = 0;
  #isAlive = true;
  /** Whose calls failed last, at most as many as are needed. */
  #witnesses: { readonly caller: string; atMs: number }[] = [];
  /** An opening holds for everybody until then: a failure that no request can cause. */
  #certainUntilMs = 0;

  constructor(model: string, clock: Clock) {
    this.#model = model;
    this.#clock = clock;
    this.#breaker = new CircuitBreaker(clock, BREAKER);
  }

  /** Whether the breaker lets a caller through and the replica did not ask for a rest. */
  isReadyFor(caller: string): boolean {
    if (this.#restUntilMs > 0 && this.#isResting()) return false;
    return this.#breaker.canAdmit || this.#isOthersFault(caller);
  }

  /**
   * Whether a call may go here when no replica is ready: it rests, or its breaker opened on
   * answers. A caller whose requests make an engine fail must not take the model from everyone.
   */
  isLastResortFor(caller: string): boolean {
    return this.#breaker.canAdmit || this.#isAlive || this.#isOthersFault(caller);
  }

  /** Whether the breaker opened on failures that only a few others saw. */
  #isOthersFault(caller: string): boolean {
    return (
      this.#witnesses.length > 0 &&
      this.#witnesses.length < MIN_CALLERS &&
      this.#certainUntilMs <= this.#clock.monotonicMs() &&
      !this.#witnesses.some((witness) => witness.caller === caller)
    );
  }

  #isResting(): boolean {
    return this.#clock.monotonicMs() < this.#restUntilMs;
  }

  /** Milliseconds until the breaker lets a probe through. */
  get readyInMs(): number {
    return this.#breaker.opensInMs;
  }

  /** Takes a call in; give the ticket back by `succeed`, `fail` or `cancel`. */
  begin(): Ticket {
    this.#inFlight += 1;
    this.#calls += 1;
    return this.#breaker.admit();
  }

  /** `firstByteMs`: how long the answer took to begin. */
  succeed(ticket: Ticket, firstByteMs: number): void {
    const before = this.#firstByteMs < 0 ? firstByteMs : this.#firstByteMs;
    this.#firstByteMs = before + (firstByteMs - before) * SHARE_OF_LAST;
    this.#inFlight -= 1;
    this.#isAlive = true;
    this.#restUntilMs = 0;
    this.#breaker.settle(ticket, 'success');
  }

  fail(ticket: Ticket, caller: string, verdict: Verdict, retryAfterMs: number | null): void {
    this.#inFlight -= 1;
    const nowMs = this.#clock.monotonicMs();
    const isOverloaded = verdict.reason === 'overloaded';
    if (verdict.breaker === 'failure') {
      this.#isAlive = verdict.isAlive;
      this.#witness(caller, nowMs, verdict.isCertain);
    }
    if (isOverloaded) this.#restUntilMs = nowMs + Math.min(retryAfterMs ?? REST_MS, MAX_REST_MS);
    if (isOverloaded || verdict.breaker === 'failure') this.#failures += 1;
    this.#breaker.settle(ticket, verdict.breaker);
  }

  /** Gives a ticket back without a result: the connection was stale, nothing was tried. */
  cancel(ticket: Ticket): void {
    this.#inFlight -= 1;
    this.#calls -= 1;
    this.#breaker.settle(ticket, 'unknown');
  }

  status(engine: string): ReplicaStatus {
    const breaker = this.#breaker.state;
    return {
      engine,
      model: this.#model,
      isHealthy: breaker === 'closed' && !this.#isResting(),
      breaker,
      inFlight: this.#inFlight,
      calls: this.#calls,
      failures: this.#failures,
      firstByteMs: this.#firstByteMs < 0 ? null : this.#firstByteMs,
    };
  }

  #witness(caller: string, nowMs: number, isCertain: boolean): void {
    // A call of our own is nobody's input.
    if (isCertain || caller === '') this.#certainUntilMs = nowMs + WITNESS_MS;
    // While the breaker is open its witnesses speak for it.
    if (this.#breaker.state === 'closed')
      this.#witnesses = this.#witnesses.filter(({ atMs }) => nowMs - atMs < WINDOW_MS);
    const known = this.#witnesses.find((witness) => witness.caller === caller);
    if (known !== undefined) known.atMs = nowMs;
    else if (this.#witnesses.length < MIN_CALLERS) this.#witnesses.push({ caller, atMs: nowMs });
  }
}
