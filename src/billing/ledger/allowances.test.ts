import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type StoreFixture, onEachStore } from '../../../test/databases/stores.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { usdToNano } from '../../core/money.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import {
  type AllowancePeriod,
  LEDGER_MIGRATIONS,
  cappedSpending,
  spendingSince,
} from './ledger.ts';

async function bench(fixture: StoreFixture) {
  const store = await fixture.open(LEDGER_MIGRATIONS);
  const clock = new TestClock();
  const ledger = new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
  await ledger.start();
  await store.transaction((tx) =>
    ledger.creditIn(tx, {
      accountId: 'a',
      amountNano: usdToNano('100'),
      from: 'house:operator-credit',
      kind: 'CREDIT',
      id: 'credit',
    }),
  );
  let requests = 0;
  const hold = async (usd: string, allowanceId?: string) => {
    requests += 1;
    const requestId = `r${requests}`;
    const answer = await ledger.hold({
      requestId,
      accountId: 'a',
      minNano: usdToNano(usd),
      maxNano: usdToNano(usd),
      floorNano: usdToNano('0'),
      ...(allowanceId === undefined ? {} : { allowanceId }),
    });
    return { requestId, answer };
  };
  const settle = (requestId: string, usd: string) =>
    ledger.settle(bill(clock, requestId, usdToNano(usd)));
  const spend = async (usd: string, allowanceId?: string) => {
    const { requestId } = await hold(usd, allowanceId);
    await settle(requestId, usd);
  };
  const cap = (usd: string | undefined, period: AllowancePeriod = 'EPOCH') =>
    store.transaction((tx) =>
      ledger.setAllowance(tx, {
        id: 'k',
        accountId: 'a',
        period,
        usdLimitNano: usd === undefined ? undefined : usdToNano(usd),
        diemLimitNano: undefined,
      }),
    );
  const spent = async () => (await cappedSpending(store, ['k'], clock.nowMs())).get('k')?.usdNano;
  const clean = async () => assert.deepEqual((await ledger.audit()).differences, []);
  return { store, clock, ledger, hold, settle, spend, cap, spent, clean };
}

onEachStore('caps of keys', (fixture) => {
  test('a cap that is added counts what its key spent before in the period', async () => {
    const b = await bench(fixture);
    await b.spend('1');
    b.clock.advance(DAY_MS);
    await b.spend('2');
    await b.cap('3');
    assert.equal(await b.spent(), usdToNano('2'));
    assert.ok(!(await b.hold('1.5', 'k')).answer.ok);
    assert.ok((await b.hold('1', 'k')).answer.ok);
    await b.clean();
  });

  test('a changed limit keeps what was spent', async () => {
    const b = await bench(fixture);
    await b.cap('3');
    await b.spend('2', 'k');
    await b.cap('10');
    assert.equal(await b.spent(), usdToNano('2'));
    await b.cap('2');
    assert.ok(!(await b.hold('0.1', 'k')).answer.ok);
    await b.clean();
  });

  test('a changed period counts the spending of the new period and the holds that are open', async () => {
    const b = await bench(fixture);
    await b.cap('3');
    await b.spend('2', 'k');
    b.clock.advance(DAY_MS);
    assert.equal(await b.spent(), 0n);
    await b.spend('1', 'k');
    const open = await b.hold('0.5', 'k');
    await b.cap('4', 'MONTH');
    assert.equal(await b.spent(), usdToNano('3'));
    await b.clean();
    assert.ok(!(await b.hold('0.6', 'k')).answer.ok);
    await b.settle(open.requestId, '0.4');
    assert.equal(await b.spent(), usdToNano('3.4'));
    await b.clean();
    await b.cap('4', 'LIFETIME');
    assert.equal(await b.spent(), usdToNano('3.4'));
    await b.clean();
  });

  test('a cap that was taken away and comes back counts what was spent meanwhile', async () => {
    const b = await bench(fixture);
    await b.cap('3');
    await b.spend('1', 'k');
    await b.cap(undefined);
    assert.equal(await b.spent(), undefined);
    await b.spend('1.5');
    await b.cap('3');
    assert.equal(await b.spent(), usdToNano('2.5'));
    await b.clean();
  });

  test('concurrent holds and settles of a key stop exactly at its cap while the cap changes', async () => {
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
    await b.clean();
  });

  test('spending is summed by key from the rollups', async () => {
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
