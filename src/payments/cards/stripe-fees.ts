/**
 * Fees of Stripe for a payment: those of its charge, its refunds and its disputes, as the balance
 * transactions of these objects state them. A Stripe account that settles in another currency has fees
 * in that currency, which are not known in USD.
 */
import { Stripe } from 'stripe';
import { type Clock, MINUTE_MS } from '../../core/clock.ts';

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

/** After a rejection for a missing permission, which the operator can add in Stripe's dashboard. */
const NO_FEES_MS = 10 * MINUTE_MS;

/** The credit of a payment must not depend on its fees, which a restricted key may not read. */
export class FeeAccess {
  readonly #clock: Clock;
  /** `monotonicMs` until which fees are not requested. */
  #missingUntilMs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Reads with fees, or without them if Stripe rejects that. */
  async read<T>(read: (hasFees: boolean) => Promise<T>): Promise<T> {
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < this.#missingUntilMs) return await read(false);
    try {
      return await read(true);
    } catch (error) {
      const { StripePermissionError, StripeInvalidRequestError } = Stripe.errors;
      if (error instanceof StripePermissionError) this.#missingUntilMs = nowMs + NO_FEES_MS;
      else if (!(error instanceof StripeInvalidRequestError)) throw error;
      return await read(false);
    }
  }
}
