/**
 * The single path of a caller's money: limits → hold → run → settle or release. Every sold request
 * goes through `Sales.sell`. A job that outlives its request (video) uses `holdForJob` and
 * `settleJob`. Movements by operators, top-ups and reversals belong to the ledger.
 *
 * A hold is an upper bound of the cost, so a settle never exceeds it. When `sell` returns, the hold
 * has ended: the work has settled it, or it was released as failed.
 */
import type { Caller } from '../identity/identity.ts';
import type { Clock } from '../core/clock.ts';
import type { Fault } from '../core/faults.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { type Nano, ZERO, addNano, nano } from '../core/money.ts';
import {
  type Hold,
  type HoldResult,
  type HoldRequest,
  type OnCommit,
  type Ledger,
  NO_TOKENS,
  type SettleRequest,
  type Settlement,
  type UsageRecord,
  type WhileAway,
} from './ledger/ledger.ts';
import type { BudgetCaps } from './budgets/budgets.ts';
import { CreditWaits } from './credit-waits.ts';
import { TagBounds } from './tag-bounds.ts';
import {
  type MoneyRefusals,
  limitRefusal,
  moneyRefusal,
  expensiveRefusal,
  withHeaders,
} from './refusals.ts';
import {
  type ResponseKeeper,
  type Counted,
  type CountRequest,
  type JobOrder,
  type LimitOf,
  type Outcome,
  type PriceBounds,
  type SaleRequest,
  type SoldResponse,
  type Together,
  NO_HOLD,
  UNCOUNTED,
  keptSettle,
} from './sale-request.ts';
import { type PaymentTooSmall, placeHold, withBudgets, withinPayment } from './take-payment.ts';
import type { Queryable } from '../db/db.ts';
import {
  type LimitLog,
  type Reservation,
  type WindowResult,
  type WindowState,
  type Windows,
  bucketOf,
  rateHeaders,
  stateNow,
  stateOf,
  takeOf,
} from './limits/limits.ts';

export { type RateRule, addRateHeaders, rateHeaders } from './limits/limits.ts';
export { limitRefusal } from './refusals.ts';
export { paidFor } from './sale-request.ts';
export type {
  ResponseKeeper,
  Counted,
  CountRequest,
  LimitOf,
  Outcome,
  PriceBounds,
  SaleRequest,
  SoldResponse,
  SoldFor,
} from './sale-request.ts';

export interface SalesParts extends MoneyRefusals {
  readonly ledger: Ledger;
  readonly windows: Windows;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly log: Log;
  /** Throws if no engine would accept a request for the model; called before a payment is taken. */
  readonly requireModel: (modelId: string) => Promise<void>;
  readonly budgets: BudgetCaps;
  readonly observers: readonly SaleObserver[];
}

export interface SaleObserver {
  settled(sale: Sale, outcome: Outcome, settlement: Settlement): void;
}

interface SaleContext extends SalesParts {
  readonly waits: CreditWaits;
  readonly tagBounds: TagBounds;
}

export class Sales {
  readonly #context: SaleContext;

  constructor(parts: SalesParts) {
    this.#context = { ...parts, waits: new CreditWaits(parts.clock), tagBounds: new TagBounds() };
  }

  /**
   * Counts the request against its limits, sets its money aside and runs the work. Throws 429 or
   * 402, and the errors of the work; returns `undefined` instead if the caller has left.
   */
  async sell<T>(request: SaleRequest, work: (sale: Sale) => Promise<T>): Promise<T | undefined> {
    const { windows, clock } = this.#context;
    const nowMs = clock.nowMs();
    const isCounted = request.caller.isBatch !== true;
    const taking = isCounted ? windows.take(takeOf(request), nowMs) : UNCOUNTED;
    // Avoids an `await` if limits and holds are in memory.
    const taken = taking instanceof Promise ? await taking : taking;
    if (!taken.ok) throw this.#limited(request, taken, nowMs);
    const sale = new Sale(this.#context, request, taken, nowMs);
    // A payment is taken after the limits: a caller above its limits does not pay.
    const reserving = request.price === undefined ? undefined : sale.reserve(request.price);
    if (reserving !== undefined) await reserving;
    let failure: unknown;
    try {
      return await work(sale);
    } catch (error) {
      failure = error;
      if (request.cancellation?.aborted === true) return undefined;
      throw error;
    } finally {
      if (sale.state === 'held') await this.#releaseFailed(sale, failure);
    }
  }

  async #releaseFailed(sale: Sale, failure: unknown): Promise<void> {
    try {
      await sale.release({ status: 'failed' });
    } catch (error) {
      // The caller gets the first error.
      this.#context.ledger.holds.release(sale.hold);
      const { requestId } = sale.request;
      const fields = { requestId, reason: reasonOf(error), after: reasonOf(failure) };
      this.#context.log.error(fields, 'A hold could not be released');
    }
  }

