import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { DAY_MS, systemClock } from './clock.ts';

test('a timer of more than 24 days does not fire at once', async () => {
  const clock = systemClock();
  const stop = new AbortController();
  const fired: string[] = [];
  const note = (kind: string) => (): void => void fired.push(kind);
  const cancel = [
    clock.after(100 * DAY_MS, note('after')),
    clock.every(100 * DAY_MS, note('every')),
    () => stop.abort(),
  ];
  const sleep = clock.sleep(100 * DAY_MS, stop.signal).then(note('sleep'), () => undefined);
  await delay(30);
  for (const end of cancel) end();
  await sleep;
  assert.deepEqual(fired, []);
});
