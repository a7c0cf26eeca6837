/**
 * The one path of a caller's money: limits → hold → run → settle or release. Every flow that sells
 * something goes through it; there is no other way to charge.
 *
 * A hold is a true upper bound of the cost, so a settle never exceeds it. Whatever happens after
 * `admit`, exactly one of `settle` and `release` ends it.
 */
import type { Caller } from '../identity/identity.ts';
import { type Clock, isoTime } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { type Nano, ZERO, addNano, formatUsd, maxNano, nano } from '../core/money.ts';
import {
  type Hold,
  type HoldAnswer,
  type HoldRefusal,
  type HoldRequest,
  type Ledger,
  NO_TOKENS,
  type SettleRequest,
  type Settlement,
  type TokenCounts,
  type UsageRecord,
  type UsageStatus,
} from './ledger/ledger.ts';
import { type Admissions, SteppedAdmissions } from './admissions.ts';
import { takePayment } from './take-payment.ts';
import { CreditWaits, isHeld } from './credit-waits.ts';
import { type Queryable, StoreUnavailable } from '../db/db.ts';
import {
  type Counters,
  type LimitLog,
  type LimitType,
  type Reservation,
  type WindowState,
  type Windows,
  type WindowTake,
  stateOf,
} from './limits/limits.ts';

/** The wait for credit is over: the caller's own retry comes soon, and waits again. */
const HELD_RETRY_SECONDS = 1;

/** The limits of one caller for one model; 0 is none. */
export interface RateRule {
  readonly requestsPerMinute: number;
  readonly tokensPerMinute: number;
  /** Whose limit it is, for `x-ratelimit-type`. */
  readonly type: 'user' | 'api_key' | 'global';
}

/** What counts against the rate limits of a caller. */
export interface CountRequest {
  readonly caller: Caller;
  /** The rate-limit bucket: a model, or the name of an endpoint that has limits of its own. */
  readonly modelId: string;
  readonly rate: RateRule;
  /** About how many tokens it will use, prompt and completion; the settle corrects it. */
  readonly tokensEstimate: number;
}

/** A request that was counted, and the room that it took. */
export interface Counted {
  readonly window: WindowState;
  readonly reserved: Reservation;
  readonly startedMs: number;
}

export interface ChargeRequest extends CountRequest {
  readonly requestId: string;
  /** What is sold: names the usage record. */
  readonly kind: string;
  readonly tier: string;
  /** The least that lets the request run, and the most that it can cost. */
  readonly minNano: Nano;
  readonly maxNano: Nano;
  /** What a useful answer costs, and whether the caller named the size: `HoldWish` of the ledger. */
  readonly usefulNano?: Nano;
  readonly maxIsNamed?: boolean;
  /** Ends the wait for credit that others hold; the caller has left. */
  readonly signal?: AbortSignal;
  /** Told when the request is charged something. */
  readonly paid?: (() => void) | undefined;
  readonly priceVersion: string;
}

/** A request that may run: its money is set aside and its tokens have room. */
export interface Admission {
  readonly request: ChargeRequest;
  readonly hold: Hold;
  /** By the estimate until the settle, by the true use after it. */
  window: WindowState;
  readonly reserved: Reservation;
  readonly startedMs: number;
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

export interface ChargeParts {
  readonly ledger: Ledger;
  readonly windows: Windows;
  /** Default: counted first, held second. */
  readonly admissions?: Admissions;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly log: Log;
  /** Posted credit that a caller needs for a priced request. */
  readonly minimumCreditNano: () => Nano;
  /** The 402 of a wallet, with its instructions to top up. */
  readonly walletRefusal: (
    caller: Caller,
    credit: { readonly balance: Nano; readonly needed: Nano },
  ) => Fault;
  /** Told of every request that is settled for the first time: metrics and traces. */
  readonly settled?: (admission: Admission, outcome: Outcome, settlement: Settlement) => void;
}

export class Charge {
  readonly #parts: ChargeParts;
  readonly #admissions: Admissions;
  readonly #waits: CreditWaits;

