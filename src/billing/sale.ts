/**
 * The one path of a caller's money: limits → hold → run → settle or release. Every flow that sells
 * something goes through `Sales.sell`; there is no other way to charge.
 *
 * A hold is a true upper bound of the cost, so a settle never exceeds it. Whatever happens to the
 * work, its hold has ended when `sell` returns: settled by the work, or else released as failed.
 */
import type { Caller } from '../identity/identity.ts';
import type { Clock } from '../core/clock.ts';
import type { Fault } from '../core/faults.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { type Nano, ZERO, addNano, maxNano, nano } from '../core/money.ts';
import {
  type Hold,
  type HoldAnswer,
  type HoldRequest,
  type Ledger,
  NO_TOKENS,
  type SettleRequest,
  type Settlement,
  type TokenCounts,
  type UsageRecord,
  type UsageStatus,
} from './ledger/ledger.ts';
import type { JoinedAdmissions } from './admissions.ts';
import { CreditWaits, isHeld } from './credit-waits.ts';
import type { FinishedAnswer, Idempotency, IdempotencyToken } from './idempotency/idempotency.ts';
import {
  type WalletRefusal,
  limitRefusal,
  moneyRefusal,
  tooDear,
  withHeaders,
} from './refusals.ts';
import type { Queryable } from '../db/db.ts';
import {
  type Counters,
  type LimitLog,
  type RateRule,
  type Reservation,
  type WindowAnswer,
  type WindowState,
  type Windows,
  type WindowTake,
  rateHeaders,
  stateOf,
} from './limits/limits.ts';

export { type RateRule, addRateHeaders, rateHeaders } from './limits/limits.ts';

/** What counts against the rate limits of a caller. */
export interface CountRequest {
  readonly caller: Caller;
  /** The rate-limit bucket: a model, or the name of an endpoint that has limits of its own. */
  readonly modelId: string;
  readonly rate: RateRule;
  /** About how many tokens it will use, prompt and completion; the settle corrects it. */
  readonly tokensEstimate: number;
  /** Of a route that counts all its models in one bucket and has words of its own for a refusal. */
  readonly ownLimit?: {
    readonly bucket: string;
    readonly refusal: (state: WindowState) => Fault;
  };
}

/** A request that was counted, and the room that it took. */
export interface Counted {
  /** By the estimate until the settle, by the true use after it. */
  window: WindowState;
  readonly reserved: Reservation;
  readonly startedMs: number;
}

/** The least that lets a request run, and the most that it can cost. */
export interface PriceBounds {
  readonly minNano: Nano;
  readonly maxNano: Nano;
  /** What a useful answer costs, and whether the caller named the size: `HoldRequest` of the ledger. */
  readonly usefulNano?: Nano;
  readonly maxIsNamed?: boolean;
}

/** The answer of a sale: missing bytes are too many to be kept for retries. */
export interface SoldAnswer {
  readonly type: string;
  readonly body: Buffer | undefined;
}

/** Keeps the answer of a request for its retries, with what the feature knows of its headers. */
export interface AnswerKeeper {
  readonly token: IdempotencyToken;
  finished(answer: SoldAnswer): FinishedAnswer;
}

export interface SaleRequest extends CountRequest {
  readonly requestId: string;
  /** What is sold: names the usage record. */
  readonly kind: string;
  readonly tier: string;
  /** Missing while the price is not known: the work then calls `Sale.reserve`. */
  readonly price?: PriceBounds;
  readonly priceVersion: string;
  /** Ends the wait for credit that others hold; the caller has left. */
  readonly signal?: AbortSignal;
  /** Told when the request is charged something. */
  readonly paid?: (() => void) | undefined;
  /** Set when the answer is kept for retries. */
  readonly keeper?: AnswerKeeper | undefined;
}

/** What a finished request used. */
export interface Outcome {
  readonly costNano: Nano;
  readonly status: UsageStatus;
  readonly tokens?: TokenCounts;
  readonly countedBy?: UsageRecord['countedBy'];
  readonly attempts?: number;
  readonly replica?: string;
  readonly firstTokenMs?: number;
  readonly extras?: Readonly<Record<string, unknown>>;
}

