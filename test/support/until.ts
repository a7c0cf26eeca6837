/**
 * Waits for an effect of another socket, process or thread. The timeout only ends a failing test,
 * so it is far above any real duration.
 */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';

const MOST_MS = 60_000;
/** Pause between two checks; longer if the check counts calls. */
const LOOK_MS = 5;

/** Waits until the condition is true; `what` describes it in the error message. */
export async function until(
  holds: () => boolean | Promise<boolean>,
  what: string | (() => string) = 'it',
  lookMs = LOOK_MS,
): Promise<void> {
  const endMs = performance.now() + MOST_MS;
  while (!(await holds())) {
    if (performance.now() > endMs) {
      assert.fail(`${typeof what === 'string' ? what : what()} did not come true`);
    }
    await delay(lookMs);
  }
}
