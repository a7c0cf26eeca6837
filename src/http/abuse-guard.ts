/**
 * The abuse guard: which answers count as failures, in whose bucket, and what a blocked caller
 * hears. Its own answers do not count, so a caller that waits gets in again.
 *
 * Failures of a known caller count for its key or wallet. A stranger is counted by failed
 * credentials alone, by address and beginning of the credential, and by address for all of them; so
 * a scanner blocks its own guesses, and neither a valid key nor a request without one at the same
 * address. Public routes are open to everybody. Processes that share a database tell each other.
 * All times are of the monotonic clock: a system clock that is set back prolongs no block.
 */
import type { ConfigInForce } from '../config/config.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { sha256Hex } from '../core/ids.ts';
import type { LimitLog } from '../billing/limits/limits.ts';
import { type Notices, type Store, isShared } from '../db/db.ts';
import type { RequestContext, RouteName } from './request-context.ts';
import type { Route } from './route.ts';

/** Credentials that may fail at one address, in blocks of what one caller may fail. */
const CREDENTIALS_OF_ADDRESS = 10;

/** How long failures of this process are gathered before the others hear of them. */
const TELL_AFTER_MS = 250;
/** Buckets in one word; what is above that is told by the next failure. */
const BUCKETS_OF_WORD = 64;
const FAILED = 'failed';

export interface AbuseGuardParts {
  /** Where it is shared, processes tell each other of failures. */
  readonly store: Store;
  /** Unique among the processes. */
  readonly processId: string;
  readonly config: ConfigInForce;
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
  /** Failures that the others have not heard of, by guard and bucket. */
  readonly #untold = new Map<string, number>();
  #notices: Notices | undefined;

  constructor(parts: AbuseGuardParts) {
    this.#parts = parts;
    const settings = (times: number) => () => {
      const { failures, windowSeconds, blockSeconds } = parts.config.current.limits.guard;
      return {
        failures: failures * times,
        windowMs: windowSeconds * SECOND_MS,
        blockMs: blockSeconds * SECOND_MS,
      };
    };
    this.#callers = new FailureGuard(settings(1));
    this.#credentials = new FailureGuard(settings(1));
    this.#addresses = new FailureGuard(settings(CREDENTIALS_OF_ADDRESS));
    const { store } = parts;
    if (isShared(store)) {
      void store
        .listen((word) => this.#heard(word))
        .then((notices) => {
          this.#notices = notices;
        });
    }
    this.#stopPruning = parts.clock.every(MINUTE_MS, () => this.#prune());
  }

  /** Throws `FAILED_REQUESTS` while the caller of this context is blocked. */
  refuse(context: RequestContext, route: Route): void {
    if (route.auth === 'public') return;
    const { clock } = this.#parts;
    const { callerIfKnown: caller, failedCredential } = context;
    const nowMs = clock.monotonicMs();
    let untilMs: number | undefined;
    if (caller !== undefined)
      untilMs = this.#callers.blockedUntilMs(caller.keyId || caller.accountId, nowMs);
    else if (failedCredential !== undefined) {
      untilMs =
        this.#credentials.blockedUntilMs(credentialBucket(context), nowMs) ??
        this.#addresses.blockedUntilMs(context.countedAddress, nowMs);
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
    const { service, publicUrl, limits } = config.current;
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
      // A price is asked for as often as the discovery answer.
      if (status === 402 && caller.payment?.quote !== undefined) return;
      // By its key, or the wallet of who has none.
      this.#failed('callers', caller.keyId || caller.accountId);
    } else if (failedCredential !== undefined) {
      this.#failed('credentials', credentialBucket(context));
      this.#failed('addresses', context.countedAddress);
    }
  }

  #guardOf(name: string): FailureGuard | undefined {
    if (name === 'callers') return this.#callers;
    if (name === 'credentials') return this.#credentials;
    return name === 'addresses' ? this.#addresses : undefined;
  }