export interface SalesParts {
  readonly ledger: Ledger;
  readonly windows: Windows;
  /** Counts and holds in one step, where both are rows; else counted first, held second. */
  readonly joined?: JoinedAdmissions | undefined;
  readonly idempotency: Idempotency;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly log: Log;
  /** Posted credit that a caller needs for a priced request. */
  readonly minimumCreditNano: () => Nano;
  /** The 402 of a wallet, with its instructions to top up. */
  readonly walletRefusal: WalletRefusal;
  /** Told of every request that is settled for the first time: metrics and traces. */
  readonly settled?: (sale: Sale, outcome: Outcome, settlement: Settlement) => void;
}

/** Sells the work of one server. */
export class Sales {
  readonly #parts: SalesParts;
  readonly #waits: CreditWaits;

  constructor(parts: SalesParts) {
    this.#parts = parts;
    this.#waits = new CreditWaits(parts.clock);
  }

  /**
   * Counts the request against its limits, sets its money aside and runs the work. Throws 429 or
   * 402, and what the work throws; a caller who has left hears nothing of that: `undefined`.
   */
  async sell<T>(request: SaleRequest, work: (sale: Sale) => Promise<T>): Promise<T | undefined> {
    const sale = await this.#admit(request);
    let failure: unknown;
    try {
      return await work(sale);
    } catch (error) {
      failure = error;
      if (request.signal?.aborted === true) return undefined;
      throw error;
    } finally {
      if (sale.state === 'held') await this.#releaseFailed(sale, failure);
    }
  }

