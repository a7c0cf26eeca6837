/**
 * The public file of the ledger: double entry in nano-USD. No other folder writes money.
 *
 * `available = balance − open holds`, where `balance` is what is posted. Each request holds, runs,
 * and then either settles exactly once or releases its hold (a settle of zero). Holds of requests
 * are in memory: set aside from the posted balance with SQLite, and from the leases of this process
 * with a shared database. Holds of jobs, and holds that no lease covers, are rows.
 */
import { assert } from '../../core/assert.ts';
import { type Clock, dayOf } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';
import { type Nano, ZERO, nano } from '../../core/money.ts';
import { type Queryable, type Store, byStore } from '../../db/db.ts';
import {
  type CapSettings,
  dropBudget,
  dropEndedBudgets,
  isOtherwiseAllocated,
  isOtherwiseHeld,
  setBudgetLimit,
  setCap,
} from './caps.ts';
import {
  type AuditReport,
  type OpenHoldFigures,
  leasedOf,
  openHoldFigures,
  runAudit,
} from './audit.ts';
import {
  type PostingContext,
  type Reversal,
  type ReversalRequest,
  collectDebts,
  payDebt,
  receivedFrom,
  reverseCredit,
} from './debts.ts';
import { type AccountState, type HoldRefusal, dailyLeft } from '../rules.ts';
import { closeCharge, countRefund, refundDaily, uncountCharge } from './job-charges.ts';
import { EPOCH_DEAD_AFTER_MS } from './postgres/epochs.ts';
import { MemoryHolds } from './memory-holds.ts';
import { LeasedHolds } from './postgres/leased-holds.ts';
import type {
  Balances,
  HoldRequest,
  Holds,
  HouseAccount,
  SettleRequest,
  Settlement,
  TransferKind,
  UsageRecord,
} from './records.ts';
import { type OperatorMove, type OperatorMoveResult, moveOnce } from './operator-moves.ts';
import { type KeptFrom, dropOld, prepareDays } from './retention.ts';
import { refusalByCap } from './row-holds.ts';
import { settleRows } from './settle.ts';
import {
  type AccountRow,
  NEW_ACCOUNT,
  SELECT_ACCOUNT,
  accountOf,
  insertTransfer,
} from './states.ts';

export { LEDGER_MIGRATIONS } from './migrations.ts';
export type { CapPeriod, CapRefusal, HoldRefusal } from '../rules.ts';
export type { AuditReport } from './audit.ts';
export { type Reversal, type ReversalRequest, availableIn } from './debts.ts';
export {
  type CapSettings,
  NOTHING_SPENT,
  type Spending,
  cappedSpending,
  countBudgetCaps,
  dropCaps,
  periodStartDay,
  spendingOfCap,
  spendingSince,
} from './caps.ts';
export type { OperatorMove, OperatorMoveResult } from './operator-moves.ts';
export { type KeptFrom, firstDay } from './retention.ts';
export { expectedSettlement } from './settle.ts';
export { spentEver } from './spent-ever.ts';
export type { AccountFigures, CapUse } from './account-figures.ts';
export { accountFigures, usedCaps, walletAccounts } from './account-figures.ts';
export {
  type TransactionRow,
  balanceChange,
  countTransactions,
  transactionsOf,
} from './movements.ts';
export { type ChargedDay, type MovementRow, statementPage } from './statement-page.ts';
export { type Books, CUSTOMERS, firstWholeDay, journalSums, readBooks } from './books.ts';
export { allReceipts } from './all-receipts.ts';
export { cardFees, postCardFee } from './fees.ts';
export { addReportDays } from './report-job.ts';
export {
  type ReceiptConditions,
  type ReceiptFilter,
  type ReceiptPage,
  type ReceiptPageOptions,
  type ReceiptPlace,
  type UsageRow,
  countReceipts,
  pricesOf,
  receiptOf,
  receiptsOf,
  rememberPrices,
} from './receipts.ts';
export {
  type AnyUsageFilter,
  type UsageFilter,
  type UsageGroup,
  type UsageGrouping,
  type UsageTagRow,
  type UsageSums,
  type CostGroup,
  costGroups,
  countUsageDays,
  countUsageTags,
  tagSums,
  usageDays,
  usageGroups,
  usageTags,
  usageTotals,
} from './usage-sums.ts';
export {
  type Balances,
  type OnCommit,
  type HouseAccount,
  type Hold,
  type HoldResult,
  type HoldRequest,
  type Holds,
  NO_TOKENS,
  type RequestMetadata,
  type SettleRequest,
  type Settlement,
  type SupplierCost,
  type TokenCounts,
  type UsageRecord,
  type UsageStatus,
  type WhileAway,
} from './records.ts';

