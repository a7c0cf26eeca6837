/**
 * Stage "identify": rejects request heads that servers in a row could read in different ways, then
 * finds the caller by the rule of the route. A valid wallet header beats Bearer
 * where wallets are accepted. Without any credential the response is the 402 that shows how to get
 * one. A payment header authenticates its payer for the signed amount only.
 */
import type { IncomingMessage } from 'node:http';
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import { sha256Hex } from '../core/ids.ts';
import { type RetryProof, isPaymentCredential } from '../payments/payments.ts';
import { requireRight } from './member-rights.ts';
import type { RequestContext } from './request-context.ts';
import type { Route } from './route.ts';

export interface IdentifyParts {
  /** The caller behind an API key or a wallet's session token. Throws 401. */
  readonly callerOfBearer: (token: string) => Caller | Promise<Caller>;
  /** The caller behind a sign-in header. Throws 401. */
  readonly callerOfSignIn: (header: string, context: RequestContext) => Promise<Caller>;
  /** The caller behind a payment header. The payment is checked here and taken at admission. */
  readonly callerOfPayment: (header: string, context: RequestContext) => Promise<Caller>;
  /** The caller behind a console session. Throws 401, and 403 for a page of another origin. */
  readonly callerOfCookie: (header: string, context: RequestContext) => Promise<Caller> | undefined;
  /**
   * Returns a temporary caller for an anonymous request of x402 version 1, so that its 402 contains
   * the price; `undefined` if the general 402 (`discovery`) is to be sent.
   */
  readonly callerOfQuote: (context: RequestContext, route: Route) => Promise<Caller | undefined>;
  /** The 402 discovery response. */
  readonly discovery: (context: RequestContext, route: Route) => Promise<Fault>;
  /** Throws if the caller has too many requests in flight; sets `context.leave`. */
  readonly enter: (context: RequestContext, caller: Caller, route: Route) => void | Promise<void>;
}

const BEARER = /^Bearer[ ]+(\S+)$/i;

/** Sets the caller of a context, synchronously for a cached key. Throws if the route rejects it. */
export function identifyStage(parts: IdentifyParts) {
  return (context: RequestContext, route: Route): void | Promise<void> => {
    try {
      const calling = callerOf(parts, context, route);
      if (calling instanceof Promise) return identifyLater(parts, context, route, calling);
      return identified(parts, context, route, calling);
    } catch (error) {
      refused(context, route, error);
    }
  };
}

async function identifyLater(
  parts: IdentifyParts,
  context: RequestContext,
  route: Route,
  calling: Promise<Caller>,
): Promise<void> {
  try {
    const caller = await calling;
    if (caller.member !== undefined) {
      // Set before, so that the guard counts a rejection for the member.
      context.callerIfKnown = caller;
      requireRight(caller, route);
    }
    await identified(parts, context, route, caller);
  } catch (error) {
    refused(context, route, error);
  }
}

function identified(
  parts: IdentifyParts,
  context: RequestContext,
  route: Route,
  caller: Caller | undefined,
): void | Promise<void> {
  // Set before further checks, so that the guard and the log name the caller.
  context.callerIfKnown = caller;
  if (route.auth === 'public') return;
  if (caller === undefined) {
    if (route.auth === 'optional-key-or-wallet') return;
    return withoutCaller(parts, context, route);
  }
  // Such a route takes every caller.
  if (route.auth !== 'key-or-wallet') requireKind(caller, route);
  return parts.enter(context, caller, route);
}

async function withoutCaller(
  parts: IdentifyParts,
  context: RequestContext,
  route: Route,
): Promise<void> {
  const quoted = await parts.callerOfQuote(context, route);
  if (quoted === undefined) throw await parts.discovery(context, route);
  context.callerIfKnown = quoted;
  await parts.enter(context, quoted, route);
}

/** A public route ignores an invalid credential. */
function refused(context: RequestContext, route: Route, error: unknown): void {
  noteFailedCredential(context, error);
  if (route.auth !== 'public' || !(error instanceof Fault)) throw error;
}

/** Sets a caller that is already known. Throws if the route rejects it. */
export function identifyAs(context: RequestContext, route: Route, caller: Caller): void {
  context.callerIfKnown = caller;
  if (route.auth === 'public') return;
  requireKind(caller, route);
  requireRight(caller, route);
}

/** Identifies a presented key without most of its random part. */
const CREDENTIAL_PREFIX_CHARS = 32;

