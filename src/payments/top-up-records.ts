/** Conversions of a top-up row: to the ledger entry, the receipt, the payment and the attempt. */
import { type Nano, nano } from '../core/money.ts';
import { unitsToNano } from './networks.ts';
import type { SignedPayment } from './payment.ts';
import type { Attempt, Rail } from './rail.ts';
import type { RailOffer } from './requirements.ts';
import type { TopUpRow } from './top-up-table.ts';

export interface CreditEntry {
  readonly wallet: string;
  readonly amountNano: Nano;
  readonly paymentKey: string;
  readonly paymentId: string;
  /** Id of the posting; differs after a reversal. */
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
  /** The balance after this credit; `undefined` for a repeated header. */
  readonly newBalanceNano: Nano | undefined;
  readonly paymentId: string;
  readonly network: string;
  readonly transaction: string;
  readonly responseHeader: string;
}

export type OnOpened = () => Promise<void>;

export const NO_ATTEMPT: Attempt = {
  transaction: undefined,
  raw: undefined,
  startHeight: 0n,
  startBlock: undefined,
  expiresAt: (1n << 62n) - 1n,
};

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

export function paymentOf(rail: Rail, row: TopUpRow): SignedPayment {
  const inner = JSON.parse(row.payload) as Record<string, unknown>; // written by `open`
  const { network, identifier } = row;
  const payment = rail.read({ network, accepted: {}, inner, identifier: identifier ?? undefined });
  return underItsOffer(payment, row);
}

/** The payment with the offer and the amount of its row. */
export function underItsOffer(payment: SignedPayment, row: TopUpRow): SignedPayment {
  if (row.offer !== null) {
    const offer = JSON.parse(row.offer) as RailOffer; // written by `open`
    return { ...payment, offer, amountUnits: row.amount_units };
  }
  // Rows of older versions have no offer; an authorization on Base contains the receiver.
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
