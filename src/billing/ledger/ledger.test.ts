import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type StoreFixture, onEachStore } from '../../../test/databases/stores.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { type Nano, ZERO, nano, usdToNano } from '../../core/money.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import type { Store } from '../../db/db.ts';
import {
  type CapPeriod,
  type CapSettings,
  LEDGER_MIGRATIONS,
  type RequestMetadata,
  cappedSpending,
  countUsageTags,
  expectedSettlement,
  receiptOf,
  usageDays,
  usageTags,
  usageTotals,
} from './ledger.ts';

interface Bench {
  readonly ledger: TestLedger;
  readonly clock: TestClock;
  readonly store: Store;
}

async function bench(fixture: StoreFixture, url?: string): Promise<Bench> {
  const store = await fixture.open(LEDGER_MIGRATIONS, url);
  const clock = new TestClock();
  const ledger = new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
  await ledger.start();
  return { ledger, clock, store };
}

async function fund({ ledger, store }: Bench, accountId: string, usd: string): Promise<void> {
  await store.transaction((tx) =>
    ledger.creditIn(tx, {
      accountId,
      amountNano: usdToNano(usd),
      from: 'house:operator-credit',
      kind: 'CREDIT',
      id: `credit-${accountId}-${usd}`,
    }),
  );
}

function holdRequest(
  requestId: string,
  maxUsd: string,
  options: { minUsd?: string; floor?: string } = {},
) {
  return {
    requestId,
    accountId: 'a',
    minNano: usdToNano(options.minUsd ?? maxUsd),
    maxNano: usdToNano(maxUsd),
    floorNano: usdToNano(options.floor ?? '0'),
  };
}

const capOf = (id: string, period: CapPeriod = 'EPOCH'): CapSettings => {
  return { id, accountId: 'a', period, usdLimitNano: usdToNano('1'), diemLimitNano: undefined };
};

async function setCap({ ledger, store }: Bench, cap: CapSettings): Promise<void> {
  await store.transaction((tx) => ledger.setCap(tx, cap));
}

async function assertClean(ledger: TestLedger): Promise<void> {
  const report = await ledger.audit();
  assert.deepEqual(report.differences, []);
}

