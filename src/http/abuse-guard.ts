/**
 * The abuse guard blocks callers with many failed requests. 429s and its own responses do not
 * count.
 *
 * Failures of a known caller count for its key or wallet. Without a caller only failed credentials
 * count: by address and beginning of the credential, and by address for all of them, so that a
 * valid key at the same address is not blocked. Processes on one database share their counts. Times
 * are of the monotonic clock, so that setting the system clock back does not prolong a block.
 */
import type { ConfigInForce } from '../config/config.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { sha256Hex } from '../core/ids.ts';
import type { LimitLog } from '../billing/limits/limits.ts';
import { type Notices, type Store, isShared } from '../db/db.ts';
import { type Caller, paymentOnlyBucket } from '../identity/identity.ts';
import type { RequestContext, RouteName } from './request-context.ts';
import type { Route } from './route.ts';

/** The limit of an address, in multiples of the limit of one credential. */
const CREDENTIALS_OF_ADDRESS = 10;

/** Failures of this process are sent to the others in batches. */
const SEND_AFTER_MS = 250;
const MAX_BUCKETS_PER_MESSAGE = 64;
const FAILED = 'failed';

export interface AbuseGuardParts {
  /** With a shared database, processes notify each other of failures. */
  readonly store: Store;
  /** Unique among the processes. */
  readonly processId: string;
  readonly config: ConfigInForce;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly basePath: string;
}

type GuardName = 'callers' | 'credentials' | 'addresses';

