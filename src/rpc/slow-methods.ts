/**
 * The methods that one node did not answer in time, and which callers saw it. The node is asked last
 * for such a method: by the callers who saw it, or by everybody once several have. A node that
 * answers its health checks may still hang in one method.
 *
 * It changes the order of nodes alone, so that no caller can take a node from the others.
 */
import type { Clock } from '../core/clock.ts';

/** First rest of a method after a slow call, and the longest after several in a row. */
const REST_MS = 10_000;
const MAX_REST_MS = 300_000;
/** Callers that must have seen a slow call before the method rests for everybody. */
const MIN_CALLERS = 3;
/** Methods and callers remembered; the oldest is dropped first. */
const MAX_METHODS = 200;
const MAX_CALLERS = 100;

interface Rest {
  readonly untilMs: number;
  readonly lengthMs: number;
}

export class SlowMethods {
  readonly #clock: Clock;
  readonly #rests = new Map<string, Map<string, Rest>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Whether any method is known to be slow: most nodes have none. */
  get hasAny(): boolean {
    return this.#rests.size > 0;
  }

  note(method: string, caller: string): void {
    const callers = this.#rests.get(method) ?? new Map<string, Rest>();
    const before = callers.get(caller);
    const nowMs = this.#clock.monotonicMs();
    // Calls that were under way together count once.
    if (before !== undefined && nowMs < before.untilMs) return;
    const lengthMs = before === undefined ? REST_MS : Math.min(MAX_REST_MS, 2 * before.lengthMs);
    putLast(callers, caller, { untilMs: nowMs + lengthMs, lengthMs }, MAX_CALLERS);
    putLast(this.#rests, method, callers, MAX_METHODS);
  }

  forget(method: string, caller: string): void {
    const callers = this.#rests.get(method);
    if (callers?.delete(caller) === true && callers.size === 0) this.#rests.delete(method);
  }

  isResting(method: string, caller: string): boolean {
    const callers = this.#rests.get(method);
    if (callers === undefined) return false;
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < (callers.get(caller)?.untilMs ?? 0)) return true;
    let resting = 0;
    for (const { untilMs } of callers.values()) if (nowMs < untilMs) resting += 1;
    return resting >= MIN_CALLERS;
  }
}

function putLast<V>(map: Map<string, V>, key: string, value: V, maxSize: number): void {
  map.delete(key);
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > maxSize && oldest !== undefined) map.delete(oldest);
}