onEachStore('ledger', (fixture) => {
  test('`settle` takes the cost and releases the rest of the hold', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '1');
    const answer = await b.ledger.hold(holdRequest('r1', '0.4'));
    assert.ok(answer.ok);
    assert.equal(answer.hold.grantedNano, usdToNano('0.4'));
    assert.equal(answer.hold.before.usdNano, usdToNano('1'));
    const settlement = await b.ledger.settle(bill(b.clock, 'r1', usdToNano('0.15')));
    assert.equal(settlement.after.usdNano, usdToNano('0.85'));
    assert.ok((await b.ledger.hold(holdRequest('r2', '0.85'))).ok);
    await assertClean(b.ledger);
  });

  test('a settle writes its tags to the receipt and to the sums by tag', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '1');
    await b.ledger.setDailyAllocation('b', usdToNano('1'));
    const spend = async (
      requestId: string,
      usd: string,
      metadata?: RequestMetadata,
      accountId = 'a',
    ): Promise<void> => {
      await b.ledger.hold({ ...holdRequest(requestId, usd), accountId });
      const { usage, ...rest } = bill(b.clock, requestId, usdToNano(usd), { accountId });
      await b.ledger.settle({ ...rest, usage: { ...usage, metadata } });
    };
    // Daily credit is settled under a lock; the other settles of a tick share a transaction.
    await spend('r0', '0.1', { user: 'anna', project: 'x' }, 'b');
    await Promise.all([
      spend('r1', '0.01', { user: 'anna', project: 'x' }),
      spend('r2', '0.02', { user: 'anna' }),
      spend('r3', '0.04', { user: "o'hara\n", project: 'y' }),
      spend('r4', '0.08'),
    ]);
    const today = dayOf(b.clock.nowMs());
    const days = { accountId: 'a', fromDay: today - 1, toDay: today };
    const page = { limit: 10, offset: 0 };
    const rowsOf = async (accountId: string, tag?: string): Promise<string[]> => {
      const rows = await usageTags(b.store, { ...days, accountId, tag }, page);
      return rows.map(
        ({ name, value, requests, usd_nano, diem_nano }) =>
          `${name}=${value} ${requests} ${usd_nano + diem_nano}`,
      );
    };
    assert.deepEqual(await rowsOf('a'), [
      'project=y 1 40000000',
      'project=x 1 10000000',
      "user=o'hara\n 1 40000000",
      'user=anna 2 30000000',
    ]);
    assert.deepEqual(await rowsOf('a', 'project'), [
      'project=y 1 40000000',
      'project=x 1 10000000',
    ]);
    assert.deepEqual(await rowsOf('b', 'user'), ['user=anna 1 100000000']);
    assert.equal(await countUsageTags(b.store, days), 4);
    const anna = { ...days, tag: 'user', tagValue: 'anna' };
    assert.deepEqual(
      (await usageDays(b.store, anna, page)).map((row) => [row.requests, row.tag_value]),
      [[2n, 'anna']],
    );
    assert.equal((await usageTotals(b.store, anna)).usd_nano, usdToNano('0.03'));
    assert.equal((await usageTotals(b.store, days)).requests, 4n);
    const receipt = await receiptOf(b.store, 'a', 'r1');
    assert.deepEqual(JSON.parse(receipt?.metadata ?? ''), { user: 'anna', project: 'x' });
    assert.equal((await receiptOf(b.store, 'a', 'r4'))?.metadata, null);
    await assertClean(b.ledger);
    await b.ledger.dropOld({ usageDay: today + 1, postingDay: undefined });
    assert.deepEqual(await rowsOf('a'), []);
  });

  test('a second settle of a request charges nothing and returns the first result', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '1');
    await b.ledger.hold(holdRequest('r1', '0.4'));
    const both = await Promise.all([
      b.ledger.settle(bill(b.clock, 'r1', usdToNano('0.1'))),
      b.ledger.settle(bill(b.clock, 'r1', usdToNano('0.1'))),
    ]);
    assert.deepEqual(both.filter((one) => one.fresh).length, 1);
    assert.ok(both.every((one) => one.usdNano === usdToNano('0.1')));
    assert.equal((await b.ledger.balances('a')).usdNano, usdToNano('0.9'));
    await assertClean(b.ledger);
  });

  test('a hold gets its minimum and a share of the rest, or all of a named size', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '0.6');
    const granted = async (requestId: string, extra = {}): Promise<Nano | string> => {
      const wanted = { ...holdRequest(requestId, '0.8', { minUsd: '0.2' }), ...extra };
      const answer = await b.ledger.hold(wanted);
      return answer.ok ? answer.hold.grantedNano : answer.reason;
    };
    assert.equal(await granted('r1'), usdToNano('0.3'), 'a quarter of 0.4 on top of 0.2');
    assert.equal(await granted('r2'), usdToNano('0.225'));
    assert.equal(await granted('r3'), 'held', 'the credit is posted, and held by two others');
    await b.ledger.settle(bill(b.clock, 'r1', 1n as Nano));
    await b.ledger.settle(bill(b.clock, 'r2', 1n as Nano));
    const named = { maxNano: usdToNano('0.5'), maxIsNamed: true };
    assert.equal(await granted('r4', named), usdToNano('0.5'));
    const left = usdToNano('0.6') - 2n;
    await b.ledger.settle(bill(b.clock, 'r4', 0n as Nano));
    const expensive = { maxNano: usdToNano('0.7'), maxIsNamed: true };
    assert.equal(await granted('r5', expensive), usdToNano('0.2') + (left - usdToNano('0.2')) / 4n);
    await b.ledger.settle(bill(b.clock, 'r5', 0n as Nano));
    // The hold waits for the cost of a useful completion while posted credit covers it.
    const useful = { minNano: usdToNano('0.1'), usefulNano: usdToNano('0.4') };
    assert.equal(await granted('r6', useful), usdToNano('0.4') + (left - usdToNano('0.4')) / 4n);
    assert.equal(await granted('r7', useful), 'held');
    assert.equal(
      await granted('r8', { ...useful, usefulNano: usdToNano('0.7') }),
      left - usdToNano('0.4') - (left - usdToNano('0.4')) / 4n,
    );
    await assertClean(b.ledger);
  });

  test('a hold is rejected as `held` if other holds use the posted credit, and as `balance` otherwise', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '0.5');
    assert.ok((await b.ledger.hold(holdRequest('r1', '0.5'))).ok);
    const held = await b.ledger.hold(holdRequest('r2', '0.2'));
    assert.deepEqual(held, { ok: false, reason: 'held', availableNano: 0n });
    const short = await b.ledger.hold(holdRequest('r3', '0.6'));
    assert.deepEqual(short, { ok: false, reason: 'balance', postedNano: usdToNano('0.5') });
    const floor = await b.ledger.hold({
      ...holdRequest('r4', '0.01'),
      floorNano: usdToNano('0.6'),
    });
    assert.ok(!floor.ok && floor.reason === 'balance');
  });

  test('a hold is rejected as `held`, not as `cap-usd`, if other holds use the cap', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '5');
    await setCap(b, capOf('k', 'LIFETIME'));
    const capped = (id: string, usd: string) =>
      b.ledger.hold({ ...holdRequest(id, usd), capIds: ['k'] });
    assert.ok((await capped('r1', '0.8')).ok);
    const held = await capped('r2', '0.5');
    assert.deepEqual(held, { ok: false, reason: 'held', availableNano: usdToNano('0.2') });
    await b.ledger.settle(bill(b.clock, 'r1', usdToNano('0.8')));
    const spent = await capped('r3', '0.5');
    assert.ok(!spent.ok && spent.reason === 'cap-usd');
    await assertClean(b.ledger);
  });

  test('concurrent holds get the same amounts as consecutive ones', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '4.5');
    const wanted = (id: string) => holdRequest(id, '2', { minUsd: '0.01' });
    const answers = await Promise.all(
      ['r1', 'r2', 'r3', 'r4', 'r5'].map((id) => b.ledger.hold(wanted(id))),
    );
    let free: bigint = usdToNano('4.5');
    for (const answer of answers) {
      assert.ok(answer.ok);
      const share: bigint = usdToNano('0.01') + (free - usdToNano('0.01')) / 4n;
      assert.equal(answer.hold.grantedNano, share);
      free -= share;
    }
    await assertClean(b.ledger);
  });

  test('daily credit is spent before USD and restarts at 00:00 UTC', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '1');
    await b.ledger.setDailyAllocation('a', usdToNano('0.3'));
    await b.ledger.hold(holdRequest('r1', '0.5'));
    const first = await b.ledger.settle(bill(b.clock, 'r1', usdToNano('0.4')));
    assert.deepEqual([first.diemNano, first.usdNano], [usdToNano('0.3'), usdToNano('0.1')]);
    assert.equal((await b.ledger.balances('a')).diemNano, 0n);
    await assertClean(b.ledger);
    b.clock.advance(DAY_MS);
    await b.ledger.hold(holdRequest('r2', '0.2'));
    b.clock.advance(DAY_MS);
    const late = await b.ledger.settle(bill(b.clock, 'r2', usdToNano('0.2')));
    assert.equal(late.diemNano, usdToNano('0.2'));
    assert.equal((await b.ledger.balances('a')).diemNano, usdToNano('0.3'));
    await assertClean(b.ledger);
  });

  test('`expectedSettlement` returns what `settle` returns later', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '1');
    await b.ledger.setDailyAllocation('a', usdToNano('0.3'));
    await b.ledger.hold(holdRequest('other', '0.2'));
    const answer = await b.ledger.hold(holdRequest('r', '0.4'));
    assert.ok(answer.ok);
    // The other hold has two thirds of the daily credit.
    assert.deepEqual(expectedSettlement(answer.hold).after, {
      usdNano: usdToNano('0.7'),
      diemNano: usdToNano('0.2'),
    });
    const expected = expectedSettlement(answer.hold, usdToNano('0.25'));
    assert.deepEqual(await b.ledger.settle(bill(b.clock, 'r', usdToNano('0.25'))), expected);
    await b.ledger.settle(bill(b.clock, 'other', ZERO));
    await assertClean(b.ledger);
  });

  test('daily credit of one day cannot be spent after midnight', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '1');
    const today = dayOf(b.clock.nowMs());
    await b.ledger.setDailyAllocation('a', usdToNano('0.3'), today);
    await b.ledger.hold(holdRequest('r1', '0.5'));
    const first = await b.ledger.settle(bill(b.clock, 'r1', usdToNano('0.4')));
    assert.deepEqual([first.diemNano, first.usdNano], [usdToNano('0.3'), usdToNano('0.1')]);
    await b.ledger.setDailyAllocation('a', usdToNano('0.5'), today);
    assert.equal((await b.ledger.balances('a')).diemNano, usdToNano('0.2'), 'spent stays spent');
    b.clock.advance(DAY_MS);
    assert.deepEqual(await b.ledger.balances('a'), {
      usdNano: usdToNano('0.9'),
      diemNano: 0n,
      allocationNano: 0n,
    });
    await b.ledger.hold(holdRequest('r2', '0.2'));
    const late = await b.ledger.settle(bill(b.clock, 'r2', usdToNano('0.2')));
    assert.deepEqual([late.diemNano, late.usdNano], [0n, usdToNano('0.2')]);
    assert.deepEqual(late.after, { usdNano: usdToNano('0.7'), diemNano: 0n });
    await assertClean(b.ledger);
  });

  test('a settle without its hold counts in the cap of its key, in the period of its start', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '5');
    await setCap(b, capOf('k'));
    const yesterday = bill(b.clock, 'r1', usdToNano('0.5'));
    b.clock.advance(DAY_MS);
    const ofKey = bill(b.clock, 'r2', usdToNano('0.4'));
    for (const request of [yesterday, ofKey, ofKey]) {
      await b.store.transaction(async (tx) => b.ledger.settleIn(tx, request));
    }
    const spent = await cappedSpending(b.store, ['k'], b.clock.nowMs());
    assert.equal(spent.get('k')?.usdNano, usdToNano('0.4'));
    await assertClean(b.ledger);
  });

  test('a rejection by a cap contains its limit, its spending and its reset time', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '5');
    await setCap(b, capOf('k'));
    const capped = (id: string, usd: string) => ({ ...holdRequest(id, usd), capIds: ['k'] });
    assert.ok((await b.ledger.hold(capped('r1', '0.8'))).ok);
    await b.ledger.settle(bill(b.clock, 'r1', usdToNano('0.7')));
    const refused = await b.ledger.hold(capped('r2', '0.5'));
    assert.deepEqual(refused, {
      ok: false,
      reason: 'cap-usd',
      limitNano: usdToNano('1'),
      spentNano: usdToNano('0.7'),
      resetsAtMs: (dayOf(b.clock.nowMs()) + 1) * DAY_MS,
      capId: 'k',
      budgetId: undefined,
    });
    b.clock.advance(DAY_MS);
    assert.ok((await b.ledger.hold(capped('r3', '0.5'))).ok);
    await assertClean(b.ledger);
  });

  test('300 requests at once against money for 40 never go below zero', async () => {
    const b = await bench(fixture);
    await fund(b, 'a', '0.40');
    const answers = await Promise.all(
      Array.from({ length: 300 }, async (_, index) => {
        const answer = await b.ledger.hold(holdRequest(`r${index}`, '0.01'));
        if (answer.ok) await b.ledger.settle(bill(b.clock, `r${index}`, usdToNano('0.01')));
        return answer.ok;
      }),
    );
    assert.equal(answers.filter(Boolean).length, 40);
    assert.equal((await b.ledger.balances('a')).usdNano, 0n);
    await assertClean(b.ledger);
  });

  test('`start` releases the holds of an ended process, except those of jobs', async () => {
    const url = await fixture.freshUrl();
    const first = await bench(fixture, url);
    await fund(first, 'a', '1');
    await first.ledger.hold(holdRequest('r1', '0.9'));
    await first.ledger.hold({ ...holdRequest('job', '0.05'), lifetime: 'durable' });
    const second = await bench(fixture, url);
    // With SQLite there is one process, whose holds are in its memory.
    const isShared = fixture.dialect === 'postgres';
    if (isShared) assert.ok(!(await second.ledger.hold(holdRequest('r2', '0.5'))).ok);
    await first.ledger.stop();
    assert.ok((await second.ledger.hold(holdRequest('r3', '0.5'))).ok);
    const beyond = await second.ledger.hold(holdRequest('r4', '0.46'));
    assert.deepEqual(beyond, { ok: false, reason: 'held', availableNano: usdToNano('0.45') });
    if (isShared) {
      const late = await first.ledger.settle(bill(first.clock, 'r1', usdToNano('0.9')));
      // 1.00 − 0.50 held by r3 − 0.05 held by the job.
      assert.equal(late.usdNano, usdToNano('0.45'));
      assert.ok(!(await first.ledger.settle(bill(first.clock, 'r1', usdToNano('0.9')))).fresh);
    }
    await assertClean(second.ledger);
  });

  test('any interleaving of holds and settles leaves a clean audit', async () => {
    const step = fc.record({
      request: fc.integer({ min: 0, max: 15 }),
      account: fc.constantFrom('a', 'b'),
      kind: fc.constantFrom('hold', 'settle', 'credit', 'day'),
      cents: fc.integer({ min: 0, max: 60 }),
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40 }), async (steps) => {
        const b = await bench(fixture);
        await b.ledger.openAccount('a');
        await b.ledger.setDailyAllocation('b', usdToNano('0.25'));
        let credits = 0;
        await Promise.all(
          steps.map(async (one) => {
            const id = `r${one.request}`;
            const amount = nano(one.cents * 10_000_000);
            if (one.kind === 'day') return b.clock.advance(DAY_MS / 4);
            if (one.kind === 'credit') {
              credits += 1;
              if (one.cents > 0) await fund(b, one.account, `0.0${credits}1`);
              return;
            }
            if (one.kind === 'hold') {
              const request = {
                ...holdRequest(id, '0'),
                accountId: one.account,
                maxNano: amount,
                minNano: amount,
              };
              // A request cannot hold twice; the primary key rejects the second hold.
              await b.ledger.hold(request).catch(() => undefined);
              return;
            }
            await b.ledger
              .settle(bill(b.clock, id, amount, { accountId: one.account }))
              .catch(() => undefined);
          }),
        );
        await assertClean(b.ledger);
        await b.store.close().catch(() => undefined);
      }),
      { numRuns: fixture.dialect === 'sqlite' ? 30 : 4 },
    );
  });
});
