/** The options of `openPayments`, and the services that are shared inside this folder. */
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import type { Queryable, Store } from '../db/db.ts';
import type { Rail } from './rail.ts';
import type { RequirementOptions } from './requirements.ts';
import type { Amounts, PaymentSettings } from './settings.ts';
import type { Signing } from './extensions/signing.ts';
import type { TokenCaps } from './sign-in/wallet-tokens.ts';
import type { CreditEntry } from './top-up-records.ts';
import type { TopUpTable } from './top-up-table.ts';

interface RefundEntry {
  readonly wallet: string;
  readonly network: string;
  readonly amountNano: Nano;
  readonly refundId: string;
}

/** Postings of the ledger inside a database transaction of payments. */
export interface LedgerPostings {
  /** Returns the new balance. */
  readonly credit: (tx: Queryable, entry: CreditEntry) => Promise<Nano>;
  /** Reverses a credit; returns the part that the balance did not cover, which is a debt. */
  readonly reverse: (tx: Queryable, entry: CreditEntry) => Promise<Nano>;
  /**
   * Returns the rest of the balance that no open request holds. Throws a Fault (`INSUFFICIENT_BALANCE`)
   * if the credit does not cover the refund.
   */
  readonly debitRefund: (tx: Queryable, entry: RefundEntry) => Promise<Nano>;
  /** Reverses the debit of a refund that can never arrive. */
  readonly restoreRefund: (tx: Queryable, entry: RefundEntry) => Promise<Nano>;
  readonly tokenCaps: TokenCaps;
}

export interface PaymentsOptions
  extends
    LedgerPostings,
    Pick<RequirementOptions, 'publicUrl' | 'serviceName' | 'docsUrl' | 'keysUrl'> {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly settings: PaymentSettings;
  readonly basePath?: string;
  /** Prefix of wallet tokens, for example `svc_wallet_`. */
  readonly tokenPrefix: string;
  /** Interval of the queries about a transaction under way; 1 s by default. */
  readonly pollMs?: number;
  /** How long a dead process keeps its payments; 15 s by default. */
  readonly leaseMs?: number;
  /** Called where a crash must lose nothing; tests stop the process there. */
  readonly onStep?: (step: Step) => void | Promise<void>;
}

export interface PaymentServices extends PaymentsOptions {
  readonly pollMs: number;
  readonly leaseMs: number;
  readonly settleWaitMs: number;
  readonly amounts: Amounts;
  readonly signing: Signing | undefined;
  readonly rails: ReadonlyMap<string, Rail>;
  readonly table: TopUpTable;
  readonly owner: string;
}

type Step = 'opened' | 'journaled' | 'settled' | 'credited' | 'vanished' | 'resent' | 'reversed';
