/** Rate windows of several processes let exactly the allowed number pass. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { emptyPostgresDatabase } from '../../../test/databases/postgres.ts';
import { openTestStore } from '../../../test/databases/stores.ts';
import { until } from '../../../test/support/until.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { type Clock, DAY_MS, HOUR_MS, MINUTE_MS } from '../../core/clock.ts';
import { type Store, isShared } from '../../db/db.ts';
import { LIMITS_MIGRATIONS, LeasedWindows, type WindowResult } from './limits.ts';

describe('leased rate windows', () => {
  const stores: Store[] = [];
  /** Notifications need real time; the minute does not end by itself. */
  const clock = new TestClock();
  let url: string;
  let holders = 0;

  before(async () => {
    url = await emptyPostgresDatabase();
  });
  after(async () => {
    for (const store of stores) await store.close();
  });

  async function begin(
    processes: number,
    ofProcess: Clock = clock,
  ): Promise<{ windows: LeasedWindows; store: Store }> {
    const store = await openTestStore(url);
    stores.push(store);
    await store.migrate(LIMITS_MIGRATIONS);
    assert.ok(isShared(store));
    const holder = `p${(holders += 1)}`;
    const parts = { store, clock: ofProcess, processes: () => processes, holder };
    const windows = new LeasedWindows(parts);
    // Wait for the first notification, because a process leases only after it.
    await store.listen(() => undefined);
    return { windows, store };
  }

  function take(bucket: string, requestLimit: number, tokens = 1, tokenLimit = 0) {
    return { bucket, tokens, requestLimit, tokenLimit };
  }

  for (const processes of [2, 8]) {
    test(`of 900 requests through ${processes} processes exactly 300 pass in a minute`, async () => {
      const all = await Promise.all(Array.from({ length: processes }, () => begin(processes)));
      const name = `of ${processes}`;
      let sent = 0;
      let passed = 0;
      const caller = async ({ windows }: { windows: LeasedWindows }): Promise<void> => {
        while (sent < 900) {
          sent += 1;
          const answer = await windows.take(take(name, 300), clock.nowMs());
          if (answer.ok) passed += 1;
        }
      };
      await Promise.all(all.flatMap((one) => Array.from({ length: 8 }, () => caller(one))));
      assert.equal(passed, 300);
      clock.advance(MINUTE_MS);
      const next = await all[0]?.windows.take(take(name, 300), clock.nowMs());
      assert.equal(next?.ok === true && next.state.requestsLeft, 299);
    });
  }

  test('capacity that an idle process leases is recalled before a take is rejected', async () => {
    const [first, second] = [await begin(2), await begin(2)];
    assert.ok((await first.windows.take(take('silent', 100), clock.nowMs())).ok);
    const answers: WindowResult[] = [];
    for (let at = 0; at < 100; at += 1) {
      answers.push(await second.windows.take(take('silent', 100), clock.nowMs()));
    }
    assert.equal(answers.filter(({ ok }) => ok).length, 99);
    // Once no process has capacity left, a rejection needs no call to others.
    assert.ok(!(second.windows.take(take('silent', 100), clock.nowMs()) instanceof Promise));
  });

  test('takes and corrections of a lease send nothing to the database', async (t) => {
    const { windows, store } = await begin(1);
    const first = await windows.take(take('own', 100, 10, 1_000), clock.nowMs());
    assert.ok(first.ok);
    const transactions = t.mock.method(store, 'transaction');
    const second = windows.take(take('own', 100, 10, 1_000), clock.nowMs());
    assert.ok(!(second instanceof Promise) && second.ok);
    assert.deepEqual([second.state.requestsLeft, second.state.tokensLeft], [98, 980]);
    assert.equal(windows.correct(second.reserved, 200, clock.nowMs())?.tokens, 210);
    assert.equal(transactions.mock.callCount(), 0);
    // Usage above the estimate counts in the minute that runs by then.
    clock.advance(MINUTE_MS);
    assert.equal(windows.correct(first.reserved, 110, clock.nowMs()), undefined);
    const next = await windows.take(take('own', 100, 10, 1_000), clock.nowMs());
    assert.ok(next.ok);
    assert.equal(next.state.tokensLeft, 1_000 - 100 - 10);
  });

  test('each process reports the remaining capacity minus what others lease', async () => {
    const [first, second] = [await begin(2), await begin(2)];
    const wanted = take('shown', 100);
    for (let at = 0; at < 10; at += 1) {
      assert.ok((await first.windows.take(wanted, clock.nowMs())).ok);
    }
    let left = 90;
    for (; left > 30; left -= 1) {
      assert.ok((await second.windows.take(wanted, clock.nowMs())).ok);
    }
    // A lease is at most a quarter of what is left, for each of two processes.
    const leaseOf = (most: number) => Math.floor(most / 4);
    const shown = async (windows: LeasedWindows) => {
      const counted = await windows.counted(['shown'], clock.nowMs());
      return 100 - (counted.get('shown')?.requests ?? 0);
    };
    await until(async () => {
      clock.advance(20);
      return (await shown(first.windows)) <= 30;
    }, 'the first process is notified');
    for (const { windows } of [first, second]) {
      const reported = await shown(windows);
      assert.ok(
        reported <= left && reported >= left - leaseOf(100),
        `${reported} where ${left} are left`,
      );
    }
    const next = await first.windows.take(wanted, clock.nowMs());
    assert.ok(next.ok);
    const reported = next.state.requestsLeft;
    assert.ok(reported <= 29 && reported >= 29 - leaseOf(100), `${reported} where 29 are left`);
  });

  for (const backMs of [61_000, 10 * MINUTE_MS]) {
    test(`a clock set back by ${backMs / 1_000} s neither opens a second window nor extends one`, async () => {
      const all = [await begin(2), await begin(2)];
      const wanted = take(`back ${backMs}`, 20);
      let passed = 0;
      const takeAll = async (times: number): Promise<void> => {
        for (let at = 0; at < times; at += 1) {
          for (const { windows } of all) {
            if ((await windows.take(wanted, clock.nowMs())).ok) passed += 1;
          }
        }
      };
      await takeAll(5);
      clock.setWallBack(backMs);
      await takeAll(10);
      assert.equal(passed, 20);
      const refused = await all[0]?.windows.take(wanted, clock.nowMs());
      assert.ok(refused?.ok === false);
      const waitMs = refused.state.resetsAtMs - clock.nowMs();
      assert.ok(waitMs > 0 && waitMs <= MINUTE_MS, `a wait of ${waitMs} ms`);
      clock.advance(waitMs);
      await takeAll(20);
      assert.equal(passed, 40);
    });
  }

  describe('after a minute', () => {
    /** That of the database. */
    const right = new TestClock(Date.now());

    test('a window that a process with a clock a day ahead has left has ended', async () => {
      const dayAhead = new TestClock(right.nowMs() + DAY_MS);
      const [ahead, one] = [await begin(2, dayAhead), await begin(2, right)];
      const wanted = take('left behind', 4);
      for (let at = 0; at < 4; at += 1) {
        assert.ok((await ahead.windows.take(wanted, dayAhead.nowMs())).ok);
      }
      const refused = await one.windows.take(wanted, right.nowMs());
      assert.equal(refused.ok, false);
      const waitMs = refused.state.resetsAtMs - right.nowMs();
      assert.ok(waitMs > 0 && waitMs <= MINUTE_MS, `a wait of ${waitMs} ms`);
      await one.windows.prune(right.nowMs());
      assert.equal((await one.windows.take(wanted, right.nowMs())).ok, true);
    });

    for (const skewMs of [-HOUR_MS, HOUR_MS]) {
      test(`a process whose clock is wrong by ${skewMs} ms has ended no window of the others`, async () => {
        const skewed = new TestClock(right.nowMs() + skewMs);
        const [wrong, one, other] = [
          await begin(3, skewed),
          await begin(3, right),
          await begin(3, right),
        ];
        const wanted = take(`beside ${skewMs}`, 4);
        for (let at = 0; at < 4; at += 1) {
          assert.ok((await one.windows.take(wanted, right.nowMs())).ok);
        }
        await wrong.windows.prune(skewed.nowMs());
        assert.equal((await other.windows.take(wanted, right.nowMs())).ok, false);
      });
    }
  });

  test('a take that no lease covers is one transaction', async (t) => {
    const [first, second] = [await begin(2), await begin(2)];
    const transactions = [first, second].map(({ store }) => t.mock.method(store, 'transaction'));
    for (const { windows } of [first, first, second, first, second]) {
      // Too few to lease: each take is counted in the row.
      assert.ok((await windows.take(take('few', 8), clock.nowMs())).ok);
    }
    assert.deepEqual(
      transactions.map(({ mock }) => mock.callCount()),
      [3, 2],
    );
  });

  test('token limits are exact across processes, including corrections', async () => {
    const [first, second] = [await begin(2), await begin(2)];
    const wanted = take('tokens', 0, 10, 1_000);
    let used = 0;
    for (let at = 0; at < 400; at += 1) {
      const { windows } = at % 2 === 0 ? first : second;
      const answer = await windows.take(wanted, clock.nowMs());
      if (!answer.ok) continue;
      const spent = at % 3 === 0 ? 10 : 5;
      windows.correct(answer.reserved, spent, clock.nowMs());
      used += spent;
    }
    assert.ok(used <= 1_000 && used > 990, String(used));
  });
});
