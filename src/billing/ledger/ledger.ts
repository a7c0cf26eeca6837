/**
 * The public file of the ledger: double entry in nano-USD. Nothing else writes money.
 *
 * `balance` is what is posted; `available = balance − open holds`. A request holds, runs, and
 * settles exactly once or releases (a settle of zero), through `holds`: the ledger of a file has
 * them in memory, the ledger of a database that is shared in rows.
 */
import type { Clock } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';
import { type Nano, nano } from '../../core/money.ts';
import type { FileStore, Queryable, Store } from '../../db/db.ts';
import {
  type CreditRequest,
  type DebitRequest,
  creditAccount,
  debitAccount,
  openAccount,
  setDailyAllocation,
} from './accounts.ts';
import { type AllowanceSettings, dropAllowances, setAllowance } from './allowances.ts';
import { type AuditReport, type OpenHoldFigures, openHoldFigures, runAudit } from './audit.ts';
import {
  type Debt,
  type PostingContext,
  type Reversal,
  type ReversalRequest,
  collectDebts,
  debtsOf,
  receivedFrom,
  reverseCredit,
} from './debts.ts';
import { dailyLeft } from './hold-plan.ts';
import { EPOCH_DEAD_AFTER_MS } from './epochs.ts';
import { MemoryHolds } from './memory-holds.ts';
import { StoredHolds } from './postgres/stored-holds.ts';
import type { Balances, Holds, HouseAccount, SettleRequest, Settlement } from './records.ts';
import { type KeptFrom, dropOld, firstDay, prepareDays } from './retention.ts';
import { settleRows } from './settle.ts';
import { type AccountRow, SELECT_ACCOUNT, accountOf } from './states.ts';

export { LEDGER_MIGRATIONS } from './migrations.ts';
export type { StoredHolds } from './postgres/stored-holds.ts';
export { type AllowancePeriod, type HoldRefusal } from './hold-plan.ts';
export type { AuditReport } from './audit.ts';
export type { CreditRequest, DebitRequest } from './accounts.ts';
export type { Debt, Reversal, ReversalRequest } from './debts.ts';
export type { AllowanceSettings } from './allowances.ts';
export type { KeptFrom } from './retention.ts';
export {
  type TransactionRow,
  type UsageDayRow,
  type UsageFilter,
  type UsageRow,
  type UsageTotals,
  countTransactions,
  receiptOf,
  transactionsOf,
  usageDays,
  usageTotals,
} from './history.ts';
export {
  NOTHING_SPENT,
  type Spending,
  cappedSpending,
  keySpendingSince,
  periodStartDay,
  spendingSince,
} from './key-spending.ts';
export {
  type Balances,
  type Hold,
  type HoldAnswer,
  type HoldRequest,
  type Holds,
  type HouseAccount,
  NO_TOKENS,
  type SettleRequest,
  type Settlement,
  type TokenCounts,
  type UsageRecord,
  type UsageStatus,
} from './records.ts';

