/**
 * The payment that came with a request: taken once the request is good, its price is known and its work
 * can begin, and what a caller has without it.
 *
 * Another shop can obtain a signed payment that goes to this receiver and send it here. A request that
 * shows nothing but a payment therefore spends at most the signed amount, whatever credit the wallet has.
 */
import { type Nano, ZERO, addNano, larger, nano, smaller } from '../core/money.ts';
import type { Caller } from '../identity/identity.ts';
import type { CreditWaits } from './credit-waits.ts';
import type { HoldRefusal, HoldRequest, Ledger } from './ledger/ledger.ts';
import type { PriceBounds, SaleRequest } from './sale-request.ts';

interface PaymentContext {
  readonly ledger: Ledger;
  readonly waits: CreditWaits;
  readonly minimumCreditNano: () => Nano;
  readonly requireModel: (modelId: string) => Promise<void>;
}

/** The payment signs less than the request needs, and nothing in the request opens other credit. */
export interface PaymentTooSmall {
  readonly ok: false;
  readonly reason: 'payment';
  readonly limitNano: Nano;
}

type PaidRequest = Pick<SaleRequest, 'caller' | 'modelId' | 'requireReady' | 'cancellation'>;
type Payment = NonNullable<Caller['payment']>;

/**
 * Takes the payment, unless the request would not be covered by it or is above a budget: then no
 * money moves, and the answer is why. Nor does any move where nothing could do the work, which is
 * asked last, since it may take a moment: throws that Fault. The hold that follows decides again.
 */
export async function takePayment(
  context: PaymentContext,
  { caller: { payment }, modelId, requireReady, cancellation }: PaidRequest,
  wanted: HoldRequest,
): Promise<HoldRefusal | PaymentTooSmall | undefined> {
  if (payment === undefined) return undefined;
  const { requireModel } = context;
  const { limitNano } = payment;
  if (limitNano !== undefined && wanted.maxNano > 0n && wanted.minNano > limitNano) {
    return { ok: false, reason: 'payment', limitNano };
  }
  if (payment.quote !== undefined) {
    await (requireReady === undefined ? requireModel(modelId) : requireReady());
    throw await payment.quote(priceOf(wanted));
  }
  const look = () => lookAhead(context, payment, wanted);
  const answer = await context.waits.retry(wanted.accountId, await look(), look, cancellation);
  if (!answer.ok) return answer;
  await (requireReady === undefined ? requireModel(modelId) : requireReady());
  await payment.take(answer.wantedNano);
  return undefined;
}

/** What buys a request: all that it can cost where the caller named its size, else a useful answer. */
function priceOf({ minNano, usefulNano = minNano, maxNano, maxIsNamed }: HoldRequest): Nano {
  return maxIsNamed === true ? maxNano : smaller(larger(minNano, usefulNano), maxNano);
}

/** How much of the payment is wanted, or why the request would be refused with all of it. */
async function lookAhead(
  { ledger, minimumCreditNano }: PaymentContext,
  payment: Payment,
  wanted: HoldRequest,
): Promise<{ readonly ok: true; readonly wantedNano: Nano } | HoldRefusal> {
  const { accountId, minNano, maxNano: most, usefulNano = minNano } = wanted;
  const least = larger(minNano, minimumCreditNano());
  const funds = await ledger.funds(accountId);
  // A debt is paid first, and an account that owes anything spends nothing.
  const { usdNano, diemNano, debtNano, heldUsdNano, heldDiemNano } = funds;
  const postedNano = nano(usdNano + diemNano - debtNano);
  const paidNano = postedNano + payment.amountNano;
  const isShort = payment.amountNano < debtNano || paidNano < least;
  if (most > 0n && isShort) return { ok: false, reason: 'balance', postedNano };
  const refusal = await ledger.refusalByCap(wanted, payment.amountNano);
  if (refusal !== undefined) return refusal;
  if (most === 0n) return { ok: true, wantedNano: ZERO };
  // As the hold will have it, which is refused while others hold too much.
  const freeNano = nano(paidNano - heldUsdNano - heldDiemNano);
  const useful = usefulNano < most ? usefulNano : most;
  if (freeNano <= 0n || freeNano < (paidNano < useful ? minNano : useful)) {
    return { ok: false, reason: 'held', availableNano: larger(freeNano, ZERO) };
  }
  // What the hold takes beyond the credit that is free; a payment of a fixed amount is taken whole.
  const lackedNano = nano(larger(least, most) - postedNano + heldUsdNano + heldDiemNano);
  return { ok: true, wantedNano: larger(lackedNano, debtNano) };
}

/** The hold of a request: what its price needs, at most what a payment alone may spend. */
export function holdOf(
  { minimumCreditNano }: Pick<PaymentContext, 'minimumCreditNano'>,
  requestId: string,
  caller: Caller,
  price: PriceBounds,
): HoldRequest {
  return {
    requestId,
    accountId: caller.accountId,
    minNano: price.minNano,
    usefulNano: price.usefulNano,
    maxNano: caller.payment === undefined ? price.maxNano : withinPayment(caller, price.maxNano),
    maxIsNamed: price.maxIsNamed,
    // A free model needs no credit.
    floorNano: price.maxNano > 0n ? minimumCreditNano() : ZERO,
    capIds: caller.capId === undefined ? undefined : [caller.capId],
  };
}

/** An amount of a caller, at most what its payment lets it spend. */
export function withinPayment({ payment }: Caller, amount: Nano): Nano {
  const limitNano = payment?.limitNano;
  return limitNano === undefined ? amount : nano(smaller(amount, limitNano));
}

export async function postedOf(
  { ledger }: Pick<PaymentContext, 'ledger'>,
  accountId: string,
): Promise<Nano> {
  const { usdNano, diemNano } = await ledger.balances(accountId);
  return addNano(usdNano, diemNano);
}
