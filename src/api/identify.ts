/**
 * Stage "identify": who calls, by the route's rule. A wallet header beats Bearer where wallets are
 * welcome; without any credential the answer is the 402 that tells how to get one.
 */
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../kernel/faults.ts';
import type { RetryProof } from '../payments/payments.ts';
import type { Exchange } from './exchange.ts';
import type { Route } from './route.ts';

export interface IdentifyParts {
  /** The caller behind an API key or a wallet's session token. Throws 401. */
  readonly callerOfBearer: (token: string) => Promise<Caller>;
  /** The caller behind a sign-in header. Throws 401. */
  readonly callerOfSignIn: (header: string, exchange: Exchange) => Promise<Caller>;
  /**
   * The caller behind a payment header on an endpoint that sells something. The payment is checked;
   * it is taken as a top-up when the request is admitted.
   */
  readonly callerOfPayment: (header: string, exchange: Exchange) => Promise<Caller>;
  /** The 402 discovery answer. */
  readonly discovery: (exchange: Exchange, route: Route) => Fault;
  /** Refuses a caller with too many requests in flight; gives the slot back when it closes. */
  readonly enter: (exchange: Exchange, caller: Caller, route: Route) => void;
}

const BEARER = /^Bearer[ ]+(\S+)$/i;

export function identifyStage(parts: IdentifyParts) {
  return async (exchange: Exchange, route: Route): Promise<Caller | undefined> => {
    if (route.auth === 'public') return optionalCaller(parts, exchange);
    const caller = await credentialCaller(parts, exchange, route);
    if (caller === undefined) throw parts.discovery(exchange, route);
    // Known from here on, whatever is refused next: the guard and the log name the caller.
    exchange.identify(caller);
    requireKind(caller, route);
    parts.enter(exchange, caller, route);
    return caller;
  };
}

/** A public route shows more to a known caller, and does not mind an unknown one. */
async function optionalCaller(
  parts: IdentifyParts,
  exchange: Exchange,
): Promise<Caller | undefined> {
  const token = BEARER.exec(exchange.header('authorization') ?? '')?.[1];
  if (token === undefined) return undefined;
  try {
    return await parts.callerOfBearer(token);
  } catch (error) {
    // A wrong key on a public route is not an error of that route.
    if (!(error instanceof Fault)) throw error;
    noteFailedCredential(exchange, error);
    return undefined;
  }
}

/** Characters of a presented key that tell it from others; most of its random part is not kept. */
const CREDENTIAL_PREFIX_CHARS = 32;

/** Notes a credential that was refused, for the guard; a missing one and a payment are none. */
export function noteFailedCredential(exchange: Exchange, error: unknown): void {
  if (!(error instanceof Fault) || (error.status !== 401 && error.status !== 403)) return;
  if (exchange.callerIfKnown !== undefined) return;
  const authorization = exchange.header('authorization');
  // Sign-ins differ each time: those of one address count together.
  exchange.failedCredential =
    authorization === undefined ? 'sign-in' : authorization.slice(0, CREDENTIAL_PREFIX_CHARS);
}

/** Wallet headers beat Bearer where wallets are welcome, and a payment beats a sign-in. */
function credentialCaller(
  parts: IdentifyParts,
  exchange: Exchange,
  route: Route,
): Promise<Caller> | undefined {
  const signIn = exchange.header('sign-in-with-x') ?? exchange.header('x-sign-in-with-x');
  const takesWallets = route.auth.includes('wallet');
  const payment = paymentHeader(exchange);
  if (payment !== undefined && route.auth === 'key-or-wallet' && route.sells !== undefined) {
    return payingCaller(parts, exchange, payment, signIn);
  }
  if (signIn !== undefined && takesWallets) return parts.callerOfSignIn(signIn, exchange);
  const authorization = exchange.header('authorization');
  if (authorization !== undefined) return bearerCaller(parts, authorization);
  if (signIn !== undefined) {
    throw new Fault('AUTHENTICATION_FAILED', {
      message: 'A wallet sign-in is not accepted on this endpoint; send an API key',
      canRetry: false,
    });
  }
  if (payment !== undefined) throw new Fault('PAYMENT_HEADER_NOT_ACCEPTED', { canRetry: false });
  return undefined;
}

/** A payment that somebody else may have opened lets nobody in; a sign-in beside it does. */
async function payingCaller(
  parts: IdentifyParts,
  exchange: Exchange,
  payment: string,
  signIn: string | undefined,
): Promise<Caller> {
  try {
    return await parts.callerOfPayment(payment, exchange);
  } catch (error) {
    const isUsed = error instanceof Fault && error.code === 'PAYMENT_ALREADY_CREDITED';
    if (!isUsed || signIn === undefined) throw error;
    return parts.callerOfSignIn(signIn, exchange);
  }
}

/** The payment header of a request, under any of its three names. */
export function paymentHeader(exchange: Exchange): string | undefined {
  return (
    exchange.header('payment-signature') ??
    exchange.header('x-402-payment') ??
    exchange.header('x-payment')
  );
}

/** What marks a retry of the request that opened a payment. */
export function retryProof(exchange: Exchange): RetryProof {
  return {
    claim: exchange.header('payment-claim'),
    idempotencyKey: exchange.header('idempotency-key'),
    path: exchange.path,
  };
}

function bearerCaller(parts: IdentifyParts, authorization: string): Promise<Caller> {
  const token = BEARER.exec(authorization)?.[1];
  if (token === undefined) {
    throw new Fault('AUTHENTICATION_FAILED', {
      message: 'Authentication failed: send the header "Authorization: Bearer <API key>"',
      canRetry: false,
    });
  }
  return parts.callerOfBearer(token);
}

function requireKind(caller: Caller, route: Route): void {
  const isAdmin = caller.kind === 'key' && caller.keyKind === 'ADMIN';
  const needsAdmin =
    route.auth === 'admin' || (route.auth === 'admin-or-wallet' && caller.kind === 'key');
  if (needsAdmin && !isAdmin) throw new Fault('ADMIN_KEY_REQUIRED', { canRetry: false });
  if (route.auth === 'key' && caller.kind === 'wallet') {
    throw new Fault('AUTHENTICATION_FAILED', {
      message: 'This endpoint needs an API key; a wallet token is not accepted',
      canRetry: false,
    });
  }
  if (route.auth === 'wallet' && caller.kind !== 'wallet') {
    throw new Fault('AUTHENTICATION_FAILED', {
      message: 'This endpoint needs a wallet sign-in',
      canRetry: false,
    });
  }
}
