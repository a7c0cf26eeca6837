import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type StoreFixture, onEachStore } from '../../../test/databases/stores.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import type { Parameter, Store } from '../../db/db.ts';
import { nano, usdToNano } from '../../core/money.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import {
  LEDGER_MIGRATIONS,
  type ReceiptPlace,
  type UsageRecord,
  addReportDays,
  allReceipts,
  pricesOf,
  receiptOf,
  receiptsOf,
  rememberPrices,
  usageGroups,
} from './ledger.ts';

const DAYS = 12;
const PER_DAY = 7;

async function bench(fixture: StoreFixture) {
  const store = await fixture.open(LEDGER_MIGRATIONS);
  const clock = new TestClock();
  const ids = systemIds();
  const ledger = new TestLedger({ store, clock, ids, log: silentLog });
  await ledger.start();
  const firstDay = dayOf(clock.nowMs());
  await ledger.prepareDays(firstDay, firstDay + DAYS + 1);
  const credit = (id: string, usd: string, accountId = 'a') =>
    store.transaction((tx) =>
      ledger.creditIn(tx, {
        accountId,
        amountNano: usdToNano(usd),
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id,
      }),
    );
  await credit('first', '10');
  await credit('other', '10', 'b');
  const all: UsageRecord[] = [];
  const everyone: UsageRecord[] = [];
  const spend = async (accountId: string, changes: Partial<UsageRecord>): Promise<void> => {
    const requestId = ids.ordered(clock.nowMs());
    const amount = usdToNano('0.001');
    await ledger.hold({
      requestId,
      accountId,
      minNano: amount,
      maxNano: usdToNano('0.004'),
      floorNano: nano(0n),
    });
    const { usage, ...rest } = bill(clock, requestId, amount, { accountId });
    const record = { ...usage, ...changes };
    if (accountId === 'a') all.push(record);
    everyone.push(record);
    await ledger.settle({ ...rest, usage: record });
  };
  for (let day = 0; day < DAYS; day += 1) {
    if (day === 4 || day === 5) {
      clock.advance(DAY_MS);
      continue;
    }
    for (let at = 0; at < PER_DAY; at += 1) {
      await spend('a', {
        keyId: at % 2 === 0 ? 'k' : 'other',
        modelId: at === 3 && day % 3 === 0 ? 'rare' : 'm',
        status: at === 6 && day === 2 ? 'failed' : 'completed',
        replica: at === 5 ? 'rack2' : 'rack1',
        metadata: at === 1 ? { 'user%': `a"b_${day}` } : undefined,
      });
      if (at % 3 === 2) clock.advance(1_000);
    }
    await spend('b', {});
    clock.advance(DAY_MS - 2_000);
  }
  return { store, ledger, clock, firstDay, all, everyone, credit };
}

