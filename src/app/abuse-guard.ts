/**
 * The abuse guard, wired: which answers count as failures, in whose bucket, and what a blocked
 * caller hears. Its own answers do not count, so a caller that waits gets in again.
 */
import type { Exchange } from '../api/exchange.ts';
import type { Route } from '../api/route.ts';
import { guardBucket } from '../api/server.ts';
import type { Config } from '../config/config.ts';
import { type Clock, SECOND_MS } from '../kernel/clock.ts';
import { Fault } from '../kernel/faults.ts';
import { FailureGuard, type LimitLog } from '../limits/limits.ts';

export interface AbuseGuardParts {
  readonly config: () => Config;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly basePath: string;
}

export class AbuseGuard {
  readonly #parts: AbuseGuardParts;
  readonly #guard: FailureGuard;

  constructor(parts: AbuseGuardParts) {
    this.#parts = parts;
    this.#guard = new FailureGuard(() => {
      const { failures, windowSeconds, blockSeconds } = parts.config().limits.guard;
      return {
        failures,
        windowMs: windowSeconds * SECOND_MS,
        blockMs: blockSeconds * SECOND_MS,
      };
    });
  }

  /** Throws `FAILED_REQUESTS` while the caller of this exchange is blocked. */
  refuse(exchange: Exchange, route: Route): void {
    const nowMs = this.#parts.clock.nowMs();
    const untilMs = this.#guard.blockedUntilMs(guardBucket(exchange), nowMs);
    if (untilMs === undefined) return;
    this.#log(exchange, route);
    const seconds = Math.ceil((untilMs - nowMs) / SECOND_MS);
    const { failures, windowSeconds, blockSeconds } = this.#parts.config().limits.guard;
    throw new Fault('FAILED_REQUESTS', {
      message: `More than ${failures} failed requests in ${windowSeconds} seconds: requests are blocked for ${blockSeconds} seconds; wait ${seconds} seconds and correct the request before sending it again (${this.#docsUrl()})`,
      retryAfterSeconds: seconds,
    });
  }

  /** Counts an answer that failed. */
  count(exchange: Exchange, status: number): void {
    if (!isFailure(exchange, status)) return;
    this.#guard.failed(guardBucket(exchange), this.#parts.clock.nowMs());
  }

  prune(): void {
    this.#guard.prune(this.#parts.clock.nowMs());
  }

  #log(exchange: Exchange, route: Route): void {
    const caller = exchange.callerIfKnown;
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

/**
 * decisions.md 11: any non-success answer counts, except the discovery 402, 429s and our own 5xx.
 */
function isFailure(exchange: Exchange, status: number): boolean {
  if (status < 400 || status >= 500 || status === 429) return false;
  return !(status === 402 && exchange.callerIfKnown === undefined);
}
