/**
 * Holds of a database that is a file of this process: those of requests live in memory, since a
 * request ends with its process, and a process that dies leaves nothing behind. To place one reads
 * what is posted and adds to a counter; it writes nothing and waits for nothing. What is posted is
 * read each time: commands run beside the server on the same file.
 *
 * The settles of a tick are one transaction. A hold counts until its settle is on disk, and a
 * second settle of it repeats the first.
 */
import { assert } from '../../core/assert.ts';
import type { Clock } from '../../core/clock.ts';
import { InFlight, type Placed } from '../../core/in-flight.ts';
import type { Log } from '../../core/log.ts';
import { type Nano, ZERO, nano } from '../../core/money.ts';
import { type FileStore, type Queryable, StoreUnavailable } from '../../db/db.ts';
import { type AccountState, type AllowanceState, planHold } from './hold-plan.ts';
import { DURABLE_EPOCH, placeHolds } from './place-holds.ts';
import type {
  Hold,
  HoldAnswer,
  HoldFigures,
  HoldRequest,
  Holds,
  SettleRequest,
  Settlement,
} from './records.ts';
import { type HeldAmounts, type SettleContext, settleAll } from './settle.ts';
import {
  type AccountRow,
  type AllowanceRow,
  SELECT_ACCOUNT,
  SELECT_ALLOWANCE,
  accountOf,
  allowanceOf,
} from './states.ts';

/** Settles of one transaction, at most. */
const MAX_BATCH = 256;
/** Accounts with a counter; past that those without an open hold are forgotten. */
const MAX_COUNTERS = 10_000;

/** What open holds set aside of an account, or of an allowance. */
interface Counter {
  open: number;
  usdNano: bigint;
  diemNano: bigint;
  /** The day of the daily credit, or the beginning of the allowance's period. */
  since: number;
  /** Of an allowance, whose period can be changed while they are open. */
  readonly holds: InFlight<MemoryHold> | undefined;
}

/** A hold, with what its settle and its end need. */
interface MemoryHold extends Hold, HeldAmounts, Placed {
  readonly account: Counter;
  readonly allowance: Counter | undefined;
  isOpen: boolean;
  /** The settle, once it was asked for; none again when it failed. */
  settled: Promise<Settlement> | undefined;
}

interface Waiting {
  readonly request: SettleRequest;
  readonly held: MemoryHold;
  readonly resolve: (settlement: Settlement) => void;
  readonly reject: (error: unknown) => void;
}

export interface MemoryHoldsParts {
  readonly store: FileStore;
  readonly clock: Clock;
  readonly log: Log;
}

export class MemoryHolds implements Holds {
  readonly journaled = 0;
  readonly #parts: MemoryHoldsParts;
  readonly #accounts = new Map<string, Counter>();
  readonly #allowances = new Map<string, Counter>();
  #waiting: Waiting[] = [];

  constructor(parts: MemoryHoldsParts) {
    this.#parts = parts;
  }

  place(request: HoldRequest): HoldAnswer | Promise<HoldAnswer> {
    if (request.lifetime === 'durable') return this.#placeRow(request);
    const { requestId, accountId, allowanceId } = request;
    const nowMs = this.#parts.clock.nowMs();
    const state = this.#accountNow(accountId, nowMs);
    if (state === undefined) return { ok: false, reason: 'balance', postedNano: ZERO };
    const cap = allowanceId === undefined ? undefined : this.#allowanceNow(allowanceId, nowMs);
    const beside = this.#beside(request, state, cap);
    const plan = planHold(state, cap, request, nowMs, beside);
    if (!plan.ok) return plan;
    const { usdNano, dailyNano, reachNano, before } = plan;
    const { account, allowance } = beside;
    add(account, usdNano, dailyNano);
    const hold: MemoryHold = {
      requestId,
      accountId,
      grantedNano: (usdNano + dailyNano) as Nano, // both are nano-USD
      reachNano,
      before,
      usdNano,
      dailyNano,
      dailyDay: state.dailyDay,
      allowanceId: cap === undefined ? undefined : allowanceId,
      allowanceMs: nowMs,
      isRow: false,
      account,
      allowance: cap === undefined ? undefined : allowance,
      place: -1,
      isOpen: true,
      settled: undefined,
    };
    if (cap !== undefined) {
      add(allowance, usdNano, dailyNano);
      allowance.holds?.add(hold);
    }
    return { ok: true, hold };
  }

  settle(request: SettleRequest, hold: Hold): Promise<Settlement> {
    return this.#settleOnce(hold, (held) => this.#settleSoon(request, held));
  }

  settleWith(
    request: SettleRequest,
    hold: Hold,
    work: (tx: Queryable, settlement: Settlement) => Promise<void>,
  ): Promise<Settlement> {
    return this.#settleOnce(hold, (held) => this.#settleNow(request, held, work));
  }

  release(hold: Hold): void {
    const held = inMemory(hold);
    if (!held.isOpen) return;
    held.isOpen = false;
    const { account, allowance, usdNano, dailyNano } = held;
    account.open -= 1;
    account.usdNano -= usdNano;
    if (account.since === held.dailyDay) account.diemNano -= dailyNano;
    if (allowance === undefined) return;
    allowance.open -= 1;
    allowance.holds?.delete(held);
    if (held.allowanceMs < allowance.since) return;
    allowance.usdNano -= usdNano;
    allowance.diemNano -= dailyNano;
  }

  heldOf(accountId: string): bigint {
    return this.#accounts.get(accountId)?.usdNano ?? 0n;
  }

  figures(): HoldFigures {
    let count = 0;
    let amount = 0n;
    for (const { open, usdNano, diemNano } of this.#accounts.values()) {
      count += open;
      amount += usdNano + diemNano;
    }
    return { count, amountNano: nano(amount) };
  }

