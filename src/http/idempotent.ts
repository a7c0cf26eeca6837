/**
 * Stage "idempotency", for every POST that sells or makes something. The first request with a key
 * runs, and its response is kept for 24 hours. Later requests with the same body get that response
 * and pay nothing, concurrent ones wait for it, and another body is a 400.
 *
 * Only success is kept: after an error the next request with the key runs. A response that is too
 * large to keep, and a stream that breaks off after paid text, spend the key: later requests get
 * 410. A request with a key goes on when its caller leaves, since the retry needs its response. The
 * sale spends the key in the transaction of its charge: a request that has lost its key to another
 * one is not charged, and gets the response of the other, or 409.
 */
import { createHash } from 'node:crypto';
import {
  type Idempotency,
  type StoredResponse,
  parseIdempotencyKey,
} from '../billing/idempotency/idempotency.ts';
import type { Caller } from '../identity/identity.ts';
import { MINUTE_MS } from '../core/clock.ts';
import { updateInTurns } from '../core/event-loop.ts';
import { boundariesIn, boundaryOf } from './multipart-boundary.ts';
import type { RequestContext } from './request-context.ts';
import type { Route } from './route.ts';

/** A duplicate waits for a running request as long as an engine may take. */
const MAX_WAIT_MS = 10 * MINUTE_MS;

export type RunOnce = (context: RequestContext, route: Route) => void | Promise<void>;

export interface IdempotentParts {
  readonly idempotency: Idempotency;
  /** Balance headers of a known caller; a replay reports the current balance. */
  readonly balanceHeaders: (caller: Caller) => Promise<Record<string, string>>;
}

/** Whether requests of the route may have a key; some routes read it themselves. */
export function takesIdempotencyKey({ sells, keepsResponse, method }: Route): boolean {
  return (sells !== undefined || keepsResponse === true) && method === 'POST';
}

export function idempotentStage(parts: IdempotentParts): RunOnce {
  return (context, route) => {
    const header = takesIdempotencyKey(route) ? context.headers['idempotency-key'] : undefined;
    const key = header === undefined ? undefined : parseIdempotencyKey(header);
    return key === undefined ? route.handle(context) : handleOnce(parts, context, route, key);
  };
}

async function handleOnce(
  parts: IdempotentParts,
  context: RequestContext,
  route: Route,
  key: string,
): Promise<void> {
  const stored = await parts.idempotency.once(
    {
      requestId: context.requestId,
      caller: `answers:${context.caller.accountId}`,
      accountId: context.caller.accountId,
      key,
      fingerprint: await fingerprintOf(context),
      signal: context.signal,
      maxWaitMs: MAX_WAIT_MS,
      hasBegun: () => context.answered,
    },
    async (token) => {
      context.keepFor(token, parts.idempotency);
      await route.handle(context);
    },
  );
  if (stored !== undefined) await replay(parts, context, stored);
}

async function replay(
  parts: IdempotentParts,
  context: RequestContext,
  answer: StoredResponse,
): Promise<void> {
  const { 'content-type': contentType = 'application/json', ...headers } = answer.headers;
  // Before the stored headers: if it fails, the error response has the id of its own request.
  const balance = await parts.balanceHeaders(context.caller);
  context.setAll(headers);
  context.setAll(balance);
  context.set('idempotent-replayed', 'true');
  if (!contentType.startsWith('text/event-stream')) {
    return context.bytes(answer.status, contentType, answer.body);
  }
  context.stream(answer.status, contentType).end(answer.body);
}

/** Returns a digest of method, path and body. */
async function fingerprintOf(context: RequestContext): Promise<string> {
  const { body } = context;
  const hash = createHash('sha256').update(`${context.request.method} ${context.path}\n`);
  // The boundary of a form is random and differs from retry to retry, so it is left out.
  const boundary = boundaryOf(context.headers['content-type']);
  let start = 0;
  if (boundary !== undefined) {
    for (const at of await boundariesIn(body, boundary)) {
      await updateInTurns(hash, body.subarray(start, at));
      hash.update('\n');
      start = at + boundary.length;
    }
  }
  await updateInTurns(hash, body.subarray(start));
  return hash.update('\n').digest('hex');
}
