/**
 * The public file of the ledger: double entry in nano-USD. Nothing else writes money.
 *
 * `balance` is what is posted; `available = balance − open holds`. A request holds, runs, and
 * settles exactly once or releases (a settle of zero). What callers of one event-loop turn ask
 * goes to the database together.
 */
import { type Clock, dayOf } from '../../core/clock.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';
import { type Nano, formatUsd, maxNano, minNano, nano } from '../../core/money.ts';
import {
  Batcher,
  type Queryable,
  type Store,
  StoreUnavailable,
  isDatabaseError,
  runTogether,
} from '../../db/db.ts';
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
  type Reversal,
  type ReversalRequest,
  collectDebts,
  debtsOf,
  receivedFrom,
  reverseCredit,
} from './debts.ts';
import { EpochKeeper } from './epoch-keeper.ts';
import { EPOCH_DEAD_AFTER_MS } from './epochs.ts';
import { OpenHolds } from './open-holds.ts';
import { placeHolds } from './place-holds.ts';
import { type HoldGate, type HoldTogether, holdTogether } from './postgres/fast-holds.ts';
import { type FastSettle, settleFast } from './postgres/fast-settles.ts';
import type {
  Balances,
  Hold,
  HoldAnswer,
  HoldRequest,
  HouseAccount,
  SettleRequest,
  Settlement,
} from './records.ts';
import { type KeptFrom, dropOld, firstDay, prepareDays } from './retention.ts';
import { settleHolds } from './settle-holds.ts';
import { SettleJournal } from './settle-journal.ts';
import { States, allocationOn } from './states.ts';

export { LEDGER_MIGRATIONS } from './migrations.ts';
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
  /** Folder for settles while a shared database is away; missing when it is a local file. */
  readonly journalFolder?: string;
  /** How long an epoch may stay unrenewed; tests shorten it. */
  readonly epochDeadAfterMs?: number;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

export class Ledger {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #log: Log;
  readonly #holds: Batcher<HoldRequest, HoldAnswer>;
  readonly #lockedHolds: Batcher<HoldRequest, HoldAnswer>;
  readonly #settles: Batcher<SettleRequest, Settlement>;
  readonly #lockedSettles: Batcher<SettleRequest, Settlement>;
  readonly #epochId: string;
  readonly #ids: Ids;
  readonly #open = new OpenHolds();
  readonly #journal: SettleJournal | undefined;
  readonly #keeper: EpochKeeper;