  async start(): Promise<void> {
    // Nothing is left of another process: its holds were in its memory.
  }

  async stop(): Promise<void> {
    // Open holds end with the process.
  }

  #placeRow(request: HoldRequest): Promise<HoldAnswer> {
    const { store, clock } = this.#parts;
    const context = {
      dialect: store.dialect,
      epochId: DURABLE_EPOCH,
      nowMs: clock.nowMs(),
      beside: this.#beside.bind(this),
    };
    return store.transaction(async (tx) => {
      const [answer] = await placeHolds(tx, context, [request]);
      assert(answer !== undefined, 'each request has its answer');
      return answer;
    });
  }

  #accountNow(id: string, nowMs: number): AccountState | undefined {
    const [row] = this.#parts.store.readNow(SELECT_ACCOUNT, [id]);
    return row && accountOf(row as unknown as AccountRow, nowMs); // what it selects
  }

  #allowanceNow(id: string, nowMs: number): AllowanceState | undefined {
    const [row] = this.#parts.store.readNow(SELECT_ALLOWANCE, [id]);
    return row && allowanceOf(row as unknown as AllowanceRow, nowMs); // what it selects
  }

  /** The counters of a request, of the day and the period that run. */
  #beside(request: HoldRequest, state: AccountState, cap: AllowanceState | undefined) {
    const account = counterOf(this.#accounts, request.accountId);
    if (account.since !== state.dailyDay) {
      account.since = state.dailyDay;
      account.diemNano = 0n;
    }
    if (cap === undefined || request.allowanceId === undefined) return { account, allowance: NONE };
    const allowance = counterOf(this.#allowances, request.allowanceId, new InFlight());
    if (allowance.since !== cap.periodStartMs) beginPeriod(allowance, cap.periodStartMs);
    return { account, allowance };
  }

  async #settleOnce(
    hold: Hold,
    settle: (held: MemoryHold) => Promise<Settlement>,
  ): Promise<Settlement> {
    const held = inMemory(hold);
    if (held.settled !== undefined) return { ...(await held.settled), fresh: false };
    held.settled = settle(held);
    try {
      const settlement = await held.settled;
      this.release(held);
      return settlement;
    } catch (error) {
      held.settled = undefined;
      throw error;
    }
  }

  #settleSoon(request: SettleRequest, held: MemoryHold): Promise<Settlement> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ request, held, resolve, reject });
      if (this.#waiting.length === 1) void this.#settleWaiting();
    });
  }

  /** Everything that has come by the time of the transaction. */
  async #settleWaiting(): Promise<void> {
    let batch: readonly Waiting[] = [];
    try {
      const settlements = await this.#parts.store.transaction((tx) => {
        batch = this.#waiting.splice(0, MAX_BATCH);
        if (this.#waiting.length > 0) void this.#settleWaiting();
        return settleAll(tx, this.#context(), batch);
      });
      for (const [at, { resolve, reject }] of batch.entries()) {
        const settlement = settlements[at];
        if (settlement === undefined) reject(new Error('A settle gave no answer'));
        else resolve(settlement);
      }
    } catch (error) {
      // The transaction may not even have begun.
      if (batch.length === 0) batch = this.#waiting.splice(0);
      await this.#settleEach(batch, error);
    }
  }

  /** One record that the database refuses must not stop its neighbours. */
  async #settleEach(batch: readonly Waiting[], error: unknown): Promise<void> {
    const isLost = error instanceof StoreUnavailable || batch.length === 1;
    for (const { request, held, resolve, reject } of batch) {
      if (isLost) reject(error);
      else await this.#settleNow(request, held).then(resolve, reject);
    }
  }

  #settleNow(
    request: SettleRequest,
    held: MemoryHold,
    work?: (tx: Queryable, settlement: Settlement) => Promise<void>,
  ): Promise<Settlement> {
    return this.#parts.store.transaction(async (tx) => {
      const [settlement] = await settleAll(tx, this.#context(), [{ request, held }]);
      assert(settlement !== undefined, 'each settle has its answer');
      await work?.(tx, settlement);
      return settlement;
    });
  }

  #context(): SettleContext {
    const { clock, log } = this.#parts;
    return { dialect: 'sqlite', nowMs: clock.nowMs(), log };
  }
}

/** Of a request without a cap: nothing is added to it. */
const NONE: Counter = { open: 0, usdNano: 0n, diemNano: 0n, since: 0, holds: undefined };

function counterOf(
  counters: Map<string, Counter>,
  id: string,
  holds?: InFlight<MemoryHold>,
): Counter {
  let counter = counters.get(id);
  if (counter === undefined) {
    if (counters.size >= MAX_COUNTERS) {
      for (const [idle, { open }] of counters) if (open === 0) counters.delete(idle);
    }
    counter = { open: 0, usdNano: 0n, diemNano: 0n, since: 0, holds };
    counters.set(id, counter);
  }
  return counter;
}

function add(counter: Counter, usdNano: bigint, diemNano: bigint): void {
  counter.open += 1;
  counter.usdNano += usdNano;
  counter.diemNano += diemNano;
}

/** Another period runs: holds from before it are not concerned. */
function beginPeriod(allowance: Counter, startMs: number): void {
  allowance.since = startMs;
  allowance.usdNano = 0n;
  allowance.diemNano = 0n;
  for (const { allowanceMs, usdNano, dailyNano } of allowance.holds?.all() ?? []) {
    if (allowanceMs < startMs) continue;
    allowance.usdNano += usdNano;
    allowance.diemNano += dailyNano;
  }
}

function inMemory(hold: Hold): MemoryHold {
  return hold as MemoryHold; // `place` makes no other for a request
}
