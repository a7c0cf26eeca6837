/**
 * 402 responses in the format of x402, and the headers that report the result of a payment: those of x402 and,
 * if it is offered, those of the Machine Payments Protocol for the same payment.
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
  type WalletCredit,
  authOptions,
  paymentReceipt,
} from '../../payments/payments.ts';

/** Description of a resource without one of its own. */
export const SOLD = 'Paid API';
const OWN_FIELD = 'Payment-Authorization';
const NOT_OFFERED =
  'The authorization scheme Payment is not configured: pay with x402, or send an API key as Bearer';

export function isVersionOne({ query }: RequestContext): boolean {
  return query.get('x402Version') === '1';
}

/** The 402 of an offer; in version 1 with the price of the request, if it is known. */
export async function paymentRequired(
  context: RequestContext,
  payments: Payments,
  resource: Resource,
  kind: OfferKind,
  price?: Nano,
): Promise<Fault> {
  const { requirements } = payments;
  const old = isVersionOne(context) ? requirements.versionOne(resource, kind, price) : undefined;
  return required(payments, await requirements[kind](resource), 'Authorization', old);
}

/** The 402 of a wallet whose credit, or whose payment, is too small for a request. */
export async function insufficientCredit(
  payments: Payments,
  resource: Resource,
  credit: WalletCredit,
  isOld: boolean,
): Promise<Fault> {
  const { requirements } = payments;
  const old = isOld ? requirements.versionOne(resource, 'discovery', credit.needed) : undefined;
  const response = await requirements.insufficientCredit(resource, credit);
  // The sign-in or token of the wallet occupies the usual field.
  return required(payments, response, OWN_FIELD, old);
}

/** The 402 of a server that accepts API keys only. */
export function keyRequired(url: string, publicUrl: string, basePath: string): Fault {
  const docs = `${publicUrl}/docs`;
  return new Fault('PAYMENT_REQUIRED', {
    body: {
      x402Version: 2,
      error:
        'Payment required: the request has no credentials. Send the header "Authorization: Bearer <API key>"; wallet payments are not configured on this server',
      resource: { url, description: SOLD, mimeType: 'application/json' },
      accepts: [],
      extensions: {},
      authOptions: authOptions(docs, docs, basePath),
    },
  });
}

/** Sent with `no-store`, because a challenge can be used once and expires. */
function required(
  { mpp }: Payments,
  response: PaymentRequiredResponse,
  field: CredentialField,
  versionOne: object | undefined,
): Fault {
  const body = versionOne ?? response.body;
  const challenge = mpp?.challenge(response.charge, field);
  if (challenge === undefined) {
    return new Fault('PAYMENT_REQUIRED', {
      body,
      headers: { 'PAYMENT-REQUIRED': response.header },
    });
  }
  const header = response.headerBeside(`www-authenticate: ${challenge}\r\n`.length);
  const headers = {
    'PAYMENT-REQUIRED': header,
    'www-authenticate': challenge,
    'cache-control': 'no-store',
  };
  return new Fault('PAYMENT_REQUIRED', { body, headers });
}

/** The header of a credential of the Machine Payments Protocol; `undefined` for an x402 header. */
function credentialField(context: RequestContext, header: string): CredentialField | undefined {
  if (header === context.header(OWN_FIELD.toLowerCase())) return OWN_FIELD;
  return header === paymentCredential(context) ? 'Authorization' : undefined;
}

/** A request with a payment, and the resource and kind of its 402. */
export interface PaidRequest {
  readonly context: RequestContext;
  readonly payments: Payments;
  readonly resource: Resource;
  readonly kind: OfferKind;
  /** An x402 header, or a credential of the Machine Payments Protocol. */
  readonly header: string;
}

/**
 * Calls `take` with the payment of a request as an x402 header. A 400 for a credential of the Machine
 * Payments Protocol becomes a 402 with a new challenge, as that protocol requires.
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

/** Sets the result of a payment in the headers of x402 versions 2 and 1 and of the Machine Payments Protocol. */
export function setPaymentResponse(context: RequestContext, value: string, nowMs: number): void {
  context.set('PAYMENT-RESPONSE', value);
  context.set('X-PAYMENT-RESPONSE', value);
  const header = paymentHeader(context) ?? paymentCredential(context) ?? '';
  if (credentialField(context, header) === undefined) return;
  const receipt = paymentReceipt(value, nowMs);
  if (receipt === undefined) return;
  context.set('Payment-Receipt', receipt);
  context.set('cache-control', 'private');
}
