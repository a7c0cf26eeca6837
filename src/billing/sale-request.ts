/** The data of a sale: the request, its price, its response, and its final usage. */
import type { Caller } from '../identity/identity.ts';
import type { Cancelling } from '../core/cancellation.ts';
import type { Fault } from '../core/faults.ts';
import { type Nano, ZERO, nano } from '../core/money.ts';
import type { Queryable } from '../db/db.ts';
import type { KeyFence } from './idempotency/idempotency.ts';
import type {
  Hold,
  RequestMetadata,
  Settlement,
  SupplierCost,
  TokenCounts,
  UsageRecord,
  UsageStatus,
  WhileAway,
} from './ledger/ledger.ts';
import type { RateRule, Reservation, WindowResult, WindowState } from './limits/limits.ts';

export interface LimitOf {
  readonly caller: Caller;
  /** The rate-limit bucket: a model, or the name of an endpoint with limits of its own. */
  readonly modelId: string;
  readonly rate: RateRule;
  /** Set for a route that counts all its requests in one bucket and has its own error text. */
  readonly ownLimit?: {
    readonly bucket: string;
    /** The name in the log of rejections: `endpoint:<path>`. */
    readonly loggedAs: string;
    readonly refusal: (state: WindowState) => Fault;
  };
}

export interface CountRequest extends LimitOf {
  /** Estimated tokens of prompt and completion; the settle corrects it. */
  readonly tokensEstimate: number;
}

export interface Counted {
  /** Based on the estimate until the settle, and on the actual usage after it. */
  window: WindowState;
  readonly reserved: Reservation;
  readonly startedMs: number;
}

export interface PriceBounds {
  readonly minNano: Nano;
  readonly maxNano: Nano;
  /** Cost of a useful completion, and whether the caller set the size; see `WantedHold`. */
  readonly usefulNano?: Nano;
  readonly maxIsNamed?: boolean;
}

/** A sold response. `body` is bytes or a latin1 string, and `undefined` if too large to store. */
export interface SoldResponse {
  readonly type: string;
  readonly body: Buffer | string | undefined;
}

export interface SoldFor {
  readonly settled: Settlement;
  readonly outcome: Outcome;
}

/** Stores the response of a request, in the transaction that settles it. */
export interface ResponseKeeper {
  /** Writes the response. Throws 409 if another request has its key, which undoes the settle. */
  keep(tx: Queryable, response: SoldResponse, sold?: SoldFor): Promise<void>;
  kept(): void;
  /**
   * The key that a charge without a complete response spends. `undefined` if the caller only ever
   * gets the stored response (a line of a batch): then nothing is charged without it.
   */
  readonly charged?: ChargedKey;
}

export interface ChargedKey {
  readonly fence: KeyFence;
  /** Marks the key as spent. Throws 409 if another request has it, which rolls back the charge. */
  spend(tx: Queryable, paidNano: Nano): Promise<void>;
}

export interface SaleRequest extends CountRequest {
  readonly requestId: string;
  readonly kind: string;
  /** `undefined` while the price is unknown; the work then calls `Sale.reserve`. */
  readonly price?: PriceBounds | undefined;
  readonly priceVersion: string;
  readonly metadata?: RequestMetadata | undefined;
  readonly cancellation?: Pick<Cancelling, 'aborted'>;
  /** Throws if no engine can do the work; called before a payment. Default: checks `modelId`. */
  readonly requireReady?: (() => Promise<void>) | undefined;
  readonly paid?: (() => void) | undefined;
  readonly keeper?: ResponseKeeper | undefined;
  /** Cost of the supplier, for an outcome that does not include it. */
  readonly supplierCost?:
    | ((outcome: Outcome, startedMs: number) => SupplierCost | undefined)
    | undefined;
}

export interface JobOrder {
  readonly id: string;
  readonly caller: Caller;
  readonly modelId: string;
  readonly priceNano: Nano;
  readonly tags: RequestMetadata | undefined;
}

export interface Outcome {
  readonly costNano: Nano;
  readonly status: UsageStatus;
  readonly tokens?: TokenCounts;
  readonly countedBy?: UsageRecord['countedBy'];
  readonly attempts?: number;
  readonly replica?: string | undefined;
  readonly firstTokenMs?: number | undefined;
  readonly supplier?: SupplierCost | undefined;
  readonly extras?: Readonly<Record<string, unknown>>;
}

/** Batch work runs on spare capacity, so per-minute limits do not count it. */
export const UNCOUNTED: WindowResult & { readonly ok: true } = {
  ok: true,
  state: { requestLimit: 0, requestsLeft: 0, tokenLimit: 0, tokensLeft: 0, resetsAtMs: 0 },
  reserved: { bucket: '', minute: 0, tokens: 0 },
};

export type Together = (tx: Queryable, settlement: Settlement) => Promise<void>;

interface KeptSettle {
  readonly outcome: Outcome;
  readonly together: Together | undefined;
  readonly whileAway: WhileAway;
}

/**
 * Returns how a sale with a stored response settles: it is charged only in the transaction that
 * stores its response, or that spends its idempotency key. Without `together` there is no complete
 * response to store.
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
    // The produced part reaches no caller, so it is released instead of charged.
    return {
      outcome: { ...outcome, costNano: ZERO, status: 'failed' },
      together,
      whileAway: 'fail',
    };
  }
  if (outcome.costNano === ZERO) return { outcome, together, whileAway: 'fail' };
  // The response broke off after paid text: a retry is not charged again.
  const spend: Together = (tx, settled) => key.spend(tx, chargedBy(settled));
  return { outcome, together: spend, whileAway: key.fence };
}

export function paidFor({ settled }: SoldFor): Nano {
  return chargedBy(settled);
}

function chargedBy({ usdNano, diemNano }: Settlement): Nano {
  return nano(usdNano + diemNano);
}

export const NO_HOLD: Hold = {
  requestId: '',
  accountId: '',
  grantedNano: ZERO,
  dailyNano: ZERO,
  spendableNano: ZERO,
  before: { usdNano: ZERO, diemNano: ZERO },
};
