/** The rolling credit cap, in the database and in memory: exact under concurrency and over days. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { onEachStore, storeFixture } from '../../test/databases/stores.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { type Clock, DAY_MS, HOUR_MS, MINUTE_MS } from '../core/clock.ts';
import type { Store } from '../db/db.ts';
import { type Credits, MemoryCredits, RPC_MIGRATIONS, SharedCredits } from './rpc.ts';

const CAP = 1_000;

/** Tests of both implementations. */
function creditTests(
  openStore: () => Promise<Store>,
  Kind: new (store: Store, clock: Clock) => Credits,
): void {
  test('credits are returned to their own minute, unless it has left the window', async () => {
    const clock = new TestClock();
    const credits = new Kind(await openStore(), clock);
    const first = await credits.reserve('alice', 600, CAP);
    const second = await credits.reserve('alice', 400, CAP);
    assert.ok(first.ok && second.ok);
    await credits.correct(first.reservation, 20);
    assert.equal(await credits.used('alice'), 420);
    clock.advance(MINUTE_MS);
    assert.equal((await credits.reserve('alice', 580, CAP)).ok, true);
    await credits.correct(second.reservation, 100);
    assert.equal(await credits.used('alice'), 700);
    clock.advance(DAY_MS);
    assert.equal(await credits.used('alice'), 580);
    await credits.correct(second.reservation, 0);
    assert.equal(await credits.used('alice'), 580);
  });

  test('credits leave the window after 24 hours and not before', async () => {
    const clock = new TestClock();
    const credits = new Kind(await openStore(), clock);
    assert.equal((await credits.reserve('alice', CAP, CAP)).ok, true);
    clock.advance(DAY_MS);
    assert.equal((await credits.reserve('alice', 1, CAP)).ok, false);
    clock.advance(MINUTE_MS);
    assert.equal((await credits.reserve('alice', CAP, CAP)).ok, true);
    clock.advance(2 * DAY_MS);
    await credits.prune();
    assert.equal(await credits.used('alice'), 0);
  });

  test('credits counted by a clock that was ahead leave the window 24 hours after it is set back', async () => {
    const clock = new TestClock();
    const credits = new Kind(await openStore(), clock);
    assert.equal((await credits.reserve('alice', 300, CAP)).ok, true);
    clock.advance(MINUTE_MS);
    const late = await credits.reserve('alice', 300, CAP);
    assert.equal((await credits.reserve('bob', CAP, CAP)).ok, true);
    clock.setWallBack(30 * DAY_MS);
    assert.equal(await credits.used('alice'), 600);
    assert.equal((await credits.reserve('alice', 400, CAP)).ok, true);
    assert.equal((await credits.reserve('bob', 1, CAP)).ok, false);
    assert.ok(late.ok);
    await credits.correct(late.reservation, 0);
    clock.advance(DAY_MS + MINUTE_MS);
    assert.deepEqual([await credits.used('alice'), await credits.used('bob')], [0, 0]);
    assert.equal((await credits.reserve('alice', CAP, CAP)).ok, true);
  });

  test('the cap agrees with a plain model over random days with restarts', async () => {
    const store = await openStore();
    const step = fc.record({
      waitMinutes: fc.nat(900),
      wanted: fc.integer({ min: 1, max: 400 }),
      used: fc.nat(400),
      restarts: fc.boolean(),
    });
    let round = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 12 }), async (steps) => {
        round += 1;
        const caller = `caller-${round}`;
        const clock = new TestClock();
        let credits = new Kind(store, clock);
        const model: { minute: number; credits: number }[] = [];
        for (const { waitMinutes, wanted, used, restarts } of steps) {
          clock.advance(waitMinutes * MINUTE_MS);
          if (restarts) {
            await credits.close();
            credits = new Kind(store, clock);
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
}

onEachStore('shared credits', (fixture) => {
  creditTests(() => fixture.open(RPC_MIGRATIONS), SharedCredits);

  test('concurrent reservations of two processes use the cap to the last credit', async () => {
    const url = await fixture.freshUrl();
    const clock = new TestClock();
    const processes = [
      new SharedCredits(await fixture.open(RPC_MIGRATIONS, url), clock),
      new SharedCredits(await fixture.open(RPC_MIGRATIONS, url), clock),
    ];
    const outcomes = await Promise.all(
      Array.from({ length: 60 }, (_, index) => processes[index % 2]!.reserve('alice', 20, CAP)),
    );
    assert.equal(outcomes.filter((outcome) => outcome.ok).length, 50);
    assert.deepEqual(await processes[0]!.reserve('alice', 1, CAP), { ok: false, usedCredits: CAP });
    assert.equal((await processes[1]!.reserve('bob', CAP, CAP)).ok, true);
  });

  test('credits expire although the clock of another process is hours ahead', async () => {
    const url = await fixture.freshUrl();
    const clock = new TestClock();
    const ahead = new TestClock(clock.nowMs() + 3 * HOUR_MS);
    const processes = [
      new SharedCredits(await fixture.open(RPC_MIGRATIONS, url), clock),
      new SharedCredits(await fixture.open(RPC_MIGRATIONS, url), ahead),
    ];
    for (let hour = 0; hour < 60; hour += 1) {
      for (const credits of processes) {
        assert.equal((await credits.reserve('alice', 20, CAP)).ok, true, `hour ${hour}`);
      }
      clock.advance(HOUR_MS);
      ahead.advance(HOUR_MS);
    }
  });
});

describe('credits in memory', () => {
  const fixture = storeFixture('sqlite');
  creditTests(() => fixture.open(RPC_MIGRATIONS), MemoryCredits);

  async function rowOf(store: Store, caller: string): Promise<readonly [number, number]> {
    const [row] = await store.query<{ current: bigint; total: bigint }>(
      'SELECT current, total FROM rpc_credit_window WHERE caller = $1',
      [caller],
    );
    return [Number(row?.current), Number(row?.total)];
  }

  test('concurrent reservations use the cap to the last credit', async () => {
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

  test('reservations are counted although the windows of 10,000 callers are dropped', async () => {
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

  test('counts are written after 100 ms and read after a restart', async () => {
    const store = await fixture.open(RPC_MIGRATIONS);
    const clock = new TestClock();
    const credits = new MemoryCredits(store, clock);
    const outcome = await credits.reserve('alice', 600, CAP);
    assert.ok(outcome.ok);
    await credits.correct(outcome.reservation, 500);
    clock.advance(100);
    await store.transaction(async () => undefined); // the write is queued before it
    assert.deepEqual(await rowOf(store, 'alice'), [500, 500]);
    const restarted = new MemoryCredits(store, clock);
    assert.deepEqual(await restarted.reserve('alice', 501, CAP), { ok: false, usedCredits: 500 });
  });

  test('concurrent returns to an ended minute are all counted, and the rows agree', async () => {
    const store = await fixture.open(RPC_MIGRATIONS);
    const clock = new TestClock();
    const credits = new MemoryCredits(store, clock);
    const outcomes = await Promise.all(
      Array.from({ length: 5 }, async () => credits.reserve('alice', 100, CAP)),
    );
    clock.advance(MINUTE_MS);
    await Promise.all([
      ...outcomes.map(async (one) => one.ok && credits.correct(one.reservation, 40)),
      credits.reserve('alice', 7, CAP),
    ]);
    assert.equal(await credits.used('alice'), 207);
    await credits.close();
    assert.deepEqual(await rowOf(store, 'alice'), [7, 207]);
  });
});
