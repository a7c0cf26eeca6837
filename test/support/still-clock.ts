/** Real timers with a system time that a test moves, so that limits by time do not expire on a busy machine. */
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

/** Durations are real, but no minute or day changes. */
export function sameMinute(nowMs = Date.now()): Clock {
  return { ...systemClock(), nowMs: () => nowMs };
}
