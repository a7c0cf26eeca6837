/**
 * The error responses of payments that are not credited. Each message states whether money has moved and
 * whether to send the same header again, because wrong advice costs the payer a second payment.
 */
import { Fault } from '../core/faults.ts';
import { encodeHeader } from './header-codec.ts';
import { type SignedPayment, paymentError } from './payment.ts';
import { USED_BEFORE } from './rail.ts';

const RETRY = { retryAfterSeconds: 5 };
const RETRYABLE = new Set(['SETTLEMENT_PENDING', 'SERVICE_UNAVAILABLE']);

/** Whether a verification failed because the chain did not respond. */
export function isChainTrouble(reason: string): boolean {
  const isVerdict = reason.startsWith('invalid_') || reason.startsWith('permit2_');
  return !isVerdict && reason !== 'asset_not_deployed_contract';
}

export function rejected(reason: string): Fault {
  let words = '';
  if (reason.endsWith('_insufficient_balance')) {
    words = ': the wallet has less of the token than the signed amount';
  } else if (reason === 'permit2_allowance_required') {
    words =
      ': the wallet has not approved the Permit2 contract for the signed amount; sign the approval too (eip2612GasSponsoring, with the current nonce of the token), send the approval to the chain, or pay with the scheme exact';
  }
  return paymentError(
    'PAYMENT_VERIFICATION_FAILED',
    `The payment was not accepted${words} (${reason}); no money has moved`,
    { reason },
  );
}

/** 400: the payment was on the chain before it was sent here, so it pays for something else. */
export function usedBefore(): Fault {
  return paymentError(
    'PAYMENT_VERIFICATION_FAILED',
    'The authorization was used on the chain before it was sent here, so it pays for something else; sign a new one',
    { reason: USED_BEFORE },
  );
}

/** 409: the authorization is being settled with other content. */
export function inProgress(): Fault {
  return paymentError(
    'PAYMENT_IN_PROGRESS',
    'Another payment under the same authorization is being settled',
    RETRY,
  );
}

/** 503: nothing was sent, so the same header can be sent again. */
export function notSent(reason: string): Fault {
  return paymentError(
    'SERVICE_UNAVAILABLE',
    'The payment could not be sent to the chain yet, no money has moved; send the same header again, do not sign a new one',
    { ...RETRY, cause: reason },
  );
}

/** 503: the bound of concurrent payments is reached. */
export function busy(): Fault {
  return paymentError(
    'SERVICE_UNAVAILABLE',
    'Too many payments are being settled, no money has moved; send the same header again, do not sign a new one',
    RETRY,
  );
}

/** 429: settlements of this payer were reverted, and each cost gas. */
export function backingOff(seconds: number): Fault {
  return paymentError(
    'RATE_LIMIT_EXCEEDED',
    `Earlier payments of this wallet were reverted on the chain; no payment of it is sent for ${seconds} s`,
    { retryAfterSeconds: seconds },
  );
}

/** 409: one identifier names one payment. */
export function identifierTaken(): Fault {
  return paymentError(
    'PAYMENT_IN_PROGRESS',
    'The payment identifier belongs to another payment; use a new one',
    { canRetry: false, reason: 'payment_identifier_conflict' },
  );
}

/** 202: the payment may arrive. Never a 402, which makes agents sign a second payment. */
export function pending(payment: SignedPayment, transaction: string | null): Fault {
  return paymentError(
    'SETTLEMENT_PENDING',
    'The payment is not confirmed yet; send the same header again, do not sign a new one',
    { ...RETRY, headers: failedResponse(payment, transaction, 'settlement_pending') },
  );
}

/** 409: the payment is credited, and the caller may have copied it from the chain. */
export function alreadyCredited(receipt: { readonly responseHeader: string }): Fault {
  return paymentError(
    'PAYMENT_ALREADY_CREDITED',
    'This payment is credited already; sign in with the wallet to use the credit',
    { canRetry: false, headers: { 'PAYMENT-RESPONSE': receipt.responseHeader } },
  );
}

/** 409: the signature has served one request from the credit of the wallet. */
export function servedAlready(): Fault {
  return paymentError(
    'PAYMENT_ALREADY_CREDITED',
    'This signature has already served a request from the credit of its wallet; no money has moved. Sign a new one, or sign in with the wallet',
    { canRetry: false },
  );
}

/** Adds the secret that marks a retry to errors after which the same header is sent again. */
export function withClaim(error: unknown, claim: string): unknown {
  if (!(error instanceof Fault) || !RETRYABLE.has(error.code)) return error;
  const headers = { ...error.options.headers, 'PAYMENT-CLAIM': claim };
  return new Fault(error.code, { ...error.options, message: error.message, headers });
}

/** 402: the payment has failed, and the chain shows that no money arrived. */
export function settlementFailed(
  payment: SignedPayment,
  transaction: string | null,
  reason: string,
): Fault {
  if (reason === USED_BEFORE) return usedBefore();
  return paymentError(
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
