/** Counting and holding in one statement: a hold stands only for a request that was counted. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { storeFixture } from '../../test/databases/stores.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { silentLog } from '../core/log.ts';
import { usdToNano } from '../core/money.ts';
import { JoinedAdmissions } from './admissions.ts';
import { LEDGER_MIGRATIONS, Ledger } from './ledger/ledger.ts';
import { LIMITS_MIGRATIONS, StoredWindows } from './limits/limits.ts';

describe('admissions in one statement (postgres)', () => {
  const fixture = storeFixture('postgres');

  async function open() {
    const store = await fixture.open([...LEDGER_MIGRATIONS, ...LIMITS_MIGRATIONS]);
    const clock = new TestClock();
    const ledger = new Ledger({ store, clock, ids: seededIds(1), log: silentLog });
    assert.ok(ledger.storedHolds !== undefined);
    const windows = new StoredWindows(store);
    const admissions = new JoinedAdmissions({ store, windows, holds: ledger.storedHolds, clock });
    await store.transaction((tx) =>
      ledger.creditIn(tx, {
        accountId: 'alice',
        amountNano: usdToNano('10'),
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id: 'credit',
      }),
    );
    const admit = (requestId: string, requestLimit: number) => {
      const amount = usdToNano('1');
      return admissions.admit({
        take: { bucket: 'alice|m', tokens: 1, requestLimit, tokenLimit: 0 },
        hold: {
          requestId,
          accountId: 'alice',
          minNano: amount,
          maxNano: amount,
          floorNano: amount,
        },
        nowMs: clock.nowMs(),
      });
    };
    return { ledger, windows, admit };
  }

  test('a request of other limits than its neighbours is held for once it is counted', async () => {
    const { ledger, admit } = await open();
    const [first, second] = await Promise.all([admit('a', 10), admit('b', 2)]);
    assert.ok(first.taken.ok && first.hold?.ok === true);
    assert.ok(second.taken.ok && second.hold?.ok === true);
    assert.equal((await ledger.openHolds()).count, 2);
  });

  test('one that its own limits refuse holds nothing', async () => {
    const { ledger, admit } = await open();
    const [first, second] = await Promise.all([admit('a', 10), admit('b', 1)]);
    assert.ok(first.taken.ok && first.hold?.ok === true);
    assert.ok(!second.taken.ok);
    assert.equal(second.hold, undefined);
    assert.equal((await ledger.openHolds()).count, 1);
  });

  test('one that could not be counted holds nothing', async (t) => {
    const { ledger, windows, admit } = await open();
    t.mock.method(windows, 'takeLocked', () => Promise.reject(new Error('away')));
    const [first, second] = await Promise.allSettled([admit('a', 10), admit('b', 2)]);
    assert.equal(first.status, 'fulfilled');
    assert.equal(second.status, 'rejected');
    assert.equal((await ledger.openHolds()).count, 1);
  });
});
