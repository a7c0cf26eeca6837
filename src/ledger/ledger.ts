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
import { type Nano, formatUsd, maxNano, minNano, nano } from '../kernel/money.ts';
import { Batcher, type Queryable, type Store, StoreUnavailable } from '../store/store.ts';
import {
  type CreditRequest,
  type DebitRequest,
  creditAccount,
  debitAccount,
  openAccount,
  setDailyAllocation,
} from './accounts.ts';
import { type AllowanceSettings, setAllowance } from './allowances.ts';
import { type AuditReport, runAudit } from './audit.ts';
import {
  EPOCH_DEAD_AFTER_MS,
  EPOCH_RENEW_EVERY_MS,
  closeEpoch,
  deadEpochs,
  renewEpoch,
} from './epochs.ts';
import { placeHolds } from './place-holds.ts';
import { placeFast } from './postgres/fast-holds.ts';
import { type FastSettle, settleFast } from './postgres/fast-settles.ts';
import type {
  Balances,
  Hold,
  HoldAnswer,
  HoldRequest,
  SettleRequest,
  Settlement,
} from './records.ts';
import { settleHolds } from './settle-holds.ts';
import { SettleJournal } from './settle-journal.ts';
import { States } from './states.ts';

export { LEDGER_MIGRATIONS } from './migrations.ts';
export { type AllowancePeriod, type HoldRefusal, periodEndMs, periodStartMs } from './hold-plan.ts';
export type { AuditReport } from './audit.ts';
export type { CreditRequest, DebitRequest } from './accounts.ts';
export type { AllowanceSettings } from './allowances.ts';
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
  /** File for settles while a shared database is away; missing when the database is a local file. */
  readonly journalPath?: string;
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
  readonly #journal: SettleJournal | undefined;
  #stopRenewing: (() => void) | undefined;

  constructor(parts: LedgerParts) {
    this.#store = parts.store;
    this.#clock = parts.clock;
    this.#log = parts.log;
    this.#epochId = parts.ids.uuid();
    this.#journal =
      parts.journalPath === undefined ? undefined : new SettleJournal(parts.journalPath);
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

  /**
   * Takes the cost of a request and writes its receipt; resolves when both are on disk. While a
   * shared database is away the settle goes to the local journal, and the answer is the expected one.
   */
  async settle(request: SettleRequest, hold?: Hold): Promise<Settlement> {
    try {
      return await this.#settles.add(request);
    } catch (error) {
      if (
        this.#journal === undefined ||
        hold === undefined ||
        !(error instanceof StoreUnavailable)
      ) {
        throw error;
      }
      await this.#journal.add(request);
      return expectedSettlement(request, hold);
    }
  }

  /**
   * Settles and does further work in the same transaction, so that neither happens without the
   * other. `work` may run twice, and has no effect outside `tx`.
   */
  settleWith(
    request: SettleRequest,
    work: (tx: Queryable, settlement: Settlement) => Promise<void>,
  ): Promise<Settlement> {
    return this.#store.transaction(async (tx) => {
      const settlement = await this.settleIn(tx, request);
      await work(tx, settlement);
      return settlement;
    });
  }

  /** Settles that wait in the local journal for the database to come back. */
  get journaled(): number {
    return this.#journal?.size ?? 0;
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

  /** Makes or changes the cap of a key; what the key spent in the running period stays counted. */
  async setAllowance(tx: Queryable, settings: AllowanceSettings): Promise<void> {
    const context = { tx, dialect: this.#store.dialect, nowMs: this.#clock.nowMs() };
    await setAllowance(context, settings);
  }

  /** What is posted, and what is left of today's credit; zeroes for an unknown account. */
  async balances(accountId: string): Promise<Balances & { readonly allocationNano: Nano }> {
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
    if (row === undefined) return NO_BALANCES;
    const today = Number(row.daily_day) === dayOf(this.#clock.nowMs());
    const spent = today ? row.daily_spent_nano : 0n;
    return {
      usdNano: nano(row.balance_nano),
      diemNano: maxNano(nano(0n), nano(row.daily_allocation_nano - spent)),
      allocationNano: nano(row.daily_allocation_nano),
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
    await this.#journal?.open();
    await renewEpoch(this.#store, this.#epochId, this.#clock.nowMs());
    await this.#replayJournal();
    await this.#closeDead(options.alone ? Infinity : EPOCH_DEAD_AFTER_MS);
    this.#stopRenewing = this.#clock.every(EPOCH_RENEW_EVERY_MS, () => void this.#renew());
  }

  /** Ends the epoch; holds that are still open are given back. */
  async stop(): Promise<void> {
    this.#stopRenewing?.();
    await this.#replayJournal();
    await this.#journal?.close();
    await closeEpoch(this.#store, this.#epochId, this.#clock.nowMs());
  }

  #renewing = false;

  async #renew(): Promise<void> {
    if (this.#renewing) return;
    this.#renewing = true;
    try {
      const isBack = await this.#renewOwn();
      // A process that was cut off judges nobody: the others could not renew either.
      if (!isBack) await this.#closeDead(EPOCH_DEAD_AFTER_MS);
      await this.#replayJournal();
    } catch (error) {
      // The next renewal tries again; the store has logged what is wrong with the database.
      this.#log.debug({ reason: String(error) }, 'Epoch not renewed');
    } finally {
      this.#renewing = false;
    }
  }

  /** `true` when the last renewal is so long ago that this process was cut off. */
  async #renewOwn(): Promise<boolean> {
    const nowMs = this.#clock.nowMs();
    const isBack = nowMs - this.#renewedMs > 2 * EPOCH_RENEW_EVERY_MS;
    await renewEpoch(this.#store, this.#epochId, nowMs);
    this.#renewedMs = nowMs;
    return isBack;
  }

  #renewedMs = 0;

  async #replayJournal(): Promise<void> {
    if (this.#journal === undefined || this.#journal.size === 0) return;
    const replayed = await this.#journal.replay((request) => this.#settles.add(request));
    this.#log.info({ replayed }, 'Settles of the journal are in the database');
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
    const context = { epochId: this.#epochId, nowMs };
    if (this.#store.dialect === 'sqlite') return this.#placeLocked(requests, nowMs);
    const fast = await placeFast(this.#store, requests, context);
    const rest = requests.filter((_, index) => fast[index] === undefined);
    const locked = rest.length === 0 ? [] : [...(await this.#placeLocked(rest, nowMs))];
    return fast.map((answer) => answer ?? taken(locked));
  }

  #placeLocked(requests: readonly HoldRequest[], nowMs: number): Promise<readonly HoldAnswer[]> {
    return this.#store.transaction(
      (tx) => {
        const states = new States(tx, this.#store.dialect, nowMs);
        return placeHolds({ tx, states, epochId: this.#epochId, nowMs }, requests);
      },
      { durable: requests.some((request) => request.lifetime === 'durable') },
    );
  }

  async #settleBatch(requests: readonly SettleRequest[]): Promise<readonly Settlement[]> {
    if (this.#store.dialect === 'sqlite') return this.#settleLocked(requests);
    const once = withoutRepeats(requests);
    const fast = await settleFast(this.#store, once, this.#clock.nowMs());
    for (const request of once) this.#checkOverrun(request, fast.get(request.usage.requestId));
    const first = new Set(once);
    const rest = requests.filter((one) => !first.has(one) || !fast.has(one.usage.requestId));
    const isLocked = new Set(rest);
    const locked = rest.length === 0 ? [] : [...(await this.#settleLocked(rest))];
    return requests.map((request) => {
      if (isLocked.has(request)) return taken(locked);
      return fast.get(request.usage.requestId)?.settlement ?? taken(locked);
    });
  }

  #settleLocked(requests: readonly SettleRequest[]): Promise<readonly Settlement[]> {
    return this.#store.transaction((tx) => this.#settleAll(tx, requests));
  }

  #checkOverrun(request: SettleRequest, fast: FastSettle | undefined): void {
    if (fast === undefined || request.costNano <= fast.heldNano) return;
    this.#overrun(request.usage.requestId, request.costNano, nano(fast.heldNano));
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

const NO_BALANCES = { usdNano: nano(0n), diemNano: nano(0n), allocationNano: nano(0n) };

/** The next answer of a list that has one for each request. */
function taken<T>(answers: T[]): T {
  const answer = answers.shift();
  if (answer === undefined) throw new Error('The database gave fewer answers than requests');
  return answer;
}

/** The first settle of each request: a repeat in the same tick is settled after it. */
function withoutRepeats(requests: readonly SettleRequest[]): SettleRequest[] {
  const seen = new Set<string>();
  return requests.filter(({ usage }) => {
    if (seen.has(usage.requestId)) return false;
    seen.add(usage.requestId);
    return true;
  });
}

/** What a settle will take, told before the database can confirm it. */
function expectedSettlement(request: SettleRequest, hold: Hold): Settlement {
  const cost = minNano(request.costNano, hold.grantedNano);
  const diemNano = minNano(cost, hold.before.diemNano);
  const usdNano = nano(cost - diemNano);
  const after = {
    usdNano: maxNano(nano(0n), nano(hold.before.usdNano - usdNano)),
    diemNano: nano(hold.before.diemNano - diemNano),
  };
  return { fresh: true, usdNano, diemNano, after };
}