/** Stores a rejected credential for the guard; payments do not count. */
function noteFailedCredential(context: RequestContext, error: unknown): void {
  if (!(error instanceof Fault) || (error.status !== 401 && error.status !== 403)) return;
  if (context.callerIfKnown !== undefined) return;
  const { authorization, 'x-api-key': key, cookie } = context.headers;
  const shown = authorization ?? key;
  if (shown !== undefined) {
    context.failedCredential = shown.slice(0, CREDENTIAL_PREFIX_CHARS);
  } else if (cookie !== undefined && signInHeader(context) === undefined) {
    context.failedCredential = sha256Hex(cookie).slice(0, CREDENTIAL_PREFIX_CHARS);
  } else {
    // Sign-ins differ each time: those of one address count together.
    context.failedCredential = 'sign-in';
  }
}

/** Wallet headers take precedence over Bearer if the route accepts wallets, payments over sign-ins. */
function callerOf(
  parts: IdentifyParts,
  context: RequestContext,
  { auth, sells }: Route,
): Caller | Promise<Caller> | undefined {
  const { headers } = context;
  const { authorization } = headers;
  // Clients of the Messages protocol send the key in `x-api-key`.
  const token =
    authorization === undefined ? headers['x-api-key'] : BEARER.exec(authorization)?.[1];
  if (auth === 'public') {
    return token === undefined ? sessionCaller(parts, context) : parts.callerOfBearer(token);
  }
  const signIn = signInHeader(context);
  const payment =
    paymentHeader(context) ?? (token === undefined ? paymentCredential(context) : undefined);
  if (payment !== undefined && auth === 'key-or-wallet' && sells !== undefined) {
    return payingCaller(parts, context, payment, { signIn, token });
  }
  if (signIn !== undefined && auth.includes('wallet')) {
    return signingCaller(parts, context, signIn, token);
  }
  if (token !== undefined) return parts.callerOfBearer(token);
  if (authorization !== undefined) {
    throw new Fault('AUTHENTICATION_FAILED', {
      message:
        'Authentication failed: send the header "Authorization: Bearer <API key>" or "x-api-key: <API key>"',
    });
  }
  if (signIn !== undefined) {
    throw new Fault('AUTHENTICATION_FAILED', {
      message: 'A wallet sign-in is not accepted on this endpoint; send an API key',
    });
  }
  if (payment !== undefined) throw new Fault('PAYMENT_HEADER_NOT_ACCEPTED');
  return sessionCaller(parts, context);
}

/** Falls back to the token of the request if the sign-in is invalid. */
async function signingCaller(
  parts: IdentifyParts,
  context: RequestContext,
  signIn: string,
  token: string | undefined,
): Promise<Caller> {
  try {
    return await parts.callerOfSignIn(signIn, context);
  } catch (error) {
    if (!(error instanceof Fault) || token === undefined) throw error;
    try {
      return await parts.callerOfBearer(token);
    } catch {
      // Both are invalid: report the one with precedence.
      throw error;
    }
  }
}

/** The cookie has the lowest precedence, because browsers send it with every request. */
function sessionCaller(parts: IdentifyParts, context: RequestContext): Promise<Caller> | undefined {
  const { cookie } = context.headers;
  return cookie === undefined ? undefined : parts.callerOfCookie(cookie, context);
}

function signInHeader({ headers }: RequestContext): string | undefined {
  return headers['sign-in-with-x'] ?? headers['x-sign-in-with-x'];
}

/** Credentials beside a payment. */
interface Proofs {
  readonly signIn: string | undefined;
  /** An API key or a wallet token. */
  readonly token: string | undefined;
}

/**
 * The payer may spend what it signed and no more: another shop can have obtained the signature. A
 * sign-in, wallet token or API key of the payer in the same request adds the rest of its credit,
 * within the limits of that key or token. A used payment does not authenticate its sender.
 */
async function payingCaller(
  parts: IdentifyParts,
  context: RequestContext,
  header: string,
  proofs: Proofs,
): Promise<Caller> {
  let payer: Caller;
  try {
    payer = await parts.callerOfPayment(header, context);
  } catch (error) {
    const isUsed = error instanceof Fault && error.code === 'PAYMENT_ALREADY_CREDITED';
    if (!isUsed || proofs.signIn === undefined) throw error;
    return parts.callerOfSignIn(proofs.signIn, context);
  }
  const owner = await provenCaller(parts, context, proofs);
  const { payment } = payer;
  if (payment === undefined || owner?.accountId !== payer.accountId) return payer;
  return { ...owner, payment: { ...payment, limitNano: undefined } };
}

