import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout } from 'node:timers/promises';
import { onEachStore } from '../../../test/databases/stores.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { type Nano, usdToNano } from '../../core/money.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import { LEDGER_MIGRATIONS } from './ledger.ts';

const LONG_READ_MS = 60_000;
const WAIT_MS = 300;

onEachStore('retention', (fixture) => {
  async function spend(
    ledger: TestLedger,
    clock: TestClock,
    id: string,
    usd: string,
  ): Promise<void> {
    const costNano: Nano = usdToNano(usd);
    const bounds = { requestId: id, accountId: 'a', minNano: costNano, maxNano: costNano };
    const answer = await ledger.hold({ ...bounds, floorNano: usdToNano('0') });
    assert.ok(answer.ok);
    await ledger.settle(bill(clock, id, costNano));
  }

  test('`dropOld` does not change the audit', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const clock = new TestClock();
    const ledger = new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
    await ledger.start();
    await store.transaction((tx) =>
      ledger.creditIn(tx, {
        accountId: 'a',
        amountNano: usdToNano('10'),
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id: 'first',
      }),
    );
    await ledger.setDailyAllocation('a', usdToNano('0.02'));
    for (let day = 0; day < 5; day += 1) {
      // The first day's rows are written before their partition exists, the others after.
      if (day > 0) await ledger.prepareDays(dayOf(clock.nowMs()) - 1, dayOf(clock.nowMs()) + 1);
      for (let at = 0; at < 3; at += 1) await spend(ledger, clock, `r${day}.${at}`, '0.01');
      clock.advance(DAY_MS);
    }
    const today = dayOf(clock.nowMs());
    const before = await ledger.audit();
    assert.deepEqual(before.differences, []);
    const dropped = await ledger.dropOld({ usageDay: today - 2, postingDay: today - 3 });
    assert.ok(dropped > 0);
    const after = await ledger.audit();
    assert.deepEqual(after, before);
    const [left] = await store.query<{ usage: bigint; postings: bigint }>(
      `SELECT (SELECT count(*) FROM ledger_usage) AS usage,
       (SELECT count(*) FROM ledger_transfer) AS postings`,
    );
    assert.equal(left?.usage, 6n);
    assert.ok(left.postings < 16n);
    // Running it twice has the same effect, and spending continues.
    await ledger.dropOld({ usageDay: today - 2, postingDay: today - 3 });
    await spend(ledger, clock, 'later', '0.01');
    assert.deepEqual((await ledger.audit()).differences, []);
    await ledger.stop();
  });

  test('charges do not wait for `prepareDays` and `dropOld` while a long read runs', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const clock = new TestClock();
    const ledger = new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
    await ledger.start();
    const today = dayOf(clock.nowMs());
    await ledger.prepareDays(today - 3, today + 1);
    const credit = { amountNano: usdToNano('10'), from: 'house:operator-credit' } as const;
    await store.transaction((tx) =>
      ledger.creditIn(tx, { accountId: 'a', ...credit, kind: 'CREDIT', id: 'first' }),
    );
    for (const days of ['prepare', 'drop'] as const) {
      const { promise: isReading, resolve: reads } = Promise.withResolvers<void>();
      const { promise: end, resolve: endRead } = Promise.withResolvers<void>();
      const reading = store.transaction(
        async (tx) => {
          await tx.query('SELECT count(*) AS rows FROM ledger_usage');
          await tx.query('SELECT count(*) AS rows FROM ledger_transfer');
          reads();
          await end;
        },
        { isSnapshot: true, timeoutMs: LONG_READ_MS },
      );
      await isReading;
      const changing =
        days === 'prepare'
          ? ledger.prepareDays(today + 1, today + 2)
          : ledger.dropOld({ usageDay: today - 2, postingDay: today - 2 });
      const changed = changing.catch(() => undefined); // repeated a minute later
      try {
        await setTimeout(WAIT_MS);
        await spend(ledger, clock, `during-${days}`, '0.01');
      } finally {
        endRead();
        await Promise.all([reading, changed]);
      }
    }
    await ledger.stop();
  });

  test('`dropOld` drops nothing without a first kept day', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const clock = new TestClock();
    const ledger = new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
    assert.equal(await ledger.dropOld({ usageDay: undefined, postingDay: undefined }), 0);
  });
});
