/**
 * The meaning of a failed attempt: the reason for the endpoint, whether and where another attempt
 * may follow, and the effect on the breaker. Pure functions, so that tests cover the whole table.
 */
import type { UpstreamFailureKind } from '../net/exchange.ts';
import type { FailureReason } from './contract.ts';
import { errorMeaning, type ErrorMeaning } from './error-meanings.ts';

export interface Verdict {
  readonly reason: FailureReason;
  /** `elsewhere`: only on an untried replica; `anywhere`: after a pause also on this one. */
  readonly retry: 'never' | 'elsewhere' | 'anywhere';
  readonly breaker: 'success' | 'failure' | 'unknown';
  /** The engine responded: its breaker may be bypassed if no other replica is left. */
  readonly isAlive: boolean;
  /** A request cannot have caused it, so the failure of one caller is enough. */
  readonly isCertain: boolean;
}

function verdict(
  reason: FailureReason,
  retry: Verdict['retry'],
  breaker: Verdict['breaker'],
  more: Partial<Verdict> = {},
): Verdict {
  return { reason, retry, breaker, isAlive: true, isCertain: false, ...more };
}

const DEAD = { isAlive: false };
const MISCONFIGURED = verdict('misconfigured', 'elsewhere', 'failure');
const OVERLOADED = verdict('overloaded', 'anywhere', 'unknown');
const FAILED = verdict('failed', 'anywhere', 'failure');
const REFUSED = verdict('refused', 'never', 'success');
const GATEWAY_LATE = verdict('timeout', 'elsewhere', 'failure');
const UNREACHABLE = verdict('unreachable', 'anywhere', 'failure', { ...DEAD, isCertain: true });
const RESET = verdict('unreachable', 'anywhere', 'failure', DEAD);
const LATE = verdict('timeout', 'elsewhere', 'failure', DEAD);
export const GARBAGE = verdict('garbage', 'elsewhere', 'failure');

const OF_STATUS: Readonly<Record<number, Verdict>> = {
  401: MISCONFIGURED,
  402: MISCONFIGURED,
  403: MISCONFIGURED,
  404: MISCONFIGURED,
  405: MISCONFIGURED,
  408: GATEWAY_LATE,
  // TGI: the generation failed.
  424: FAILED,
  425: OVERLOADED,
  429: OVERLOADED,
  // Groq: no capacity in the flex tier.
  498: OVERLOADED,
  502: verdict('unreachable', 'anywhere', 'failure'),
  503: OVERLOADED,
  504: GATEWAY_LATE,
  // Anthropic: overloaded.
  529: OVERLOADED,
};
const UNSUPPORTED = verdict('unsupported', 'elsewhere', 'success');
/** For a path that engines may lack. */
const OF_MISSING_PATH: Readonly<Record<number, Verdict>> = {
  404: UNSUPPORTED,
  405: UNSUPPORTED,
  501: UNSUPPORTED,
};

export function verdictOfStatus(status: number, isOptionalPath = false): Verdict {
  const missing = isOptionalPath ? OF_MISSING_PATH[status] : undefined;
  if (missing !== undefined) return missing;
  if (status >= 500) return OF_STATUS[status] ?? FAILED;
  return OF_STATUS[status] ?? (status >= 400 ? REFUSED : MISCONFIGURED);
}

const OF_MEANING: Readonly<Record<ErrorMeaning, Verdict>> = {
  moderation: REFUSED,
  overflow: REFUSED,
  // The same request never fits the limit of this engine.
  'rate-limit': verdict('overloaded', 'elsewhere', 'unknown'),
  operator: MISCONFIGURED,
  unsupported: UNSUPPORTED,
  generation: verdict('failed', 'anywhere', 'success'),
  invalid: REFUSED,
  failed: FAILED,
};

/** As `verdictOfStatus`, for a response whose body may state another meaning. */
export function verdictOfError(
  status: number,
  body: Buffer | null,
  isOptionalPath?: boolean,
): Verdict {
  const meaning = errorMeaning(status, body);
  return meaning === undefined ? verdictOfStatus(status, isOptionalPath) : OF_MEANING[meaning];
}

const OF_FAILURE: Readonly<Record<UpstreamFailureKind, Verdict>> = {
  connect: UNREACHABLE,
  closed: UNREACHABLE,
  // The request may be too large for this engine; another one may accept it.
  unread: verdict('unreachable', 'elsewhere', 'unknown'),
  stale: RESET,
  reset: RESET,
  'first-byte-timeout': LATE,
  'idle-timeout': LATE,
  'total-timeout': LATE,
  // The caller read too slowly; the engine is not at fault.
  'paused-timeout': verdict('timeout', 'never', 'unknown'),
  cut: verdict('broken', 'anywhere', 'failure', DEAD),
  garbage: GARBAGE,
  // Keep-alive is now off for the engine, so another attempt uses a new connection.
  ambiguous: verdict('garbage', 'anywhere', 'unknown'),
  'too-large': verdict('too-large', 'never', 'unknown'),
  aborted: verdict('aborted', 'never', 'unknown'),
};

export function verdictOfFailure(kind: UpstreamFailureKind): Verdict {
  return OF_FAILURE[kind];
}

/**
 * If several replicas failed, the failure with the most useful reason for the caller is reported.
 * In ascending order.
 */
const BY_WEIGHT: readonly FailureReason[] = [
  'unreachable',
  'misconfigured',
  'unsupported',
  'garbage',
  'broken',
  'failed',
  'timeout',
  'overloaded',
  'too-large',
  'refused',
  'aborted',
];

/** Whether `reason` is at least as useful as `other`. */
export function outweighs(reason: FailureReason, other: FailureReason): boolean {
  return BY_WEIGHT.indexOf(reason) >= BY_WEIGHT.indexOf(other);
}
