/**
 * The shapes that go in and out of the ledger, and the usage record that each settle writes.
 */
import type { KeyFence } from '../idempotency/idempotency.ts';
import type { Nano } from '../../core/money.ts';
import type { Queryable } from '../../db/db.ts';
import type { HoldRefusal, OpenAmounts, WantedHold } from '../rules/plan.ts';

/** Where an amount comes from or goes to when it is not a caller's account. */
export type HouseAccount =
  | 'house:revenue'
  | 'house:operator-credit'
  | 'house:daily-credit'
  | 'house:top-up:base'
  | 'house:top-up:solana'
  | 'house:payout:base'
  | 'house:payout:solana'
  /** What reversals could not take back from callers and callers have not made good since. */
  | 'house:bad-debt';

/** `REVERSAL` takes back a credit whose money is gone, `DEBT` makes good what that could not take. */
export type TransferKind =
  | 'CHARGE'
  | 'TOP_UP'
  | 'CREDIT'
  | 'REFUND'
  | 'PAYOUT'
  | 'REVERSAL'
  | 'DEBT';

export interface HoldRequest extends WantedHold {
  readonly requestId: string;
  readonly accountId: string;
  /** Caps that it counts against: of its key, of the keys above that, of budgets. Never empty. */
  readonly capIds?: readonly string[] | undefined;
  /** Holds of queued jobs outlive the process; the others end with its epoch. */
  readonly lifetime?: 'process' | 'durable';
}

/** Money set aside for one request. */
export interface Hold {
  readonly requestId: string;
  readonly accountId: string;
  /** Daily credit plus USD: the most that the settle can take. */
  readonly grantedNano: Nano;
  /** The daily credit in it, which pays first. */
  readonly dailyNano: Nano;
  /** The most that could have been granted if no other hold were open. */
  readonly spendableNano: Nano;
  /** What was posted before this hold, for the balance headers. */
  readonly before: Balances;
}

export interface Balances {
  readonly usdNano: Nano;
  readonly diemNano: Nano;
}

export type HoldResult = { readonly ok: true; readonly hold: Hold } | HoldRefusal;

/** Tokens by kind; `prompt` includes cached and cache-write tokens, `completion` the reasoning. */
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

/** How a request ended, as its receipt says. */
/** `running` is a job that was charged and has not ended. */
export type UsageStatus = 'completed' | 'aborted' | 'failed' | 'expired' | 'running';

/** Tags of a request by name: a user, a project. Their sums are kept by name and value. */
export type RequestMetadata = Readonly<Record<string, string>>;

/** What one request used: the receipt. */
export interface UsageRecord {
  readonly requestId: string;
  readonly createdMs: number;
  readonly accountId: string;
  /** Id of the API key; empty for a wallet. */
  readonly keyId: string;
  readonly kind: string;
  readonly modelId: string;
  readonly replica?: string | undefined;
  readonly attempts: number;
  readonly tokens: TokenCounts;
  /** Who counted: the engine's usage object, this server by the bytes of the text, or nobody. */
  readonly countedBy: 'engine' | 'bytes' | 'none';
  readonly priceVersion: string;
  readonly latencyMs: number;
  readonly firstTokenMs?: number | undefined;
  readonly status: UsageStatus;
  /** What the caller tagged the request with; never empty. */
  readonly metadata?: RequestMetadata | undefined;
  /** Priced extras of the request (searches, pages, credits, seconds), for the receipt. */
  readonly extras?: Readonly<Record<string, unknown>> | undefined;
}

export interface SettleRequest {
  readonly costNano: Nano;
  readonly usage: UsageRecord;
  /** Caps that the charge counts in when its hold is gone; default: that of its key. */
  readonly capIds?: readonly string[] | undefined;
}

export interface Settlement {
  /** `false` when this request was settled before: nothing was charged now. */
  readonly fresh: boolean;
  readonly usdNano: Nano;
  readonly diemNano: Nano;
  readonly after: Balances;
}

export interface HoldFigures {
  readonly count: number;
  /** USD and daily credit. */
  readonly amountNano: Nano;
}

/**
 * What becomes of a settle with further work while a shared database is unreachable: it goes to the
 * journal without the work (the default), fails, or waits for the database for a while and then fails.
 * With an idempotency key it goes to the journal as well, and is charged from there only if the request
 * still has its key.
 */
export type WhileAway = 'drop-work' | 'fail' | 'wait' | KeyFence;

/**
 * Where the holds of requests live: in memory, set aside from what is posted where the database is a
 * file of this process, and from what this process has leased where it is shared.
 */
export interface Holds {
  /** Sets money aside for a request, or says why not. A crash undoes it, unless it is durable. */
  place(request: HoldRequest): HoldResult | Promise<HoldResult>;
  /** Takes the cost and writes the receipt; resolves when both are on disk. */
  settle(request: SettleRequest, hold: Hold): Promise<Settlement>;
  /**
   * Settles and does further work in the same transaction, so that neither happens without the
   * other. `work` may run twice, and has no effect outside `tx`.
   */
  settleWith(
    request: SettleRequest,
    hold: Hold,
    work: (tx: Queryable, settlement: Settlement) => Promise<void>,
    whileAway?: WhileAway,
  ): Promise<Settlement>;
  /** Gives a hold back whose settle has failed for good. */
  release(hold: Hold): void;
  /**
   * Has every process give back what it has leased of an account and does not use, so that a debit
   * finds it; takes a moment at most. `undefined` where nothing can be leased.
   */
  recall(accountId: string): Promise<void> | undefined;
  /** USD of an account that is set aside without being in a row. */
  heldOf(accountId: string): bigint;
  /** What open requests of this process have set aside in its memory, of the day's credit as well. */
  openOf(accountId: string, day: number): OpenAmounts;
  /** Open holds that are no rows. */
  figures(): HoldFigures;
  /** Open holds of requests of this process that are rows. */
  rowFigures(): HoldFigures;
  /** Settles that wait in the local journal for the database to come back. */
  readonly journaled: number;
  /** Processes that share the ledger, this one included, as last seen. */
  readonly processes: number;
  /** Processes that had the data folder before this one and have ended for sure, as found at its start. */
  readonly endedBefore: readonly string[];
  /** Another process has ended for sure: what it held and had leased is given back at once. */
  processEnded(processId: string): Promise<void>;
  start(): Promise<void>;
  /** Does not throw for a lost database. */
  stop(): Promise<void>;
}
