/**
 * What a failed attempt means: the reason that the flow hears, whether another attempt may follow
 * and where, and what the breaker learns. Pure, so that the whole table is tested.
 */
import type { UpstreamFailureKind } from '../net/exchange.ts';
import type { FailureReason } from './contract.ts';

export interface Verdict {
  readonly reason: FailureReason;
  /** `elsewhere`: only on a replica that was not tried; `anywhere`: after a pause also here. */
  readonly retry: 'never' | 'elsewhere' | 'anywhere';
  readonly breaker: 'success' | 'failure' | 'unknown';
  /** The engine answered: such a breaker may be passed when nothing else is left. */
  readonly isAlive: boolean;
  /** No request can have caused it: one caller's word is enough. */
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
const GATEWAY_LATE = verdict('timeout', 'elsewhere', 'failure');
const UNREACHABLE = verdict('unreachable', 'anywhere', 'failure', { ...DEAD, isCertain: true });
const RESET = verdict('unreachable', 'anywhere', 'failure', DEAD);
const LATE = verdict('timeout', 'elsewhere', 'failure', DEAD);
/** A 2xx that is not what was asked for. */
export const GARBAGE = verdict('garbage', 'elsewhere', 'failure');

const OF_STATUS: Readonly<Record<number, Verdict>> = {
  401: MISCONFIGURED,
  402: MISCONFIGURED,
  403: MISCONFIGURED,
  404: MISCONFIGURED,
  405: MISCONFIGURED,
  408: GATEWAY_LATE,
  425: OVERLOADED,
  429: OVERLOADED,
  502: verdict('unreachable', 'anywhere', 'failure'),
  503: OVERLOADED,
  504: GATEWAY_LATE,
};
/** Of a path that engines need not have. */
const LACKING: Readonly<Record<number, Verdict>> = {
  404: verdict('unsupported', 'elsewhere', 'success'),
  405: verdict('unsupported', 'elsewhere', 'success'),
  501: verdict('unsupported', 'elsewhere', 'success'),
};
const FAILED = verdict('failed', 'anywhere', 'failure');
const REFUSED = verdict('refused', 'never', 'success');

/** The meaning of a head that is no success. */
export function verdictOfStatus(status: number, mayLackPath = false): Verdict {
  const lacking = mayLackPath ? LACKING[status] : undefined;
  if (lacking !== undefined) return lacking;
  if (status >= 500) return OF_STATUS[status] ?? FAILED;
  return OF_STATUS[status] ?? (status >= 400 ? REFUSED : MISCONFIGURED);
}

const OF_FAILURE: Readonly<Record<UpstreamFailureKind, Verdict>> = {
  connect: UNREACHABLE,
  closed: UNREACHABLE,
  // Perhaps too large for this engine, which had no words for it; another may take it.
  unread: verdict('unreachable', 'elsewhere', 'unknown'),
  stale: RESET,
  reset: RESET,
  'first-byte-timeout': LATE,
  'idle-timeout': LATE,
  'total-timeout': LATE,
  // The reader was late, not the engine.
  'paused-timeout': verdict('timeout', 'never', 'unknown'),
  cut: verdict('broken', 'anywhere', 'failure', DEAD),
  garbage: GARBAGE,
  // Keep-alive has ended with it: another try has a connection of its own.
  doubtful: verdict('garbage', 'anywhere', 'unknown'),
  'too-large': verdict('too-large', 'never', 'unknown'),
  aborted: verdict('aborted', 'never', 'unknown'),
};

/** The meaning of an exchange that ended without a whole answer. */
export function verdictOfFailure(kind: UpstreamFailureKind): Verdict {
  return OF_FAILURE[kind];
}

/** When several replicas failed, the call hears of the one that says most about what to do. */
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

/** Whether `reason` tells at least as much as `other`. */
export function outweighs(reason: FailureReason, other: FailureReason): boolean {
  return BY_WEIGHT.indexOf(reason) >= BY_WEIGHT.indexOf(other);
}
