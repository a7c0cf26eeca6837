/**
 * What goes in and out of the top-up machine: the entry for the ledger, the receipt for the caller,
 * and the payment and the attempt as a row remembers them.
 */
import { nano } from '../kernel/money.ts';
import type { Nano } from '../kernel/money.ts';
import type { Queryable } from '../store/store.ts';
import { unitsToNano } from './networks.ts';
import type { SignedPayment } from './payment.ts';
import type { Attempt, Rail } from './rail.ts';
import type { TopUpRow } from './top-up-table.ts';

/** What the ledger is told about a payment; it posts inside `tx` and gives the new balance. */
export interface CreditEntry {
  readonly wallet: string;
  readonly amountNano: Nano;
  /** The signed authorization: unique for ever. */
  readonly paymentKey: string;
  readonly paymentId: string;
  readonly network: string;
  readonly transaction: string;
}

export type Credit = (tx: Queryable, entry: CreditEntry) => Promise<Nano>;

export interface TopUpReceipt {
  readonly wallet: string;
  readonly amountNano: Nano;
  /** The balance right after this credit; missing for who only shows the payment again. */
  readonly newBalanceNano: Nano | undefined;
  readonly paymentId: string;
  readonly network: string;
  readonly transaction: string;
  /** Value of the `PAYMENT-RESPONSE` header. */
  readonly responseHeader: string;
}

/** The four points at which a crash is survivable by design; tests stop the process there. */
export type Step = 'opened' | 'journaled' | 'settled' | 'credited';

/** Runs when the row of the payment was opened, for whoever brought the payment. */
export type OnOpened = () => Promise<void>;

/** Of a payment without a row. */
export const NO_ATTEMPT: Attempt = {
  transaction: undefined,
  raw: undefined,
  startHeight: 0n,
  expiresAt: (1n << 62n) - 1n,
};

/** The journaled attempt of a row. */
export function attemptOf(row: TopUpRow | undefined): Attempt {
  if (row === undefined) return NO_ATTEMPT;
  return {
    transaction: row.tx_id ?? undefined,
    raw: row.raw_tx ?? undefined,
    startHeight: row.start_height,
    expiresAt: row.expires_at,
  };
}

/** The payment of a row, read again by its rail; limits that changed since do not apply to it. */
export async function paymentOf(rail: Rail, row: TopUpRow): Promise<SignedPayment> {
  const inner = JSON.parse(row.payload) as Record<string, unknown>; // written by `open`
  return await rail.reread({
    network: row.network,
    accepted: {},
    inner,
    identifier: row.identifier ?? undefined,
  });
}

/** The stored answer of a credited row. */
export function receiptOf(row: TopUpRow): TopUpReceipt {
  return {
    wallet: row.wallet,
    amountNano: unitsToNano(row.amount_units),
    newBalanceNano: nano(row.new_balance_nano ?? 0n),
    paymentId: row.payment_id,
    network: row.network,
    transaction: row.tx_id ?? '',
    responseHeader: row.settlement ?? '',
  };
}