onEachStore('receipts, sums and movements', (fixture) => {
  let made: ReturnType<typeof bench> | undefined;
  /** Shared by all tests; each leaves the data unchanged. */
  const shared = (): ReturnType<typeof bench> => (made ??= bench(fixture));

  test('the pages of each filter contain each receipt once, newest first', async () => {
    const { store, all, firstDay } = await shared();
    const range = { accountId: 'a', fromDay: firstDay, toDay: firstDay + DAYS };
    const filters = [
      {},
      { keyId: 'other' },
      { modelId: 'rare' },
      { status: 'failed' },
      { kind: 'rpc' },
      { fromDay: firstDay + 3, toDay: firstDay + 6 },
    ];
    for (const filter of filters) {
      for (const [limit, sliceRows] of [
        [1, 2],
        [10, 3],
        [100, 5_000],
      ] as const) {
        const wanted = { ...range, ...filter };
        const ids: string[] = [];
        let after: ReceiptPlace | undefined;
        do {
          const page = await receiptsOf(store, wanted, { limit, after, sliceRows });
          assert.ok(page.rows.length <= limit);
          ids.push(...page.rows.map((row) => row.request_id));
          after = page.next;
        } while (after !== undefined);
        const expected = all
          .filter(
            (one) =>
              dayOf(one.createdMs) >= wanted.fromDay &&
              dayOf(one.createdMs) <= wanted.toDay &&
              ('keyId' in filter ? one.keyId === filter.keyId : true) &&
              ('modelId' in filter ? one.modelId === filter.modelId : true) &&
              ('status' in filter ? one.status === filter.status : true) &&
              ('kind' in filter ? one.kind === filter.kind : true),
          )
          .toSorted((a, b) => b.createdMs - a.createdMs || (a.requestId < b.requestId ? 1 : -1))
          .map((one) => one.requestId);
        assert.deepEqual(ids, expected, JSON.stringify({ filter, limit }));
      }
    }
  });

  test('the pages of all accounts contain each matching receipt once, newest first', async () => {
    const { store, everyone, firstDay, clock } = await shared();
    await addReportDays({ store, clock, log: silentLog });
    const range = { fromDay: firstDay, toDay: firstDay + DAYS };
    const filters: readonly (readonly [object, (one: UsageRecord) => boolean])[] = [
      [{}, () => true],
      [{ keyId: 'other' }, ({ keyId }) => keyId === 'other'],
      [{ modelId: 'rare' }, ({ modelId }) => modelId === 'rare'],
      [{ status: 'failed' }, ({ status }) => status === 'failed'],
      [{ engine: 'rack2' }, ({ replica }) => replica === 'rack2'],
      [{ minNano: usdToNano('0.002') }, () => false],
      [{ tagPair: ['user%', 'a"b_3'] }, ({ metadata }) => metadata?.['user%'] === 'a"b_3'],
      [{ tagPair: ['user', 'a'] }, () => false],
      [
        { fromDay: firstDay + 3, toDay: firstDay + 6 },
        ({ createdMs }) => dayOf(createdMs) >= firstDay + 3 && dayOf(createdMs) <= firstDay + 6,
      ],
    ];
    for (const [filter, matches] of filters) {
      for (const [limit, sliceRows] of [
        [1, 2],
        [10, 3],
        [100, 5_000],
      ] as const) {
        const ids: string[] = [];
        let below: string | undefined;
        do {
          const page = await allReceipts(
            store,
            { ...range, nowMs: clock.nowMs(), ...filter },
            { limit, below, sliceRows },
          );
          assert.ok(page.rows.length <= limit);
          ids.push(...page.rows.map((row) => row.request_id));
          below = page.next;
        } while (below !== undefined);
        const expected = everyone.filter(matches).map(({ requestId }) => requestId);
        assert.deepEqual(
          ids,
          expected.toSorted().toReversed(),
          JSON.stringify(Object.keys(filter)),
        );
      }
    }
  });

  test('the pages of all accounts contain a receipt of the day before its id', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const clock = new TestClock();
    const ledger = new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
    const day = dayOf(clock.nowMs());
    await ledger.prepareDays(day - 1, day + 3);
    await ledger.openAccount('a');
    // The database sets the time of a video, and its clock can be behind that of the process.
    const requestId = systemIds().ordered(clock.nowMs());
    const { usage, ...rest } = bill(clock, requestId, nano(0n), { accountId: 'a' });
    const request = { ...rest, usage: { ...usage, createdMs: clock.nowMs() - DAY_MS } };
    await store.transaction((tx) => ledger.settleIn(tx, request));
    clock.advance(3 * DAY_MS);
    await addReportDays({ store, clock, log: silentLog });
    const { modelId } = usage;
    const filter = { fromDay: day, toDay: day, nowMs: clock.nowMs(), modelId };
    const { rows } = await allReceipts(store, filter, { limit: 5 });
    assert.deepEqual(
      rows.map((row) => row.request_id),
      [requestId],
    );
  });

  test('every filter of the lists of requests is read by an index', async () => {
    const { store, firstDay, clock } = await shared();
    const range = { fromDay: firstDay, toDay: firstDay + DAYS };
    const single = [
      { keyId: 'k' },
      { modelId: 'm' },
      { engine: 'rack1' },
      { kind: 'chat' },
      { status: 'failed' },
      { status: 'completed' },
      { minNano: 1n },
      { tagPair: ['user', 'a'] as const },
    ];
    const filters = [{}, ...single.flatMap((one) => single.map((other) => ({ ...one, ...other })))];
    const statements = new Map<string, readonly Parameter[]>();
    const recording: Store = Object.create(store, {
      readerFor: { value: () => recording },
      query: {
        value: (sql: string, parameters: readonly Parameter[] = []) => {
          statements.set(sql, parameters);
          return store.query(sql, parameters);
        },
      },
    });
    for (const filter of filters) {
      await allReceipts(recording, { ...range, nowMs: clock.nowMs(), ...filter }, { limit: 5 });
      await receiptsOf(recording, { ...range, accountId: 'a', ...filter }, { limit: 5 });
    }
    const ofReceipts = [...statements].filter(([sql]) => sql.includes('ledger_usage'));
    assert.ok(ofReceipts.length > filters.length);
    const explain = store.dialect === 'sqlite' ? 'EXPLAIN QUERY PLAN' : 'EXPLAIN';
    await store.transaction(async (tx) => {
      // Otherwise PostgreSQL scans these small tables.
      if (store.dialect === 'postgres') await tx.query('SET LOCAL enable_seqscan = off');
      for (const [sql, parameters] of ofReceipts) {
        const rows = await tx.query(`${explain} ${sql}`, parameters);
        const plan = rows.map((row) => String(row['detail'] ?? row['QUERY PLAN'])).join('; ');
        assert.doesNotMatch(plan, /SCAN ledger_usage(?! USING INDEX)|Seq Scan/, `${sql}: ${plan}`);
        assert.match(plan, /SEARCH|Index/, plan);
      }
    });
  });

  test('a receipt contains the reserved amount, and sums count failures', async () => {
    const { store, all, firstDay } = await shared();
    const [first] = all;
    assert.ok(first);
    const receipt = await receiptOf(store, 'a', first.requestId);
    assert.equal(receipt?.reserved_nano, usdToNano('0.004'));
    const range = { fromDay: firstDay, toDay: firstDay + DAYS };
    const groups = await usageGroups(store, range, ['account_id'], 10);
    assert.deepEqual(
      groups.map((row) => [row.account_id, row.requests, row.errors, row.usd_nano]),
      [
        ['a', BigInt(all.length), 1n, usdToNano(String(all.length / 1_000))],
        ['b', 10n, 0n, usdToNano('0.01')],
      ],
    );
    const days = await usageGroups(store, { ...range, accountId: 'a' }, ['day', 'model_id'], 100);
    const [newest] = days;
    assert.equal(newest?.day, BigInt(firstDay + DAYS - 1));
    assert.equal(days.length, DAYS - 2 + all.filter(({ modelId }) => modelId === 'rare').length);
  });

  test('`funds` returns held amounts beside posted ones', async () => {
    const { ledger } = await shared();
    await ledger.setDailyAllocation('b', usdToNano('1'));
    const wanted = { accountId: 'b', floorNano: nano(0n) };
    const amount = usdToNano('1.5');
    const answer = await ledger.hold({
      ...wanted,
      requestId: 'open',
      minNano: amount,
      maxNano: amount,
    });
    assert.ok(answer.ok);
    const funds = await ledger.funds('b');
    assert.deepEqual(
      [funds.usdNano, funds.heldUsdNano, funds.diemNano, funds.heldDiemNano],
      [usdToNano('9.99'), usdToNano('0.5'), usdToNano('1'), usdToNano('1')],
    );
    assert.equal((await ledger.funds('nobody')).usdNano, 0n);
  });

  test('concurrent movements with one reference post once', async () => {
    const { ledger } = await shared();
    const move = (amount: string, accountId = 'c') =>
      ledger.moveOnce({
        direction: 'credit',
        accountId,
        amountNano: usdToNano(amount),
        reference: 'invoice',
      });
    const answers = await Promise.all(['1', '1', '1', '1'].map((amount) => move(amount)));
    const states = answers.map(({ state }) => state).toSorted();
    assert.deepEqual(states, ['done', 'repeated', 'repeated', 'repeated']);
    assert.equal((await ledger.balances('c')).usdNano, usdToNano('1'));
    assert.equal((await move('2')).state, 'reused');
    assert.equal((await move('1', 'd')).state, 'reused');
    const debit = { direction: 'debit', accountId: 'c', reference: 'back' } as const;
    const tooMuch = await ledger.moveOnce({ ...debit, amountNano: usdToNano('3') });
    assert.equal(tooMuch.state, 'insufficient');
    const rest = await ledger.moveOnce({ ...debit, amountNano: usdToNano('1') });
    assert.equal(rest.state, 'done', 'what did not move leaves the reference free');
    assert.ok((await ledger.audit()).ok);
  });

  test('`rememberPrices` keeps the first prices of a version', async () => {
    const { store } = await shared();
    await rememberPrices(store, new Map([['v1', '{"input":"1"}']]));
    await rememberPrices(
      store,
      new Map([
        ['v1', '{"input":"2"}'],
        ['v2', '{}'],
      ]),
    );
    assert.equal(await pricesOf(store, 'v1'), '{"input":"1"}');
    assert.equal(await pricesOf(store, 'v2'), '{}');
    assert.equal(await pricesOf(store, 'v3'), undefined);
  });
});
