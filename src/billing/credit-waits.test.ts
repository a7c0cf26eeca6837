/** Requests that wait for credit are woken by every hold that ends. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { TestClock } from '../../test/support/test-clock.ts';
import { nano } from '../core/money.ts';
import { CreditWaits } from './credit-waits.ts';
import { until } from '../../test/support/until.ts';

const HELD = { ok: false, reason: 'held', availableNano: nano(0n) } as const;
const PLACED = { ok: true } as const;

/** An account whose credit is held until `end` is called; `look` returns results one turn later. */
function heldCredit() {
  const waits = new CreditWaits(new TestClock());
  let isHeld = true;
  const state = {
    waits,
    looks: 0,
    refusals: 0,
    end: () => {
      isHeld = false;
      waits.ended('account');
    },
    look: async () => {
      state.looks += 1;
      const answer = isHeld ? HELD : PLACED;
      await setImmediate();
      if (answer === HELD) state.refusals += 1;
      return answer;
    },
    wait: () => waits.retry<typeof HELD | typeof PLACED>('account', HELD, state.look, undefined),
  };
  return state;
}

describe('waiting for credit', () => {
  test('`retry` retries at once, because a hold may have ended before the call', async () => {
    const credit = heldCredit();
    credit.end();
    assert.deepEqual(await credit.wait(), PLACED);
  });

  test('`retry` retries again if a hold ends during a retry', async () => {
    const credit = heldCredit();
    const waiting = credit.wait();
    credit.end();
    assert.deepEqual(await waiting, PLACED);
    assert.equal(credit.looks, 2);
  });

  test('`ended` wakes the first waiting request, which wakes the next one', async () => {
    const credit = heldCredit();
    const all = Promise.all([credit.wait(), credit.wait()]);
    await until(() => credit.refusals === 2, 'two that wait');
    credit.end();
    assert.deepEqual(await all, [PLACED, PLACED]);
    assert.equal(credit.waits.count, 0);
  });
});
