/** Time and timers, replaceable in tests. Days and months are UTC, like the daily credit. */
import { setTimeout as sleepFor } from 'node:timers/promises';

export interface Clock {
  nowMs(): number;
  /** Monotonic milliseconds, for durations. */
  monotonicMs(): number;
  /** Resolves after `ms`; rejects with an AbortError when `signal` aborts. */
  sleep(ms: number, signal?: AbortSignal): Promise<void>;
  /** Runs `work` every `ms` until the returned function is called. Keeps no process alive. */
  every(ms: number, work: () => void): () => void;
  /** Runs `work` once after `ms` unless the returned function is called first. */
  after(ms: number, work: () => void): () => void;
}

/** Node fires a longer timer at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

function timerMs(ms: number): number {
  return Math.min(ms, LONGEST_TIMER_MS);
}

/** A timer of more than 24 days fires after 24 days. */
export function systemClock(): Clock {
  return {
    nowMs: Date.now,
    monotonicMs: performance.now.bind(performance),
    sleep: async (ms, signal) => {
      await sleepFor(timerMs(ms), undefined, signal === undefined ? {} : { signal });
    },
    every: (ms, work) => {
      const timer = setInterval(work, timerMs(ms));
      timer.unref();
      return () => clearInterval(timer);
    },
    after: (ms, work) => {
      const timer = setTimeout(work, timerMs(ms));
      timer.unref();
      return () => clearTimeout(timer);
    },
  };
}

export const SECOND_MS = 1_000;
export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;
export const DAY_MS = 86_400_000;

export function dayOf(ms: number): number {
  return Math.floor(ms / DAY_MS);
}

export function dayStartMs(day: number): number {
  return day * DAY_MS;
}

/** The first millisecond of the UTC month that contains `ms`, and of the next one. */
export function monthBounds(ms: number): { startMs: number; endMs: number } {
  const date = new Date(ms);
  const year = date.getUTCFullYear();
  const month = date.getUTCMonth();
  return { startMs: Date.UTC(year, month, 1), endMs: Date.UTC(year, month + 1, 1) };
}

/** `2026-11-21T03:55:00.000Z`. */
export function isoTime(ms: number): string {
  return new Date(ms).toISOString();
}

export function isoTimeOrNull(ms: number | undefined): string | null {
  return ms === undefined ? null : isoTime(ms);
}
