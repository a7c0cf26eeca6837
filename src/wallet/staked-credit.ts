/**
 * Writes the daily credit of staking wallets: before a wallet's request, the allocation for its stake is
 * written to the ledger for this day. A day without an allocation has no credit.
 */
import type { Nano } from '../core/money.ts';
import type { Ledger } from '../billing/ledger/ledger.ts';
import type { Identity } from '../identity/identity.ts';
import { remember } from '../payments/payments.ts';

/** Wallets with a cached allocation. */
const MAX_WALLETS = 10_000;

interface DailyStake {
  readonly day: number;
  readonly credit: Nano;
}

export interface StakedCreditParts {
  readonly ledger: Ledger;
  readonly identity: Pick<Identity, 'openWalletAccount'>;
}

export class StakedCredit {
  readonly #ledger: Ledger;
  readonly #identity: StakedCreditParts['identity'];
  readonly #stakeOf: (wallet: string) => Promise<DailyStake | undefined>;
  readonly #written = new Map<string, DailyStake>();

  constructor(
    { ledger, identity }: StakedCreditParts,
    stakeOf: (wallet: string) => Promise<DailyStake | undefined>,
  ) {
    this.#ledger = ledger;
    this.#identity = identity;
    this.#stakeOf = stakeOf;
  }

  /** Reads the stake, which is cached, and writes the day's allocation once. */
  async refresh(wallet: string, accountId: string): Promise<void> {
    const stake = await this.#stakeOf(wallet);
    if (stake === undefined) return;
    const before = this.#written.get(wallet);
    if (before?.day === stake.day && before.credit === stake.credit) return;
    // A wallet that never staked gets no row.
    if (stake.credit > 0n || (await this.#hasCredit(accountId))) {
      await this.#identity.openWalletAccount(wallet);
      await this.#ledger.setDailyAllocation(accountId, stake.credit, stake.day);
    }
    remember(this.#written, wallet, stake, MAX_WALLETS);
  }

  async #hasCredit(accountId: string): Promise<boolean> {
    return (await this.#ledger.balances(accountId)).allocationNano > 0n;
  }
}
