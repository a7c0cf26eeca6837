/**
 * What a failed attempt means: the reason that the flow hears, whether another attempt may follow
 * and where, and what the breaker learns. Pure, so that the whole table is tested.
 */
import type { UpstreamFailureKind } from '../net/upstream-pool.ts';
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
  isAlive: boolean,
): Verdict {
  return { reason, retry, breaker, isAlive, isCertain: false };
}

const OVERLOADED = verdict('overloaded', 'anywhere', 'unknown', true);
const REFUSED = verdict('refused', 'never', 'success', true);
const MISCONFIGURED = verdict('misconfigured', 'elsewhere', 'failure', true);
const FAILED = verdict('failed', 'anywhere', 'failure', true);
const GATEWAY_DOWN = verdict('unreachable', 'anywhere', 'failure', true);
const GATEWAY_LATE = verdict('timeout', 'elsewhere', 'failure', true);
/** The reader was, not the engine. */
const READER_LATE = verdict('timeout', 'never', 'unknown', true);
const UNREACHABLE: Verdict = {
  ...verdict('unreachable', 'anywhere', 'failure', false),
  isCertain: true,
};
/** Perhaps too large for this engine, which had no words for it; another may take it. */
const UNREAD = verdict('unreachable', 'elsewhere', 'unknown', true);
const LATE = verdict('timeout', 'elsewhere', 'failure', false);

/** The meaning of a head that is no success. */
export function verdictOfStatus(status: number): Verdict {
  switch (status) {
    case 401:
    case 402:
    case 403:
    case 404:
    case 405:
      return MISCONFIGURED;
    case 408:
    case 504:
      return GATEWAY_LATE;
    case 425:
    case 429:
    case 503:
      return OVERLOADED;
    case 502:
      return GATEWAY_DOWN;
    default:
      if (status >= 500) return FAILED;
      return status >= 400 ? REFUSED : MISCONFIGURED;
  }
}

/** The meaning of an exchange that ended without a whole answer. */
export function verdictOfFailure(kind: UpstreamFailureKind): Verdict {
  switch (kind) {
    case 'connect':
    case 'closed':
      return UNREACHABLE;
    case 'unread':
      return UNREAD;
    case 'stale':
    case 'reset':
      return verdict('unreachable', 'anywhere', 'failure', false);
    case 'first-byte-timeout':
    case 'idle-timeout':
    case 'total-timeout':
      return LATE;
    case 'paused-timeout':
      return READER_LATE;
    case 'cut':
      return verdict('broken', 'anywhere', 'failure', false);
    case 'garbage':
      return GARBAGE;
    case 'too-large':
      return verdict('too-large', 'never', 'unknown', true);
    case 'aborted':
      return verdict('aborted', 'never', 'unknown', true);
  }
}

/** A 2xx that is not what was asked for. */
export const GARBAGE = verdict('garbage', 'elsewhere', 'failure', true);

/** When several replicas failed, the flow hears of the one that says most about what to do. */
const WEIGHT: Readonly<Record<FailureReason, number>> = {
  aborted: 9,
  refused: 8,
  'too-large': 7,
  overloaded: 6,
  timeout: 5,
  failed: 4,
  broken: 3,
  garbage: 2,
  misconfigured: 1,
  unreachable: 0,
};

/** Whether `reason` tells the flow at least as much as `other`. */
export function outweighs(reason: FailureReason, other: FailureReason): boolean {
  return WEIGHT[reason] >= WEIGHT[other];
}
