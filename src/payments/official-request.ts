/**
 * A payment in the terms of the official scheme classes. The requirement is built from the offer
 * that it was made under and the signed amount, never from what the caller says it accepted.
 */
import type { PaymentPayload, PaymentRequirements } from '@x402/core/types';
import type { SignedPayment } from './payment.ts';

export function officialRequest(
  payment: SignedPayment,
  maxTimeoutSeconds: number,
): [PaymentPayload, PaymentRequirements] {
  const { offer } = payment;
  const accepted: PaymentRequirements = {
    scheme: 'exact',
    network: offer.network as `${string}:${string}`, // CAIP-2
    asset: offer.asset,
    amount: payment.amountUnits.toString(),
    payTo: offer.payTo,
    maxTimeoutSeconds,
    extra: { ...offer.extra },
  };
  return [{ x402Version: 2, accepted, payload: { ...payment.inner } }, accepted];
}
