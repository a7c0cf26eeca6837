/**
 * The door of the ledger: double entry in nano-USD. Nothing else writes money.
 *
 * `balance` is what is posted; `available = balance − open holds`. A request holds, runs, and
 * settles exactly once or releases (a settle of zero). What callers of one event-loop turn ask
 * goes to the database together.
 */
import { type Clock, dayOf } from '../kernel/clock.ts';
import type { Ids } from '../kernel/ids.ts';
import type { Log } from '../kernel/log.ts';
import { type Nano, formatUsd, maxNano, nano } from '../kernel/money.ts';
import { Batcher, type Queryable, type Store } from '../store/store.ts';
import {
  type AllowanceSettings,
  type CreditRequest,
  type DebitRequest,
  creditAccount,
  debitAccount,
  openAccount,
  setAllowance,
  setDailyAllocation,
} from './accounts.ts';
import { type AuditReport, runAudit } from './audit.ts';
import {
  EPOCH_DEAD_AFTER_MS,
  EPOCH_RENEW_EVERY_MS,
  closeEpoch,
  deadEpochs,
  renewEpoch,
} from './epochs.ts';
import { placeHolds } from './place-holds.ts';
import type { Balances, HoldAnswer, HoldRequest, SettleRequest, Settlement } from './records.ts';
import { settleHolds } from './settle-holds.ts';
import { States } from './states.ts';

export { LEDGER_MIGRATIONS } from './migrations.ts';
export { type AllowancePeriod, type HoldRefusal, periodEndMs, periodStartMs } from './hold-plan.ts';
export type { AuditReport } from './audit.ts';
export type { AllowanceSettings, CreditRequest, DebitRequest } from './accounts.ts';
export {
  type TransactionRow,
  type UsageDayRow,
  type UsageRow,
  countTransactions,
  receiptOf,
  transactionsOf,
  usageDays,
} from './history.ts';
export {
  type Balances,
  type Hold,
  type HoldAnswer,
  type HoldRequest,
  type HouseAccount,
  NO_TOKENS,
  type SettleRequest,
  type Settlement,
  type TokenCounts,
  type UsageRecord,
  type UsageStatus,
} from './records.ts';

/** Requests in one batch to the database, at most. */
const MAX_BATCH = 128;

export interface LedgerParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export class Ledger {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #holds: Batcher<HoldRequest, HoldAnswer>;
  readonly #settles: Batcher<SettleRequest, Settlement>;
  readonly #epochId: string;
  #stopRenewing: (() => void) | undefined;

