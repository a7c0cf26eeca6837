/** Jobs that are charged while they run, and get their charge back when they fail. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import { DAY_MS } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { usdToNano } from '../../core/money.ts';
import { LEDGER_MIGRATIONS, receiptOf, transactionsOf, type UsageRecord } from './ledger.ts';

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
    assert.equal((await b.ledger.standing('a')).usdNano, usdToNano('0.65'));
    assert.equal((await b.ledger.standing('a')).heldUsdNano, 0n);
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

  test('the cap of its key has its room again', async () => {
    const b = await charged();
    await b.store.query(`INSERT INTO ledger_allowance (id, account_id, period, period_start_ms,
      usd_limit_nano, diem_limit_nano, usd_spent_nano, usd_held_nano, diem_spent_nano, diem_held_nano)
      VALUES ('k', 'a', 'EPOCH', 0, NULL, NULL, 500000000, 0, 0, 0)`);
    assert.equal(await b.refund(), true);
    const [cap] = await b.store.query<{ usd_spent_nano: bigint }>(
      "SELECT usd_spent_nano FROM ledger_allowance WHERE id = 'k'",
    );
    assert.equal(cap?.usd_spent_nano, 150_000_000n);
    await b.clean();
  });

  test('daily credit comes back while its day lasts, and no other day gets it', async () => {
    const today = await charged('0.25');
    assert.equal((await today.ledger.balances('a')).diemNano, 0n);
    assert.equal(await today.refund(), true);
    const { usdNano, diemNano } = await today.ledger.balances('a');
    assert.deepEqual([usdNano, diemNano], [usdToNano('1'), usdToNano('0.25')]);
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