  async count(request: CountRequest): Promise<Counted> {
    const nowMs = this.#context.clock.nowMs();
    const taken = await this.#context.windows.take(takeOf(request), nowMs);
    if (!taken.ok) throw this.#limited(request, taken, nowMs);
    return { window: taken.state, reserved: taken.reserved, startedMs: nowMs };
  }

  async limitHeaders(limit: LimitOf): Promise<Record<string, string>> {
    const { windows, clock } = this.#context;
    const { caller, modelId, rate, ownLimit } = limit;
    const nowMs = clock.nowMs();
    const bucket = bucketOf(caller, rate, ownLimit?.bucket ?? modelId);
    const counted = await windows.counted([bucket], nowMs);
    return rateHeaders(stateNow(rate, counted.get(bucket), nowMs), rate, nowMs);
  }

  #limited(
    request: CountRequest,
    { reason, state }: WindowResult & { readonly ok: false },
    nowMs: number,
  ): Fault {
    const { caller, modelId, rate, ownLimit } = request;
    this.#context.limitLog.add({
      accountId: caller.accountId,
      keyId: caller.keyId,
      modelId: ownLimit?.loggedAs ?? modelId,
      tier: caller.plan,
      type: reason === 'requests' ? 'RPM' : 'TPM',
    });
    if (ownLimit !== undefined) return ownLimit.refusal(state);
    return limitRefusal(modelId, rate, reason, state, nowMs);
  }

  /**
   * Throws 402 below the minimum credit, before work that only callers with credit may cause. Holds
   * nothing. `priceNano`: the price, if it is known by then.
   */
  async requireCredit(
    caller: Caller,
    priceNano: Nano = this.#context.minimumCreditNano(),
  ): Promise<void> {
    // The payment covers at least the minimum top-up, and is taken once the price is known.
    const { payment } = caller;
    if (payment?.quote !== undefined) throw await payment.quote(priceNano);
    if (payment !== undefined) return;
    const { usdNano, diemNano } = await this.#context.ledger.balances(caller.accountId);
    const postedNano = addNano(usdNano, diemNano);
    if (postedNano >= this.#context.minimumCreditNano()) return;
    const refusal = { ok: false, reason: 'balance', postedNano } as const;
    throw await moneyRefusal(this.#context, caller, ZERO, refusal);
  }

  /** Sets the price of a job aside until it ends, also across restarts. Throws 402 or 429. */
  async holdForJob(order: JobOrder): Promise<Hold> {
    const { id, caller, priceNano, tags } = order;
    const price = { minNano: priceNano, maxNano: priceNano };
    const wanted = await withBudgets(
      this.#context,
      holdOf(this.#context, id, caller, price),
      caller,
      tags,
    );
    const durable = { ...wanted, lifetime: 'durable' } as const;
    const placement = await placeHold(this.#context, order, durable);
    if (placement.ok) return placement.hold;
    throw await moneyRefusal(this.#context, caller, priceNano, placement);
  }

  /** Charges a job inside the transaction of one of its steps; a cost of 0 releases its hold. */
  settleJob(tx: Queryable, request: SettleRequest): Promise<Settlement> {
    // Waiting requests are not woken, because this transaction is still open; they poll.
    const { ledger, tagBounds, clock } = this.#context;
    return ledger.settleIn(tx, tagBounds.recorded(request, clock.nowMs()));
  }

  /** Closes the receipt of a job charged while it ran; `false` if it was not charged. */
  closeJob(tx: Queryable, usage: UsageRecord): Promise<boolean> {
    return this.#context.ledger.closeIn(tx, usage);
  }

  /** Refunds such a charge by a posting of its own, once; returns `false` if there is none. */
  refundJob(tx: Queryable, usage: UsageRecord): Promise<boolean> {
    return this.#context.ledger.refundIn(tx, usage);
  }

  /** Returns what an account can spend, for the balance header of responses that charge nothing. */
  async balanceOf(caller: Caller): Promise<Nano> {
    const { usdNano, heldUsdNano } = await this.#context.ledger.funds(caller.accountId);
    return nano(usdNano - heldUsdNano);
  }
}

/** An admitted request: tokens are reserved, and money is held once the price is known. */
export class Sale implements Counted {
  request: SaleRequest;
  window: WindowState;
  readonly reserved: Reservation;
  readonly startedMs: number;
  readonly #startedMonotonicMs: number;
  hold: Hold;
  state: 'counted' | 'held' | 'settled';
  /** Set if the response is stored for retries, in the transaction that settles the sale. */
  keeper: ResponseKeeper | undefined;
  #areTokensCorrected = false;
  readonly #context: SaleContext;

  constructor(
    context: SaleContext,
    request: SaleRequest,
    { state, reserved }: WindowResult & { readonly ok: true },
    startedMs: number,
  ) {
    this.#context = context;
    this.request = request;
    this.hold = NO_HOLD;
    this.state = 'counted';
    this.keeper = request.keeper;
    this.window = state;
    this.reserved = reserved;
    this.startedMs = startedMs;
    this.#startedMonotonicMs = context.clock.monotonicMs();
  }

  /** Sets the model and the price of the response, if they are not the requested ones. */
  servedAs(modelId: string, priceVersion: string): void {
    this.request = { ...this.request, modelId, priceVersion };
  }

  /**
   * Sets the money of a counted request aside once its price is known, after taking its payment.
   * Synchronous without a payment if holds are in memory. Throws 402, 429, and payment errors.
   */
  reserve(price: PriceBounds): void | Promise<void> {
    const { requestId, caller } = this.request;
    const wanted = holdOf(this.#context, requestId, caller, price);
    const { payment, budgets } = caller;
    if (payment !== undefined || (budgets !== undefined && price.maxNano > 0n)) {
      return this.#reserveLater(price, wanted);
    }
    let placed: HoldResult | Promise<HoldResult>;
    try {
      placed = this.#context.ledger.holds.place(wanted);
    } catch (error) {
      placed = Promise.reject(error); // the database is unreachable
    }
    if (placed instanceof Promise || !placed.ok) return this.#reserveLater(price, wanted, placed);
    this.hold = placed.hold;
    this.state = 'held';
  }

  /**
   * Sets the whole amount aside, without waiting for other holds. Returns `false` if credit or a cap
   * does not cover it; then call `reserve`. Takes no payment.
   */
  async reserveAll(amount: Nano): Promise<boolean> {
    const { requestId, caller, metadata } = this.request;
    const whole = holdOf(this.#context, requestId, caller, { minNano: amount, maxNano: amount });
    const wanted = await withBudgets(this.#context, whole, caller, metadata);
    const placed = await this.#context.ledger.holds.place(wanted);
    if (!placed.ok) return false;
    this.hold = placed.hold;
    this.state = 'held';
    return true;
  }

  async #reserveLater(
    price: PriceBounds,
    wanted: HoldRequest,
    placed?: HoldResult | Promise<HoldResult>,
  ): Promise<void> {
    const { caller, rate, ownLimit } = this.request;
    let placement: HoldResult | PaymentTooSmall;
    try {
      // Free requests count against no cap, and create no rows for tag values.
      if (caller.budgets !== undefined && price.maxNano > 0n) {
        const { metadata } = this.request;
        wanted = await withBudgets(this.#context, wanted, caller, metadata);
      }
      placement = await placeHold(this.#context, this.request, wanted, placed);
    } catch (error) {
      // The payment was rejected or the database is unreachable: no tokens were used.
      await this.#correctTokens(0);
      throw error;
    }
    if (placement.ok) {
      this.hold = placement.hold;
      this.state = 'held';
      return;
    }
    await this.#correctTokens(0);
    const refusal = await moneyRefusal(this.#context, caller, price.minNano, placement);
    if (ownLimit !== undefined) throw refusal;
    throw withHeaders(refusal, rateHeaders(this.window, rate, this.startedMs));
  }

  /**
   * Rejects work whose price became known after its hold and exceeds it: 402, or 429 if
   * `neededNano` would be covered without other holds. Releases nothing.
   */
  async rejectExpensive(neededNano: Nano): Promise<never> {
    const { caller } = this.request;
    const spendableNano = withinPayment(caller, this.hold.spendableNano);
    throw await expensiveRefusal(this.#context, caller, spendableNano, neededNano);
  }

  /**
   * Takes the cost, writes the receipt and releases unused capacity. Durable when it resolves.
   * `together` runs in the same transaction as the charge; it may run again after a retry, so it
   * must be idempotent. A request with an idempotency key is charged in the transaction that spends
   * its key. `onCommit`: see `Holds.settle`.
   */
  async settle(outcome: Outcome, together?: Together, onCommit?: OnCommit): Promise<Settlement> {
    const { ledger, waits, observers, tagBounds, clock } = this.#context;
    const { requestId, caller, kind, modelId, priceVersion, metadata, paid } = this.request;
    const { supplierCost } = this.request;
    const { keeper } = this;
    let whileAway: WhileAway | undefined;
    if (keeper !== undefined) {
      ({ outcome, together, whileAway } = keptSettle(keeper, outcome, together));
    }
    const tokens = outcome.tokens ?? NO_TOKENS;
    const usage: UsageRecord = {
      requestId,
      createdMs: this.startedMs,
      accountId: caller.accountId,
      keyId: caller.keyId,
      kind,
      modelId,
      attempts: outcome.attempts ?? 0,
      tokens,
      countedBy: outcome.countedBy ?? 'none',
      priceVersion,
      latencyMs: Math.round(clock.monotonicMs() - this.#startedMonotonicMs),
      status: outcome.status,
      replica: outcome.replica,
      firstTokenMs: outcome.firstTokenMs,
      metadata,
      supplier:
        supplierCost === undefined ? outcome.supplier : supplierCost(outcome, this.startedMs),
      extras: outcome.extras,
    };
    const cost = { costNano: outcome.costNano, usage };
    const request = metadata === undefined ? cost : tagBounds.recorded(cost, clock.nowMs());
    const correction = this.#correctTokens(tokens.prompt + tokens.completion);
    let settlement: Settlement;
    if (together === undefined) {
      settlement = await ledger.holds.settle(request, this.hold, onCommit);
    } else {
      await correction;
      settlement = await ledger.holds.settleWith(request, this.hold, together, whileAway);
      keeper?.kept();
    }
    this.state = 'settled';
    if (waits.count > 0) waits.ended(caller.accountId);
    if (correction !== undefined) await correction;
    if (!settlement.fresh) return settlement;
    if (outcome.costNano > 0n) paid?.();
    for (const observer of observers) observer.settled(this, outcome, settlement);
    return settlement;
  }

  /**
   * Settles and creates the response from what was charged; with SQLite while the charge is flushed
   * to disk. A response that is stored for retries is created and written in the transaction of the
   * settle: while the database is unreachable the settle waits, and then fails without a charge.
   * Throws 409 if another request has its key. `together` runs after that in the same transaction,
   * as in `settle`.
   */
  async answer<A extends SoldResponse>(
    outcome: Outcome,
    make: (settlement: Settlement) => A,
    together?: Together,
  ): Promise<A> {
    const { keeper } = this;
    let made: A | undefined;
    const settlement =
      keeper === undefined && together === undefined
        ? await this.settle(outcome, undefined, (expected) => {
            try {
              made = make(expected);
            } catch {
              // It is called again after the flush, and its error ends the request.
            }
          })
        : await this.settle(outcome, async (tx, settled) => {
            // A repeated settle was charged before: keep the response that was created then.
            if (made === undefined || settled.fresh) made = make(settled);
            await together?.(tx, settled);
            await keeper?.keep(tx, made, { settled, outcome });
          });
    return made ?? make(settlement);
  }

  release(outcome: Omit<Outcome, 'costNano'>): Promise<Settlement> {
    return this.settle({ ...outcome, costNano: ZERO });
  }

  /**
   * Makes the headers show the capacity left after the response. Runs once: a failed settle is
   * followed by a release. Does not fail, since unreleased capacity returns with the next minute.
   */
  #correctTokens(usedTokens: number): void | Promise<void> {
    if (this.window.tokenLimit === 0 || this.#areTokensCorrected) return;
    this.#areTokensCorrected = true;
    const { windows, clock, log } = this.#context;
    const now = windows.correct(this.reserved, usedTokens, clock.nowMs());
    if (now instanceof Promise) {
      return now.then(
        (counters) => {
          if (counters !== undefined) this.window = stateOf(this.window, counters);
        },
        (error: unknown) =>
          log.debug({ reason: reasonOf(error) }, 'Reserved tokens were not corrected'),
      );
    }
    if (now !== undefined) this.window = stateOf(this.window, now);
  }
}

/** Returns the hold request: what its price needs, at most what a payment alone may spend. */
function holdOf(
  { minimumCreditNano }: SaleContext,
  requestId: string,
  caller: Caller,
  price: PriceBounds,
): HoldRequest {
  return {
    requestId,
    accountId: caller.accountId,
    minNano: price.minNano,
    usefulNano: price.usefulNano,
    maxNano: caller.payment === undefined ? price.maxNano : withinPayment(caller, price.maxNano),
    maxIsNamed: price.maxIsNamed,
    // A free model needs no credit.
    floorNano: price.maxNano > 0n ? minimumCreditNano() : ZERO,
    capIds: caller.capId === undefined ? undefined : [caller.capId],
  };
}