  async #releaseFailed(sale: Sale, failure: unknown): Promise<void> {
    try {
      await sale.release({ status: 'failed' });
    } catch (error) {
      // The first error is the caller's.
      this.#parts.ledger.holds.release(sale.hold);
      const { requestId } = sale.request;
      const fields = { requestId, reason: reasonOf(error), after: reasonOf(failure) };
      this.#parts.log.error(fields, 'A hold could not be released');
    }
  }

  async #admit(request: SaleRequest): Promise<Sale> {
    const { price, caller } = request;
    if (price === undefined) return new Sale(this, request, await this.count(request));
    if (caller.payment !== undefined) await this.#takePayment(caller, price);
    const { joined, clock } = this.#parts;
    const nowMs = clock.nowMs();
    const wanted = this.#holdOf(request, price);
    const answer = await joined?.admit({ take: takeOf(request), hold: wanted, nowMs });
    const taken = answer?.taken ?? (await this.#take(request, nowMs));
    const sale = new Sale(this, request, this.#counted(request, taken, nowMs));
    await this.#setAside(sale, price, wanted, answer?.hold);
    return sale;
  }

  /** For `Sale.reserve`. */
  async reserve(sale: Sale, price: PriceBounds): Promise<void> {
    const { caller } = sale.request;
    if (caller.payment !== undefined) await this.#takePayment(caller, price);
    await this.#setAside(sale, price, this.#holdOf(sale.request, price));
  }

  async #setAside(
    sale: Sale,
    { minNano }: PriceBounds,
    wanted: HoldRequest,
    first?: HoldAnswer,
  ): Promise<void> {
    const { caller, rate, ownLimit, signal } = sale.request;
    let answer: HoldAnswer;
    try {
      answer = first ?? (await this.#parts.ledger.holds.place(wanted));
      if (isHeld(answer)) answer = await this.#waitForCredit(wanted, answer, signal);
    } catch (error) {
      // The database is away: the tokens were not used.
      await this.#correctRoom(sale, 0);
      throw error;
    }
    if (answer.ok) return sale.holds(answer.hold);
    await this.#correctRoom(sale, 0);
    const refusal = moneyRefusal(this.#parts, caller, minNano, answer);
    if (ownLimit !== undefined) throw refusal;
    throw withHeaders(refusal, rateHeaders(sale.window, rate, sale.startedMs));
  }

  /**
   * Takes the payment that came with a request, now that the request is good and its price is
   * known. One that it would not be enough for is refused before any money moves.
   */
  async #takePayment(caller: Caller, { minNano, maxNano: most }: PriceBounds): Promise<void> {
    const { payment } = caller;
    if (payment === undefined) return;
    const least = most > 0n ? maxNano(minNano, this.#parts.minimumCreditNano()) : ZERO;
    const postedNano = await this.#postedOf(caller);
    if (postedNano + payment.amountNano < least) throw this.#unpaid(caller, minNano, postedNano);
    await payment.take();
  }

  async #postedOf(caller: Caller): Promise<Nano> {
    const { usdNano, diemNano } = await this.#parts.ledger.balances(caller.accountId);
    return addNano(usdNano, diemNano);
  }

  #unpaid(caller: Caller, minNano: Nano, postedNano: Nano): Fault {
    return moneyRefusal(this.#parts, caller, minNano, { ok: false, reason: 'balance', postedNano });
  }

  /** Only open holds stand in the way: one of them may end in a moment. */
  #waitForCredit(
    wanted: HoldRequest,
    refused: HoldAnswer,
    signal: AbortSignal | undefined,
  ): Promise<HoldAnswer> {
    const place = () => this.#parts.ledger.holds.place(wanted);
    return this.#waits.retry(wanted.accountId, refused, place, signal);
  }

  /** Counts a request against its limits. Throws 429. */
  async count(request: CountRequest): Promise<Counted> {
    const nowMs = this.#parts.clock.nowMs();
    return this.#counted(request, await this.#take(request, nowMs), nowMs);
  }

  #take(request: CountRequest, nowMs: number): WindowAnswer | Promise<WindowAnswer> {
    return this.#parts.windows.take(takeOf(request), nowMs);
  }

  #counted(request: CountRequest, taken: WindowAnswer, startedMs: number): Counted {
    if (!taken.ok) throw this.#limited(request, taken, startedMs);
    return { window: taken.state, reserved: taken.reserved, startedMs };
  }

  /**
   * Throws 402 for a caller without the least credit: asked before work whose price is known only
   * after something was fetched. Sets nothing aside.
   */
  async requireCredit(caller: Caller): Promise<void> {
    // Its payment is good for the least top-up, and is taken when the price is known.
    if (caller.payment !== undefined) return;
    const postedNano = await this.#postedOf(caller);
    if (postedNano < this.#parts.minimumCreditNano()) throw this.#unpaid(caller, ZERO, postedNano);
  }

  /** Sets the price of a job aside until it ends, also across restarts. Throws 402 or 429. */
  async holdForJob(job: { id: string; caller: Caller; priceNano: Nano }): Promise<Hold> {
    const { id, caller, priceNano } = job;
    const price = { minNano: priceNano, maxNano: priceNano };
    await this.#takePayment(caller, price);
    const wanted: HoldRequest = {
      ...this.#holdOf({ requestId: id, caller }, price),
      lifetime: 'durable',
    };
    let answer = await this.#parts.ledger.holds.place(wanted);
    if (isHeld(answer)) answer = await this.#waitForCredit(wanted, answer, undefined);
    if (!answer.ok) throw moneyRefusal(this.#parts, caller, priceNano, answer);
    return answer.hold;
  }

  /** Ends the hold of a job inside the transaction that makes the job final; a cost of 0 releases it. */
  async settleJob(tx: Queryable, request: SettleRequest): Promise<Settlement> {
    // Whoever waits for its credit looks again by the clock: this transaction is still open.
    return this.#parts.ledger.settleIn(tx, request);
  }

  /** Keeps an answer for its retries inside a transaction; false when another request has its key. */
  keep(tx: Queryable, keeper: AnswerKeeper, answer: SoldAnswer): Promise<boolean> {
    return this.#parts.idempotency.complete(keeper.token, keeper.finished(answer), tx);
  }

  /** What is posted on an account, for the balance header of answers that charge nothing. */
  async balanceOf(caller: Caller): Promise<Nano> {
    return (await this.#parts.ledger.balances(caller.accountId)).usdNano;
  }

  /** For `Sale.tooDear`. */
  tooDear({ request, hold }: Sale, neededNano: Nano): Fault {
    return tooDear(this.#parts, request.caller, hold.reachNano, neededNano);
  }

  /** For `Sale.settle`. */
  async settle(
    sale: Sale,
    outcome: Outcome,
    together?: (tx: Queryable, settlement: Settlement) => Promise<void>,
  ): Promise<Settlement> {
    const tokens = outcome.tokens ?? NO_TOKENS;
    const request = { costNano: outcome.costNano, usage: this.#usageOf(sale, outcome, tokens) };
    const room = this.#correctRoom(sale, tokens.prompt + tokens.completion);
    const { holds } = this.#parts.ledger;
    let settlement: Settlement;
    if (together === undefined) settlement = await holds.settle(request, sale.hold);
    else {
      // What is kept shows the room that is left.
      await room;
      settlement = await holds.settleWith(request, sale.hold, together);
    }
    sale.state = 'settled';
    this.#waits.ended(sale.request.caller.accountId);
    await room;
    if (settlement.fresh) {
      if (outcome.costNano > 0n) sale.request.paid?.();
      this.#parts.settled?.(sale, outcome, settlement);
    }
    return settlement;
  }

  #usageOf(sale: Sale, outcome: Outcome, tokens: TokenCounts): UsageRecord {
    const { request } = sale;
    return {
      requestId: request.requestId,
      createdMs: sale.startedMs,
      accountId: request.caller.accountId,
      keyId: request.caller.keyId,
      kind: request.kind,
      modelId: request.modelId,
      attempts: outcome.attempts ?? 0,
      tokens,
      countedBy: outcome.countedBy ?? 'none',
      priceVersion: request.priceVersion,
      latencyMs: this.#parts.clock.nowMs() - sale.startedMs,
      status: outcome.status,
      ...(outcome.replica === undefined ? {} : { replica: outcome.replica }),
      ...(outcome.firstTokenMs === undefined ? {} : { firstTokenMs: outcome.firstTokenMs }),
      ...(outcome.extras === undefined ? {} : { extras: outcome.extras }),
    };
  }

  /** Does not fail: room that is not given back comes back with the next minute. */
  #correctRoom(counted: Pick<Counted, 'window' | 'reserved'>, usedTokens: number) {
    const { window, reserved } = counted;
    if (window.tokenLimit === 0) return undefined;
    const { windows, clock, log } = this.#parts;
    const now = windows.correct(reserved, usedTokens, clock.nowMs());
    if (!(now instanceof Promise)) return showLeft(counted, now);
    return now.then(
      (counters) => showLeft(counted, counters),
      (error: unknown) => log.debug({ reason: reasonOf(error) }, 'Token room not corrected'),
    );
  }

  #limited(
    request: CountRequest,
    { reason, state }: { readonly reason: 'requests' | 'tokens'; readonly state: WindowState },
    nowMs: number,
  ): Fault {
    const { caller, modelId, rate, ownLimit } = request;
    this.#parts.limitLog.add({
      accountId: caller.accountId,
      keyId: caller.keyId,
      modelId: ownLimit === undefined ? modelId : `${ownLimit.bucket} ${modelId}`,
      tier: caller.plan,
      type: reason === 'requests' ? 'RPM' : 'TPM',
    });
    if (ownLimit !== undefined) return ownLimit.refusal(state);
    return limitRefusal(modelId, rate, reason, state, nowMs);
  }

  #holdOf(
    { requestId, caller }: Pick<SaleRequest, 'requestId' | 'caller'>,
    price: PriceBounds,
  ): HoldRequest {
    return {
      requestId,
      accountId: caller.accountId,
      minNano: price.minNano,
      maxNano: price.maxNano,
      ...(price.usefulNano === undefined ? {} : { usefulNano: price.usefulNano }),
      maxIsNamed: price.maxIsNamed === true,
      // A free model needs no credit.
      floorNano: price.maxNano > 0n ? this.#parts.minimumCreditNano() : nano(0n),
      ...(caller.allowanceId === undefined ? {} : { allowanceId: caller.allowanceId }),
    };
  }
}

