/**
 * What is known of a node's health: a circuit breaker, its latency, its newest block.
 *
 * The breaker opens on five faults in a row or twenty of the last eighty exchanges, for two seconds
 * at first and up to thirty while the node stays dead, then lets one exchange through: its outcome
 * closes or reopens it.
 */
import type { Clock } from '../kernel/clock.ts';
import type { UpstreamFault } from './classify.ts';

const WINDOW_EXCHANGES = 80;
const MAX_FAULTS_IN_WINDOW = 20;
const MAX_FAULTS_IN_A_ROW = 5;
const FIRST_OPEN_MS = 2_000;
const MAX_OPEN_MS = 30_000;
/** A probe that never came back does not keep the breaker half open. */
const PROBE_MS = 35_000;
/** How long a node with a quota or account problem is asked last. */
const QUOTA_REST_MS = 2_000;
const AUTH_REST_MS = 60_000;
/** Weight of a new latency in the moving average. */
const LATENCY_ALPHA = 0.2;

export class UpstreamHealth {
  readonly #clock: Clock;
  readonly #window = new Uint8Array(WINDOW_EXCHANGES);
  #position = 0;
  #faults = 0;
  #faultsInARow = 0;
  #openUntilMs = 0;
  #isOpen = false;
  #openings = 0;
  #probeSinceMs: number | undefined;
  #restUntilMs = 0;
  #latencyMs: number | undefined;
  #head: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether the breaker lets an exchange through now. */
  isAdmitting(): boolean {
    if (!this.#isOpen) return true;
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < this.#openUntilMs) return false;
    return this.#probeSinceMs === undefined || nowMs - this.#probeSinceMs > PROBE_MS;
  }

  /** Says that an exchange begins: while half open it is the one probe. */
  noteStart(): void {
    if (this.#isOpen) this.#probeSinceMs = this.#clock.monotonicMs();
  }

  noteSuccess(latencyMs: number): void {
    if (this.#isOpen) this.#reset();
    this.#keep(0);
    this.#faultsInARow = 0;
    this.#latencyMs =
      this.#latencyMs === undefined
        ? latencyMs
        : this.#latencyMs + LATENCY_ALPHA * (latencyMs - this.#latencyMs);
  }

  /** True when this fault opened the breaker. */
  noteFault(fault: UpstreamFault): boolean {
    const nowMs = this.#clock.monotonicMs();
    if (fault === 'refused' || fault === 'too-large') return false;
    if (fault === 'quota') this.#restUntilMs = Math.max(this.#restUntilMs, nowMs + QUOTA_REST_MS);
    if (fault === 'auth') this.#restUntilMs = Math.max(this.#restUntilMs, nowMs + AUTH_REST_MS);
    this.#keep(1);
    this.#faultsInARow += 1;
    const wasOpen = this.#isOpen;
    const isTooMuch =
      this.#faultsInARow >= MAX_FAULTS_IN_A_ROW || this.#faults >= MAX_FAULTS_IN_WINDOW;
    if (!wasOpen && !isTooMuch) return false;
    this.#isOpen = true;
    this.#probeSinceMs = undefined;
    // Only a failed probe lengthens the period; exchanges that began before do not.
    if (!wasOpen || nowMs >= this.#openUntilMs) {
      this.#openUntilMs = nowMs + Math.min(MAX_OPEN_MS, FIRST_OPEN_MS * 2 ** this.#openings);
      this.#openings += 1;
    }
    return !wasOpen;
  }

  noteHead(head: number): void {
    this.#head = head;
  }

  /** Number of the newest block that this node has told, if it was asked. */
  get head(): number | undefined {
    return this.#head;
  }

  get latencyMs(): number | undefined {
    return this.#latencyMs;
  }

  get isResting(): boolean {
    return this.#restUntilMs > 0 && this.#clock.monotonicMs() < this.#restUntilMs;
  }

  /** Share of faults in the last exchanges, 0 to 1. */
  get faultShare(): number {
    return this.#faults / WINDOW_EXCHANGES;
  }

  #keep(fault: 0 | 1): void {
    this.#faults += fault - (this.#window[this.#position] ?? 0);
    this.#window[this.#position] = fault;
    this.#position = (this.#position + 1) % WINDOW_EXCHANGES;
  }

  #reset(): void {
    this.#isOpen = false;
    this.#openings = 0;
    this.#probeSinceMs = undefined;
    this.#window.fill(0);
    this.#faults = 0;
  }
}
