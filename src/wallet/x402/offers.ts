/**
 * What a request is told of payments: the 402 with its offers, and what came of a payment that it
 * brought. Both are said in the words of x402, and of the Machine Payments Protocol where that is
 * offered; behind them is one payment.
 */
import { Fault } from '../../core/faults.ts';
import type { Nano } from '../../core/money.ts';
import { paymentCredential, paymentHeader } from '../../http/identify.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { isJsonObject } from '../../json/json-scan.ts';
import {
  type CredentialField,
  type OfferKind,
  type PaymentRequiredResponse,
  type Payments,
  type Resource,
  paymentReceipt,
} from '../../payments/payments.ts';

/** What clients of version 1 read in place of `PAYMENT-RESPONSE`. */
const X_PAYMENT_RESPONSE = 'X-PAYMENT-RESPONSE';
const OWN_FIELD = 'Payment-Authorization';
const NOT_OFFERED =
  'The authorization scheme Payment is not offered here: pay with x402, or send an API key as Bearer';

/** Whether the client asks for the 402 body of x402 version 1. */
export function isVersionOne({ query }: RequestContext): boolean {
  return query.get('x402Version') === '1';
}

/**
 * The 402 of an offer, in the layout of version 1 for clients that ask for it, with the price of the
 * request where it is known.
 */
export async function paymentRequired(
  context: RequestContext,
  payments: Payments,
  resource: Resource,
  kind: OfferKind,
  price?: Nano,
): Promise<Fault> {
  const { requirements } = payments;
  const answer = await requirements[kind](resource);
  return new Fault('PAYMENT_REQUIRED', {
    body: isVersionOne(context) ? requirements.versionOne(resource, kind, price) : answer.body,
    headers: offerHeaders(payments, answer, 'Authorization'),
  });
}

/** The headers of a 402. A challenge is for one use and for now, so nothing may keep it. */
export function offerHeaders(
  { mpp }: Payments,
  answer: PaymentRequiredResponse,
  field: CredentialField,
): Readonly<Record<string, string>> {
  const challenge = mpp?.challenge(answer.charge, field);
  if (challenge === undefined) return { 'PAYMENT-REQUIRED': answer.header };
  const besideBytes = `www-authenticate: ${challenge}\r\n`.length;
  return {
    'PAYMENT-REQUIRED': answer.headerBeside(besideBytes),
    'www-authenticate': challenge,
    'cache-control': 'no-store',
  };
}

/** Where a credential of the Machine Payments Protocol came; `undefined` for an x402 header. */
function credentialField(context: RequestContext, header: string): CredentialField | undefined {
  if (header === context.header(OWN_FIELD.toLowerCase())) return OWN_FIELD;
  return header === paymentCredential(context) ? 'Authorization' : undefined;
}

/** A request that brings a payment, and what it would be offered instead. */
export interface PaidRequest {
  readonly context: RequestContext;
  readonly payments: Payments;
  readonly resource: Resource;
  readonly kind: OfferKind;
  /** As it came: an x402 header, or a credential of the Machine Payments Protocol. */
  readonly header: string;
}

/**
 * Takes the payment of a request as an x402 header. What is wrong with a credential of the Machine
 * Payments Protocol is a 402 with a new challenge, as that protocol says: it has moved nothing.
 */
export async function withPayment<T>(
  { context, payments, resource, kind, header }: PaidRequest,
  take: (payment: string) => Promise<T>,
): Promise<T> {
  const field = credentialField(context, header);
  if (field === undefined) return take(header);
  const { mpp } = payments;
  if (mpp === undefined) throw new Fault('AUTHENTICATION_FAILED', { message: NOT_OFFERED });
  try {
    return await take(mpp.x402Header(header, field));
  } catch (error) {
    if (!(error instanceof Fault) || error.status !== 400) throw error;
    const { code, options } = await paymentRequired(context, payments, resource, kind);
    const { message } = error;
    const offer = isJsonObject(options.body) ? options.body : {};
    throw new Fault(code, { ...options, message, body: { ...offer, error: message } });
  }
}

/** Tells clients of each protocol what came of a payment. */
export function setPaymentResponse(context: RequestContext, value: string, nowMs: number): void {
  context.set('PAYMENT-RESPONSE', value);
  context.set(X_PAYMENT_RESPONSE, value);
  const header = paymentHeader(context) ?? paymentCredential(context) ?? '';
  if (credentialField(context, header) === undefined) return;
  const receipt = paymentReceipt(value, nowMs);
  if (receipt === undefined) return;
  context.set('Payment-Receipt', receipt);
  context.set('cache-control', 'private');
}
