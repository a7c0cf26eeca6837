/**
 * What goes in and out of the top-up machine: the entry for the ledger, the receipt for the caller,
 * and the payment and the attempt as a row remembers them.
 */
import { type Nano, nano } from '../core/money.ts';
import { unitsToNano } from './networks.ts';
import type { SignedPayment } from './payment.ts';
import type { Attempt, Rail } from './rail.ts';
import type { RailOffer } from './requirements.ts';
import type { TopUpRow } from './top-up-table.ts';

export interface CreditEntry {
  readonly wallet: string;
  readonly amountNano: Nano;
  /** The signed authorization: unique for ever. */
  readonly paymentKey: string;
  readonly paymentId: string;
  /** Name of the posting: a payment that was reversed and came back is posted again. */
  readonly postingId: string;
  readonly network: string;
  readonly transaction: string;
}

/** The entry of a credit or, for a row that is credited, of its reversal. */
export function entryOf(
  row: TopUpRow,
  transaction: string,
  posting: 'credit' | 'reversal',
): CreditEntry {
  const again = row.reversals === 0n ? '' : `-${row.reversals + 1n}`;
  return {
    wallet: row.wallet,
    amountNano: unitsToNano(row.amount_units),
    paymentKey: row.payment_key,
    paymentId: row.payment_id,
    postingId: `${row.payment_id}${posting === 'reversal' ? '-reversed' : ''}${again}`,
    network: row.network,
    transaction,
  };
}

export interface TopUpReceipt {
  readonly wallet: string;
  readonly amountNano: Nano;
  /** The balance right after this credit; missing for who only shows the payment again. */
  readonly newBalanceNano: Nano | undefined;
  readonly paymentId: string;
  readonly network: string;
  readonly transaction: string;
  readonly responseHeader: string;
}

/** Runs when the row of the payment was opened, for whoever brought the payment. */
export type OnOpened = () => Promise<void>;

export const NO_ATTEMPT: Attempt = {
  transaction: undefined,
  raw: undefined,
  startHeight: 0n,
  startBlock: undefined,
  expiresAt: (1n << 62n) - 1n,
};

/** The journaled attempt of a row, of a top-up or of a refund. */
export function attemptOf(
  row: Pick<TopUpRow, 'tx_id' | 'raw_tx' | 'start_height' | 'expires_at'> & {
    readonly start_block?: string | null;
  },
): Attempt {
  return {
    transaction: row.tx_id ?? undefined,
    raw: row.raw_tx ?? undefined,
    startHeight: row.start_height,
    startBlock: row.start_block ?? undefined,
    expiresAt: row.expires_at,
  };
}

/** The payment of a row, read again by its rail and under the offer of its day. */
export function paymentOf(rail: Rail, row: TopUpRow): SignedPayment {
  const inner = JSON.parse(row.payload) as Record<string, unknown>; // written by `open`
  const { network, identifier } = row;
  const payment = rail.read({ network, accepted: {}, inner, identifier: identifier ?? undefined });
  return underItsOffer(payment, row);
}

/** The payment as its row has it: under the offer that it was opened under, whatever is offered today. */
export function underItsOffer(payment: SignedPayment, row: TopUpRow): SignedPayment {
  if (row.offer !== null) {
    const offer = JSON.parse(row.offer) as RailOffer; // written by `open`
    return { ...payment, offer, amountUnits: row.amount_units };
  }
  // A row of a version that kept no offer. Its receiver was checked when it was opened, and is in
  // the authorization of Base; a payment of Solana lived for a minute and a half.
  const { offer, authorization } = payment;
  if (authorization.kind !== 'erc3009') return payment;
  return { ...payment, offer: { ...offer, payTo: authorization.to } };
}

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
