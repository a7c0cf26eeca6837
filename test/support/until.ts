/**
 * Waiting for a fact that something else brings about: another socket, process or thread. The limit
 * ends a test whose fact never comes; it is far above what any machine takes, and measures none.
 */
import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';

const MOST_MS = 60_000;
/** Pause between two checks; longer if the check counts calls. */
const LOOK_MS = 5;

/** Waits until it holds; `what` says what did not come true. */
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
