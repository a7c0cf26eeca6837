/** The rolling credit cap on both databases: exact under concurrency, over minutes and days. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { onEachStore } from '../../test/databases/stores.ts';
import { DAY_MS, MINUTE_MS } from '../core/clock.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { CreditCap, RPC_MIGRATIONS } from './rpc.ts';

onEachStore('rpc credit cap', (fixture) => {
  test('never passes the cap under concurrency, and is used to the last credit', async () => {
    const url = await fixture.freshUrl();
    const clock = new TestClock();
    const caps = [
      new CreditCap(await fixture.open(RPC_MIGRATIONS, url), clock),
      new CreditCap(await fixture.open(RPC_MIGRATIONS, url), clock),
    ];
    const outcomes = await Promise.all(
      Array.from({ length: 60 }, async (_, index) => caps[index % 2]!.reserve('alice', 20, 1_000)),
    );
    assert.equal(outcomes.filter((outcome) => outcome.ok).length, 50);
    assert.deepEqual(await caps[0]!.reserve('alice', 1, 1_000), { ok: false, usedCredits: 1_000 });
    assert.equal((await caps[1]!.reserve('bob', 1_000, 1_000)).ok, true);
  });

  test('gives back what was not used, in its own minute and after it', async () => {
    const clock = new TestClock();
    const cap = new CreditCap(await fixture.open(RPC_MIGRATIONS), clock);
    const first = await cap.reserve('alice', 600, 1_000);
    const second = await cap.reserve('alice', 400, 1_000);
    assert.ok(first.ok && second.ok);
    await cap.correct(first.reservation, 20);
    assert.equal(await cap.used('alice'), 420);
    clock.advance(MINUTE_MS);
    assert.equal((await cap.reserve('alice', 580, 1_000)).ok, true);
    await cap.correct(second.reservation, 0);
    assert.equal(await cap.used('alice'), 600);
    await cap.correct(second.reservation, 400);
    assert.equal(await cap.used('alice'), 600);
  });

  test('credits leave after 24 hours, never before', async () => {
    const clock = new TestClock();
    const cap = new CreditCap(await fixture.open(RPC_MIGRATIONS), clock);
    assert.equal((await cap.reserve('alice', 1_000, 1_000)).ok, true);
    clock.advance(DAY_MS);
    assert.equal((await cap.reserve('alice', 1, 1_000)).ok, false);
    clock.advance(MINUTE_MS);
    assert.equal((await cap.reserve('alice', 1_000, 1_000)).ok, true);
    clock.advance(2 * DAY_MS);
    await cap.prune();
    assert.equal(await cap.used('alice'), 0);
  });

  test('agrees with a plain model over random days', async () => {
    const store = await fixture.open(RPC_MIGRATIONS);
    const step = fc.record({
      waitMinutes: fc.nat(900),
      credits: fc.integer({ min: 1, max: 400 }),
      used: fc.nat(400),
    });
    let round = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
        round += 1;
        const caller = `caller-${round}`;
        const clock = new TestClock();
        const cap = new CreditCap(store, clock);
        const model: { minute: number; credits: number }[] = [];
        for (const { waitMinutes, credits, used } of steps) {
          clock.advance(waitMinutes * MINUTE_MS);
          const minute = Math.floor(clock.nowMs() / MINUTE_MS);
          const inWindow = model.filter((one) => one.minute >= minute - 1_440);
          const before = inWindow.reduce((sum, one) => sum + one.credits, 0);
          const outcome = await cap.reserve(caller, credits, 1_000);
          assert.equal(outcome.ok, before + credits <= 1_000);
          if (!outcome.ok) continue;
          const due = Math.min(used, credits);
          await cap.correct(outcome.reservation, due);
          model.push({ minute, credits: due });
        }
      }),
      { numRuns: 25 },
    );
  });
});
