/**
 * Requests whose credit is posted but held by others that run: they wait a moment, first come first
 * served, for a hold of their account to end. Only a refused request comes here; it decides
 * nothing about money, each try is a hold like any other.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { HoldRefusal } from './ledger/ledger.ts';

/** Longest wait; after it the answer is a 429, and the caller's own retry waits again. */
const MAX_WAIT_MS = 3 * SECOND_MS;
/** How often a hold is tried unasked: other processes and durable holds end without a word. */
const POLL_MS = 250;
/** Requests that wait, of one account and of all; those above are refused at once. */
const MAX_WAITING_OF_ACCOUNT = 32;
const MAX_WAITING = 1_024;

interface Waiting {
  /** Whether it has something to try: what ends while it tries tells it so as well. */
  isWoken: boolean;
  resume: () => void;
}

/** Of a hold, or of a look ahead at one. */
type Answer = { readonly ok: true } | HoldRefusal;

export class CreditWaits {
  readonly #clock: Clock;
  readonly #lines = new Map<string, Waiting[]>();
  /** Requests that wait. */
  count = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** A hold of the account has ended: its first request that waits tries again. */
  ended(accountId: string): void {
    wakeFirst(this.#lines.get(accountId));
  }

  /** Tries until the answer is more than held credit, the wait is over, or the caller left. */
  async retry<T extends Answer>(
    accountId: string,
    refused: T,
    place: () => T | Promise<T>,
    cancellation: { readonly aborted: boolean } | undefined,
  ): Promise<T> {
    if (!isHeld(refused)) return refused;
    const line = this.#lines.get(accountId) ?? [];
    if (line.length >= MAX_WAITING_OF_ACCOUNT || this.count >= MAX_WAITING) return refused;
    // What ended between the refusal and now has told nobody.
    const waiting: Waiting = { isWoken: true, resume: () => undefined };
    this.#lines.set(accountId, line);
    line.push(waiting);
    this.count += 1;
    const untilMs = this.#clock.monotonicMs() + MAX_WAIT_MS;
    try {
      let answer = refused;
      while (isHeld(answer)) {
        const leftMs = untilMs - this.#clock.monotonicMs();
        if (leftMs <= 0 || cancellation?.aborted === true) break;
        if (!waiting.isWoken) await this.#pause(waiting, Math.min(leftMs, POLL_MS));
        waiting.isWoken = false;
        answer = await place();
      }
      return answer;
    } finally {
      line.splice(line.indexOf(waiting), 1);
      this.count -= 1;
      if (line.length === 0) this.#lines.delete(accountId);
      // What this one left may do for the next.
      else wakeFirst(line);
    }
  }

  async #pause(waiting: Waiting, ms: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    const cancel = this.#clock.after(ms, resolve);
    waiting.resume = resolve;
    await promise;
    cancel();
  }
}

function wakeFirst(line: readonly Waiting[] | undefined): void {
  const [first] = line ?? [];
  if (first === undefined) return;
  first.isWoken = true;
  first.resume();
}

/** Whether nothing but open holds stands in the way. */
function isHeld(answer: Answer): boolean {
  return !answer.ok && answer.reason === 'held';
}
