/**
 * The interface to a company that takes payments by people. `stripe.ts` implements it for Stripe, and
 * `shop.ts` for the operator's own shop.
 *
 * A provider reports sums since the beginning of a payment, never single changes. Therefore it does
 * not matter whether a report arrives twice, late, out of order, or only after a later one.
 */
import type { IncomingHttpHeaders } from 'node:http';
import { type Nano, formatUsd } from '../../core/money.ts';
import type { CardPayment, CardRefund, ProviderName } from './card-rows.ts';
import type { SavedCard } from './saved-cards.ts';

/** The page of the provider on which the payer pays. */
export interface CheckoutPage {
  /** The provider's id of the page. */
  readonly reference: string;
  readonly url: string;
}

/** The state of a payment at its provider. */
export interface PaymentFacts {
  /**
   * `open`: not paid yet; `processing`: the bank decides, which can take days; `paid`: the money has
   * arrived, also if it was returned later; `failed` and `expired` end without money.
   */
  readonly state: 'open' | 'processing' | 'paid' | 'failed' | 'expired';
  /** The provider's id of the payment, which exists once the payer has begun to pay. */
  readonly intent?: string | undefined;
  /** Sum that has arrived, without taxes. */
  readonly paidNano: Nano;
  /**
   * Sum that went back to the payer by refunds of others than Farebox, and by disputes; both together can
   * exceed `paidNano`.
   */
  readonly returnedNano: Nano;
  /** Reason for `returnedNano`, for the statement of the account. */
  readonly returnReason?: string | undefined;
  /** Whether a bank has taken money back. */
  readonly isDisputed?: boolean;
  /**
   * Sum of the fees that the provider has kept, refunds and disputes included; `undefined` if it is not
   * known in USD.
   */
  readonly feeNano?: bigint | undefined;
  /** The fee is not known yet; it is read again. */
  readonly isFeePending?: boolean;
  readonly receiptUrl?: string | undefined;
  /** The card that the payer has saved with this payment. */
  readonly savedCard?: SavedCard | undefined;
  readonly failure?: string | undefined;
  /** The card was not charged: its owner has deleted it or changed the settings. */
  readonly isWithdrawn?: boolean | undefined;
  /** States of the refunds of Farebox, by id. */
  readonly refunds: ReadonlyMap<string, RefundResult>;
}

export interface RefundResult {
  readonly state: 'paid' | 'failed';
  readonly failure?: string | undefined;
}

export type ChargeResult =
  | { readonly intent: string }
  | {
      readonly failure: string;
      /** The card was not charged: its owner has deleted it or changed the settings. */
      readonly isWithdrawn?: boolean;
    };

/** An event of a payment. It only causes a new read of the facts. */
export interface Notice {
  readonly eventId: string;
  readonly type: string;
  readonly createdMs: number;
  /** The id of the row, if the event contains it. */
  readonly paymentId?: string | undefined;
  readonly intent?: string | undefined;
  /** The page of the payment, if the event is about it. */
  readonly reference?: string | undefined;
  /** Sums of a provider whose facts cannot be read, since the beginning of the payment. */
  readonly report?: PaymentReport | undefined;
}

export interface PaymentReport {
  readonly paidNano?: Nano;
  readonly returnedNano?: Nano;
  readonly receiptUrl?: string | undefined;
  /** The account to credit if the payment was not started here. */
  readonly accountId?: string | undefined;
}

/** A payment at the provider that names a row of this service. */
export interface ProviderPayment {
  readonly paymentId: string;
  readonly intent: string;
  readonly paidNano: Nano;
}

export interface ProviderEvent {
  /** By the clock of the provider. */
  readonly createdMs: number;
  /** `undefined` if it concerns no payment of this service. */
  readonly notice: Notice | undefined;
}

export interface PaymentProvider {
  readonly name: ProviderName;
  readonly minimumNano: Nano;
  readonly maximumNano: Nano;
  /** Opens a page for the payer. A repeated call for the same payment opens no second page. */
  openPage(payment: CardPayment, returnUrl: string): Promise<CheckoutPage>;
  /** Verifies and reads a webhook; `undefined` for an event without a payment. Throws a Fault. */
  readWebhook(body: Buffer, headers: IncomingHttpHeaders, nowMs: number): Notice | undefined;
  /** Reads the facts of a payment. `refunds`: those of Farebox. Rejects if the provider is unreachable. */
  facts(payment: CardPayment, refunds: readonly CardRefund[]): Promise<PaymentFacts>;
  /** Whether Farebox can pay back. */
  readonly canRefund: boolean;
  /** Whether a saved card can be charged; the reason if not. */
  readonly chargesCards: true | string;
  /**
   * Charges the saved card of an automatic payment, at most once for each payment, and only if
   * `mayCharge` allows it. Returns the provider's id, also of a declined charge. Rejects if the result
   * is unknown.
   */
  chargeCard(payment: CardPayment, mayCharge: () => Promise<boolean>): Promise<ChargeResult>;
  /** Deletes a saved card at the provider. */
  deleteCard(card: SavedCard): Promise<void>;
  /** Pays back to the card, at most once for each refund. Rejects if the result is unknown. */
  refund(payment: CardPayment, refund: CardRefund): Promise<RefundResult>;
  /** Events since a time, whether their webhooks were delivered or not. */
  events(sinceMs: number): AsyncIterable<ProviderEvent>;
  /** Payments since a time that arrived and name a row of this service. */
  payments(sinceMs: number): AsyncIterable<ProviderPayment>;
  close(): Promise<void>;
}

export function belowMinimum({ minimumNano }: PaymentProvider): ChargeResult {
  return {
    failure: `A charge must be at least ${formatUsd(minimumNano, 2)} USD; raise the amount`,
  };
}
