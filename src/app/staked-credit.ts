/**
 * Keeps the daily credit of staking wallets in step with the chain: before a wallet's request, the
 * allocation that its stake gives is written to the ledger when it has changed.
 */
import type { Ledger } from '../ledger/ledger.ts';
import type { Nano } from '../kernel/money.ts';

/** Wallets whose last written allocation is remembered; the oldest goes first. */
const MAX_WALLETS = 10_000;

export class StakedCredit {
  readonly #ledger: Ledger;
  readonly #stakeOf: (wallet: string) => Promise<Nano | undefined>;
  readonly #written = new Map<string, Nano>();

  constructor(ledger: Ledger, stakeOf: (wallet: string) => Promise<Nano | undefined>) {
    this.#ledger = ledger;
    this.#stakeOf = stakeOf;
  }

  /** Reads the stake (cached by its reader) and writes the allocation when it differs. */
  async refresh(wallet: string, accountId: string): Promise<void> {
    const credit = await this.#stakeOf(wallet);
    if (credit === undefined) return;
    const before = this.#written.get(wallet);
    if (before === credit) return;
    // A wallet that never staked gets no row; one that unstaked before a restart loses its credit.
    if (before === undefined && credit === 0n && !(await this.#hasCredit(accountId))) return;
    await this.#ledger.setDailyAllocation(accountId, credit);
    this.#written.delete(wallet);
    this.#written.set(wallet, credit);
    const oldest = this.#written.keys().next().value;
    if (this.#written.size > MAX_WALLETS && oldest !== undefined) this.#written.delete(oldest);
  }

  async #hasCredit(accountId: string): Promise<boolean> {
    return (await this.#ledger.balances(accountId)).diemNano > 0n;
  }
}
