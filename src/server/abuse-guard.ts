/**
 * The abuse guard, wired: which answers count as failures, in whose bucket, and what a blocked
 * caller hears. Its own answers do not count, so a caller that waits gets in again.
 *
 * Failures of a known caller count for its key or wallet. A stranger is counted by failed
 * credentials alone, by address and beginning of the credential, and by address for all of them; so
 * a scanner blocks its own guesses, and neither a valid key nor a request without one at the same
 * address. Public routes are open to everybody.
 */
import type { RequestContext } from '../http/request-context.ts';
import type { Route } from '../http/route.ts';
import type { Config } from '../config/config.ts';
import type { Caller } from '../identity/identity.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { FailureGuard, type LimitLog } from '../billing/limits/limits.ts';

/** Credentials that may fail at one address, in blocks of what one caller may fail. */
const CREDENTIALS_OF_ADDRESS = 10;

export interface AbuseGuardParts {
  readonly config: () => Config;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly basePath: string;
}

export class AbuseGuard {
  readonly #parts: AbuseGuardParts;
  readonly #callers: FailureGuard;
  readonly #credentials: FailureGuard;
  readonly #addresses: FailureGuard;

  constructor(parts: AbuseGuardParts) {
    this.#parts = parts;
    const settings = (times: number) => () => {
      const { failures, windowSeconds, blockSeconds } = parts.config().limits.guard;
      return {
        failures: failures * times,
        windowMs: windowSeconds * SECOND_MS,
        blockMs: blockSeconds * SECOND_MS,
      };
    };
    this.#callers = new FailureGuard(settings(1));
    this.#credentials = new FailureGuard(settings(1));
    this.#addresses = new FailureGuard(settings(CREDENTIALS_OF_ADDRESS));
  }

  /** Throws `FAILED_REQUESTS` while the caller of this context is blocked. */
  refuse(context: RequestContext, route: Route): void {
    if (route.auth === 'public') return;
    const nowMs = this.#parts.clock.nowMs();
    const untilMs = this.#blockedUntilMs(context, nowMs);
    if (untilMs === undefined) return;
    this.#log(context, route);
    const seconds = Math.ceil((untilMs - nowMs) / SECOND_MS);
    const { failures, windowSeconds, blockSeconds } = this.#parts.config().limits.guard;
    throw new Fault('FAILED_REQUESTS', {
      message: `More than ${failures} failed requests in ${windowSeconds} seconds: requests are blocked for ${blockSeconds} seconds; wait ${seconds} seconds and correct the request before sending it again (${this.#docsUrl()})`,
      retryAfterSeconds: seconds,
    });
  }

  /** Counts an answer that failed. */
  count(context: RequestContext, status: number): void {
    const caller = context.callerIfKnown;
    if (caller !== undefined) {
      if (!isFailure(status)) return;
      this.#callers.failed(bucketOf(caller), this.#parts.clock.nowMs());
      return;
    }
    // What the guard refused itself does not count.
    if (context.failedCredential === undefined || status === 429) return;
    const nowMs = this.#parts.clock.nowMs();
    this.#credentials.failed(credentialBucket(context), nowMs);
    this.#addresses.failed(context.address, nowMs);
  }

  prune(): void {
    const nowMs = this.#parts.clock.nowMs();
    this.#callers.prune(nowMs);
    this.#credentials.prune(nowMs);
    this.#addresses.prune(nowMs);
  }

  #blockedUntilMs(context: RequestContext, nowMs: number): number | undefined {
    const caller = context.callerIfKnown;
    if (caller !== undefined) return this.#callers.blockedUntilMs(bucketOf(caller), nowMs);
    if (context.failedCredential === undefined) return undefined;
    return (
      this.#credentials.blockedUntilMs(credentialBucket(context), nowMs) ??
      this.#addresses.blockedUntilMs(context.address, nowMs)
    );
  }

  #log(context: RequestContext, route: Route): void {
    const caller = context.callerIfKnown;
    if (caller === undefined) return;
    this.#parts.limitLog.add({
      accountId: caller.accountId,
      keyId: caller.keyId,
      modelId: `endpoint:${this.#parts.basePath.slice(1)}${route.path}`,
      tier: caller.plan,
      type: 'FAILED_REQUESTS',
    });
  }

  #docsUrl(): string {
    const { service, publicUrl } = this.#parts.config();
    return service.docsUrl ?? `${publicUrl}/docs`;
  }
}

/** decisions.md 11: any non-success answer counts, except 429s and our own 5xx. */
function isFailure(status: number): boolean {
  return status >= 400 && status < 500 && status !== 429;
}

/** A key, or the wallet of who has none. */
function bucketOf(caller: Caller): string {
  return caller.keyId === '' ? caller.accountId : caller.keyId;
}

function credentialBucket(context: RequestContext): string {
  return `${context.address}|${context.failedCredential ?? ''}`;
}