export class AbuseGuard {
  readonly #parts: AbuseGuardParts;
  readonly #guards: Readonly<Record<GuardName, FailureGuard>>;
  readonly #stopPruning: () => void;
  /** Failures that are not sent yet, by guard and bucket. */
  readonly #unsent = new Map<string, number>();
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
    this.#guards = {
      callers: new FailureGuard(settings(1)),
      credentials: new FailureGuard(settings(1)),
      addresses: new FailureGuard(settings(CREDENTIALS_OF_ADDRESS)),
    };
    const { store } = parts;
    if (isShared(store)) {
      void store
        .listen((message) => this.#received(message))
        .then((notices) => {
          this.#notices = notices;
        });
    }
    this.#stopPruning = parts.clock.every(MINUTE_MS, () => this.#prune());
  }

  /** Throws `FAILED_REQUESTS` while the caller is blocked. */
  refuse(context: RequestContext, route: Route): void {
    if (route.auth === 'public') return;
    const { clock } = this.#parts;
    const { callerIfKnown: caller, failedCredential } = context;
    const nowMs = clock.monotonicMs();
    let untilMs: number | undefined;
    if (caller !== undefined)
      untilMs = this.#guards.callers.blockedUntilMs(callerBucket(caller), nowMs);
    else if (failedCredential !== undefined) {
      untilMs =
        this.#guards.credentials.blockedUntilMs(credentialBucket(context), nowMs) ??
        this.#guards.addresses.blockedUntilMs(context.countedAddress, nowMs);
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

  /** Counts an error response: a 4xx other than 429 of a known caller, or a failed credential. */
  ended(context: RequestContext): void {
    const { callerIfKnown: caller, failedCredential, statusCode: status, route } = context;
    // 429 includes the rejections of this guard.
    if (status === 429 || route?.operational === true) return;
    if (caller !== undefined) {
      if (status < 400 || status >= 500) return;
      // A request for a price is no failure.
      if (status === 402 && caller.payment?.quote !== undefined) return;
      this.#failed('callers', callerBucket(caller));
    } else if (failedCredential !== undefined) {
      this.#failed('credentials', credentialBucket(context));
      this.#failed('addresses', context.countedAddress);
    }
  }

  #failed(guard: GuardName, bucket: string): void {
    const { clock } = this.#parts;
    this.#guards[guard].failed(bucket, clock.monotonicMs());
    if (this.#notices === undefined) return;
    if (this.#unsent.size === 0) clock.after(SEND_AFTER_MS, () => this.#send());
    const name = `${guard} ${bucket}`;
    if (this.#unsent.size >= MAX_BUCKETS_PER_MESSAGE && !this.#unsent.has(name)) return;
    this.#unsent.set(name, (this.#unsent.get(name) ?? 0) + 1);
  }

  #send(): void {
    const failures = JSON.stringify([...this.#unsent]);
    this.#unsent.clear();
    // Another process that misses failures only blocks later.
    this.#notices?.notify(`${FAILED} ${this.#parts.processId} ${failures}`).catch(() => undefined);
  }

  #received(message: string): void {
    const [what, from = '', ...rest] = message.split(' ');
    if (what !== FAILED || from === this.#parts.processId) return;
    const nowMs = this.#parts.clock.monotonicMs();
    const failures = JSON.parse(rest.join(' ')) as readonly (readonly [string, number])[]; // ours
    for (const [name, count] of failures) {
      const [guard = '', ...bucket] = name.split(' ');
      if (!Object.hasOwn(this.#guards, guard)) continue; // sent by another release
      this.#guards[guard as GuardName].failed(bucket.join(' '), nowMs, count);
    }
  }

  close(): void {
    this.#stopPruning();
    this.#notices?.close();
  }

  #prune(): void {
    const nowMs = this.#parts.clock.monotonicMs();
    for (const guard of Object.values(this.#guards)) guard.prune(nowMs);
  }
}

function callerBucket(caller: Caller): string {
  return paymentOnlyBucket(caller) ?? (caller.keyId || caller.accountId);
}

const DIGEST_CHARS = 16;

function credentialBucket(context: RequestContext): string {
  // A digest, because it is sent to other processes.
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

/** Above this number the caller with the oldest last failure is dropped. */
const MAX_BUCKETS = 50_000;

/** Blocks a caller for `blockMs` after more than `failures` failed requests within `windowMs`. */
class FailureGuard {
  readonly #settings: () => GuardSettings;
  readonly #buckets = new Map<string, Bucket>();

  constructor(settings: () => GuardSettings) {
    this.#settings = settings;
  }

  /** Returns when the block of the caller ends; `undefined` without a block. */
  blockedUntilMs(caller: string, nowMs: number): number | undefined {
    const until = this.#buckets.get(caller)?.blockedUntilMs ?? 0;
    return until > nowMs ? until : undefined;
  }

  /** Counts failed requests, which may block the caller. */
  failed(caller: string, nowMs: number, count = 1): void {
    const { failures, windowMs, blockMs } = this.#settings();
    const bucket = this.#buckets.get(caller) ?? { failedAtMs: [], blockedUntilMs: 0 };
    // Keeps the map in the order of the last failures.
    this.#buckets.delete(caller);
    this.#buckets.set(caller, bucket);
    if (this.#buckets.size > MAX_BUCKETS) this.#dropOldest();
    const recent = bucket.failedAtMs.filter((atMs) => atMs > nowMs - windowMs);
    for (let at = 0; at < count && recent.length <= failures; at += 1) recent.push(nowMs);
    bucket.failedAtMs = recent;
    if (recent.length <= failures) return;
    bucket.failedAtMs = [];
    bucket.blockedUntilMs = nowMs + blockMs;
  }

  /** Drops callers without a recent failure or a block. */
  prune(nowMs: number): void {
    const { windowMs } = this.#settings();
    for (const [caller, bucket] of this.#buckets) {
      const last = bucket.failedAtMs.at(-1) ?? 0;
      if (bucket.blockedUntilMs <= nowMs && last <= nowMs - windowMs) this.#buckets.delete(caller);
    }
  }

  #dropOldest(): void {
    const [oldest] = this.#buckets.keys();
    if (oldest !== undefined) this.#buckets.delete(oldest);
  }
}
