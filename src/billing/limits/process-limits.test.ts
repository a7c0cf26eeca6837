/** Rate windows of one process, and their behaviour when the system clock is set back. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TestClock } from '../../../test/support/test-clock.ts';
import { MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { MemoryWindows } from './limits.ts';

const BACK_MS = { '61 seconds': 61 * SECOND_MS, '10 minutes': 10 * MINUTE_MS };

function take(tokens = 1) {
  return { bucket: 'account|model', tokens, requestLimit: 3, tokenLimit: 1_000 };
}

for (const [name, backMs] of Object.entries(BACK_MS)) {
  test(`a clock that is set back by ${name} neither opens a second window nor extends one`, () => {
    const clock = new TestClock();
    const windows = new MemoryWindows();
    for (let at = 0; at < 3; at += 1) assert.ok(windows.take(take(), clock.nowMs()).ok);
    clock.setWallBack(backMs);
    const refused = windows.take(take(), clock.nowMs());
    assert.ok(!refused.ok && refused.reason === 'requests');
    const waitMs = refused.state.resetsAtMs - clock.nowMs();
    assert.ok(waitMs > 0 && waitMs <= MINUTE_MS, `a wait of ${waitMs} ms`);
    clock.advance(waitMs);
    assert.ok(windows.take(take(), clock.nowMs()).ok);
  });
}

test('tokens reserved before the clock was set back are returned to the current window', () => {
  const clock = new TestClock();
  const windows = new MemoryWindows();
  const taken = windows.take(take(900), clock.nowMs());
  assert.ok(taken.ok);
  clock.setWallBack(10 * MINUTE_MS);
  assert.equal(windows.correct(taken.reserved, 100, clock.nowMs())?.tokens, 100);
  assert.equal(windows.counted(['account|model'], clock.nowMs()).get('account|model')?.tokens, 100);
});

test('`prune` drops windows from before the clock was set back in the next minute', async () => {
  const clock = new TestClock();
  const windows = new MemoryWindows();
  windows.take(take(), clock.nowMs());
  clock.setWallBack(10 * MINUTE_MS);
  await windows.prune(clock.nowMs());
  assert.equal(windows.counted(['account|model'], clock.nowMs()).size, 1);
  clock.advance(MINUTE_MS);
  assert.equal(windows.counted(['account|model'], clock.nowMs()).size, 0);
});