  constructor(parts: LedgerParts) {
    this.#store = parts.store;
    this.#clock = parts.clock;
    this.#log = parts.log;
    this.#epochId = parts.ids.uuid();
    const options = { maxInFlight: parts.store.dialect === 'sqlite' ? 1 : 2, maxItems: MAX_BATCH };
    this.#holds = new Batcher((requests) => this.#placeBatch(requests), options);
    // A settle waits for the disk, so several batches share one flush.
    this.#settles = new Batcher((requests) => this.#settleBatch(requests), {
      ...options,
      maxInFlight: parts.store.dialect === 'sqlite' ? 64 : 2,
    });
  }

  /** Sets money aside for a request, or says why not. A crash undoes it. */
  hold(request: HoldRequest): Promise<HoldAnswer> {
    return this.#holds.add(request);
  }

  /** Takes the cost of a request and writes its receipt; resolves when both are on disk. */
  settle(request: SettleRequest): Promise<Settlement> {
    return this.#settles.add(request);
  }

  /** The same inside a transaction of the caller, for work that must change with the money. */
  async settleIn(tx: Queryable, request: SettleRequest): Promise<Settlement> {
    const [settlement] = await this.#settleAll(tx, [request]);
    if (settlement === undefined) throw new Error('A settle gave no answer');
    return settlement;
  }

  /** Makes an account with nothing on it; an existing one stays. */
  async openAccount(id: string, tx: Queryable = this.#store): Promise<void> {
    await openAccount(tx, id, this.#clock.nowMs());
  }

  /** Adds money in the caller's transaction; returns the new balance. */
  creditIn(tx: Queryable, credit: CreditRequest): Promise<Nano> {
    return creditAccount(tx, credit, this.#clock.nowMs());
  }

  /** Takes money that is not held; `undefined` when there is not enough. */
  debitIn(tx: Queryable, debit: DebitRequest): Promise<Nano | undefined> {
    return debitAccount(tx, debit, this.#clock.nowMs());
  }

  async setDailyAllocation(accountId: string, allocationNano: Nano): Promise<void> {
    await this.#store.transaction((tx) =>
      setDailyAllocation(tx, accountId, allocationNano, this.#clock.nowMs()),
    );
  }

  async setAllowance(tx: Queryable, settings: AllowanceSettings): Promise<void> {
    await setAllowance(tx, settings, this.#clock.nowMs());
  }

  /** What is posted, and what is left of today's credit; zeroes for an unknown account. */
  async balances(accountId: string): Promise<Balances> {
    const [row] = await this.#store.query<{
      balance_nano: bigint;
      daily_allocation_nano: bigint;
      daily_day: bigint;
      daily_spent_nano: bigint;
    }>(
      `SELECT balance_nano, daily_allocation_nano, daily_day, daily_spent_nano
       FROM ledger_account WHERE id = $1`,
      [accountId],
    );
    if (row === undefined) return { usdNano: nano(0n), diemNano: nano(0n) };
    const today = Number(row.daily_day) === dayOf(this.#clock.nowMs());
    const spent = today ? row.daily_spent_nano : 0n;
    return {
      usdNano: nano(row.balance_nano),
      diemNano: maxNano(nano(0n), nano(row.daily_allocation_nano - spent)),
    };
  }

  audit(): Promise<AuditReport> {
    return runAudit(this.#store);
  }

  /**
   * Starts the epoch of this process. `alone` says that no other process can be alive (the lock of
   * the data folder proves it), so every other epoch is closed at once.
   */
  async start(options: { readonly alone: boolean }): Promise<void> {
    await renewEpoch(this.#store, this.#epochId, this.#clock.nowMs());
    await this.#closeDead(options.alone ? Infinity : EPOCH_DEAD_AFTER_MS);
    this.#stopRenewing = this.#clock.every(EPOCH_RENEW_EVERY_MS, () => void this.#renew());
  }

  /** Ends the epoch; holds that are still open are given back. */
  async stop(): Promise<void> {
    this.#stopRenewing?.();
    await closeEpoch(this.#store, this.#epochId, this.#clock.nowMs());
  }

  #renewing = false;

  async #renew(): Promise<void> {
    if (this.#renewing) return;
    this.#renewing = true;
    try {
      await renewEpoch(this.#store, this.#epochId, this.#clock.nowMs());
      await this.#closeDead(EPOCH_DEAD_AFTER_MS);
    } catch (error) {
      // The next renewal tries again; the store has logged what is wrong with the database.
      this.#log.debug({ reason: String(error) }, 'Epoch not renewed');
    } finally {
      this.#renewing = false;
    }
  }

  async #closeDead(deadAfterMs: number): Promise<void> {
    const sinceMs = deadAfterMs === Infinity ? 2 ** 52 : this.#clock.nowMs() - deadAfterMs;
    for (const id of await deadEpochs(this.#store, sinceMs)) {
      if (id === this.#epochId) continue;
      const released = await closeEpoch(this.#store, id, this.#clock.nowMs());
      this.#log.info({ epoch: id, released }, 'Closed the epoch of an ended process');
    }
  }

  async #placeBatch(requests: readonly HoldRequest[]): Promise<readonly HoldAnswer[]> {
    const nowMs = this.#clock.nowMs();
    return this.#store.transaction(
      (tx) => {
        const states = new States(tx, this.#store.dialect, nowMs);
        return placeHolds({ tx, states, epochId: this.#epochId, nowMs }, requests);
      },
      { durable: requests.some((request) => request.lifetime === 'durable') },
    );
  }

  #settleBatch(requests: readonly SettleRequest[]): Promise<readonly Settlement[]> {
    return this.#store.transaction((tx) => this.#settleAll(tx, requests));
  }

  #settleAll(tx: Queryable, requests: readonly SettleRequest[]): Promise<Settlement[]> {
    const nowMs = this.#clock.nowMs();
    const states = new States(tx, this.#store.dialect, nowMs);
    const context = { tx, dialect: this.#store.dialect, states, nowMs };
    return settleHolds({ ...context, onOverrun: this.#overrun }, requests);
  }

  readonly #overrun = (requestId: string, costNano: Nano, heldNano: Nano): void => {
    const fields = { requestId, cost: formatUsd(costNano), held: formatUsd(heldNano) };
    this.#log.error(fields, 'A cost was above its hold; only the hold was taken');
  };
}
