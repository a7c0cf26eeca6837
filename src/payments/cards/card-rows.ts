/** The columns of the rows of payments by people and of their refunds. */
import * as z from 'zod';
import { nano } from '../../core/money.ts';
import { Flag, Whole, maybe, rowShape } from '../../db/db.ts';

export const PROVIDER_NAMES = ['stripe', 'shop'] as const;
export type ProviderName = (typeof PROVIDER_NAMES)[number];

const Amount = z.bigint().transform(nano);

export const PAYMENT = rowShape({
  id: z.string(),
  provider: z.enum(PROVIDER_NAMES),
  /** `checkout`: on a page of the provider; `automatic`: a charge of a saved card;
   * `shop`: started by the shop of the operator. */
  kind: z.enum(['checkout', 'automatic', 'shop']),
  accountId: z.string(),
  state: z.enum(['open', 'processing', 'paid', 'failed', 'expired']),
  /** The amount to credit, without taxes. */
  amountNano: Amount,
  savesCard: Flag,
  /** The provider's id of the page; of an automatic charge its payer and card, with a slash between. */
  reference: maybe(z.string()),
  intent: maybe(z.string()),
  paidNano: Amount,
  returnedNano: Amount,
  /** Credits minus reversals of the payment in the ledger. */
  creditedNano: Amount,
  /** Sum of the refunds of Farebox that have not failed. */
  refundedNano: Amount,
  /** Fees of the provider in the ledger, and the number of their postings. */
  feeNano: z.bigint(),
  feePostings: Whole,
  postings: Whole,
  version: Whole,
  receiptUrl: maybe(z.string()),
  failure: maybe(z.string()),
  /** Time of the next read of the facts; 0: at the next event. */
  dueMs: Whole,
  attempts: Whole,
  createdMs: Whole,
  updatedMs: Whole,
});
export type CardPayment = ReturnType<typeof PAYMENT.parse>;

export const REFUND = rowShape({
  id: z.string(),
  paymentId: z.string(),
  accountId: z.string(),
  amountNano: Amount,
  state: z.enum(['open', 'paid', 'failed']),
  failure: maybe(z.string()),
});
export type CardRefund = ReturnType<typeof REFUND.parse>;
