/** Credits counted in memory: as exact as the rows, which are written later. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { storeFixture } from '../../test/databases/stores.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { DAY_MS, MINUTE_MS } from '../core/clock.ts';
import type { Store } from '../db/db.ts';
import { MemoryCredits, RPC_MIGRATIONS } from './rpc.ts';

const CAP = 1_000;

describe('credits in memory', () => {
  const fixture = storeFixture('sqlite');

  async function rowOf(store: Store, caller: string): Promise<readonly [number, number]> {
    const [row] = await store.query<{ current: bigint; total: bigint }>(
      'SELECT current, total FROM rpc_credit_window WHERE caller = $1',
      [caller],
    );
    return [Number(row?.current), Number(row?.total)];
  }

  test('many at once never pass the cap, and use it to the last credit', async () => {
    const store = await fixture.open(RPC_MIGRATIONS);
    const credits = new MemoryCredits(store, new TestClock());
    const outcomes = await Promise.all(
      Array.from({ length: 60 }, async () => credits.reserve('alice', 20, CAP)),
    );
    assert.equal(outcomes.filter(({ ok }) => ok).length, 50);
    // The window is in memory now, so the result is synchronous.
    assert.deepEqual(credits.reserve('alice', 1, CAP), { ok: false, usedCredits: CAP });
    await credits.close();
    assert.deepEqual(await rowOf(store, 'alice'), [CAP, CAP]);
  });

  test('what comes together with many others is counted, however many callers there are', async () => {
    const store = await fixture.open(RPC_MIGRATIONS);
    const credits = new MemoryCredits(store, new TestClock());
    const others = Array.from({ length: 9_999 }, async (_, at) => credits.used(`other-${at}`));
    await Promise.all(others);
    const callers = ['alice', 'bob', 'carol'];
    await Promise.all(callers.map(async (caller) => credits.reserve(caller, 600, CAP)));
    for (const caller of callers) assert.equal(await credits.used(caller), 600, caller);
    await credits.close();
    for (const caller of callers) assert.deepEqual(await rowOf(store, caller), [600, 600]);
  });

  test('what was counted is written within a moment, and a restart knows it', async () => {
    const store = await fixture.open(RPC_MIGRATIONS);
    const clock = new TestClock();
    const credits = new MemoryCredits(store, clock);
    const outcome = await credits.reserve('alice', 600, CAP);
    assert.ok(outcome.ok);
    await credits.correct(outcome.reservation, 500);
    clock.advance(100);
    await store.transaction(async () => undefined); // the write is queued before it
    assert.deepEqual(await rowOf(store, 'alice'), [500, 500]);
    const later = new MemoryCredits(store, clock);
    assert.equal(await later.used('alice'), 500);
    assert.deepEqual(await later.reserve('alice', 501, CAP), { ok: false, usedCredits: 500 });
  });

  test('gives back to a minute that has ended, and to none that has left the window', async () => {
    const store = await fixture.open(RPC_MIGRATIONS);
    const clock = new TestClock();
    const credits = new MemoryCredits(store, clock);
    const outcome = await credits.reserve('alice', 400, CAP);
    assert.ok(outcome.ok);
    clock.advance(MINUTE_MS);
    assert.equal((await credits.reserve('alice', 600, CAP)).ok, true);
    await credits.correct(outcome.reservation, 100);
    assert.equal(await credits.used('alice'), 700);
    clock.advance(DAY_MS);
    assert.equal(await credits.used('alice'), 600);
    await credits.correct(outcome.reservation, 0);
    assert.equal(await credits.used('alice'), 600);
    await credits.close();
    assert.deepEqual(await rowOf(store, 'alice'), [0, 600]);
    clock.advance(2 * DAY_MS);
    await credits.prune();
    assert.equal(await credits.used('alice'), 0);
  });

  test('agrees with a plain model over random days, restarts in between', async () => {
    const store = await fixture.open(RPC_MIGRATIONS);
    const step = fc.record({
      waitMinutes: fc.nat(900),
      credits: fc.integer({ min: 1, max: 400 }),
      used: fc.nat(400),
      restarts: fc.boolean(),
    });
    let round = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
        round += 1;
        const caller = `caller-${round}`;
        const clock = new TestClock();
        let credits = new MemoryCredits(store, clock);
        const model: { minute: number; credits: number }[] = [];
        for (const { waitMinutes, credits: wanted, used, restarts } of steps) {
          clock.advance(waitMinutes * MINUTE_MS);
          if (restarts) {
            await credits.close();
            credits = new MemoryCredits(store, clock);
          }
          const minute = Math.floor(clock.nowMs() / MINUTE_MS);
          const inWindow = model.filter((one) => one.minute >= minute - 1_440);
          const before = inWindow.reduce((sum, one) => sum + one.credits, 0);
          const outcome = await credits.reserve(caller, wanted, CAP);
          assert.equal(outcome.ok, before + wanted <= CAP);
          if (!outcome.ok) continue;
          const due = Math.min(used, wanted);
          await credits.correct(outcome.reservation, due);
          model.push({ minute, credits: due });
        }
      }),
      { numRuns: 25 },
    );
  });
});
