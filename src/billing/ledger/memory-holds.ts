/**
 * Holds with SQLite. Holds of requests are in memory, because a request ends with its process, and
 * a crash leaves nothing to clean up. Placing a hold reads the posted balance and adds to a
 * counter, without a write or a wait. Changes by other processes are checked once per turn of the
 * event loop, since commands use the same file beside the server.
 *
 * The settles of a tick share one transaction. A hold stays open until its settle is on disk. A
 * second settle of the same hold returns the result of the first.
 */
import { assert } from '../../core/assert.ts';
import type { Clock } from '../../core/clock.ts';
import { InFlight, type Placed } from '../../core/in-flight.ts';
import type { Log } from '../../core/log.ts';
import { type Nano, ZERO, nano } from '../../core/money.ts';
import { type FileStore, type FileWork, type Queryable, StoreUnavailable } from '../../db/db.ts';
import {
  type CountedCap,
  type HeldAmounts,
  NO_CAPS,
  type OpenAmounts,
  planHold,
} from '../rules.ts';
import type {
  OnCommit,
  Hold,
  HoldResult,
  HoldFigures,
  HoldRequest,
  Holds,
  SettleRequest,
  Settlement,
} from './records.ts';
import { capsMsOf, placeDurable } from './row-holds.ts';
import { repeated, settleHeld, settleOneHeld } from './settle.ts';
import { type HeldSettle, KeptStates } from './states.ts';

const MAX_BATCH = 256;
/** Maximum counters of accounts, and of caps; above it, idle ones are dropped. */
const MAX_COUNTERS = 10_000;

interface Counter {
  open: number;
  usdNano: bigint;
  diemNano: bigint;
  /** The day of the daily credit, or the start of the period of the cap. */
  since: number;
  /** The open holds of a cap, whose period can change meanwhile; `undefined` for an account. */
  readonly holds: InFlight<CountedHold> | undefined;
}

interface CountedHold extends Placed {
  readonly counter: Counter;
  readonly usdNano: bigint;
  readonly dailyNano: bigint;
  readonly sinceMs: number;
}

interface MemoryHold extends Hold, HeldAmounts {
  readonly dailyNano: Nano;
  readonly account: Counter;
  /** `undefined` without caps, as for most holds. */
  readonly counted: readonly CountedHold[] | undefined;
  isOpen: boolean;
  /** The pending or finished settle; `undefined` again after it failed. */
  settled: Promise<Settlement> | undefined;
}

interface Waiting extends HeldSettle {
  readonly held: MemoryHold;
  readonly onCommit: OnCommit | undefined;
  readonly resolve: (settlement: Settlement) => void;
  readonly reject: (error: unknown) => void;
}

interface SettleBatch extends FileWork {
  readonly waiting: Waiting[];
}

export interface MemoryHoldsParts {
  readonly store: FileStore;
  readonly clock: Clock;
  readonly log: Log;
}

export class MemoryHolds implements Holds {
  readonly journaled = 0;
  readonly processes = 1;
  readonly #parts: MemoryHoldsParts;
  readonly #accounts = new Map<string, Counter>();
  readonly #caps = new Map<string, Counter>();
  readonly #posted: KeptStates;
  /** Collects the settles until the store runs it. */
  #batch: SettleBatch | undefined;

  constructor(parts: MemoryHoldsParts) {
    this.#parts = parts;
    this.#posted = new KeptStates(parts.store);
  }

