/**
 * Takes the payment that came with a request, now that the request is good and its price is known.
 * One that it would not be enough for is refused before any money moves.
 */
import type { Caller } from '../identity/identity.ts';
import { type Nano, addNano } from '../core/money.ts';
import type { HoldRefusal, Ledger } from './ledger/ledger.ts';

/** Gives the refusal when credit and payment together are below `neededNano`; nothing has moved then. */
export async function takePayment(
  ledger: Ledger,
  caller: Caller,
  neededNano: Nano,
): Promise<(HoldRefusal & { readonly reason: 'balance' }) | undefined> {
  const { payment } = caller;
  if (payment === undefined) return undefined;
  const { usdNano, diemNano } = await ledger.balances(caller.accountId);
  const postedNano = addNano(usdNano, diemNano);
  if (postedNano + payment.amountNano < neededNano) {
    return { ok: false, reason: 'balance', postedNano };
  }
  await payment.take();
  return undefined;
}
