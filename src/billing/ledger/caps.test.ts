import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type StoreFixture, onEachStore } from '../../../test/databases/stores.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { usdToNano } from '../../core/money.ts';
import { ledgerBench } from '../../../test/support/ledger-bench.ts';
import { cappedSpending, spendingSince } from './ledger.ts';

async function bench(fixture: StoreFixture) {
  const b = await ledgerBench(fixture);
  const spent = async () =>
    (await cappedSpending(b.store, ['k'], b.clock.nowMs())).get('k')?.usdNano;
  return { ...b, spent };
}

onEachStore('caps of keys', (fixture) => {
  test('a new cap includes earlier spending of its key in the period', async () => {
    const b = await bench(fixture);
    await b.spend('1');
    b.clock.advance(DAY_MS);
    await b.spend('2');
    await b.cap('3');
    assert.equal(await b.spent(), usdToNano('2'));
    assert.ok(!(await b.hold('1.5', 'k')).answer.ok);
    assert.ok((await b.hold('1', 'k')).answer.ok);
    await b.audit();
  });

  test('a change of the limit keeps the spending', async () => {
    const b = await bench(fixture);
    await b.cap('3');
    await b.spend('2', 'k');
    await b.cap('10');
    assert.equal(await b.spent(), usdToNano('2'));
    await b.cap('2');
    assert.ok(!(await b.hold('0.1', 'k')).answer.ok);
    await b.audit();
  });

  test('a change of the period counts the spending of the new period and open holds', async () => {
    const b = await bench(fixture);
    await b.cap('3');
    await b.spend('2', 'k');
    b.clock.advance(DAY_MS);
    assert.equal(await b.spent(), 0n);
    await b.spend('1', 'k');
    const open = await b.hold('0.5', 'k');
    await b.cap('4', 'MONTH');
    assert.equal(await b.spent(), usdToNano('3'));
    await b.audit();
    assert.ok(!(await b.hold('0.6', 'k')).answer.ok);
    await b.settle(open.requestId, '0.4');
    assert.equal(await b.spent(), usdToNano('3.4'));
    await b.audit();
    await b.cap('4', 'LIFETIME');
    assert.equal(await b.spent(), usdToNano('3.4'));
    await b.audit();
  });

  test('a restored cap includes the spending while it was removed', async () => {
    const b = await bench(fixture);
    await b.cap('3');
    await b.spend('1', 'k');
    await b.cap(undefined);
    assert.equal(await b.spent(), undefined);
    await b.spend('1.5');
    await b.cap('3');
    assert.equal(await b.spent(), usdToNano('2.5'));
    await b.audit();
  });

  test('concurrent holds and settles of a key stop exactly at its changing cap', async () => {
    const b = await bench(fixture);
    await b.cap('1');
    const results = await Promise.all([
      ...Array.from({ length: 15 }, async () => {
        const { requestId, answer } = await b.hold('0.1', 'k');
        if (answer.ok) await b.settle(requestId, '0.1');
        return answer.ok;
      }),
      b.cap('1', 'MONTH').then(() => false),
    ]);
    assert.equal(results.filter(Boolean).length, 10);
    assert.equal(await b.spent(), usdToNano('1'));
    await b.audit();
  });

  test('`spendingSince` sums the rollups by key', async () => {
    const b = await bench(fixture);
    await b.spend('1');
    b.clock.advance(DAY_MS);
    await b.spend('2');
    const today = dayOf(b.clock.nowMs());
    const since = await spendingSince(b.store, 'a', today);
    assert.equal(since.get('k')?.usdNano, usdToNano('2'));
    const both = await spendingSince(b.store, 'a', today - 1);
    assert.equal(both.get('k')?.usdNano, usdToNano('3'));
    assert.equal((await spendingSince(b.store, 'b', 0)).get('k'), undefined);
  });
});
