/** The inputs and results of the ledger, and the usage record that each settle writes. */
import type { KeyFence } from '../idempotency/idempotency.ts';
import type { Nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import type { HoldRefusal, OpenAmounts, WantedHold } from '../rules.ts';

export type HouseAccount =
  | 'house:revenue'
  | 'house:operator-credit'
  | 'house:daily-credit'
  | `house:${'top-up' | 'payout'}:${'base' | 'solana' | 'stripe' | 'shop'}`
  | `house:${'top-up' | 'payout'}:eip155:${string}`
  | `house:${'card-fees' | 'fees-paid'}:${'stripe' | 'shop'}`
  | 'house:bad-debt';

/** `REVERSAL` takes back a credit whose money is gone; `DEBT` is the uncovered part. */
export type TransferKind =
  | 'CHARGE'
  | 'TOP_UP'
  | 'CREDIT'
  | 'REFUND'
  | 'PAYOUT'
  | 'REVERSAL'
  | 'DEBT'
  | 'FEE';

export interface HoldRequest extends WantedHold {
  readonly requestId: string;
  readonly accountId: string;
  /** Caps that it counts against: of its key, of parent keys, of budgets. Never empty. */
  readonly capIds?: readonly string[] | undefined;
  /** Holds of queued jobs (`durable`) outlive the process; the others end with its epoch. */
  readonly lifetime?: 'process' | 'durable';
}

export interface Hold {
  readonly requestId: string;
  readonly accountId: string;
  /** Daily credit plus USD: the most that the settle can take. */
  readonly grantedNano: Nano;
  readonly dailyNano: Nano;
  /** The most that could have been granted without other open holds. */
  readonly spendableNano: Nano;
  /** The balances posted before this hold, for the balance headers. */
  readonly before: Balances;
}

export interface Balances {
  readonly usdNano: Nano;
  readonly diemNano: Nano;
}

export type HoldResult = { readonly ok: true; readonly hold: Hold } | HoldRefusal;

/** Token counts; `prompt` includes cached and cache-write, `completion` includes reasoning. */
export interface TokenCounts {
  readonly prompt: number;
  readonly completion: number;
  readonly cached: number;
  readonly cacheWrite: number;
  readonly reasoning: number;
}

export const NO_TOKENS: TokenCounts = {
  prompt: 0,
  completion: 0,
  cached: 0,
  cacheWrite: 0,
  reasoning: 0,
};

/** The final status on a receipt; `running` is a job that was charged and has not ended. */
export type UsageStatus = 'completed' | 'aborted' | 'failed' | 'expired' | 'running';

/** Tags of a request by name, such as a user or a project. Sums are kept by name and value. */
export type RequestMetadata = Readonly<Record<string, string>>;

/** Cost of a request at the prices that the supplier of its engine charges. Only for operators. */
export interface SupplierCost {
  readonly nano: Nano;
  /** Each kind of work with its quantity, and its price in USD as decimal text. */
  readonly lines: readonly (readonly [kind: string, count: number, price: string])[];
}

export interface UsageRecord {
  readonly requestId: string;
  readonly createdMs: number;
  readonly accountId: string;
  readonly keyId: string;
  readonly kind: string;
  readonly modelId: string;
  readonly replica?: string | undefined;
  readonly attempts: number;
  readonly tokens: TokenCounts;
  /** Source of the token counts: the engine, this server's estimate by bytes, or none. */
  readonly countedBy: 'engine' | 'bytes' | 'none';
  readonly priceVersion: string;
  readonly latencyMs: number;
  readonly firstTokenMs?: number | undefined;
  readonly status: UsageStatus;
  readonly metadata?: RequestMetadata | undefined;
  readonly supplier?: SupplierCost | undefined;
  /** Priced extras of the request (searches, pages, credits, seconds), for the receipt. */
  readonly extras?: Readonly<Record<string, unknown>> | undefined;
}

export interface SettleRequest {
  readonly costNano: Nano;
  readonly usage: UsageRecord;
}

export interface Settlement {
  /** `false` if this request was settled before: nothing was charged now. */
  readonly fresh: boolean;
  readonly usdNano: Nano;
  readonly diemNano: Nano;
  readonly after: Balances;
}

/**
 * Receives the result of a settle after its commit and before its flush to disk, so that other work
 * runs meanwhile (SQLite only). Called at most once; must not throw. The settle can still fail.
 */
export type OnCommit = (settlement: Settlement) => void;

export interface HoldFigures {
  readonly count: number;
  readonly amountNano: Nano;
}

/**
 * How a settle with further work behaves while a shared database is unreachable. `drop-work` (the
 * default): goes to the journal without the work. `fail`: fails. `wait`: waits for a limited time,
 * then fails. An idempotency key: goes to the journal, and is charged from there only if the
 * request still has the key.
 */
export type WhileAway = 'drop-work' | 'fail' | 'wait' | KeyFence;

/**
 * Places and ends the holds of requests. Holds are in memory: with SQLite they are set aside from
 * the posted balance, with a shared database from the leases of this process.
 */
export interface Holds {
  /** Sets money aside, or returns why not. A crash undoes it, unless it is durable. */
  place(request: HoldRequest): HoldResult | Promise<HoldResult>;
  settle(request: SettleRequest, hold: Hold, onCommit?: OnCommit): Promise<Settlement>;
  /** Settles and runs `work` in one transaction; `work` may run twice, so it must use only `tx`. */
  settleWith(
    request: SettleRequest,
    hold: Hold,
    work: (tx: Queryable, settlement: Settlement) => Promise<void>,
    whileAway?: WhileAway,
  ): Promise<Settlement>;
  /** Releases a hold whose settle has failed permanently. */
  release(hold: Hold): void;
  /**
   * Makes every process release what it leases of an account and does not use, so that a debit
   * finds it; bounded by a short time limit. Returns `undefined` if leases do not exist (SQLite).
   */
  recall(accountId: string): Promise<void> | undefined;
  /** Notifies other processes, when `tx` commits, that leases of an account are outdated. */
  changed(tx: Queryable, accountId: string): Promise<void> | undefined;
  /** USD of an account that is set aside in memory only. */
  heldOf(accountId: string): bigint;
  /** Amounts that requests of this process hold in memory: USD, and daily credit of `day`. */
  openOf(accountId: string, day: number): OpenAmounts;
  figures(): HoldFigures;
  rowFigures(): HoldFigures;
  readonly journaled: number;
  /** Number of processes that share the ledger, this one included, at the last check. */
  readonly processes: number;
  /** Earlier processes on the data folder that have certainly ended, as found at the start. */
  readonly endedBefore: readonly string[];
  /** Releases the holds and leases of another process that has certainly ended. */
  processEnded(processId: string): Promise<void>;
  start(): Promise<void>;
  /** Does not throw if the database is unreachable. */
  stop(): Promise<void>;
}