  place(request: HoldRequest): HoldResult | Promise<HoldResult> {
    const { requestId, accountId, capIds, lifetime } = request;
    // A request whose settle cannot be written must not start: its completion would be given away.
    const away = this.#parts.store.unavailable();
    if (away !== undefined) throw new StoreUnavailable(away);
    const nowMs = this.#parts.clock.nowMs();
    const state = this.#posted.committed(this.#posted.accounts, accountId, nowMs);
    if (state === undefined) return { ok: false, reason: 'balance', postedNano: ZERO };
    // Before this hold has a counter: a counter without a hold looks idle.
    if (this.#accounts.size >= MAX_COUNTERS) forgetIdle(this.#accounts);
    if (this.#caps.size >= MAX_COUNTERS) forgetIdle(this.#caps);
    const account = this.#accounts.get(accountId) ?? counterOf(this.#accounts, accountId);
    if (account.since !== state.dailyDay) beginDay(account, state.dailyDay);
    const caps = capIds === undefined ? undefined : this.#countedCaps(capIds, nowMs);
    const plan = planHold(state, request, caps ?? NO_CAPS, account);
    if (!plan.ok) return plan;
    const { usdNano, dailyNano, spendableNano, before } = plan;
    const capsMs = caps === undefined ? nowMs : capsMsOf(nowMs, caps);
    account.open += 1;
    account.usdNano += usdNano;
    account.diemNano += dailyNano;
    const hold: MemoryHold = {
      requestId,
      accountId,
      grantedNano: (usdNano + dailyNano) as Nano, // both are nano-USD
      spendableNano,
      before,
      usdNano,
      dailyNano,
      dailyDay: state.dailyDay,
      capIds,
      capsMs,
      from: 'memory',
      account,
      counted: caps?.map(({ beside: counter }) => {
        return addTo(counter, { counter, usdNano, dailyNano, sinceMs: capsMs, place: -1 });
      }),
      isOpen: true,
      settled: undefined,
    };
    return lifetime === 'durable' ? this.#write(request, hold, nowMs) : { ok: true, hold };
  }

  settle(request: SettleRequest, hold: Hold, onCommit?: OnCommit): Promise<Settlement> {
    const held = hold as MemoryHold; // `place` creates no other kind
    if (held.settled !== undefined) return repeated(held.settled);
    const { promise, resolve, reject } = Promise.withResolvers<Settlement>();
    held.settled = promise;
    let batch = this.#batch;
    const isFull = batch !== undefined && batch.waiting.length >= MAX_BATCH;
    if (batch === undefined || isFull) this.#batch = batch = this.#newBatch();
    batch.waiting.push({ request, held, onCommit, resolve, reject });
    // The store may fail the batch at once.
    if (batch.waiting.length === 1) this.#parts.store.write(batch);
    return promise;
  }

  settleWith(
    request: SettleRequest,
    hold: Hold,
    work: (tx: Queryable, settlement: Settlement) => Promise<void>,
  ): Promise<Settlement> {
    const held = hold as MemoryHold; // `place` creates no other kind
    if (held.settled !== undefined) return repeated(held.settled);
    held.settled = this.#settleNow(request, held, work);
    return held.settled;
  }

  release(hold: Hold): void {
    const held = hold as MemoryHold; // `place` creates no other kind
    if (!held.isOpen) return;
    held.isOpen = false;
    const { account, counted, usdNano, dailyNano } = held;
    account.open -= 1;
    account.usdNano -= usdNano;
    if (account.since === held.dailyDay) account.diemNano -= dailyNano;
    counted?.forEach(takeFrom);
    assert(account.open >= 0 && account.usdNano >= 0n, 'a hold is released once');
  }

  recall(): undefined {
    // There are no leases with SQLite.
    return undefined;
  }

  changed(): undefined {
    // No other process has leases.
    return undefined;
  }

  heldOf(accountId: string): bigint {
    return this.#accounts.get(accountId)?.usdNano ?? 0n;
  }

  openOf(accountId: string, day: number): OpenAmounts {
    const account = this.#accounts.get(accountId);
    const diemNano = account?.since === day ? account.diemNano : 0n;
    return { usdNano: account?.usdNano ?? 0n, diemNano };
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

  rowFigures(): HoldFigures {
    return { count: 0, amountNano: ZERO };
  }

  get endedBefore(): readonly string[] {
    return [];
  }

  async processEnded(): Promise<void> {
    // A file has one server process.
  }

  async start(): Promise<void> {
    // Holds of another process were only in its memory.
  }

  async stop(): Promise<void> {
    // Open holds end with the process.
  }

  /** Writes the hold of a job as a row; until the commit a hold in memory reserves the amount. */
  async #write(request: HoldRequest, hold: MemoryHold, nowMs: number): Promise<HoldResult> {
    try {
      return await this.#parts.store.transaction((tx) => placeDurable(tx, request, nowMs));
    } finally {
      this.release(hold);
    }
  }

  #countedCaps(ids: readonly string[], nowMs: number) {
    const counted: (CountedCap & { readonly beside: Counter })[] = [];
    for (const id of ids) {
      const state = this.#posted.committed(this.#posted.caps, id, nowMs);
      // A deleted cap limits nothing.
      if (state === undefined) continue;
      const beside = counterOf(this.#caps, id, new InFlight());
      if (beside.since !== state.periodStartMs) beginPeriod(beside, state.periodStartMs);
      counted.push({ id, state, beside });
    }
    return counted;
  }

  #newBatch(): SettleBatch {
    const waiting: Waiting[] = [];
    let settlements: readonly Settlement[] = [];
    const batch: SettleBatch = {
      waiting,
      durable: true,
      run: (tx) => {
        if (this.#batch === batch) this.#batch = undefined;
        settlements = settleHeld(tx, this.#parts, this.#posted, waiting);
      },
      committed: () => {
        for (let at = 0; at < waiting.length; at += 1) {
          const settlement = settlements[at];
          if (settlement !== undefined) waiting[at]?.onCommit?.(settlement);
        }
      },
      done: () => {
        for (let at = 0; at < waiting.length; at += 1) {
          const settle = waiting[at];
          const settlement = settlements[at];
          assert(settle !== undefined && settlement !== undefined, 'each settle has its result');
          this.release(settle.held);
          settle.resolve(settlement);
        }
      },
      // The transaction may have failed before it began.
      failed: (error) => {
        if (this.#batch === batch) this.#batch = undefined;
        void this.#settleApart(waiting, error);
      },
    };
    return batch;
  }

  async #settleApart(batch: readonly Waiting[], error: unknown): Promise<void> {
    const isLost = error instanceof StoreUnavailable || batch.length === 1;
    for (const { request, held, resolve, reject } of batch) {
      held.settled = undefined;
      // A record that the database rejects must not fail the others.
      if (isLost) reject(error);
      else await this.#settleNow(request, held).then(resolve, reject);
    }
  }

  async #settleNow(
    request: SettleRequest,
    held: MemoryHold,
    work?: (tx: Queryable, settlement: Settlement) => Promise<void>,
  ): Promise<Settlement> {
    try {
      const settled = await this.#parts.store.transaction(async (tx) => {
        const settlement = await settleOneHeld(tx, this.#parts, request, held);
        await work?.(tx, settlement);
        return settlement;
      });
      this.release(held);
      return settled;
    } catch (error) {
      // Allow another attempt.
      held.settled = undefined;
      throw error;
    }
  }
}

function counterOf(
  counters: Map<string, Counter>,
  id: string,
  holds?: InFlight<CountedHold>,
): Counter {
  const counter = counters.get(id);
  if (counter !== undefined) return counter;
  const added = { open: 0, usdNano: 0n, diemNano: 0n, since: 0, holds };
  counters.set(id, added);
  return added;
}

function forgetIdle(counters: Map<string, Counter>): void {
  for (const [id, { open }] of counters) if (open === 0) counters.delete(id);
}

function addTo(counter: Counter, hold: CountedHold): CountedHold {
  counter.open += 1;
  counter.usdNano += hold.usdNano;
  counter.diemNano += hold.dailyNano;
  counter.holds?.add(hold);
  return hold;
}

function takeFrom(hold: CountedHold): void {
  const { counter, sinceMs, usdNano, dailyNano } = hold;
  counter.open -= 1;
  counter.holds?.delete(hold);
  if (sinceMs < counter.since) return;
  counter.usdNano -= usdNano;
  counter.diemNano -= dailyNano;
}

/** Resets the counter, because each day has its own credit. */
function beginDay(account: Counter, day: number): void {
  account.since = day;
  account.diemNano = 0n;
}

/** Resets the counter for a new period; holds from before it do not count. */
function beginPeriod(counter: Counter, startMs: number): void {
  counter.since = startMs;
  counter.usdNano = 0n;
  counter.diemNano = 0n;
  for (const { sinceMs, usdNano, dailyNano } of counter.holds?.all() ?? []) {
    if (sinceMs < startMs) continue;
    counter.usdNano += usdNano;
    counter.diemNano += dailyNano;
  }
}
