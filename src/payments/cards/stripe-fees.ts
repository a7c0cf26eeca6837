/**
 * Fees of Stripe for a payment: those of its charge, its refunds and its disputes, as the balance
 * transactions of these objects state them. A Stripe account that settles in another currency has fees
 * in that currency, which are not known in USD.
 */
import { Stripe } from 'stripe';

const NANO_PER_CENT = 10_000_000n;

interface Fees {
  readonly feeNano: bigint | undefined;
  readonly isFeePending: boolean;
}

/** All are expanded. Stripe adds the balance transaction of a charge some time after it succeeds. */
export function feesOf(
  charge: Stripe.Charge | null,
  others: readonly (string | Stripe.BalanceTransaction | null | undefined)[],
): Fees {
  const ofCharge = charge?.balance_transaction;
  if (ofCharge === null || typeof ofCharge !== 'object') {
    return { feeNano: undefined, isFeePending: charge !== null };
  }
  let cents = 0;
  for (const one of [ofCharge, ...others]) {
    if (one === null || typeof one !== 'object') continue;
    if (one.currency !== 'usd') return { feeNano: undefined, isFeePending: false };
    cents += one.fee;
  }
  return { feeNano: BigInt(cents) * NANO_PER_CENT, isFeePending: false };
}

/** Whether Stripe has rejected a request, for example because the key may not read an expanded object. */
export function isRejection(error: unknown): boolean {
  const { StripePermissionError, StripeInvalidRequestError } = Stripe.errors;
  return error instanceof StripePermissionError || error instanceof StripeInvalidRequestError;
}
