/**
 * The real timers, beside a time that passes when a test says so: limits that compare times do not
 * run out because a machine is busy.
 */
import { type Clock, systemClock } from '../../src/core/clock.ts';

export interface StillClock {
  readonly clock: Clock;
  readonly pass: (ms: number) => void;
}

export function stillClock(nowMs = Date.UTC(2026, 10, 21, 12)): StillClock {
  let passedMs = 0;
  const clock = {
    ...systemClock(),
    nowMs: () => nowMs + passedMs,
    monotonicMs: () => passedMs,
  };
  return { clock, pass: (ms) => void (passedMs += ms) };
}

/** Durations are real, and no minute and no day turns: for limits that count within one. */
export function sameMinute(nowMs = Date.now()): Clock {
  return { ...systemClock(), nowMs: () => nowMs };
}
