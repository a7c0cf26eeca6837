/**
 * What a payer is told when a payment is not credited: the sentence always says whether money has
 * moved and whether to send the same header again, because the wrong advice costs a second payment.
 */
import { Fault } from '../core/faults.ts';
import { encodeHeader } from './header-codec.ts';
import { type SignedPayment, refusePayment } from './payment.ts';
import { USED_BEFORE } from './rail.ts';

const RETRY = { retryAfterSeconds: 5 };
/** Carries the secret of whoever opened a payment, in the answer and in the retry. */
const PAYMENT_CLAIM = 'PAYMENT-CLAIM';
const RETRIED = new Set(['SETTLEMENT_PENDING', 'SERVICE_UNAVAILABLE']);

/** Whether the check failed for want of an answer from the chain. */
export function isChainTrouble(reason: string): boolean {
  const isChecked = reason.startsWith('invalid_') || reason.startsWith('permit2_');
  return !isChecked && reason !== 'asset_not_deployed_contract';
}

export function rejected(reason: string): Fault {
  let words = '';
  if (reason.endsWith('_insufficient_balance')) {
    words = ': the wallet holds less of the token than it signed';
  } else if (reason === 'permit2_allowance_required') {
    words =
      ': the wallet has not approved the Permit2 contract for as much of the token as it signed; sign that too (eip2612GasSponsoring, with the nonce that the token has now), approve it, or pay with the scheme exact';
  }
  return refusePayment(
    'PAYMENT_VERIFICATION_FAILED',
    `The payment was not accepted${words} (${reason}); nothing has moved`,
    { reason },
  );
}

/** 400: it was on the chain before it was shown here, so it pays for something else. */
export function usedBefore(): Fault {
  return refusePayment(
    'PAYMENT_VERIFICATION_FAILED',
    'The authorization was used on the chain before it was sent here, so it pays for nothing here; sign a new one',
    { reason: USED_BEFORE },
  );
}

/** 409: the authorization is under way with other content. */
export function inProgress(): Fault {
  return refusePayment(
    'PAYMENT_IN_PROGRESS',
    'Another payment under the same authorization is being settled',
    RETRY,
  );
}

/** 503: nothing left this server, so the same header can simply be sent again. */
export function notSent(reason: string): Fault {
  return refusePayment(
    'SERVICE_UNAVAILABLE',
    'The payment could not be sent to the chain so far, nothing has moved; send the same header again, do not sign a new one',
    { ...RETRY, cause: reason },
  );
}

/** 503: so many payments are being settled that this one is not begun. */
export function busy(): Fault {
  return refusePayment(
    'SERVICE_UNAVAILABLE',
    'Too many payments are being settled, nothing has moved; send the same header again, do not sign a new one',
    RETRY,
  );
}

/** 429: settlements of this payer were reverted, and each costs gas. */
export function backingOff(seconds: number): Fault {
  return refusePayment(
    'RATE_LIMIT_EXCEEDED',
    `Earlier payments of this wallet were reverted on the chain; nothing is sent for it for ${seconds} s`,
    { retryAfterSeconds: seconds },
  );
}

/** 409: one identifier names one payment. */
export function identifierTaken(): Fault {
  return refusePayment(
    'PAYMENT_IN_PROGRESS',
    'The payment identifier was used with another payment, use a new one',
    { canRetry: false, reason: 'payment_identifier_conflict' },
  );
}

/** 202: it may be on its way. Never a 402, which makes agents sign a second payment. */
export function pending(payment: SignedPayment, transaction: string | null): Fault {
  return refusePayment(
    'SETTLEMENT_PENDING',
    'The payment is not confirmed yet; send the same header again, do not sign a new one',
    { ...RETRY, headers: failedResponse(payment, transaction, 'settlement_pending') },
  );
}

/** 409: it is credited, and whoever shows it now may have read it on the chain. */
export function alreadyCredited(receipt: { readonly responseHeader: string }): Fault {
  return refusePayment(
    'PAYMENT_ALREADY_CREDITED',
    'This payment is credited already; sign in with the wallet to use the credit',
    { canRetry: false, headers: { 'PAYMENT-RESPONSE': receipt.responseHeader } },
  );
}

/** 409: its wallet had the credit, so nothing was moved, and the signature has served its one request. */
export function servedAlready(): Fault {
  return refusePayment(
    'PAYMENT_ALREADY_CREDITED',
    'This signature has served a request already, from the credit of its wallet; nothing was moved. Sign a new one, or sign in with the wallet',
    { canRetry: false },
  );
}

/** The same refusal with the secret that marks a retry, where the same header is to be sent again. */
export function withClaim(error: unknown, claim: string): unknown {
  if (!(error instanceof Fault) || !RETRIED.has(error.code)) return error;
  const headers = { ...error.options.headers, [PAYMENT_CLAIM]: claim };
  return new Fault(error.code, { ...error.options, message: error.message, headers });
}

/** 402: it has failed, and the chain shows that no money arrived for it. */
export function settlementFailed(
  payment: SignedPayment,
  transaction: string | null,
  reason: string,
): Fault {
  if (reason === USED_BEFORE) return usedBefore();
  return refusePayment(
    'SETTLEMENT_FAILED',
    `The payment was not settled (${reason}); no money has reached this service`,
    { reason, headers: failedResponse(payment, transaction, reason) },
  );
}

function failedResponse(
  { network, wallet: payer }: SignedPayment,
  transaction: string | null,
  errorReason: string,
): Record<string, string> {
  const response = { success: false, errorReason, transaction: transaction ?? '', network, payer };
  return { 'PAYMENT-RESPONSE': encodeHeader(response) };
}
