/**
 * The real clock, some times as fast: for servers whose jobs wait for a next look, or for limits that
 * have to pass. Nothing that is measured in real seconds elsewhere, such as a token's end, goes with it.
 */
import { type Clock, systemClock } from '../../src/core/clock.ts';

export function fastClock(times: number): Clock {
  const real = systemClock();
  const startMs = real.nowMs();
  const startMonotonicMs = real.monotonicMs();
  return {
    nowMs: () => Math.floor(startMs + (real.nowMs() - startMs) * times),
    monotonicMs: () => startMonotonicMs + (real.monotonicMs() - startMonotonicMs) * times,
    sleep: (ms, signal) => real.sleep(ms / times, signal),
    every: (ms, work) => real.every(ms / times, work),
    after: (ms, work) => real.after(ms / times, work),
  };
}
