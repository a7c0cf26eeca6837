/**
 * The methods that one node does not have, or for which it was too slow or failed, and the callers
 * affected. For such a method the node is used last: for these callers, or for all callers once
 * several were affected. This covers nodes that pass their health checks but fail in one method.
 *
 * It only changes the order of nodes, so that no caller can disable a node for others.
 */
import type { Clock } from '../core/clock.ts';

/** A pause doubles up to the maximum after several in a row. */
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

export class MethodPauses {
  readonly #clock: Clock;
  readonly #pauseMs: number;
  readonly #pauses = new Map<string, Map<string, Pause>>();

  constructor(pauseMs: number, clock: Clock) {
    this.#pauseMs = pauseMs;
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
    const lengthMs = Math.min(MAX_PAUSE_MS, before ? 2 * before.lengthMs : this.#pauseMs);
    putLast(callers, caller, { untilMs: nowMs + lengthMs, lengthMs }, MAX_CALLERS);
    putLast(this.#pauses, method, callers, MAX_METHODS);
  }

  forget(method: string, caller: string): void {
    const callers = this.#pauses.get(method);
    if (callers?.delete(caller) === true && callers.size === 0) this.#pauses.delete(method);
  }

  /** The methods that are paused for all callers. */
  get all(): string[] {
    return [...this.#pauses.keys()].filter((method) => this.isPaused(method, ''));
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
