/** Retry delays: exponential backoff with full jitter, and the server's `Retry-After`. */

/** Upper bound of the first delay, and of any. */
const BASE_MS = 100;
const CAP_MS = 2_000;

/**
 * Returns the delay before retry number `retry` (1 is the first): uniform between 0 and min(cap,
 * base × 2^(retry − 1)), so that callers that failed together do not retry together. `fraction` is
 * a uniform number in [0, 1).
 */
export function backoffMs(retry: number, fraction: number): number {
  // Bounded, so that the power stays finite; the cap applies long before 2^30.
  return Math.min(CAP_MS, BASE_MS * 2 ** Math.min(retry - 1, 30)) * fraction;
}

const SECONDS = /^\d+(?:\.\d+)?$/;

/**
 * Returns the delay of a `Retry-After` header in milliseconds from `nowMs`: seconds, or an HTTP
 * date (a past one is 0). Returns null for anything else.
 */
export function retryAfterMs(value: string | undefined, nowMs: number): number | null {
  if (value === undefined) return null;
  const text = value.trim();
  if (SECONDS.test(text)) return Math.min(Number(text) * 1_000, Number.MAX_SAFE_INTEGER);
  // A date contains letters; this keeps Date.parse from reading "-5" or "2" as a year.
  if (!/[a-z]/i.test(text)) return null;
  const atMs = Date.parse(text);
  return Number.isNaN(atMs) ? null : Math.max(0, atMs - nowMs);
}
