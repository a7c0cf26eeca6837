/** Failed requests of callers. The guard protects a process, not a balance: each counts by itself. */

export interface GuardSettings {
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
export class FailureGuard {
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
