/** What both rails do around the official scheme classes. */
import type { PaymentPayload, PaymentRequirements, VerifyResponse } from '@x402/core/types';
import { chainReason } from './chain-reason.ts';
import type { SignedPayment } from './payment.ts';
import type { Verdict } from './rail.ts';
import { GAS_SPONSORING } from './requirements.ts';

/**
 * A payment in the terms of the scheme classes. The requirement is built from the offer that it was
 * made under and the signed amount, never from what the caller says it accepted. Of the scheme `upto`
 * the ceiling is verified and what is moved is settled.
 */
export function officialRequest(
  payment: SignedPayment,
  step: 'verify' | 'settle',
  maxTimeoutSeconds: number,
): [PaymentPayload, PaymentRequirements] {
  const { offer, authorization, amountUnits } = payment;
  const ceiling = authorization.kind === 'permit2' ? authorization.ceiling : undefined;
  const accepted: PaymentRequirements = {
    scheme: ceiling === undefined ? 'exact' : 'upto',
    network: offer.network as `${string}:${string}`, // CAIP-2
    asset: offer.asset,
    amount: ((step === 'verify' ? ceiling : undefined) ?? amountUnits).toString(),
    payTo: offer.payTo,
    maxTimeoutSeconds,
    extra: { ...offer.extra },
  };
  const { eip2612, ...payload } = payment.inner;
  const extensions = eip2612 === undefined ? {} : { [GAS_SPONSORING]: { info: eip2612 } };
  return [{ x402Version: 2, accepted, payload, extensions }, accepted];
}

/** What a check says; after a reason of `unclear` the chain decides whether the payment was made. */
export async function verdictOf(
  asked: Promise<VerifyResponse>,
  unclear: readonly string[],
  isTroubled = (): boolean => false,
): Promise<Verdict> {
  try {
    const result = await asked;
    if (result.isValid) return { kind: 'valid' };
    if (isTroubled()) return { kind: 'unclear', reason: 'chain_unavailable' };
    const reason = chainReason(result.invalidReason ?? 'unknown');
    return { kind: unclear.includes(reason) ? 'unclear' : 'rejected', reason };
  } catch (error) {
    // Shapes were checked before, so what is left is a chain that does not answer.
    return { kind: 'unclear', reason: chainReason(error) };
  }
}

/** The journal is the store of pending settlements; the schemes' own would only grow. */
export const NO_PENDING_STORE = {
  get: async (): Promise<undefined> => undefined,
  set: async (): Promise<void> => undefined,
  delete: async (): Promise<void> => undefined,
};
