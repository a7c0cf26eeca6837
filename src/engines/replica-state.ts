/**
 * What is known about one model on one engine: its breaker, its load, its speed, its last failure.
 * It lives as long as its engine's settings stay the same.
 */
import { CircuitBreaker } from '../net/circuit-breaker.ts';
import type { BreakerSettings, Ticket } from '../net/circuit-breaker.ts';
import type { Clock } from '../core/clock.ts';
import type { FailureReason, ReplicaStatus } from './contract.ts';
import type { Verdict } from './verdict.ts';

/** Half of at least five calls within 10 s: one odd request retried thrice does not open it. */
const BREAKER: BreakerSettings = {
  windowMs: 10_000,
  minFailures: 5,
  failureShare: 0.5,
  openMs: 1_000,
  maxOpenMs: 30_000,
};

/** Callers whose failures make an opening hold for all; fewer may have caused it themselves. */
const MIN_CALLERS = 3;

/** Longest time for which a breaker is open; a certain failure outlasts it. */
const WITNESS_MS = BREAKER.maxOpenMs + BREAKER.windowMs;

interface Witness {
  readonly caller: string;
  atMs: number;
}

/** Weight of the newest value in the moving averages. */
const NEWEST = 0.2;

/** A replica that says 429 without `Retry-After` is left alone for this long. */
const REST_MS = 1_000;
/** A `Retry-After` of an hour must not take a replica away for an hour. */
const MAX_REST_MS = 30_000;

export class ReplicaState {
  readonly model: string;
  readonly #clock: Clock;
  readonly #breaker: CircuitBreaker;
  #inFlight = 0;
  #calls = 0;
  #failures = 0;
  #restUntilMs = 0;
  #isAlive = true;
  #firstByteMs: number | null = null;
  #totalMs: number | null = null;
  #lastFailure: ReplicaStatus['lastFailure'] = null;
  /** Whose calls failed last, at most as many as are needed. */
  #witnesses: Witness[] = [];
  /** An opening holds for everybody until then: a failure that no request can cause. */
  #certainUntilMs = 0;

  constructor(model: string, clock: Clock) {
    this.model = model;
    this.#clock = clock;
    this.#breaker = new CircuitBreaker(clock, BREAKER);
  }

  /** Whether the breaker lets a caller through and the replica did not ask for a rest. */
  isReadyFor(caller: string): boolean {
    return (this.#breaker.canAdmit || this.#isOthersFault(caller)) && !this.isResting;
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

  get isResting(): boolean {
    return this.#restUntilMs > 0 && this.#clock.monotonicMs() < this.#restUntilMs;
  }

  /** Milliseconds until the breaker lets a probe through. */
  get readyInMs(): number {
    return this.#breaker.opensInMs;
  }

  /** Takes a call in; give the ticket back by `end`. */
  begin(): Ticket {
    this.#inFlight += 1;
    this.#calls += 1;
    return this.#breaker.admit();
  }

  succeed(ticket: Ticket, firstByteMs: number, totalMs: number): void {
    this.#inFlight -= 1;
    this.#isAlive = true;
    this.#restUntilMs = 0;
    this.#firstByteMs = average(this.#firstByteMs, firstByteMs);
    this.#totalMs = average(this.#totalMs, totalMs);
    this.#breaker.settle(ticket, 'success');
  }

  fail(
    ticket: Ticket,
    caller: string,
    verdict: Verdict,
    message: string,
    retryAfterMs: number | null,
  ): void {
    this.#inFlight -= 1;
    if (verdict.breaker === 'failure') {
      this.#isAlive = verdict.isAlive;
      this.#witness(caller, verdict.isCertain);
    }
    if (verdict.reason === 'overloaded') this.#rest(retryAfterMs);
    if (verdict.breaker === 'failure' || verdict.reason === 'overloaded') {
      this.#noteFailure(verdict.reason, message);
    }
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
      model: this.model,
      isHealthy: breaker === 'closed' && !this.isResting,
      breaker,
      inFlight: this.#inFlight,
      calls: this.#calls,
      failures: this.#failures,
      firstByteMs: this.#firstByteMs,
      totalMs: this.#totalMs,
      lastFailure: this.#lastFailure,
    };
  }

  #witness(caller: string, isCertain: boolean): void {
    const nowMs = this.#clock.monotonicMs();
    // A call of our own is nobody's input.
    if (isCertain || caller === '') this.#certainUntilMs = nowMs + WITNESS_MS;
    // While the breaker is open its witnesses stand for it.
    if (this.#breaker.state === 'closed')
      this.#witnesses = this.#witnesses.filter(({ atMs }) => nowMs - atMs < BREAKER.windowMs);
    const known = this.#witnesses.find((witness) => witness.caller === caller);
    if (known !== undefined) known.atMs = nowMs;
    else if (this.#witnesses.length < MIN_CALLERS) this.#witnesses.push({ caller, atMs: nowMs });
  }

  #rest(retryAfterMs: number | null): void {
    const restMs = Math.min(retryAfterMs ?? REST_MS, MAX_REST_MS);
    this.#restUntilMs = this.#clock.monotonicMs() + restMs;
  }

  #noteFailure(reason: FailureReason, message: string): void {
    this.#failures += 1;
    this.#lastFailure = { atMs: this.#clock.nowMs(), reason, message };
  }
}

function average(old: number | null, value: number): number {
  return old === null ? value : old + NEWEST * (value - old);
}
