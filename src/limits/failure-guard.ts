/**
 * The abuse guard: a caller with more than `failures` failed requests within `windowMs` is blocked
 * for `blockMs`. Service rule "Errors" 3; the guard's own answers do not count. One process
 * counts for itself: the guard protects a process, not a balance.
 */

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

/** Callers that are watched at once; past that the quietest are forgotten. */
const MAX_BUCKETS = 100_000;

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

  /** Counts a failed request; returns true when it blocks the caller. */
  failed(caller: string, nowMs: number): boolean {
    const { failures, windowMs, blockMs } = this.#settings();
    let bucket = this.#buckets.get(caller);
    if (bucket === undefined) {
      if (this.#buckets.size >= MAX_BUCKETS) this.prune(nowMs);
      bucket = { failedAtMs: [], blockedUntilMs: 0 };
      this.#buckets.set(caller, bucket);
    }
    const recent = bucket.failedAtMs.filter((atMs) => atMs > nowMs - windowMs);
    recent.push(nowMs);
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
    if (this.#buckets.size >= MAX_BUCKETS) this.#buckets.clear();
  }
}