export interface LedgerParts {
  readonly store: Store;
  /** Folder for settles while a shared database is away; missing when it is a local file. */
  readonly journalFolder?: string;
  /** How long an epoch may stay unrenewed; tests shorten it. */
  readonly epochDeadAfterMs?: number;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export class Ledger {
  readonly holds: Holds;
  /** The same on a database that is shared: its holds can be placed as a part of a statement. */
  readonly storedHolds: StoredHolds | undefined;
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #ids: Ids;
  readonly #log: Log;

  constructor(parts: LedgerParts) {
    const { store, clock, ids, log, journalFolder } = parts;
    this.#store = store;
    this.#clock = clock;
    this.#ids = ids;
    this.#log = log;
    if (isFile(store)) this.holds = new MemoryHolds({ store, clock, log });
    else {
      const deadAfterMs = parts.epochDeadAfterMs ?? EPOCH_DEAD_AFTER_MS;
      const epochId = ids.uuid();
      const stored = { store, epochId, journalFolder, deadAfterMs, clock, log };
      this.storedHolds = new StoredHolds(stored);
      this.holds = this.storedHolds;
    }
  }

  /**
   * Ends a durable hold inside a transaction of the caller, for work that must change with the
   * money.
   */
  async settleIn(tx: Queryable, request: SettleRequest): Promise<Settlement> {
    const parts = { store: this.#store, clock: this.#clock, log: this.#log };
    const [settlement] = await settleRows(tx, parts, [request]);
    if (settlement === undefined) throw new Error('A settle gave no answer');
    return settlement;
  }

  /** Makes an account with nothing on it; an existing one stays. */
  async openAccount(id: string, tx: Queryable = this.#store): Promise<void> {
    await openAccount(tx, id, this.#clock.nowMs());
  }

  /** Adds money in the caller's transaction; returns the new balance. */
  creditIn(tx: Queryable, credit: CreditRequest): Promise<Nano> {
    return creditAccount(tx, credit, this.#context());
  }

  /** Takes money that is not held; `undefined` when there is not enough. */
  debitIn(tx: Queryable, debit: DebitRequest): Promise<Nano | undefined> {
    return debitAccount(tx, debit, this.#context());
  }

  /** Takes back a credit whose money is gone; what the balance does not cover is a debt from now on. */
  reverseIn(tx: Queryable, reversal: ReversalRequest): Promise<Reversal> {
    return reverseCredit(tx, reversal, this.#context());
  }

  /** Pays debts from balances that were held when the debt was made. */
  collectDebts(): Promise<void> {
    return collectDebts(this.#store, this.#ids, this.#context());
  }

  #context(): PostingContext {
    return { nowMs: this.#clock.nowMs(), heldOf: (id) => this.holds.heldOf(id) };
  }

  /** What accounts owe after reversals, the largest first; empty as a rule. */
  debts(): Promise<readonly Debt[]> {
    return debtsOf(this.#store);
  }

  /** What came in through a house account since the beginning, less what went back. */
  receivedFrom(house: HouseAccount, tx: Queryable = this.#store): Promise<Nano> {
    return receivedFrom(tx, house);
  }

  /** Daily credit of the one `day`, or of every day. */
  async setDailyAllocation(accountId: string, allocationNano: Nano, day?: number): Promise<void> {
    await this.#store.transaction((tx) =>
      setDailyAllocation(tx, accountId, { allocationNano, day }, this.#clock.nowMs()),
    );
  }

  /** Makes or changes the cap of a key; what the key spent in the running period stays counted. */
  async setAllowance(tx: Queryable, settings: AllowanceSettings): Promise<void> {
    const context = { tx, dialect: this.#store.dialect, nowMs: this.#clock.nowMs() };
    await setAllowance(context, settings);
  }

  /** Forgets caps of keys that are gone; one that requests still hold something of stays. */
  async dropAllowances(tx: Queryable, ids: readonly string[]): Promise<void> {
    await dropAllowances(tx, ids);
  }

  /** What is posted, and what is left of today's credit; zeroes for an unknown account. */
  async balances(accountId: string): Promise<Balances & { readonly allocationNano: Nano }> {
    const [row] = await this.#store.query<AccountRow>(SELECT_ACCOUNT, [accountId]);
    if (row === undefined) return NO_BALANCES;
    const nowMs = this.#clock.nowMs();
    const account = accountOf(row, nowMs);
    return {
      usdNano: nano(account.balanceNano),
      diemNano: nano(dailyLeft(account, nowMs)),
      allocationNano: nano(account.dailyAllocationNano),
    };
  }

  /** The first day with a receipt or a posting; `undefined` when there is none. */
  firstDay(): Promise<number | undefined> {
    return firstDay(this.#store);
  }

  /** Makes room for the rows of days that come: from `fromDay` up to and without `untilDay`. */
  prepareDays(fromDay: number, untilDay: number): Promise<void> {
    return prepareDays(this.#store, fromDay, untilDay);
  }

  /** Drops receipts and postings of old days; their sums stay, so the audit does not change. */
  dropOld(kept: KeptFrom): Promise<number> {
    return dropOld(this.#store, kept);
  }

  /** Open holds, what they set aside (USD and daily credit), and what accounts owe. */
  openHolds(): Promise<OpenHoldFigures> {
    return openHoldFigures(this.#store, this.holds.figures());
  }

  audit(): Promise<AuditReport> {
    return runAudit(this.#store, this.holds.figures());
  }

  /**
   * Starts the epoch of this process. `alone` says that no other process can be alive (the lock of
   * the data folder proves it), so every other epoch is closed at once.
   */
  start(options: { readonly alone: boolean }): Promise<void> {
    return this.holds.start(options.alone);
  }

  /** Ends the epoch; holds that are still open are given back. Does not throw for a lost database. */
  stop(): Promise<void> {
    return this.holds.stop();
  }
}

const NO_BALANCES = { usdNano: nano(0n), diemNano: nano(0n), allocationNano: nano(0n) };

function isFile(store: Store): store is FileStore {
  return store.dialect === 'sqlite';
}
