/**
 * `POST /x402/top-up`: without a payment header the requirements (402), with one the credit. No
 * account and no sign-in is needed: the signed payment says whose credit it is.
 */
import { topUpBody } from '../../payments/payments.ts';
import { Fault } from '../../core/faults.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { paymentHeader, retryProof } from '../../http/identify.ts';
import type { Route } from '../../http/route.ts';
import { TOP_UP } from './describe.ts';
import { requireConfigured, takePaymentTurn } from './route-checks.ts';
import type { WalletRouteParts } from './wallet-route-parts.ts';

/** What clients of version 1 read in place of `PAYMENT-RESPONSE`. */
const X_PAYMENT_RESPONSE = 'X-PAYMENT-RESPONSE';

const PATH = '/x402/top-up';

export function topUpRoute(parts: WalletRouteParts): Route {
  return {
    method: 'POST',
    path: PATH,
    auth: 'public',
    describe: TOP_UP,
    handle: async (context) => {
      await takePaymentTurn(parts, context, parts.perMinute.topUp);
      const payments = requireConfigured(parts);
      const header = paymentHeader(context);
      if (header === undefined) throw requirements(parts, context);
      const receipt = await payments.topUp(header, retryProof(context));
      setPaymentResponse(context, receipt.responseHeader);
      await context.json(200, topUpBody(receipt));
    },
  };
}

/** Tells clients of both versions what came of a payment. */
export function setPaymentResponse(context: RequestContext, value: string): void {
  context.set('PAYMENT-RESPONSE', value);
  context.set(X_PAYMENT_RESPONSE, value);
}

function requirements(parts: WalletRouteParts, context: RequestContext): Fault {
  const payments = requireConfigured(parts);
  const resource = { path: parts.basePath + PATH, description: 'Wallet credit' };
  const answer = payments.topUpRequired(resource);
  const wantsFirst = context.query.get('x402Version') === '1';
  return new Fault('PAYMENT_REQUIRED', {
    body: wantsFirst ? payments.versionOne(resource) : answer.body,
    headers: { 'PAYMENT-REQUIRED': answer.header },
  });
}
