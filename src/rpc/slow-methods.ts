/**
 * The methods for which one node was too slow or failed, and the callers affected. For such a method the node
 * is used last: for these callers, or for all callers once several were affected. This covers nodes
 * that pass their health checks but hang in one method.
 *
 * It only changes the order of nodes, so that no caller can disable a node for others.
 */
import type { Clock } from '../core/clock.ts';

/** Pause of a method after a slow call; doubles up to the maximum after several in a row. */
const PAUSE_MS = 10_000;
const MAX_PAUSE_MS = 300_000;
/** Number of affected callers from which the pause applies to all callers. */
const MIN_CALLERS = 3;
/** Methods and callers in memory; the oldest is dropped first. */
const MAX_METHODS = 200;
const MAX_CALLERS = 100;

interface Pause {
  readonly untilMs: number;
  readonly lengthMs: number;
}

export class SlowMethods {
  readonly #clock: Clock;
  readonly #pauses = new Map<string, Map<string, Pause>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get hasAny(): boolean {
    return this.#pauses.size > 0;
  }

  note(method: string, caller: string): void {
    const callers = this.#pauses.get(method) ?? new Map<string, Pause>();
    const before = callers.get(caller);
    const nowMs = this.#clock.monotonicMs();
    // Concurrent calls count once.
    if (before !== undefined && nowMs < before.untilMs) return;
    const lengthMs = before === undefined ? PAUSE_MS : Math.min(MAX_PAUSE_MS, 2 * before.lengthMs);
    putLast(callers, caller, { untilMs: nowMs + lengthMs, lengthMs }, MAX_CALLERS);
    putLast(this.#pauses, method, callers, MAX_METHODS);
  }

  forget(method: string, caller: string): void {
    const callers = this.#pauses.get(method);
    if (callers?.delete(caller) === true && callers.size === 0) this.#pauses.delete(method);
  }

  isPaused(method: string, caller: string): boolean {
    const callers = this.#pauses.get(method);
    if (callers === undefined) return false;
    const nowMs = this.#clock.monotonicMs();
    if (nowMs < (callers.get(caller)?.untilMs ?? 0)) return true;
    let paused = 0;
    for (const { untilMs } of callers.values()) if (nowMs < untilMs) paused += 1;
    return paused >= MIN_CALLERS;
  }
}

function putLast<V>(map: Map<string, V>, key: string, value: V, maxSize: number): void {
  map.delete(key);
  map.set(key, value);
  const [oldest] = map.keys();
  if (map.size > maxSize && oldest !== undefined) map.delete(oldest);
}
