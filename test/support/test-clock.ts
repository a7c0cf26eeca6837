/**
 * A clock that only advances when a test moves it. `advance` fires timers in the order of their
 * time; over a long period, repeating timers skip turns, as on a machine that was suspended. Timers
 * and the monotonic time follow `advance` only; `setWallBack` moves the system clock.
 */
import type { Clock } from '../../src/core/clock.ts';

/** Maximum turns of a repeating timer in one `advance`; a week has 600,000 seconds. */
const MOST_TURNS = 1_000;

interface Timer {
  atMs: number;
  readonly everyMs: number | undefined;
  readonly work: () => void;
}

export class TestClock implements Clock {
  /** Monotonic time, in ms. */
  #nowMs: number;
  /** Offset of the system clock from the monotonic time, in ms. */
  #behindMs = 0;
  readonly #timers = new Set<Timer>();

  constructor(nowMs = Date.UTC(2026, 10, 21, 12)) {
    this.#nowMs = nowMs;
  }

  nowMs(): number {
    return this.#nowMs - this.#behindMs;
  }

  /** Sets the system clock back by `ms`, as an operator or NTP does. */
  setWallBack(ms: number): void {
    this.#behindMs += ms;
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    const aborted = (): Error => new DOMException('The sleep was aborted', 'AbortError');
    // An aborted signal has no more events.
    if (signal?.aborted === true) throw aborted();
    await new Promise<void>((resolve, reject) => {
      const cancel = this.after(ms, resolve);
      signal?.addEventListener('abort', () => {
        cancel();
        reject(aborted());
      });
    });
  }

  every(ms: number, work: () => void): () => void {
    return this.#add({ atMs: this.#nowMs + ms, everyMs: ms, work });
  }

  after(ms: number, work: () => void): () => void {
    return this.#add({ atMs: this.#nowMs + ms, everyMs: undefined, work });
  }

  /** Advances the time by `ms`, and fires due timers. */
  advance(ms: number): void {
    const target = this.#nowMs + ms;
    for (;;) {
      const next = this.#nextUntil(target);
      if (next === undefined) break;
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      if (next.everyMs === undefined) this.#timers.delete(next);
      else next.atMs += next.everyMs * turnsAtOnce(next.everyMs, ms, target - next.atMs);
      next.work();
    }
    this.#nowMs = target;
  }

  /** Returns the first due timer; of two at the same time, the one that was set first. */
  #nextUntil(targetMs: number): Timer | undefined {
    let next: Timer | undefined;
    for (const timer of this.#timers) {
      if (timer.atMs <= targetMs && (next === undefined || timer.atMs < next.atMs)) next = timer;
    }
    return next;
  }

  #add(timer: Timer): () => void {
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }
}

/** How many turns go by to the next one, the last of which is behind the time that is left. */
function turnsAtOnce(everyMs: number, ms: number, leftMs: number): number {
  const missed = Math.ceil(ms / everyMs / MOST_TURNS);
  return Math.max(1, Math.min(missed, Math.floor(leftMs / everyMs) + 1));
}
