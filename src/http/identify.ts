/**
 * Stage "identify": who calls, by the route's rule. A wallet header beats Bearer where wallets are
 * welcome; without any credential the answer is the 402 that tells how to get one.
 */
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import type { RetryProof } from '../payments/payments.ts';
import type { RequestContext } from './request-context.ts';
import type { Route } from './route.ts';

export interface IdentifyParts {
  /** The caller behind an API key or a wallet's session token. Throws 401. */
  readonly callerOfBearer: (token: string) => Promise<Caller>;
  /** The caller behind a sign-in header. Throws 401. */
  readonly callerOfSignIn: (header: string, context: RequestContext) => Promise<Caller>;
  /**
   * The caller behind a payment header on an endpoint that sells something. The payment is checked;
   * it is taken as a top-up when the request is admitted.
   */
  readonly callerOfPayment: (header: string, context: RequestContext) => Promise<Caller>;
  /** The 402 discovery answer. */
  readonly discovery: (context: RequestContext, route: Route) => Fault;
  /** Refuses a caller with too many requests in flight; gives the slot back when it closes. */
  readonly enter: (context: RequestContext, caller: Caller, route: Route) => void;
}

const BEARER = /^Bearer[ ]+(\S+)$/i;

export function identifyStage(parts: IdentifyParts) {
  return async (context: RequestContext, route: Route): Promise<Caller | undefined> => {
    if (route.auth === 'public') return optionalCaller(parts, context);
    const caller = await credentialCaller(parts, context, route);
    if (caller === undefined) throw parts.discovery(context, route);
    // Known from here on, whatever is refused next: the guard and the log name the caller.
    context.callerIfKnown = caller;
    requireKind(caller, route);
    parts.enter(context, caller, route);
    return caller;
  };
}

/** A public route shows more to a known caller, and does not mind an unknown one. */
async function optionalCaller(
  parts: IdentifyParts,
  context: RequestContext,
): Promise<Caller | undefined> {
  const token = BEARER.exec(context.header('authorization') ?? '')?.[1];
  if (token === undefined) return undefined;
  try {
    return await parts.callerOfBearer(token);
  } catch (error) {
    // A wrong key on a public route is not an error of that route.
    if (!(error instanceof Fault)) throw error;
    noteFailedCredential(context, error);
    return undefined;
  }
}

/** Characters of a presented key that tell it from others; most of its random part is not kept. */
const CREDENTIAL_PREFIX_CHARS = 32;

/** Notes a credential that was refused, for the guard; a missing one and a payment are none. */
export function noteFailedCredential(context: RequestContext, error: unknown): void {
  if (!(error instanceof Fault) || (error.status !== 401 && error.status !== 403)) return;
  if (context.callerIfKnown !== undefined) return;
  const authorization = context.header('authorization');
  // Sign-ins differ each time: those of one address count together.
  context.failedCredential =
    authorization === undefined ? 'sign-in' : authorization.slice(0, CREDENTIAL_PREFIX_CHARS);
}

/** Wallet headers beat Bearer where wallets are welcome, and a payment beats a sign-in. */
function credentialCaller(
  parts: IdentifyParts,
  context: RequestContext,
  route: Route,
): Promise<Caller> | undefined {
  const signIn = context.header('sign-in-with-x') ?? context.header('x-sign-in-with-x');
  const takesWallets = route.auth.includes('wallet');
  const payment = paymentHeader(context);
  if (payment !== undefined && route.auth === 'key-or-wallet' && route.sells !== undefined) {
    return payingCaller(parts, context, payment, signIn);
  }
  if (signIn !== undefined && takesWallets) return parts.callerOfSignIn(signIn, context);
  const authorization = context.header('authorization');
  if (authorization !== undefined) return bearerCaller(parts, authorization);
  if (signIn !== undefined) {
    throw new Fault('AUTHENTICATION_FAILED', {
      message: 'A wallet sign-in is not accepted on this endpoint; send an API key',
    });
  }
  if (payment !== undefined) throw new Fault('PAYMENT_HEADER_NOT_ACCEPTED');
  return undefined;
}

/** A payment that somebody else may have opened lets nobody in; a sign-in beside it does. */
async function payingCaller(
  parts: IdentifyParts,
  context: RequestContext,
  payment: string,
  signIn: string | undefined,
): Promise<Caller> {
  try {
    return await parts.callerOfPayment(payment, context);
  } catch (error) {
    const isUsed = error instanceof Fault && error.code === 'PAYMENT_ALREADY_CREDITED';
    if (!isUsed || signIn === undefined) throw error;
    return parts.callerOfSignIn(signIn, context);
  }
}

/** The payment header of a request, under any of its three names. */
export function paymentHeader(context: RequestContext): string | undefined {
  return (
    context.header('payment-signature') ??
    context.header('x-402-payment') ??
    context.header('x-payment')
  );
}

/** What marks a retry of the request that opened a payment. */
export function retryProof(context: RequestContext): RetryProof {
  return {
    claim: context.header('payment-claim'),
    idempotencyKey: context.header('idempotency-key'),
    path: context.path,
  };
}

function bearerCaller(parts: IdentifyParts, authorization: string): Promise<Caller> {
  const token = BEARER.exec(authorization)?.[1];
  if (token === undefined) {
    throw new Fault('AUTHENTICATION_FAILED', {
      message: 'Authentication failed: send the header "Authorization: Bearer <API key>"',
    });
  }
  return parts.callerOfBearer(token);
}

function requireKind(caller: Caller, route: Route): void {
  const isAdmin = caller.kind === 'key' && caller.keyKind === 'ADMIN';
  const needsAdmin =
    route.auth === 'admin' || (route.auth === 'admin-or-wallet' && caller.kind === 'key');
  if (needsAdmin && !isAdmin) throw new Fault('ADMIN_KEY_REQUIRED');
  if (route.auth === 'key' && caller.kind === 'wallet') {
    throw new Fault('AUTHENTICATION_FAILED', {
      message: 'This endpoint needs an API key; a wallet token is not accepted',
    });
  }
  if (route.auth === 'wallet' && caller.kind !== 'wallet') {
    throw new Fault('AUTHENTICATION_FAILED', {
      message: 'This endpoint needs a wallet sign-in',
    });
  }
}