/** A request that may run: its tokens have room and, once its price is known, its money is set aside. */
export class Sale implements Counted {
  readonly request: SaleRequest;
  window: WindowState;
  readonly reserved: Reservation;
  readonly startedMs: number;
  /** The money that is set aside: nothing before its price is known. */
  hold: Hold = NO_HOLD;
  state: 'counted' | 'held' | 'settled' = 'counted';
  /** Set when the answer is kept for retries: in the transaction that settles the sale. */
  keeper: AnswerKeeper | undefined;
  readonly #sales: Sales;

  constructor(sales: Sales, request: SaleRequest, counted: Counted) {
    this.#sales = sales;
    this.request = request;
    this.keeper = request.keeper;
    this.window = counted.window;
    this.reserved = counted.reserved;
    this.startedMs = counted.startedMs;
  }

  /** For `Sales`: its money is set aside. */
  holds(hold: Hold): void {
    this.hold = hold;
    this.state = 'held';
  }

  /** Sets the money of a counted request aside, now that its price is known. Throws 402 or 429. */
  reserve(price: PriceBounds): Promise<void> {
    return this.#sales.reserve(this, price);
  }

  /**
   * The refusal of work whose price became known after its hold and is above it: 402, or 429 when
   * `neededNano` would be covered without the holds of others. Releases nothing.
   */
  tooDear(neededNano: Nano): Fault {
    return this.#sales.tooDear(this, neededNano);
  }

