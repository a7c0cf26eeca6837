/** Jobs that are charged while they run, and refunded when they fail. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { ledgerBench } from '../../../test/support/ledger-bench.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { usdToNano } from '../../core/money.ts';
import type { Store } from '../../db/db.ts';
import {
  LEDGER_MIGRATIONS,
  type UsageRecord,
  accountFigures,
  cappedSpending,
  receiptOf,
  spentEver,
  transactionsOf,
  usageDays,
  usageGroups,
  usageTags,
  usageTotals,
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
    const hold = { requestId: 'job', accountId: 'a', capIds: ['k'], ...amounts } as const;
    assert.ok((await ledger.hold({ ...hold, lifetime: 'durable' })).ok);
    const { usage } = bill(clock, 'job', quoteNano);
    const running: UsageRecord = { ...usage, kind: 'video', status: 'running' };
    const settle = { costNano: quoteNano, usage: running };
    await store.transaction((tx) => ledger.settleIn(tx, settle));
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
    return { store, clock, ledger, hold, usage, refund, close, clean, movements };
  }

  test('a hold that is placed after the release of its job is released by the next one', async () => {
    const { store, ledger, hold, usage, clean } = await charged();
    const requestId = 'late';
    const failed = { ...usage, requestId, kind: 'video', status: 'failed' } as const;
    const settle = { costNano: usdToNano('0'), usage: failed };
    const release = () => store.transaction((tx) => ledger.settleIn(tx, settle));
    assert.ok((await release()).fresh);
    assert.ok((await ledger.hold({ ...hold, requestId, lifetime: 'durable' })).ok);
    assert.equal((await ledger.funds('a')).heldUsdNano, usdToNano('0.35'));
    assert.ok(!(await release()).fresh);
    assert.equal((await ledger.funds('a')).heldUsdNano, 0n);
    await clean();
  });

  test('a failed job is refunded once, by a posting of its own', async () => {
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

  test('a refunded job counts as an error with an amount of 0 in the sums of its day and tags', async () => {
    const b = await ledgerBench(fixture);
    const jobs = async (requestId: string, status: 'failed' | 'completed') => {
      const quoteNano = usdToNano('0.35');
      const amounts = { minNano: quoteNano, maxNano: quoteNano, floorNano: usdToNano('0') };
      const of = { requestId, accountId: 'a', capIds: ['k'], lifetime: 'durable' } as const;
      assert.ok((await b.ledger.hold({ ...of, ...amounts })).ok);
      const { usage, costNano } = b.billed(requestId, '0.35');
      const metadata = { team: 'film' };
      const running = { ...usage, kind: 'video', status: 'running', metadata } as const;
      await b.store.transaction((tx) => b.ledger.settleIn(tx, { costNano, usage: running }));
      return () =>
        b.store.transaction((tx) =>
          status === 'failed'
            ? b.ledger.refundIn(tx, { ...running, status })
            : b.ledger.closeIn(tx, { ...running, status }),
        );
    };
    const ends = [await jobs('failed', 'failed'), await jobs('made', 'completed')];
    const day = dayOf(b.clock.nowMs());
    const days = { accountId: 'a', fromDay: day, toDay: day };
    const page = { limit: 10, offset: 0 };
    const sums = async () => {
      const rows = [
        ...(await usageDays(b.store, days, page)),
        ...(await usageDays(b.store, { ...days, tag: 'team' }, page)),
        ...(await usageTags(b.store, days, page)),
        ...(await usageGroups(b.store, days, ['model_id'], 10)),
        await usageTotals(b.store, days),
      ];
      return rows.map(({ requests, errors, usd_nano }) => [requests, errors, usd_nano]);
    };
    const five = (sum: bigint[]) => Array.from({ length: 5 }, () => sum);
    assert.deepEqual(await sums(), five([2n, 0n, usdToNano('0.7')]));
    for (const end of ends) assert.equal(await end(), true);
    assert.deepEqual(await sums(), five([2n, 1n, usdToNano('0.35')]));
    const figures = await accountFigures(b.store, ['a'], b.clock.nowMs());
    assert.equal(figures.get('a')?.spentTodayNano, usdToNano('0.35'));
    // A cap created now counts what was not refunded, by key and by tag.
    await b.cap('5', 'MONTH', { id: 'late', counts: {} });
    await b.cap('5', 'MONTH', { id: 'tagged', counts: { tag: { name: 'team', value: 'film' } } });
    const caps = await cappedSpending(b.store, ['late', 'tagged'], b.clock.nowMs());
    assert.deepEqual(
      [...caps.values()].map(({ usdNano }) => usdNano),
      [usdToNano('0.35'), usdToNano('0.35')],
    );
    await b.audit();
  });

  test('the migration subtracts refunds of an older version from the sums of their days', async () => {
    const url = await fixture.freshUrl();
    const old = await fixture.open(
      LEDGER_MIGRATIONS.filter(({ id }) => id < 'ledger-0021'),
      url,
    );
    const clock = new TestClock();
    const nowMs = clock.nowMs();
    const day = dayOf(nowMs);
    const ledgerOf = (store: Store) =>
      new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
    await ledgerOf(old).prepareDays(day, day + 1);
    const move = `INSERT INTO ledger_transfer (id, part, day, account_id, debit_account,
      credit_account, amount_nano, balance_after_nano, kind, request_id, model_id, note, created_ms)
      VALUES ('job:refund', 0, $1, 'a', 'house:revenue', 'a', 7, 7, 'REFUND', 'job', 'm', NULL, $2)`;
    await old.query(move, [day, nowMs]);
    await old.query(
      `INSERT INTO ledger_usage (request_id, day, created_ms, account_id, key_id, kind, model_id,
       replica, attempts, prompt_tokens, completion_tokens, cached_tokens, cache_write_tokens,
       reasoning_tokens, counted_by, price_version, usd_nano, diem_nano, latency_ms, first_token_ms,
       status, extras, metadata, reserved_nano) VALUES ('job', $1, $2, 'a', 'k', 'video', 'm', NULL,
       1, 0, 0, 0, 0, 0, 'none', 'v', 7, 0, 0, NULL, 'failed', NULL, NULL, 7)`,
      [day, nowMs],
    );
    await old.query(
      `INSERT INTO ledger_usage_day (account_id, day, key_id, model_id, requests, errors,
       prompt_tokens, completion_tokens, usd_nano, diem_nano)
       VALUES ('a', $1, 'k', 'm', 2, 0, 0, 0, 10, 0), ('a', $1, 'k', 'n', 1, 0, 0, 0, 5, 0)`,
      [day],
    );
    const store = await fixture.open(LEDGER_MIGRATIONS, url);
    const days = { accountId: 'a', fromDay: day, toDay: day };
    const rows = await usageDays(store, days, { limit: 10, offset: 0 });
    assert.deepEqual(
      rows.map((row) => [row.model_id, row.usd_nano]),
      [
        ['m', 3n],
        ['n', 5n],
      ],
    );
  });

  test('a completed job keeps its charge', async () => {
    const b = await charged();
    assert.deepEqual([await b.close(), await b.refund()], [true, false]);
    assert.equal((await b.ledger.balances('a')).usdNano, usdToNano('0.65'));
    assert.equal((await receiptOf(b.store, 'a', 'job'))?.status, 'completed');
    await b.clean();
  });

  test('a refund is subtracted from the period of the hold, which can be placed after midnight', async () => {
    const b = await ledgerBench(fixture);
    await b.cap('5', 'EPOCH');
    b.clock.advance(DAY_MS - (b.clock.nowMs() % DAY_MS) - 1);
    const { usage, costNano } = b.billed('job', '0.35');
    b.clock.advance(2);
    const amounts = { minNano: costNano, maxNano: costNano, floorNano: usdToNano('0') };
    const of = { requestId: 'job', accountId: 'a', capIds: ['k'], lifetime: 'durable' } as const;
    assert.ok((await b.ledger.hold({ ...of, ...amounts })).ok);
    const running: UsageRecord = { ...usage, kind: 'video', status: 'running' };
    await b.store.transaction((tx) => b.ledger.settleIn(tx, { costNano, usage: running }));
    const spent = async () => {
      const sums = await cappedSpending(b.store, ['k', 'later'], b.clock.nowMs());
      return ['k', 'later'].map((id) => sums.get(id)?.usdNano);
    };
    assert.deepEqual(await spent(), [costNano, undefined]);
    // A new cap counts the sums of its days, and the job is in those of the day before.
    await b.cap('5', 'EPOCH', { id: 'later', counts: {} });
    await b.spend('1', 'later');
    assert.deepEqual(await spent(), [costNano, usdToNano('1')]);
    await b.store.transaction((tx) => b.ledger.refundIn(tx, { ...running, status: 'failed' }));
    assert.deepEqual(await spent(), [0n, usdToNano('1')]);
  });

  test('a refund is subtracted from every cap that counts the job, also from a later one', async () => {
    const b = await ledgerBench(fixture);
    const charge = async (requestId: string) => {
      const amountNano = usdToNano('0.35');
      const amounts = { minNano: amountNano, maxNano: amountNano, floorNano: usdToNano('0') };
      const caps = { capIds: ['k', 'parent', 'day', 'month'] };
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

  test('daily credit is refunded on its own day only', async () => {
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