  #failed(guard: string, bucket: string): void {
    const { clock } = this.#parts;
    this.#guardOf(guard)?.failed(bucket, clock.monotonicMs());
    if (this.#notices === undefined) return;
    if (this.#untold.size === 0) clock.after(TELL_AFTER_MS, () => this.#tell());
    const name = `${guard} ${bucket}`;
    if (this.#untold.size >= BUCKETS_OF_WORD && !this.#untold.has(name)) return;
    this.#untold.set(name, (this.#untold.get(name) ?? 0) + 1);
  }

  #tell(): void {
    const failures = JSON.stringify([...this.#untold]);
    this.#untold.clear();
    // A guard that is told too little blocks later.
    this.#notices?.say(`${FAILED} ${this.#parts.processId} ${failures}`).catch(() => undefined);
  }

  #heard(word: string): void {
    const [what, from = '', ...rest] = word.split(' ');
    if (what !== FAILED || from === this.#parts.processId) return;
    const nowMs = this.#parts.clock.monotonicMs();
    const failures = JSON.parse(rest.join(' ')) as readonly (readonly [string, number])[]; // ours
    for (const [name, count] of failures) {
      const [guard = '', ...bucket] = name.split(' ');
      this.#guardOf(guard)?.failed(bucket.join(' '), nowMs, count);
    }
  }

  close(): void {
    this.#stopPruning();
    this.#notices?.close();
  }

  #prune(): void {
    const nowMs = this.#parts.clock.monotonicMs();
    for (const guard of [this.#callers, this.#credentials, this.#addresses]) guard.prune(nowMs);
  }
}

const DIGEST_CHARS = 16;

function credentialBucket(context: RequestContext): string {
  // Told to other processes: nothing that was presented leaves this one.
  const presented = sha256Hex(context.failedCredential ?? '').slice(0, DIGEST_CHARS);
  return `${context.countedAddress}|${presented}`;
}

interface GuardSettings {
  readonly failures: number;
  readonly windowMs: number;
  readonly blockMs: number;
}

interface Bucket {
  /** Times of the failures in the window, oldest first. */
  failedAtMs: number[];
  blockedUntilMs: number;
}

/** Callers that are watched at once; past that the one whose last failure is oldest is forgotten. */
const MAX_BUCKETS = 50_000;

/**
 * A caller with more than `failures` failed requests within `windowMs` is blocked for `blockMs`.
 * The guard's own answers do not count.
 */
class FailureGuard {
  readonly #settings: () => GuardSettings;
  readonly #buckets = new Map<string, Bucket>();

  constructor(settings: () => GuardSettings) {
    this.#settings = settings;
  }

  /** Until when the caller is blocked; `undefined` when it is not. */
  blockedUntilMs(caller: string, nowMs: number): number | undefined {
    const until = this.#buckets.get(caller)?.blockedUntilMs ?? 0;
    return until > nowMs ? until : undefined;
  }

  /** Counts failed requests; returns true when they block the caller. */
  failed(caller: string, nowMs: number, count = 1): boolean {
    const { failures, windowMs, blockMs } = this.#settings();
    const bucket = this.#buckets.get(caller) ?? { failedAtMs: [], blockedUntilMs: 0 };
    // The order of the map is that of the last failures.
    this.#buckets.delete(caller);
    this.#buckets.set(caller, bucket);
    this.#forgetAbove(MAX_BUCKETS);
    const recent = bucket.failedAtMs.filter((atMs) => atMs > nowMs - windowMs);
    for (let at = 0; at < count && recent.length <= failures; at += 1) recent.push(nowMs);
    bucket.failedAtMs = recent;
    if (recent.length <= failures) return false;
    bucket.failedAtMs = [];
    bucket.blockedUntilMs = nowMs + blockMs;
    return true;
  }

  /** Forgets callers without a recent failure or a block. */
  prune(nowMs: number): void {
    const { windowMs } = this.#settings();
    for (const [caller, bucket] of this.#buckets) {
      const last = bucket.failedAtMs.at(-1) ?? 0;
      if (bucket.blockedUntilMs <= nowMs && last <= nowMs - windowMs) this.#buckets.delete(caller);
    }
  }

  #forgetAbove(most: number): void {
    for (const caller of this.#buckets.keys()) {
      if (this.#buckets.size <= most) return;
      this.#buckets.delete(caller);
    }
  }
}
