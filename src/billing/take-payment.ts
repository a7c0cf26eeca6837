/**
 * Takes the payment that came with a request, once the request is valid, its price is known and its
 * work can start, and places its hold. Also determines what a caller can spend without a payment.
 *
 * A malicious shop can obtain a signed payment to this receiver and replay it here. So a request
 * that is authenticated only by a payment spends at most the signed amount, whatever credit the
 * wallet has.
 */
import { type Nano, ZERO, larger, nano, smaller } from '../core/money.ts';
import type { Caller } from '../identity/identity.ts';
import type { BudgetCaps } from './budgets/budgets.ts';
import type { CreditWaits } from './credit-waits.ts';
import type {
  HoldRefusal,
  HoldRequest,
  HoldResult,
  Ledger,
  RequestMetadata,
} from './ledger/ledger.ts';
import type { SaleRequest } from './sale-request.ts';

interface PaymentContext {
  readonly ledger: Ledger;
  readonly waits: CreditWaits;
  readonly minimumCreditNano: () => Nano;
  readonly requireModel: (modelId: string) => Promise<void>;
}

/** The signed amount is too small, and the request gives access to no other credit. */
export interface PaymentTooSmall {
  readonly ok: false;
  readonly reason: 'payment';
  readonly limitNano: Nano;
}

type PaidRequest = Pick<SaleRequest, 'caller' | 'modelId' | 'requireReady' | 'cancellation'>;
type Payment = NonNullable<Caller['payment']>;

/**
 * Takes the payment, unless the request would still not be covered or exceeds a budget; then no
 * money moves and the reason is returned. Throws a Fault, also without moving money, if no engine
 * can do the work; that check is last because it may take a moment. The hold that follows checks
 * again.
 */
async function takePayment(
  context: PaymentContext,
  { modelId, requireReady = () => context.requireModel(modelId), cancellation }: PaidRequest,
  payment: Payment,
  wanted: HoldRequest,
): Promise<HoldRefusal | PaymentTooSmall | undefined> {
  const { limitNano } = payment;
  if (limitNano !== undefined && wanted.maxNano > 0n && wanted.minNano > limitNano) {
    return { ok: false, reason: 'payment', limitNano };
  }
  if (payment.quote !== undefined) {
    await requireReady();
    throw await payment.quote(priceOf(wanted));
  }
  const plan = () => planPayment(context, payment, wanted);
  const result = await context.waits.retry(wanted.accountId, await plan(), plan, cancellation);
  if (!result.ok) return result;
  await requireReady();
  await payment.take(result.wantedNano);
  return undefined;
}

/** The price: the maximum if the caller set the size, else that of a useful completion. */
function priceOf({ minNano, usefulNano = minNano, maxNano, maxIsNamed }: HoldRequest): Nano {
  return maxIsNamed === true ? maxNano : smaller(larger(minNano, usefulNano), maxNano);
}

async function planPayment(
  { ledger, minimumCreditNano }: PaymentContext,
  payment: Payment,
  wanted: HoldRequest,
): Promise<{ readonly ok: true; readonly wantedNano: Nano } | HoldRefusal> {
  const { accountId, minNano, maxNano: most, usefulNano = minNano } = wanted;
  const least = larger(minNano, minimumCreditNano());
  const funds = await ledger.funds(accountId);
  // A debt is paid first; an account with a debt spends nothing.
  const { usdNano, diemNano, debtNano, heldUsdNano, heldDiemNano } = funds;
  const postedNano = nano(usdNano + diemNano - debtNano);
  const paidNano = postedNano + payment.amountNano;
  const isShort = payment.amountNano < debtNano || paidNano < least;
  if (most > 0n && isShort) return { ok: false, reason: 'balance', postedNano };
  const refusal = await ledger.refusalByCap(wanted, payment.amountNano);
  if (refusal !== undefined) return refusal;
  if (most === 0n) return { ok: true, wantedNano: ZERO };
  // Applies the rule of the hold, which is rejected while other holds use too much.
  const freeNano = nano(paidNano - heldUsdNano - heldDiemNano);
  const useful = usefulNano < most ? usefulNano : most;
  if (freeNano <= 0n || freeNano < (paidNano < useful ? minNano : useful)) {
    return { ok: false, reason: 'held', availableNano: larger(freeNano, ZERO) };
  }
  // The amount of the hold that free credit does not cover; a payment of a fixed amount is taken
  // whole.
  const lackedNano = nano(larger(least, most) - postedNano + heldUsdNano + heldDiemNano);
  return { ok: true, wantedNano: larger(lackedNano, debtNano) };
}

export function withinPayment({ payment }: Caller, amount: Nano): Nano {
  const limitNano = payment?.limitNano;
  return limitNano === undefined ? amount : nano(smaller(amount, limitNano));
}

export async function withBudgets(
  { budgets }: { readonly budgets: BudgetCaps },
  wanted: HoldRequest,
  caller: Caller,
  tags: RequestMetadata | undefined,
): Promise<HoldRequest> {
  const ids = await budgets.open(caller.budgets, tags);
  return ids === undefined ? wanted : { ...wanted, capIds: [...(wanted.capIds ?? []), ...ids] };
}

/** Takes the payment, if there is one, and places the hold; `placed` is its result without one. */
export async function placeHold(
  context: PaymentContext,
  request: PaidRequest,
  wanted: HoldRequest,
  placed?: HoldResult | Promise<HoldResult>,
): Promise<HoldResult | PaymentTooSmall> {
  const { ledger, waits } = context;
  const { payment } = request.caller;
  const refused = payment && (await takePayment(context, request, payment, wanted));
  if (refused !== undefined) return refused;
  const result = await (placed ?? ledger.holds.place(wanted));
  // Wait if only open holds are in the way, since one of them may end shortly.
  const again = () => ledger.holds.place(wanted);
  return result.ok ? result : waits.retry(wanted.accountId, result, again, request.cancellation);
}
