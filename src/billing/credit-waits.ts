/**
 * Queues requests whose credit is posted but held by other running requests. They wait briefly, in
 * order of arrival, for a hold of their account to end. Only requests whose hold was rejected come
 * here. Each retry is an ordinary hold, so this file makes no decision about money.
 */
import { type Clock, SECOND_MS } from '../core/clock.ts';
import type { HoldRefusal } from './ledger/ledger.ts';

/** Longest wait. After it the request gets a 429, and the client's retry waits again. */
const MAX_WAIT_MS = 3 * SECOND_MS;
/** Interval of retries, because holds of other processes end without a wake-up. */
const POLL_MS = 250;
/** Maximum waiting requests per account and in total; further ones are rejected at once. */
const MAX_WAITING_OF_ACCOUNT = 32;
const MAX_WAITING = 1_024;

interface Waiting {
  isWoken: boolean;
  resume: () => void;
}

type Result = { readonly ok: true } | HoldRefusal;

export class CreditWaits {
  readonly #clock: Clock;
  readonly #lines = new Map<string, Waiting[]>();
  count = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  ended(accountId: string): void {
    wakeFirst(this.#lines.get(accountId));
  }

  /** Retries until the result is not `held`, the wait is over, or the client has disconnected. */
  async retry<T extends Result>(
    accountId: string,
    refused: T,
    place: () => T | Promise<T>,
    cancellation: { readonly aborted: boolean } | undefined,
  ): Promise<T> {
    if (!isHeld(refused)) return refused;
    const line = this.#lines.get(accountId) ?? [];
    if (line.length >= MAX_WAITING_OF_ACCOUNT || this.count >= MAX_WAITING) return refused;
    // Start woken: a hold may have ended between the rejection and this call.
    const waiting: Waiting = { isWoken: true, resume: () => undefined };
    this.#lines.set(accountId, line);
    line.push(waiting);
    this.count += 1;
    const untilMs = this.#clock.monotonicMs() + MAX_WAIT_MS;
    try {
      let result = refused;
      while (isHeld(result)) {
        const leftMs = untilMs - this.#clock.monotonicMs();
        if (leftMs <= 0 || cancellation?.aborted === true) break;
        if (!waiting.isWoken) await this.#pause(waiting, Math.min(leftMs, POLL_MS));
        waiting.isWoken = false;
        result = await place();
      }
      return result;
    } finally {
      line.splice(line.indexOf(waiting), 1);
      this.count -= 1;
      if (line.length === 0) this.#lines.delete(accountId);
      // This request has finished; the credit it did not use may be enough for the next one.
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

function isHeld(result: Result): boolean {
  return !result.ok && result.reason === 'held';
}
