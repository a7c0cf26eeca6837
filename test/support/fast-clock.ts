/** The real clock, sped up: for servers whose jobs poll, or for limits that must expire. */
import { type Clock, systemClock } from '../../src/core/clock.ts';

export function fastClock(times: number): Clock {
  const real = systemClock();
  const startMs = real.nowMs();
  const startMonotonicMs = real.monotonicMs();
  return {
    ...fastTimers(times),
    nowMs: () => Math.floor(startMs + (real.nowMs() - startMs) * times),
    monotonicMs: () => startMonotonicMs + (real.monotonicMs() - startMonotonicMs) * times,
  };
}

/** Speeds up timers only, if others need the real time, for example chains and signers. */
export function fastTimers(times: number): Clock {
  const real = systemClock();
  return {
    ...real,
    sleep: (ms, signal) => real.sleep(ms / times, signal),
    every: (ms, work) => real.every(ms / times, work),
    after: (ms, work) => real.after(ms / times, work),
  };
}
