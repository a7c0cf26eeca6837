/**
 * The payment that came with a request: taken once the request is good and its price is known, and
 * what a caller has without it.
 */
import { type Nano, ZERO, addNano, maxNano, nano } from '../core/money.ts';
import type { Caller } from '../identity/identity.ts';
import type { HoldRefusal, HoldRequest, Ledger } from './ledger/ledger.ts';

interface PaymentContext {
  readonly ledger: Ledger;
  readonly minimumCreditNano: () => Nano;
}

/**
 * Takes the payment, unless the request would not be covered by it or is above a budget: then no
 * money moves, and the answer is why. The hold that follows decides again.
 */
export async function takePayment(
  context: PaymentContext,
  { payment }: Caller,
  wanted: HoldRequest,
): Promise<HoldRefusal | undefined> {
  if (payment === undefined) return undefined;
  const { ledger, minimumCreditNano } = context;
  const { accountId, minNano, maxNano: most } = wanted;
  const least = maxNano(minNano, minimumCreditNano());
  const funds = await ledger.funds(accountId);
  // A debt is paid first, and an account that owes anything spends nothing.
  const { usdNano, diemNano, debtNano, heldUsdNano, heldDiemNano } = funds;
  const postedNano = nano(usdNano + diemNano - debtNano);
  const isShort = payment.amountNano < debtNano || postedNano + payment.amountNano < least;
  if (most > 0n && isShort) return { ok: false, reason: 'balance', postedNano };
  const refusal = await ledger.refusalByCap(wanted, payment.amountNano);
  if (refusal !== undefined) return refusal;
  // What the hold takes beyond the credit that is free; a payment of a fixed amount is taken whole.
  const lackedNano = nano(maxNano(least, most) - postedNano + heldUsdNano + heldDiemNano);
  await payment.take(most > 0n ? maxNano(lackedNano, debtNano) : ZERO);
  return undefined;
}

export async function postedOf(
  { ledger }: Pick<PaymentContext, 'ledger'>,
  accountId: string,
): Promise<Nano> {
  const { usdNano, diemNano } = await ledger.balances(accountId);
  return addNano(usdNano, diemNano);
}
