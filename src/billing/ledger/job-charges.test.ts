/** Jobs that are charged while they run, and get their charge back when they fail. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { ledgerBench } from '../../../test/support/ledger-bench.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import { DAY_MS } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { usdToNano } from '../../core/money.ts';
import {
  LEDGER_MIGRATIONS,
  type UsageRecord,
  cappedSpending,
  receiptOf,
  spentEver,
  transactionsOf,
} from './ledger.ts';

onEachStore('charges of jobs', (fixture) => {
  async function charged(dailyUsd = '0') {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const clock = new TestClock();
    const ledger = new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
    await ledger.start();
    await store.transaction(async (tx) => {
      const credit = { accountId: 'a', amountNano: usdToNano('1'), kind: 'CREDIT' } as const;
      await ledger.creditIn(tx, { ...credit, from: 'house:operator-credit', id: 'credit' });
    });
    await ledger.setDailyAllocation('a', usdToNano(dailyUsd));
    const quoteNano = usdToNano('0.35');
    const amounts = { minNano: quoteNano, maxNano: quoteNano, floorNano: usdToNano('0') };
    const hold = { requestId: 'job', accountId: 'a', allowanceId: 'k', ...amounts } as const;
    assert.ok((await ledger.hold({ ...hold, lifetime: 'durable' })).ok);
    const { usage } = bill(clock, 'job', quoteNano);
    const running: UsageRecord = { ...usage, kind: 'video', status: 'running' };
    const settle = { costNano: quoteNano, usage: running };
    await store.transaction((tx) => ledger.settleIn(tx, settle));
    // Asked for again, when another engine has taken the job.
    await store.transaction((tx) => ledger.settleIn(tx, settle));
    const failed: UsageRecord = { ...running, status: 'failed', attempts: 2 };
    const refund = () => store.transaction((tx) => ledger.refundIn(tx, failed));
    const close = () =>
      store.transaction((tx) => ledger.closeIn(tx, { ...running, status: 'completed' }));
    const clean = async (): Promise<void> => {
      assert.deepEqual((await ledger.audit()).differences, []);
    };
    const movements = async (): Promise<unknown[]> => {
      const rows = await transactionsOf(store, 'a', { limit: 10, offset: 0 });
      return rows.map((row) => [row.kind, row.amount_nano, row.balance_after_nano]);
    };
    return { store, clock, ledger, refund, close, clean, movements };
  }

  test('one that fails is refunded once, by a row of its own, and the audit stays clean', async () => {
    const b = await charged();
    assert.equal((await b.ledger.funds('a')).usdNano, usdToNano('0.65'));
    assert.equal((await b.ledger.funds('a')).heldUsdNano, 0n);
    await b.clean();
    assert.deepEqual([await b.refund(), await b.refund(), await b.close()], [true, false, false]);
    assert.equal((await b.ledger.balances('a')).usdNano, usdToNano('1'));
    assert.deepEqual(await b.movements(), [
      ['REFUND', usdToNano('0.35'), usdToNano('1')],
      ['CHARGE', usdToNano('0.35'), usdToNano('0.65')],
      ['CREDIT', usdToNano('1'), usdToNano('1')],
    ]);
    const receipt = await receiptOf(b.store, 'a', 'job');
    assert.deepEqual([receipt?.status, receipt?.attempts], ['failed', 2n]);
    assert.equal((await b.ledger.audit()).revenueNano, 0n);
    await b.clean();
  });

  test('one that ends well keeps its charge', async () => {
    const b = await charged();
    assert.deepEqual([await b.close(), await b.refund()], [true, false]);
    assert.equal((await b.ledger.balances('a')).usdNano, usdToNano('0.65'));
    assert.equal((await receiptOf(b.store, 'a', 'job'))?.status, 'completed');
    await b.clean();
  });

  test('every cap that counts it has its room again, also one that was made later', async () => {
    const b = await ledgerBench(fixture);
    const charge = async (requestId: string) => {
      const amountNano = usdToNano('0.35');
      const amounts = { minNano: amountNano, maxNano: amountNano, floorNano: usdToNano('0') };
      const caps = { allowanceId: 'k', budgetIds: ['parent', 'day', 'month'] };
      const of = { requestId, accountId: 'a', lifetime: 'durable' } as const;
      assert.ok((await b.ledger.hold({ ...of, ...amounts, ...caps })).ok);
      const { usage, costNano } = b.billed(requestId, '0.35');
      const running: UsageRecord = { ...usage, kind: 'video', status: 'running' };
      await b.store.transaction((tx) => b.ledger.settleIn(tx, { costNano, usage: running }));
      return () =>
        b.store.transaction((tx) => b.ledger.refundIn(tx, { ...running, status: 'failed' }));
    };
    const spent = async (...ids: string[]) => {
      const sums = await cappedSpending(b.store, ids, b.clock.nowMs());
      return ids.map((id) => sums.get(id)?.usdNano);
    };
    const nanos = (...usd: string[]) => usd.map((one) => usdToNano(one));
    await b.cap('5');
    await b.cap('5', 'MONTH', { id: 'parent', counts: { keyIds: ['k', 'parent'] } });
    await b.cap('5', 'EPOCH', { id: 'day', counts: {} });
    await b.cap('5', 'MONTH', { id: 'month', counts: {} });
    await b.spend('1', 'k');
    const refund = await charge('job');
    const keep = await charge('kept');
    await b.cap('5', 'WEEK', { id: 'later', counts: {} });
    await b.cap('5', 'WEEK', { id: 'other', counts: { keyIds: ['other'] } });
    const all = ['k', 'parent', 'day', 'month', 'later', 'other'];
    assert.deepEqual(await spent(...all), nanos('1.7', '0.7', '0.7', '0.7', '1.7', '0'));
    assert.deepEqual([await refund(), await refund()], [true, false]);
    assert.deepEqual(await spent(...all), nanos('1.35', '0.35', '0.35', '0.35', '1.35', '0'));
    const ever = await spentEver(b.store, { accountId: 'a', keyId: 'k' }, b.clock.nowMs());
    assert.equal(ever.key.usdNano, usdToNano('1.35'), 'less what was given back');
    assert.equal(ever.account.usdNano, ever.key.usdNano);
    b.clock.advance(DAY_MS);
    await b.spend('1', 'k');
    assert.equal(await keep(), true);
    assert.deepEqual(await spent('day', 'month', 'k'), nanos('0', '0', '1'), 'a new day');
    await b.audit();
  });

  test('daily credit comes back while its day lasts, and no other day gets it', async () => {
    const today = await charged('0.25');
    assert.equal((await today.ledger.balances('a')).diemNano, 0n);
    assert.equal(await today.refund(), true);
    const { usdNano, diemNano } = await today.ledger.balances('a');
    assert.deepEqual([usdNano, diemNano], [usdToNano('1'), usdToNano('0.25')]);
    const of = { accountId: 'a', keyId: '' };
    const { account } = await spentEver(today.store, of, today.clock.nowMs());
    assert.deepEqual([account.usdNano, account.diemNano], [0n, 0n]);
    await today.clean();
    const later = await charged('0.25');
    later.clock.advance(DAY_MS);
    assert.equal((await later.ledger.balances('a')).diemNano, usdToNano('0.25'));
    assert.equal(await later.refund(), true);
    assert.equal((await later.ledger.balances('a')).diemNano, usdToNano('0.25'));
    assert.equal((await later.ledger.balances('a')).usdNano, usdToNano('1'));
    await later.clean();
  });
});
