/** What is sold: the request, its price, its answer, and what it used in the end. */
import type { Caller } from '../identity/identity.ts';
import type { Cancelling } from '../core/cancellation.ts';
import type { Fault } from '../core/faults.ts';
import { type Nano, ZERO, nano } from '../core/money.ts';
import type { Queryable } from '../db/db.ts';
import type { KeyFence } from './idempotency/idempotency.ts';
import type {
  RequestMetadata,
  Settlement,
  TokenCounts,
  UsageRecord,
  UsageStatus,
  WhileAway,
} from './ledger/ledger.ts';
import {
  type RateRule,
  type Reservation,
  type WindowResult,
  type WindowState,
  type WindowTake,
  bucketOf,
} from './limits/limits.ts';

/** A limit of a caller. */
export interface LimitOf {
  readonly caller: Caller;
  /** The rate-limit bucket: a model, or the name of an endpoint that has limits of its own. */
  readonly modelId: string;
  readonly rate: RateRule;
  /** Of a route that counts all it does in one bucket and has words of its own for a refusal. */
  readonly ownLimit?: {
    readonly bucket: string;
    /** What the log of refusals names: `endpoint:<path>`. */
    readonly loggedAs: string;
    readonly refusal: (state: WindowState) => Fault;
  };
}

/** What counts against the rate limits of a caller. */
export interface CountRequest extends LimitOf {
  /** About how many tokens it will use, prompt and completion; the settle corrects it. */
  readonly tokensEstimate: number;
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

/**
 * The answer of a sale: missing bytes are too many to be kept for retries, and a text has a character
 * for each of them (latin1).
 */
export interface SoldResponse {
  readonly type: string;
  readonly body: Buffer | string | undefined;
}

/** What an answer was sold for; an answer that is kept may be none that was sold. */
export interface SoldFor {
  readonly settled: Settlement;
  readonly outcome: Outcome;
}

/** Keeps the response of a request, in the transaction that settles it. */
export interface ResponseKeeper {
  /**
   * Writes the response, with what is known of its headers. Throws 409 if another request has its key;
   * what it throws undoes the settle.
   */
  keep(tx: Queryable, answer: SoldResponse, sold?: SoldFor): Promise<void>;
  /** Called when the transaction has been committed. */
  kept(): void;
  /**
   * The key that a charge without a complete response spends. Missing if the kept response is all that
   * the caller gets (a line of a batch): then nothing is charged without it.
   */
  readonly charged?: ChargedKey;
}

/** An idempotency key whose request is charged for a response that broke off. */
export interface ChargedKey {
  /** For the settle journal. */
  readonly fence: KeyFence;
  /** Marks the key as spent. Throws 409 if another request has it, which undoes the charge. */
  spend(tx: Queryable, paidNano: Nano): Promise<void>;
}

export interface SaleRequest extends CountRequest {
  readonly requestId: string;
  /** What is sold: names the usage record. */
  readonly kind: string;
  /** Missing while the price is not known: the work then calls `Sale.reserve`. */
  readonly price?: PriceBounds | undefined;
  readonly priceVersion: string;
  /** What the caller tagged the request with, for its receipt and the sums by tag; never empty. */
  readonly metadata?: RequestMetadata | undefined;
  /** Ends the wait for credit that others hold; the caller has left. */
  readonly cancellation?: Pick<Cancelling, 'aborted'>;
  /**
   * Throws when nothing could do the work now: asked before a payment for it is taken. Missing for work
   * of the model `modelId`, which `SalesParts` asks about.
   */
  readonly requireReady?: (() => Promise<void>) | undefined;
  /** Told when the request is charged something. */
  readonly paid?: (() => void) | undefined;
  /** Set when the answer is kept for retries. */
  readonly keeper?: ResponseKeeper | undefined;
}

/** A job whose price is held until it ends. */
export interface JobOrder {
  readonly id: string;
  readonly caller: Caller;
  readonly modelId: string;
  readonly priceNano: Nano;
  readonly tags: RequestMetadata | undefined;
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

/** The outcome of a request whose result nobody receives: it is released in place of a charge. */
export function undelivered(outcome: Outcome): Outcome {
  return { ...outcome, costNano: ZERO, status: 'failed' };
}

/** What a request takes from the window of its rate limit. */
export function takeOf({
  caller,
  modelId,
  rate,
  ownLimit,
  tokensEstimate,
}: CountRequest): WindowTake {
  return {
    bucket: bucketOf(caller, rate, ownLimit?.bucket ?? modelId),
    tokens: tokensEstimate,
    requestLimit: rate.requestsPerMinute,
    tokenLimit: rate.tokensPerMinute,
  };
}

/** Work of a batch runs when there is capacity to spare: the limits of a minute do not count it. */
export const UNCOUNTED: WindowResult & { readonly ok: true } = {
  ok: true,
  state: { requestLimit: 0, requestsLeft: 0, tokenLimit: 0, tokensLeft: 0, resetsAtMs: 0 },
  reserved: { bucket: '', minute: 0, tokens: 0 },
};

/** Work of the transaction that settles a sale. */
export type Together = (tx: Queryable, settlement: Settlement) => Promise<void>;

interface KeptSettle {
  readonly outcome: Outcome;
  readonly together: Together | undefined;
  readonly whileAway: WhileAway;
}

/**
 * How a sale settles whose response is kept: it is charged in the transaction that keeps its response,
 * or spends its idempotency key, and in no other one. Without `together` there is no complete
 * response to keep.
 */
export function keptSettle(
  { charged: key }: ResponseKeeper,
  outcome: Outcome,
  together: Together | undefined,
): KeptSettle {
  if (together !== undefined) {
    return { outcome, together, whileAway: key === undefined ? 'fail' : 'wait' };
  }
  if (key === undefined) {
    // Nobody gets what was produced until then.
    return { outcome: undelivered(outcome), together, whileAway: 'fail' };
  }
  if (outcome.costNano === ZERO) return { outcome, together, whileAway: 'fail' };
  // The response broke off after text that is paid for: a retry is not charged again.
  const spend: Together = (tx, settled) => key.spend(tx, chargedBy(settled));
  return { outcome, together: spend, whileAway: key.fence };
}

/** What was charged for a response, in USD and daily credit together. */
export function paidFor({ settled }: SoldFor): Nano {
  return chargedBy(settled);
}

function chargedBy({ usdNano, diemNano }: Settlement): Nano {
  return nano(usdNano + diemNano);
}
