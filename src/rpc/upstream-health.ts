/**
 * What is known of a node's health: a circuit breaker, its latency, its newest block.
 *
 * Five faults in a row or twenty of the last eighty exchanges are too many. When several callers saw
 * them the node is asked last for a while; the breaker opens only when a question of our own is
 * among them, since callers may cause what they see. It stays open for two seconds at first and up
 * to thirty while the node stays dead; then a question of our own closes or reopens it.
 */
import type { Clock } from '../core/clock.ts';
import type { UpstreamFault } from './classify.ts';

const WINDOW_EXCHANGES = 80;
const MAX_FAULTS_IN_WINDOW = 20;
const MAX_FAULTS_IN_A_ROW = 5;
/** Callers that must have seen faults before the node is asked last for them. */
const MIN_CALLERS = 3;
const FIRST_OPEN_MS = 2_000;
const MAX_OPEN_MS = 30_000;
/** How long a node with a problem of quota, callers or account is asked last. */
const QUOTA_REST_MS = 2_000;
const FAULT_REST_MS = 10_000;
const AUTH_REST_MS = 60_000;
/** Weight of a new latency in the moving average. */
const LATENCY_ALPHA = 0.2;

/** In place of a caller: a question of our own. */
export const OWN_QUESTION = '';

/**
 * What follows from a fault. `suspect`: a question of our own should tell whose it is; `rested`:
 * the same, and the node is asked last from now on.
 */
export type FaultEffect = 'none' | 'suspect' | 'rested' | 'opened';

export class UpstreamHealth {
  readonly #clock: Clock;
  /** Who saw the fault of each of the last exchanges; undefined for a success. */
  readonly #window: (string | undefined)[] = Array.from({ length: WINDOW_EXCHANGES });
  #position = 0;
  #faults = 0;
  #faultsInARow = 0;
  #openUntilMs = 0;
  #isOpen = false;
  #openings = 0;
  #restUntilMs = 0;
  #latencyMs: number | undefined;
  #head: number | undefined;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether the node may be asked now; when the breaker is open, by a question of our own first. */
  isAdmitting(): boolean {
    return !this.#isOpen || this.#clock.monotonicMs() >= this.#openUntilMs;
  }

  get isOpen(): boolean {
    return this.#isOpen;
  }

  noteSuccess(latencyMs: number): void {
    if (this.#isOpen) this.forgive();
    this.#keep(undefined);
    this.#faultsInARow = 0;
    this.#latencyMs =
      this.#latencyMs === undefined
        ? latencyMs
        : this.#latencyMs + LATENCY_ALPHA * (latencyMs - this.#latencyMs);
  }

  noteFault(fault: UpstreamFault, caller: string): FaultEffect {
    if (fault === 'refused' || fault === 'too-large' || fault === 'request-too-large')
      return 'none';
    // The node lives and says so; it is asked last for a while, and still asked.
    if (fault === 'quota') return this.#rest(QUOTA_REST_MS);
    const isOwn = caller === OWN_QUESTION;
    if (fault === 'auth' && isOwn) this.#rest(AUTH_REST_MS);
    this.#keep(caller);
    this.#faultsInARow += 1;
    if (this.#isOpen) {
      // Exchanges that began before the opening do not lengthen it.
      if (isOwn) this.#open();
      return 'none';
    }
    const depth = this.#suspectDepth();
    if (depth === 0) return fault === 'auth' && !isOwn ? 'suspect' : 'none';
    const witnesses = this.#witnesses(depth);
    if (witnesses.includes(OWN_QUESTION)) {
      this.#open();
      return 'opened';
    }
    if (witnesses.length < MIN_CALLERS || this.isResting) return 'suspect';
    this.#rest(FAULT_REST_MS);
    return 'rested';
  }

  /** The node has answered a question of our own: what one caller saw was its own doing. */
  forgive(): void {
    this.#isOpen = false;
    this.#openings = 0;
    this.#window.fill(undefined);
    this.#faults = 0;
    this.#faultsInARow = 0;
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

  #rest(restMs: number): FaultEffect {
    this.#restUntilMs = Math.max(this.#restUntilMs, this.#clock.monotonicMs() + restMs);
    return 'none';
  }

  #open(): void {
    const nowMs = this.#clock.monotonicMs();
    this.#openUntilMs = nowMs + Math.min(MAX_OPEN_MS, FIRST_OPEN_MS * 2 ** this.#openings);
    this.#openings += 1;
    this.#isOpen = true;
  }

  /** How many of the last exchanges hold too many faults; 0 when there are not. */
  #suspectDepth(): number {
    if (this.#faultsInARow >= MAX_FAULTS_IN_A_ROW)
      return Math.min(WINDOW_EXCHANGES, this.#faultsInARow);
    return this.#faults >= MAX_FAULTS_IN_WINDOW ? WINDOW_EXCHANGES : 0;
  }

  /** Who saw the faults among the last `depth` exchanges. */
  #witnesses(depth: number): readonly string[] {
    const callers: string[] = [];
    for (let back = 1; back <= depth; back += 1) {
      const at = (this.#position - back + WINDOW_EXCHANGES) % WINDOW_EXCHANGES;
      const caller = this.#window[at];
      if (caller !== undefined && !callers.includes(caller)) callers.push(caller);
    }
    return callers;
  }

  #keep(caller: string | undefined): void {
    if (this.#window[this.#position] !== undefined) this.#faults -= 1;
    if (caller !== undefined) this.#faults += 1;
    this.#window[this.#position] = caller;
    this.#position = (this.#position + 1) % WINDOW_EXCHANGES;
  }
}
