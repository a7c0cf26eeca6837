/** Migration of the postings of an older version. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { usdToNano } from '../../core/money.ts';
import { type Store, isUniqueViolation } from '../../db/db.ts';
import { LEDGER_MIGRATIONS, transactionsOf } from './ledger.ts';

onEachStore('postings that each had an index by their id', (fixture) => {
  const clock = new TestClock();
  const ledgerOn = (store: Store) =>
    new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
  const postings = (store: Store) => store.query('SELECT * FROM ledger_transfer ORDER BY id, part');

  async function credit(store: Store, id: string): Promise<void> {
    const from = 'house:operator-credit';
    const amountNano = usdToNano('5');
    await store.transaction((tx) =>
      ledgerOn(store).creditIn(tx, { accountId: 'a', amountNano, from, kind: 'CREDIT', id }),
    );
  }

  async function spend(ledger: TestLedger, requestId: string, usd: string): Promise<void> {
    const amountNano = usdToNano(usd);
    const wanted = { requestId, accountId: 'a', minNano: amountNano, maxNano: amountNano };
    assert.ok((await ledger.hold({ ...wanted, floorNano: usdToNano('0') })).ok);
    await ledger.settle(bill(clock, requestId, amountNano));
    clock.advance(1_000);
  }

  test('the migration keeps old postings, and their credits cannot be repeated', async () => {
    const url = await fixture.freshUrl();
    const last = fixture.dialect === 'sqlite' ? 'ledger-0018' : 'ledger-0020';
    const before = LEDGER_MIGRATIONS.filter(({ id }) => id !== last);
    const old = await fixture.open(before, url);
    const firstDay = dayOf(clock.nowMs());
    await ledgerOn(old).prepareDays(firstDay, firstDay + 1);
    await credit(old, 'first');
    await ledgerOn(old).setDailyAllocation('a', usdToNano('0.5'));
    // Paid from daily credit alone, from both, and from the balance alone.
    for (const [at, usd] of ['0.3', '0.4', '0.1'].entries())
      await spend(ledgerOn(old), `r${at}`, usd);
    const kept = await postings(old);
    assert.equal(kept.length, 5);

    const store = await fixture.open(LEDGER_MIGRATIONS, url);
    assert.deepEqual(await postings(store), kept);
    const ledger = ledgerOn(store);
    await assert.rejects(credit(store, 'first'), isUniqueViolation);
    await credit(store, 'second');
    await spend(ledger, 'r3', '0.2');
    const page = await transactionsOf(store, 'a', { limit: 10, offset: 0 });
    assert.deepEqual(
      page.map(({ id, part }) => `${id} ${part}`),
      ['second 0', 'r3 0', 'r2 0', 'r1 1', 'r1 0', 'r0 1', 'first 0'],
    );
    assert.deepEqual((await ledger.audit()).differences, []);

    clock.advance(3 * DAY_MS);
    const today = dayOf(clock.nowMs());
    // Rows in SQLite, partitions in PostgreSQL.
    const dropped = fixture.dialect === 'sqlite' ? 11 : 2;
    assert.equal(await ledger.dropOld({ usageDay: today, postingDay: today }), dropped);
    assert.deepEqual(await postings(store), []);
    assert.deepEqual((await ledger.audit()).differences, []);
  });
});