export interface LedgerParts {
  readonly store: Store;
  /** Folder for settles while a shared database is unreachable; `undefined` for SQLite. */
  readonly journalFolder?: string;
  /** How long an epoch may go without renewal; tests shorten it. */
  readonly epochDeadAfterMs?: number;
  /** Unique among all processes; required for processes that serve requests. */
  readonly processId?: string;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export interface CreditRequest {
  readonly accountId: string;
  readonly amountNano: Nano;
  readonly from: HouseAccount;
  readonly kind: TransferKind;
  /** Unique: the caller of this function guarantees that each id is credited once. */
  readonly id: string;
  readonly note?: string;
  readonly requestId?: string;
}

export interface DebitRequest {
  readonly accountId: string;
  readonly amountNano: Nano;
  readonly to: HouseAccount;
  readonly kind: TransferKind;
  readonly id: string;
  readonly note?: string;
}

export class Ledger {
  readonly holds: Holds;
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
    const deadAfterMs = parts.epochDeadAfterMs ?? EPOCH_DEAD_AFTER_MS;
    const processId = parts.processId ?? ids.uuid();
    this.holds = byStore<Holds>(store, {
      file: (file) => new MemoryHolds({ store: file, clock, log }),
      shared: (shared) =>
        new LeasedHolds({ store: shared, journalFolder, deadAfterMs, processId, clock, ids, log }),
    });
  }