  constructor(parts: LedgerParts) {
    const { store, clock, log, journalFolder } = parts;
    this.#store = store;
    this.#clock = clock;
    this.#log = log;
    this.#ids = parts.ids;
    this.#epochId = parts.ids.uuid();
    this.#journal = journalFolder === undefined ? undefined : new SettleJournal(journalFolder);
    this.#keeper = new EpochKeeper({
      store,
      clock,
      log,
      epochId: this.#epochId,
      open: this.#open,
      journal: this.#journal,
      deadAfterMs: parts.epochDeadAfterMs ?? EPOCH_DEAD_AFTER_MS,
      settle: (request) => this.#settles.add(request),
    });
    const isFile = store.dialect === 'sqlite';
    const options = { maxInFlight: isFile ? 1 : 2, maxItems: MAX_BATCH };
    // A settle waits for the disk, so several batches share one flush.
    const settling = { ...options, maxInFlight: isFile ? 64 : 2 };
    this.#holds = new Batcher((requests) => this.#placeBatch(requests), options);
    this.#lockedHolds = new Batcher((requests) => this.#placeLocked(requests), options);
    this.#settles = new Batcher((requests) => this.#settleBatch(requests), settling);
    this.#lockedSettles = new Batcher((requests) => this.#settleLocked(requests), settling);
  }

  /** Sets money aside for a request, or says why not. A crash undoes it. */
  hold(request: HoldRequest): Promise<HoldAnswer> {
    // Known before it can be in the database.
    this.#open.add(request.requestId);
    return this.#holds.add(request);
  }

  /** The same under a lock at once, where `holdTogether` had no answer. */
  holdLocked(request: HoldRequest): Promise<HoldAnswer> {
    this.#open.add(request.requestId);
    return this.#lockedHolds.add(request);
  }

  /** Holds as a part of a statement on PostgreSQL that others share; run it inside `placing`. */
  holdTogether(requests: readonly HoldRequest[], gate: HoldGate): HoldsTogether {
    const context = { epochId: this.#epochId, nowMs: this.#clock.nowMs() };
    const { part, read } = holdTogether(requests, context, gate);
    return {
      part,
      read: (rows) => {
        const answers = read(rows);
        for (const [index, request] of requests.entries()) {
          if (answers[index] === undefined) this.#open.remove(request.requestId);
        }
        return answers;
      },
      placing: (run) => {
        for (const { requestId } of requests) this.#open.add(requestId);
        return this.#placing(requests, run);
      },
    };
  }

  /**
   * Takes the cost of a request and writes its receipt; resolves when both are on disk. While a
   * shared database is away the settle goes to the local journal, and the answer is the expected one.
   */
  async settle(request: SettleRequest, hold?: Hold): Promise<Settlement> {
    const { requestId } = request.usage;
    try {
      return await this.#settles.add(request);
    } catch (error) {
      const journal = this.#journal;
      if (journal === undefined || hold === undefined || !isDatabaseError(error)) throw error;
      await journal.add(request);
      return expectedSettlement(request, hold);
    } finally {
      // From here the journal stands for the hold, or nobody does and it is given back.
      this.#open.remove(requestId);
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

  /** Takes back a credit whose money is gone; what the balance does not cover is a debt from now on. */
  reverseIn(tx: Queryable, reversal: ReversalRequest): Promise<Reversal> {
    return reverseCredit(tx, reversal, this.#clock.nowMs());
  }

  /** Pays debts from balances that were held when the debt was made. */
  collectDebts(): Promise<void> {
    return collectDebts(this.#store, this.#ids, this.#clock.nowMs());
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
    const [row] = await this.#store.query<{
      balance_nano: bigint;
      daily_allocation_nano: bigint;
      daily_allocation_day: bigint | null;
      daily_day: bigint;
      daily_spent_nano: bigint;
    }>(
      `SELECT balance_nano, daily_allocation_nano, daily_allocation_day, daily_day, daily_spent_nano
       FROM ledger_account WHERE id = $1`,
      [accountId],
    );
    if (row === undefined) return NO_BALANCES;
    const today = dayOf(this.#clock.nowMs());
    const spent = Number(row.daily_day) === today ? row.daily_spent_nano : 0n;
    const allocation = allocationOn(row, today);
    return {
      usdNano: nano(row.balance_nano),
      diemNano: maxNano(nano(0n), nano(allocation - spent)),
      allocationNano: nano(allocation),
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

  /** Open holds in the database, what they set aside (USD and daily credit), and what accounts owe. */
  openHolds(): Promise<OpenHoldFigures> {
    return openHoldFigures(this.#store);
  }

  audit(): Promise<AuditReport> {
    return runAudit(this.#store);
  }

  /**
   * Starts the epoch of this process. `alone` says that no other process can be alive (the lock of
   * the data folder proves it), so every other epoch is closed at once.
   */
  start(options: { readonly alone: boolean }): Promise<void> {
    return this.#keeper.start(options.alone);
  }

  /** Ends the epoch; holds that are still open are given back. Does not throw for a lost database. */
  stop(): Promise<void> {
    return this.#keeper.stop();
  }

  /** Whether a hold was placed is not known after a failure: if so, it belongs to nobody. */
  async #placing<T>(requests: readonly HoldRequest[], place: () => Promise<T>): Promise<T> {
    try {
      return await place();
    } catch (error) {
      for (const { requestId, lifetime } of requests) {
        this.#open.remove(requestId);
        if (lifetime === 'durable') this.#open.doubt(requestId, this.#clock.nowMs());
      }
      throw error;
    }
  }

  async #placeBatch(
    requests: readonly HoldRequest[],
  ): Promise<readonly (HoldAnswer | Promise<HoldAnswer>)[]> {
    if (this.#store.dialect === 'sqlite') return this.#placeLocked(requests);
    const nowMs = this.#clock.nowMs();
    const { part, read } = holdTogether(requests, { epochId: this.#epochId, nowMs });
    const durable = requests.some((request) => request.lifetime === 'durable');
    const rows = await this.#placing(requests, () => {
      return runTogether(this.#store, [part], { durable });
    });
    const fast = read(rows);
    // What is tight waits for its lock alone; the others do not wait for it.
    return requests.map((request, index) => fast[index] ?? this.#lockedHolds.add(request));
  }

  async #placeLocked(requests: readonly HoldRequest[]): Promise<readonly HoldAnswer[]> {
    const nowMs = this.#clock.nowMs();
    const durable = requests.some((request) => request.lifetime === 'durable');
    const place = (tx: Queryable): Promise<HoldAnswer[]> => {
      const states = new States(tx, this.#store.dialect, nowMs);
      return placeHolds({ tx, states, epochId: this.#epochId, nowMs }, requests);
    };
    const answers = await this.#placing(requests, () => {
      return this.#store.transaction(place, { durable });
    });
    for (const [index, { requestId }] of requests.entries()) {
      if (answers[index]?.ok !== true) this.#open.remove(requestId);
    }
    return answers;
  }

  async #settleBatch(
    requests: readonly SettleRequest[],
  ): Promise<readonly (Settlement | Promise<Settlement> | Error)[]> {
    if (this.#store.dialect === 'sqlite') return this.#settleLocked(requests);
    const once = withoutRepeats(requests);
    const fast = await this.#settleFast(once);
    const first = new Set(once);
    return requests.map((request) => {
      const settled = first.has(request) ? fast.get(request.usage.requestId) : undefined;
      return settled?.settlement ?? this.#lockedSettles.add(request);
    });
  }

  async #settleFast(requests: readonly SettleRequest[]): Promise<ReadonlyMap<string, FastSettle>> {
    try {
      const fast = await settleFast(this.#store, requests, this.#clock.nowMs());
      for (const one of requests) this.#checkOverrun(one, fast.get(one.usage.requestId));
      return fast;
    } catch (error) {
      if (error instanceof StoreUnavailable) throw error;
      // One record that the database refuses must not stop its neighbours.
      this.#log.error({ reason: String(error) }, 'A batch of settles failed; they go one by one');
      return new Map();
    }
  }

  /** In one transaction; when that fails for one of them, each in its own. */
  async #settleLocked(
    requests: readonly SettleRequest[],
  ): Promise<readonly (Settlement | Error)[]> {
    try {
      return await this.#store.transaction((tx) => this.#settleAll(tx, requests));
    } catch (error) {
      if (error instanceof StoreUnavailable || requests.length === 1) throw error;
      const outcomes = await Promise.allSettled(
        requests.map((one) => this.#store.transaction((tx) => this.#settleAll(tx, [one]))),
      );
      return outcomes.map((outcome) => {
        if (outcome.status === 'rejected') return asError(outcome.reason);
        return taken(outcome.value);
      });
    }
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

/** A part of a statement that places holds. */
export interface HoldsTogether extends HoldTogether {
  /** Runs the statement; holds whose fate a failure hides are given back later. */
  readonly placing: <T>(run: () => Promise<T>) => Promise<T>;
}

function asError(reason: unknown): Error {
  return reason instanceof Error ? reason : new Error(String(reason));
}

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