  constructor(parts: ChargeParts) {
    this.#parts = parts;
    this.#admissions = parts.admissions ?? new SteppedAdmissions(parts);
    this.#waits = new CreditWaits(parts.clock);
  }

  /** Counts the request against its limits and sets its money aside. Throws 429 or 402. */
  async admit(request: ChargeRequest): Promise<Admission> {
    if (request.caller.payment !== undefined) await this.#takePayment(request);
    const nowMs = this.#parts.clock.nowMs();
    const { rate } = request;
    const wanted = holdOf(request, this.#parts.minimumCreditNano());
    const answer = await this.#admissions.admit({ take: takeOf(request), hold: wanted, nowMs });
    if (answer.step === 'window') {
      throw this.#limited(request, answer.refusal.reason, answer.refusal.state, nowMs);
    }
    const { state, reserved } = answer;
    const hold = isHeld(answer.hold)
      ? await this.#waitForCredit(wanted, answer.hold, request.signal)
      : answer.hold;
    if (!hold.ok) {
      const counted = { window: state, reserved };
      await this.#correctRoom(counted, 0);
      throw withHeaders(this.#refused(request, hold), rateHeaders(counted.window, rate, nowMs));
    }
    return { request, hold: hold.hold, window: state, reserved, startedMs: nowMs };
  }

  async #takePayment(wish: Pick<ChargeRequest, 'caller' | 'minNano' | 'maxNano'>): Promise<void> {
    const least = wish.maxNano > 0n ? maxNano(wish.minNano, this.#parts.minimumCreditNano()) : ZERO;
    const refusal = await takePayment(this.#parts.ledger, wish.caller, least);
    if (refusal !== undefined) throw this.#refused(wish, refusal);
  }

  /** Sets money aside, after a short wait where only open holds stand in the way. */
  async #hold(wanted: HoldRequest, signal?: AbortSignal): Promise<HoldAnswer> {
    const answer = await this.#parts.ledger.hold(wanted);
    return isHeld(answer) ? this.#waitForCredit(wanted, answer, signal) : answer;
  }

  #waitForCredit(
    wanted: HoldRequest,
    refused: HoldAnswer,
    signal: AbortSignal | undefined,
  ): Promise<HoldAnswer> {
    const place = () => this.#parts.ledger.hold(wanted);
    return this.#waits.retry(wanted.accountId, refused, place, signal);
  }

  /** Counts a request whose price is not known yet against its limits. Throws 429. */
  async count(request: CountRequest): Promise<Counted> {
    const nowMs = this.#parts.clock.nowMs();
    const taken = await this.#parts.windows.take(takeOf(request), nowMs);
    if (!taken.ok) throw this.#limited(request, taken.reason, taken.state, nowMs);
    return { window: taken.state, reserved: taken.reserved, startedMs: nowMs };
  }

  /** Sets the money of a counted request aside, now that its price is known. Throws 402 or 429. */
  async admitCounted(request: ChargeRequest, counted: Counted): Promise<Admission> {
    if (request.caller.payment !== undefined) await this.#takePayment(request);
    const { window, startedMs } = counted;
    const wanted = holdOf(request, this.#parts.minimumCreditNano());
    const answer = await this.#hold(wanted, request.signal);
    if (answer.ok) return { request, hold: answer.hold, ...counted };
    const headers = rateHeaders(window, request.rate, startedMs);
    throw withHeaders(this.#refused(request, answer), headers);
  }

  /**
   * Throws 402 for a caller without the least credit: asked before work whose price is known only
   * after something was fetched. Sets nothing aside.
   */
  async requireCredit(caller: Caller): Promise<void> {
    // Its payment is good for the least top-up, and is taken when the price is known.
    if (caller.payment !== undefined) return;
    const { usdNano, diemNano } = await this.#parts.ledger.balances(caller.accountId);
    const posted = addNano(usdNano, diemNano);
    if (posted >= this.#parts.minimumCreditNano()) return;
    const refusal = { ok: false, reason: 'balance', postedNano: posted } as const;
    throw this.#refused({ caller, minNano: ZERO }, refusal);
  }

  /** Sets the price of a job aside until it ends, also across restarts. Throws 402 or 429. */
  async holdForJob(job: { id: string; caller: Caller; priceNano: Nano }): Promise<Hold> {
    const { id, caller, priceNano } = job;
    const wish = { requestId: id, caller, minNano: priceNano, maxNano: priceNano };
    if (caller.payment !== undefined) await this.#takePayment(wish);
    const hold = holdOf(wish, this.#parts.minimumCreditNano());
    const answer = await this.#hold({ ...hold, lifetime: 'durable' });
    if (!answer.ok) throw this.#refused(wish, answer);
    return answer.hold;
  }

  /** Ends the hold of a job inside the transaction that makes the job final; a cost of 0 releases it. */
  async settleJob(tx: Queryable, request: SettleRequest): Promise<Settlement> {
    // Whoever waits for its credit looks again by the clock: this transaction is still open.
    return this.#parts.ledger.settleIn(tx, request);
  }

  /** What is posted on an account, for the balance header of answers that charge nothing. */
  async balanceOf(caller: Caller): Promise<Nano> {
    return (await this.#parts.ledger.balances(caller.accountId)).usdNano;
  }

  /**
   * The refusal of work whose price became known after its hold and is above it: 402, or 429 when
   * `neededNano` would be covered without the holds of others. Releases nothing.
   */
  tooDear(admission: Admission, neededNano: Nano): Fault {
    const { caller } = admission.request;
    const { reachNano } = admission.hold;
    if (reachNano >= neededNano) return creditHeld();
    if (caller.kind === 'wallet') {
      const needed = maxNano(neededNano, this.#parts.minimumCreditNano());
      return this.#parts.walletRefusal(caller, { balance: reachNano, needed });
    }
    return new Fault('INSUFFICIENT_BALANCE', {
      message: `The balance is too low for this request: with its files, pages and search results it can cost ${formatUsd(neededNano, 6)} USD and ${formatUsd(reachNano, 6)} USD are available; add credit (INSUFFICIENT_BALANCE)`,
    });
  }

  /**
   * Takes the cost, writes the receipt, gives unused room back. Durable when it resolves.
   * `together` runs in the transaction of the settle, maybe twice: what it writes through `tx`
   * exists exactly when the charge does. While the database is away it is left out.
   */
  async settle(
    admission: Admission,
    outcome: Outcome,
    together?: (tx: Queryable, settlement: Settlement) => Promise<void>,
  ): Promise<Settlement> {
    const tokens = outcome.tokens ?? NO_TOKENS;
    const usage = this.#usageOf(admission, outcome, tokens);
    const request = { costNano: outcome.costNano, usage };
    const room = this.#correctRoom(admission, tokens.prompt + tokens.completion);
    const settlement = await (together === undefined
      ? this.#parts.ledger.settle(request, admission.hold)
      : this.#settleTogether(request, admission.hold, together));
    this.#waits.ended(admission.request.caller.accountId);
    await room;
    if (settlement.fresh) {
      if (outcome.costNano > 0n) admission.request.paid?.();
      this.#parts.settled?.(admission, outcome, settlement);
    }
    return settlement;
  }

  async #settleTogether(
    request: SettleRequest,
    hold: Hold,
    together: (tx: Queryable, settlement: Settlement) => Promise<void>,
  ): Promise<Settlement> {
    const { ledger } = this.#parts;
    try {
      return await ledger.settleWith(request, together);
    } catch (error) {
      // The charge alone can wait in the journal; what goes with it cannot.
      if (error instanceof StoreUnavailable) return ledger.settle(request, hold);
      throw error;
    }
  }

  /** Ends a request that produced nothing to pay for. */
  async release(admission: Admission, outcome: Omit<Outcome, 'costNano'>): Promise<Settlement> {
    return this.settle(admission, { ...outcome, costNano: ZERO });
  }

  #usageOf(admission: Admission, outcome: Outcome, tokens: TokenCounts): UsageRecord {
    const { request } = admission;
    return {
      requestId: request.requestId,
      createdMs: admission.startedMs,
      accountId: request.caller.accountId,
      keyId: request.caller.keyId,
      kind: request.kind,
      modelId: request.modelId,
      attempts: outcome.attempts ?? 0,
      tokens,
      countedBy: outcome.countedBy ?? 'none',
      priceVersion: request.priceVersion,
      latencyMs: this.#parts.clock.nowMs() - admission.startedMs,
      status: outcome.status,
      ...(outcome.replica === undefined ? {} : { replica: outcome.replica }),
      ...(outcome.firstTokenMs === undefined ? {} : { firstTokenMs: outcome.firstTokenMs }),
      ...(outcome.extras === undefined ? {} : { extras: outcome.extras }),
    };
  }

  /** Does not fail: room that is not given back comes back with the next minute. */
  #correctRoom(
    counted: Pick<Admission, 'window' | 'reserved'>,
    usedTokens: number,
  ): void | Promise<void> {
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
    reason: 'requests' | 'tokens',
    state: WindowState,
    nowMs: number,
  ): Fault {
    const type: LimitType = reason === 'requests' ? 'RPM' : 'TPM';
    this.#parts.limitLog.add({
      accountId: request.caller.accountId,
      keyId: request.caller.keyId,
      modelId: request.modelId,
      tier: request.caller.plan,
      type,
    });
    const limit = reason === 'requests' ? state.requestLimit : state.tokenLimit;
    const seconds = Math.max(1, Math.ceil((state.resetsAtMs - nowMs) / 1_000));
    return new Fault('RATE_LIMIT_EXCEEDED', {
      message: `The limit of ${limit} ${reason} per minute for ${request.modelId} is reached; try again in ${seconds} s`,
      retryAfterSeconds: seconds,
      headers: rateHeaders(state, request.rate, nowMs),
    });
  }

  #refused(
    { caller, minNano }: Pick<ChargeRequest, 'caller' | 'minNano'>,
    refusal: HoldRefusal,
  ): Fault {
    if (refusal.reason === 'held') return creditHeld();
    if (refusal.reason === 'balance') {
      const needed = maxNano(minNano, this.#parts.minimumCreditNano());
      if (caller.kind === 'wallet') {
        return this.#parts.walletRefusal(caller, { balance: refusal.postedNano, needed });
      }
      return new Fault('INSUFFICIENT_BALANCE', {
        message: `The balance is too low for this request: ${formatUsd(refusal.postedNano, 6)} USD is posted and at least ${formatUsd(needed, 6)} USD is needed; add credit (INSUFFICIENT_BALANCE)`,
      });
    }
    return capRefusal(refusal, caller.kind === 'wallet' ? 'wallet token' : 'API key');
  }
}

/** From here on the headers of the answer say what is left after it. */
function showLeft(counted: Pick<Admission, 'window'>, counters: Counters | undefined): void {
  if (counters !== undefined) counted.window = stateOf(counted.window, counters);
}

function withHeaders(fault: Fault, headers: Readonly<Record<string, string>>): Fault {
  const message = fault.message;
  return new Fault(fault.code, {
    ...fault.options,
    message,
    headers: { ...fault.options.headers, ...headers },
  });
}

/** Credit is there and held by requests that run: the same request can succeed in a moment. */
function creditHeld(): Fault {
  return new Fault('CREDIT_HELD', { retryAfterSeconds: HELD_RETRY_SECONDS });
}

function capRefusal(
  refusal: Exclude<HoldRefusal, { reason: 'balance' | 'held' }>,
  holder: 'wallet token' | 'API key',
): Fault {
  const isUsd = refusal.reason === 'allowance-usd';
  const currency = isUsd ? 'USD' : 'DIEM';
  const resets =
    refusal.resetsAtMs === undefined
      ? 'it does not reset'
      : `it resets at ${isoTime(refusal.resetsAtMs)}`;
  return new Fault(
    isUsd ? 'API_KEY_USD_SPEND_LIMIT_EXCEEDED' : 'API_KEY_DIEM_SPEND_LIMIT_EXCEEDED',
    {
      message: `The spend limit of this ${holder} is reached: ${formatUsd(refusal.spentNano, 6)} of ${formatUsd(refusal.limitNano, 6)} ${currency} is spent; ${resets}`,
      canRetry: false,
      fields: {
        limit: {
          currency,
          amount: formatUsd(refusal.limitNano, 6),
          spent: formatUsd(refusal.spentNano, 6),
          resetsAt: refusal.resetsAtMs === undefined ? null : isoTime(refusal.resetsAtMs),
        },
      },
    },
  );
}

function takeOf(request: CountRequest): WindowTake {
  return {
    bucket: bucketOf(request),
    tokens: request.tokensEstimate,
    requestLimit: request.rate.requestsPerMinute,
    tokenLimit: request.rate.tokensPerMinute,
  };
}

/** One bucket a caller and model; a key with limits of its own has one of its own. */
function bucketOf(request: CountRequest): string {
  const { caller, rate } = request;
  const who = rate.type === 'api_key' ? caller.keyId : caller.accountId;
  return `${who}|${request.modelId}`;
}

function holdOf(
  request: Pick<
    ChargeRequest,
    'requestId' | 'caller' | 'minNano' | 'usefulNano' | 'maxNano' | 'maxIsNamed'
  >,
  minimumCredit: Nano,
): HoldRequest {
  const { caller } = request;
  return {
    requestId: request.requestId,
    accountId: caller.accountId,
    minNano: request.minNano,
    maxNano: request.maxNano,
    ...(request.usefulNano === undefined ? {} : { usefulNano: request.usefulNano }),
    maxIsNamed: request.maxIsNamed === true,
    // A free model needs no credit.
    floorNano: request.maxNano > 0n ? minimumCredit : nano(0n),
    ...(caller.allowanceId === undefined ? {} : { allowanceId: caller.allowanceId }),
  };
}

/** Adds the rate-limit headers in their units: requests reset at a Unix time, tokens in seconds. */
export function addRateHeaders(
  headers: Record<string, string>,
  state: WindowState,
  rate: RateRule,
  nowMs: number,
): void {
  if (state.requestLimit > 0) {
    headers['x-ratelimit-limit-requests'] = String(state.requestLimit);
    headers['x-ratelimit-remaining-requests'] = String(state.requestsLeft);
    headers['x-ratelimit-reset-requests'] = String(Math.ceil(state.resetsAtMs / 1_000));
  }
  if (state.tokenLimit > 0) {
    headers['x-ratelimit-limit-tokens'] = String(state.tokenLimit);
    headers['x-ratelimit-remaining-tokens'] = String(state.tokensLeft);
    headers['x-ratelimit-reset-tokens'] = String(
      Math.max(0, Math.ceil((state.resetsAtMs - nowMs) / 1_000)),
    );
  }
  if (state.requestLimit > 0 || state.tokenLimit > 0) headers['x-ratelimit-type'] = rate.type;
}

/** The same, for an answer that has no others. */
export function rateHeaders(
  state: WindowState,
  rate: RateRule,
  nowMs: number,
): Record<string, string> {
  const headers: Record<string, string> = {};
  addRateHeaders(headers, state, rate, nowMs);
  return headers;
}