  async settleIn(tx: Queryable, request: SettleRequest): Promise<Settlement> {
    const parts = { clock: this.#clock, log: this.#log };
    const [settled] = await settleRows(tx, parts, [{ request }], true);
    assert(settled !== undefined, 'each settle has its result');
    return settled.settlement;
  }

  /** Closes the receipt of a charged job; `false` if it was not charged or has ended. */
  async closeIn(tx: Queryable, usage: UsageRecord): Promise<boolean> {
    return (await closeCharge(tx, usage, this.#clock.nowMs())) !== undefined;
  }

  async refundIn(tx: Queryable, usage: UsageRecord): Promise<boolean> {
    const charged = await closeCharge(tx, usage, this.#clock.nowMs());
    if (charged === undefined) return false;
    const { requestId, accountId } = usage;
    const { usdNano, diemNano, tags } = charged;
    const id = `${requestId}:refund`;
    if (usdNano > 0n) {
      const from = 'house:revenue';
      await this.creditIn(tx, {
        accountId,
        amountNano: usdNano,
        from,
        kind: 'REFUND',
        id,
        requestId,
      });
    }
    const daily = { id, amountNano: diemNano, nowMs: this.#clock.nowMs() };
    const isDailyBack = diemNano > 0n && (await refundDaily(tx, usage, daily));
    await countRefund(tx, usage, { usdNano, diemNano: isDailyBack ? diemNano : ZERO, tags });
    await uncountCharge(tx, charged);
    return true;
  }

  async openAccount(id: string, tx: Queryable = this.#store): Promise<void> {
    const nowMs = this.#clock.nowMs();
    await tx.query(
      `INSERT INTO ledger_account (id, balance_nano, held_nano, daily_allocation_nano, daily_day,
       daily_spent_nano, daily_held_nano, created_ms) VALUES ($1, 0, 0, 0, $2, 0, 0, $3)
       ON CONFLICT (id) DO NOTHING`,
      [id, dayOf(nowMs), nowMs],
    );
  }

  /** Credits money in the caller's transaction, paying a debt first; returns the new balance. */
  async creditIn(tx: Queryable, credit: CreditRequest): Promise<Nano> {
    const { accountId, amountNano, from, id } = credit;
    await this.openAccount(accountId, tx);
    const [row] = await tx.query<{ balance_nano: bigint; debt_nano: bigint }>(
      `UPDATE ledger_account SET balance_nano = balance_nano + $2 WHERE id = $1
       RETURNING balance_nano, debt_nano`,
      [accountId, amountNano],
    );
    assert(row !== undefined, 'a credit has its account');
    const balanceAfterNano = nano(row.balance_nano);
    const context = this.#context();
    const sides = { debitAccount: from, creditAccount: accountId };
    const { nowMs } = context;
    await insertTransfer(tx, { ...credit, ...sides, part: 0, balanceAfterNano, nowMs });
    await this.holds.changed(tx, accountId);
    const paid = row.debt_nano > 0n ? await payDebt(tx, accountId, id, context) : undefined;
    return paid ?? balanceAfterNano;
  }

  /** Debits free balance; returns `undefined` if it is too low or the account has a debt. */
  async debitIn(tx: Queryable, debit: DebitRequest): Promise<Nano | undefined> {
    const { accountId, amountNano, to } = debit;
    await this.holds.recall(accountId);
    const [row] = await tx.query<{ balance_nano: bigint }>(
      `UPDATE ledger_account SET balance_nano = balance_nano - $2
       WHERE id = $1 AND debt_nano = 0 AND balance_nano - held_nano - $3 >= $2
       RETURNING balance_nano`,
      [accountId, amountNano, this.holds.heldOf(accountId)],
    );
    if (row === undefined) return undefined;
    const balanceAfterNano = nano(row.balance_nano);
    const sides = { debitAccount: accountId, creditAccount: to };
    const nowMs = this.#clock.nowMs();
    await insertTransfer(tx, { ...debit, ...sides, part: 0, balanceAfterNano, nowMs });
    return balanceAfterNano;
  }

  moveOnce(move: OperatorMove): Promise<OperatorMoveResult> {
    const { direction, accountId, amountNano, note } = move;
    const house = 'house:operator-credit';
    return this.#store.transaction((tx) =>
      moveOnce(tx, move, this.#clock.nowMs(), async (id) => {
        const posting = { id, accountId, amountNano, kind: 'CREDIT' } as const;
        const noted = note === undefined ? posting : { ...posting, note };
        if (direction === 'credit') return this.creditIn(tx, { ...noted, from: house });
        return this.debitIn(tx, { ...noted, to: house });
      }),
    );
  }

  async reverseIn(tx: Queryable, reversal: ReversalRequest): Promise<Reversal> {
    await this.holds.recall(reversal.accountId);
    return reverseCredit(tx, reversal, this.#context());
  }

  collectDebts(): Promise<void> {
    return collectDebts(this.#store, this.#ids, this.#context());
  }

  #context(): PostingContext {
    return { nowMs: this.#clock.nowMs(), heldOf: (id) => this.holds.heldOf(id) };
  }

  receivedFrom(house: HouseAccount, tx: Queryable = this.#store): Promise<Nano> {
    return receivedFrom(tx, house);
  }

  /** Sets the daily credit for one `day`, or for every day; what was spent today stays spent. */
  async setDailyAllocation(accountId: string, allocationNano: Nano, day?: number): Promise<void> {
    await this.#store.transaction((tx) => this.allocateDailyIn(tx, accountId, allocationNano, day));
  }

  async allocateDailyIn(
    tx: Queryable,
    accountId: string,
    allocationNano: Nano,
    day?: number,
  ): Promise<void> {
    await this.openAccount(accountId, tx);
    // Existing leases were granted under the old allocation.
    if (await isOtherwiseAllocated(tx, accountId, allocationNano, day))
      await this.holds.recall(accountId);
    await tx.query(
      `UPDATE ledger_account SET daily_allocation_nano = $2, daily_allocation_day = $3
       WHERE id = $1`,
      [accountId, allocationNano, day ?? null],
    );
    await this.holds.changed(tx, accountId);
  }

  /**
   * Returns the cap that would reject a hold even after `creditNano` more is posted, so that a
   * caller can be rejected before it pays; sets nothing aside.
   */
  refusalByCap(request: HoldRequest, creditNano: bigint): Promise<HoldRefusal | undefined> {
    return refusalByCap(this.#store, request, creditNano, this.#clock.nowMs());
  }

  async setCap(tx: Queryable, settings: CapSettings): Promise<void> {
    // Existing leases were granted under the old limits.
    if (await isOtherwiseHeld(tx, settings)) await this.holds.recall(settings.accountId);
    const isOther = await setCap(tx, settings, this.#clock.nowMs());
    // A process that leased between the two statements still uses the old limits.
    if (isOther) await this.holds.changed(tx, settings.accountId);
  }

  async setBudgetLimit(
    tx: Queryable,
    accountId: string,
    budgetId: string,
    usdLimitNano: Nano,
  ): Promise<void> {
    await this.holds.recall(accountId);
    await setBudgetLimit(tx, accountId, budgetId, usdLimitNano);
    await this.holds.changed(tx, accountId);
  }

  /** Drops the caps of a budget, except those of which requests still hold something. */
  async dropBudget(tx: Queryable, accountId: string, budgetId: string): Promise<void> {
    await this.holds.recall(accountId);
    await dropBudget(tx, accountId, budgetId);
  }

  async dropEndedBudgets(): Promise<void> {
    await dropEndedBudgets(this.#store, this.#clock.nowMs());
  }

  async balances(accountId: string): Promise<Balances & { readonly allocationNano: Nano }> {
    return this.#posted(await this.#account(accountId));
  }

  /** Returns posted, held and owed amounts; zeroes for an unknown account. */
  async funds(accountId: string): Promise<Funds> {
    const account = await this.#account(accountId);
    // Own leases are free for requests of this process; how much of other leases is held is unknown
    // here.
    const leased = await leasedOf(this.#store, accountId, account.dailyDay);
    const open = this.holds.openOf(accountId, account.dailyDay);
    return {
      ...this.#posted(account),
      heldUsdNano: nano(account.heldNano - leased.usdNano + open.usdNano),
      heldDiemNano: nano(account.dailyHeldNano - leased.diemNano + open.diemNano),
      leasedUsdNano: nano(leased.usdNano),
      debtNano: nano(account.debtNano),
    };
  }

  async #account(accountId: string): Promise<AccountState> {
    const [row] = await this.#store.query<AccountRow>(SELECT_ACCOUNT, [accountId]);
    return row === undefined ? NEW_ACCOUNT : accountOf(row, this.#clock.nowMs());
  }

  #posted(account: AccountState): Balances & { readonly allocationNano: Nano } {
    return {
      usdNano: nano(account.balanceNano),
      diemNano: nano(dailyLeft(account)),
      allocationNano: nano(account.dailyAllocationNano),
    };
  }

  prepareDays(fromDay: number, untilDay: number): Promise<void> {
    return prepareDays(this.#store, fromDay, untilDay);
  }

  dropOld(kept: KeptFrom): Promise<number> {
    return dropOld(this.#store, kept);
  }

  openHolds(): Promise<OpenHoldFigures> {
    return openHoldFigures(this.#store, this.holds);
  }

  audit(): Promise<AuditReport> {
    return runAudit(this.#store, this.holds.figures());
  }

  start(): Promise<void> {
    return this.holds.start();
  }

  /** Releases open holds. Does not throw if the database is unreachable. */
  stop(): Promise<void> {
    return this.holds.stop();
  }
}

export interface Funds extends Balances {
  readonly allocationNano: Nano;
  readonly heldUsdNano: Nano;
  readonly heldDiemNano: Nano;
  /** USD that processes have leased; only the leasing process knows which part of it is held. */
  readonly leasedUsdNano: Nano;
  readonly debtNano: Nano;
}
