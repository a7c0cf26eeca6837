/**
 * The abuse guard: which answers count as failures, in whose bucket, and what a blocked caller
 * hears. Its own answers do not count, so a caller that waits gets in again.
 *
 * Failures of a known caller count for its key or wallet. A stranger is counted by failed
 * credentials alone, by address and beginning of the credential, and by address for all of them; so
 * a scanner blocks its own guesses, and neither a valid key nor a request without one at the same
 * address. Public routes are open to everybody.
 */
import type { Config } from '../config/config.ts';
import type { Caller } from '../identity/identity.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { FailureGuard, type LimitLog } from '../billing/limits/limits.ts';
import type { RequestContext, RouteName } from './request-context.ts';
import type { Route } from './route.ts';

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
  readonly #stopPruning: () => void;

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
    this.#stopPruning = parts.clock.every(MINUTE_MS, () => this.#prune());
  }

  /** Throws `FAILED_REQUESTS` while the caller of this context is blocked. */
  refuse(context: RequestContext, route: Route): void {
    if (route.auth === 'public') return;
    const { clock } = this.#parts;
    const { callerIfKnown: caller, failedCredential, address } = context;
    const nowMs = clock.nowMs();
    let untilMs: number | undefined;
    if (caller !== undefined) untilMs = this.#callers.blockedUntilMs(bucketOf(caller), nowMs);
    else if (failedCredential !== undefined) {
      untilMs =
        this.#credentials.blockedUntilMs(credentialBucket(context), nowMs) ??
        this.#addresses.blockedUntilMs(address, nowMs);
    }
    if (untilMs !== undefined)
      this.#block(context, route, Math.ceil((untilMs - nowMs) / SECOND_MS));
  }

  #block({ callerIfKnown: caller }: RequestContext, route: RouteName, seconds: number): never {
    const { config, limitLog, basePath } = this.#parts;
    if (caller !== undefined) {
      limitLog.add({
        accountId: caller.accountId,
        keyId: caller.keyId,
        modelId: `endpoint:${basePath.slice(1)}${route.path}`,
        tier: caller.plan,
        type: 'FAILED_REQUESTS',
      });
    }
    const { service, publicUrl, limits } = config();
    const { failures, windowSeconds, blockSeconds } = limits.guard;
    const docsUrl = service.docsUrl ?? `${publicUrl}/docs`;
    throw new Fault('FAILED_REQUESTS', {
      message: `More than ${failures} failed requests in ${windowSeconds} seconds: requests are blocked for ${blockSeconds} seconds; wait ${seconds} seconds and correct the request before sending it again (${docsUrl})`,
      retryAfterSeconds: seconds,
    });
  }

  /**
   * Counts an answer that failed: any non-success answer of a known caller, except 429s and our own
   * 5xx.
   */
  ended(context: RequestContext): void {
    const { callerIfKnown: caller, failedCredential, statusCode: status, route } = context;
    // What the guard refused itself does not count.
    if (status === 429 || route?.operational === true) return;
    if (caller !== undefined) {
      if (status < 400 || status >= 500) return;
      this.#callers.failed(bucketOf(caller), this.#parts.clock.nowMs());
    } else if (failedCredential !== undefined) {
      const nowMs = this.#parts.clock.nowMs();
      this.#credentials.failed(credentialBucket(context), nowMs);
      this.#addresses.failed(context.address, nowMs);
    }
  }

  close(): void {
    this.#stopPruning();
  }

  #prune(): void {
    const nowMs = this.#parts.clock.nowMs();
    for (const guard of [this.#callers, this.#credentials, this.#addresses]) guard.prune(nowMs);
  }
}

/** A key, or the wallet of who has none. */
function bucketOf(caller: Caller): string {
  return caller.keyId === '' ? caller.accountId : caller.keyId;
}

function credentialBucket(context: RequestContext): string {
  return `${context.address}|${context.failedCredential ?? ''}`;
}
