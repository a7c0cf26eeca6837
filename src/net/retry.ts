/**
 * When to try again: exponential backoff with full jitter, and the server's own `Retry-After`.
 * Pure arithmetic; who retries what is decided by the caller.
 */

/** Upper end of the first pause, and of any. */
const BASE_MS = 100;
const CAP_MS = 2_000;

/**
 * The pause before retry number `retry` (1 is the first): uniform between 0 and
 * min(cap, base × 2^(retry − 1)), so that callers who failed together do not return together.
 * `fraction` is a uniform number in [0, 1).
 */
export function backoffMs(retry: number, fraction: number): number {
  // Past 2^30 the cap has long decided; the bound keeps the power finite.
  return Math.min(CAP_MS, BASE_MS * 2 ** Math.min(retry - 1, 30)) * fraction;
}

const SECONDS = /^\d+(?:\.\d+)?$/;

/**
 * The pause that a response asks for, in milliseconds from `nowMs`, or null when it asks for none.
 * Reads `Retry-After` as seconds or as an HTTP date (a past date is 0); anything else is null.
 */
export function retryAfterMs(value: string | undefined, nowMs: number): number | null {
  if (value === undefined) return null;
  const text = value.trim();
  if (SECONDS.test(text)) return Math.min(Number(text) * 1_000, Number.MAX_SAFE_INTEGER);
  // A date has letters; this keeps Date.parse from reading "-5" or "2" as a year.
  if (!/[a-z]/i.test(text)) return null;
  const atMs = Date.parse(text);
  return Number.isNaN(atMs) ? null : Math.max(0, atMs - nowMs);
}
