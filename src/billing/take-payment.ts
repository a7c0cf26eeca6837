/**
 * The payment that came with a request: taken once the request is good and its price is known, and
 * what a caller has without it.
 */
import { type Nano, ZERO, addNano, maxNano, nano } from '../core/money.ts';
import type { Caller } from '../identity/identity.ts';
import type { Ledger } from './ledger/ledger.ts';
import { type MoneyRefusals, moneyRefusal } from './refusals.ts';
import type { PriceBounds } from './sale-request.ts';

interface PaymentContext extends MoneyRefusals {
  readonly ledger: Ledger;
}

/** One that the request would not be covered by is refused before any money moves: 402. */
export async function takePayment(
  context: PaymentContext,
  caller: Caller,
  { minNano, maxNano: most }: PriceBounds,
): Promise<void> {
  const { payment } = caller;
  if (payment === undefined) return;
  const least = most > 0n ? maxNano(minNano, context.minimumCreditNano()) : ZERO;
  const postedNano = await postedOf(context, caller);
  if (postedNano + payment.amountNano < least) {
    throw moneyRefusal(context, caller, minNano, { ok: false, reason: 'balance', postedNano });
  }
  // What the hold takes beyond the credit that is there; a payment of a fixed amount is taken whole.
  await payment.take(nano(maxNano(least, most) - postedNano));
}

export async function postedOf({ ledger }: PaymentContext, caller: Caller): Promise<Nano> {
  const { usdNano, diemNano } = await ledger.balances(caller.accountId);
  return addNano(usdNano, diemNano);
}