/** The caller of a sign-in or a token; `undefined` if none of them is valid. */
async function provenCaller(
  parts: IdentifyParts,
  context: RequestContext,
  { signIn, token }: Proofs,
): Promise<Caller | undefined> {
  try {
    if (signIn !== undefined) return await signingCaller(parts, context, signIn, token);
    return token === undefined ? undefined : await parts.callerOfBearer(token);
  } catch (error) {
    // The payment is valid without it, for the signed amount.
    if (error instanceof Fault) return undefined;
    throw error;
  }
}

export function paymentHeader({ headers }: RequestContext): string | undefined {
  return (
    headers['payment-signature'] ??
    headers['x-402-payment'] ??
    headers['x-payment'] ??
    headers['payment-authorization']
  );
}

/** A credential of the Machine Payments Protocol in the `Authorization` header. */
export function paymentCredential({ headers }: RequestContext): string | undefined {
  const { authorization } = headers;
  return authorization !== undefined && isPaymentCredential(authorization)
    ? authorization
    : undefined;
}

/** Proves a retry of the request that opened a payment. */
export function retryProof({
  headers,
  path,
  countedAddress: clientAddress,
}: RequestContext): RetryProof {
  const { 'payment-claim': claim, 'idempotency-key': idempotencyKey } = headers;
  return { claim, idempotencyKey, path, clientAddress };
}

function requireKind(caller: Caller, route: Route): void {
  // The role of a member is checked beside this, by `requireRight`.
  const isAdmin = caller.kind === 'key' && caller.keyKind !== 'INFERENCE';
  // A signed-in wallet owns its account; a wallet token may have limits.
  const isWalletOwner = caller.kind === 'wallet' && caller.session !== undefined;
  if (isWalletOwner && (route.auth === 'admin' || route.auth === 'key')) return;
  const needsAdmin =
    route.auth === 'admin' ||
    route.auth === 'operator' ||
    (route.auth === 'admin-or-wallet' && caller.kind === 'key');
  if (needsAdmin && !isAdmin) throw new Fault('ADMIN_KEY_REQUIRED');
  if (route.auth === 'operator' && caller.isOperator !== true) {
    throw new Fault('OPERATOR_KEY_REQUIRED');
  }
  if (route.auth === 'admin-or-wallet' && isLimitedToken(caller)) {
    throw new Fault('AUTHENTICATION_FAILED', {
      message:
        'A wallet token with a limit does not manage its account; send the signature of the wallet in SIGN-IN-WITH-X',
    });
  }
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

/** A wallet token with a spend limit, which does not manage the account. */
function isLimitedToken({ kind, capId }: Caller): boolean {
  return kind === 'wallet' && capId !== undefined;
}

const HOST = 'host';
const CREDENTIAL = 'authorization';
/** RFC 3986 §3.2.2: an IPv6 address in brackets, or a name or IPv4 address; then a port. */
const HOST_VALUE = /^(?:\[[\da-f:.]+\]|[\w.~!$&'()*+,;=%-]*)(?::\d*)?$/i;

/**
 * Throws 400 for a missing, repeated or malformed Host (RFC 9112 §3.2) and for several credentials:
 * servers in a row could each read another one.
 */
export function requireClearHead({ rawHeaders, headers, httpVersionMinor }: IncomingMessage): void {
  let hosts = 0;
  let credentials = 0;
  for (let at = 0; at < rawHeaders.length; at += 2) {
    const name = rawHeaders[at] ?? '';
    if (name.length === HOST.length && name.toLowerCase() === HOST) hosts += 1;
    else if (name.length === CREDENTIAL.length && name.toLowerCase() === CREDENTIAL) {
      credentials += 1;
    }
  }
  if (hosts > 1 || (hosts === 0 && httpVersionMinor !== 0)) {
    throw new Fault('INVALID_REQUEST', {
      message: `The request has ${hosts === 0 ? 'no' : 'more than one'} Host header; send exactly one`,
    });
  }
  if (!HOST_VALUE.test(headers.host ?? '')) {
    throw new Fault('INVALID_REQUEST', {
      message: 'The Host header is malformed; send a host name or address, and a port if needed',
    });
  }
  if (credentials > 1) {
    throw new Fault('INVALID_REQUEST', {
      message: 'The request has more than one Authorization header; send one',
    });
  }
}