  /** Takes the cost, writes the receipt, gives unused room back. Durable when it resolves. */
  settle(outcome: Outcome): Promise<Settlement> {
    return this.#sales.settle(this, outcome);
  }

  /**
   * Settles and makes the answer out of what was charged. An answer that is kept for retries is
   * written in the transaction of the settle, and so made in it, maybe twice; while the database is
   * away it is not kept.
   */
  async answer<A extends SoldAnswer>(
    outcome: Outcome,
    make: (settlement: Settlement) => A,
  ): Promise<A> {
    const { keeper } = this;
    if (keeper === undefined) return make(await this.settle(outcome));
    let made: A | undefined;
    let isKept = false;
    const settlement = await this.#sales.settle(this, outcome, async (tx, settled) => {
      made = make(settled);
      isKept = await this.#sales.keep(tx, keeper, made);
    });
    keeper.token.isSpent = isKept;
    return made ?? make(settlement);
  }

  /** Ends a request that produced nothing to pay for. */
  release(outcome: Omit<Outcome, 'costNano'>): Promise<Settlement> {
    return this.settle({ ...outcome, costNano: ZERO });
  }
}

const NO_HOLD: Hold = {
  requestId: '',
  accountId: '',
  grantedNano: ZERO,
  reachNano: ZERO,
  before: { usdNano: ZERO, diemNano: ZERO },
};

/** From here on the headers of the answer say what is left after it. */
function showLeft(counted: Pick<Counted, 'window'>, counters: Counters | undefined): void {
  if (counters !== undefined) counted.window = stateOf(counted.window, counters);
}

function takeOf(request: CountRequest): WindowTake {
  const { caller, modelId, rate, ownLimit } = request;
  // One bucket a caller and model; a key with limits of its own has one of its own.
  const who = rate.type === 'api_key' ? caller.keyId : caller.accountId;
  return {
    bucket: `${who}|${ownLimit?.bucket ?? modelId}`,
    tokens: request.tokensEstimate,
    requestLimit: rate.requestsPerMinute,
    tokenLimit: rate.tokensPerMinute,
  };
}
