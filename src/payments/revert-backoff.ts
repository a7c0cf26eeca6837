/**
 * Delays payments of wallets whose settlements were reverted on the chain. Each revert costs gas, and the
 * code of a contract wallet can pass a simulation and fail in a block. Each revert doubles the delay; a
 * payment that arrives ends it. Each process has its own delays, because they bound small amounts.
 */
import { type Clock, HOUR_MS, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import type { Fault } from '../core/faults.ts';
import { remember } from './bounded.ts';
import { backingOff } from './top-up-faults.ts';

const FIRST_MS = MINUTE_MS;
const MAX_MS = 24 * HOUR_MS;
const MAX_PAYERS = 10_000;

export class RevertBackoff {
  readonly #clock: Clock;
  readonly #payers = new Map<string, { readonly reverts: number; readonly untilMs: number }>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  waitMs(wallet: string): number {
    return Math.max(0, (this.#payers.get(wallet)?.untilMs ?? 0) - this.#clock.monotonicMs());
  }

  refusal(wallet: string): Fault | undefined {
    const waitMs = this.waitMs(wallet);
    return waitMs > 0 ? backingOff(Math.ceil(waitMs / SECOND_MS)) : undefined;
  }

  check(wallet: string): void {
    const refusal = this.refusal(wallet);
    if (refusal !== undefined) throw refusal;
  }

  reverted(wallet: string): void {
    const reverts = (this.#payers.get(wallet)?.reverts ?? 0) + 1;
    const waitMs = Math.min(FIRST_MS * 2 ** (reverts - 1), MAX_MS);
    remember(
      this.#payers,
      wallet,
      { reverts, untilMs: this.#clock.monotonicMs() + waitMs },
      MAX_PAYERS,
    );
  }

  paid(wallet: string): void {
    this.#payers.delete(wallet);
  }
}
