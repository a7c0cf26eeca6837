import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type StoreFixture, onEachStore } from '../../../test/databases/stores.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { usdToNano } from '../../core/money.ts';
import { LEDGER_MIGRATIONS, statementPage } from './ledger.ts';
import type { MovementPlace, StatementPage } from './statement-page.ts';

const DAYS = 4;

async function bench(fixture: StoreFixture) {
  const store = await fixture.open(LEDGER_MIGRATIONS);
  const clock = new TestClock();
  const ids = systemIds();
  const ledger = new TestLedger({ store, clock, ids, log: silentLog });
  await ledger.start();
  const firstDay = dayOf(clock.nowMs());
  await ledger.prepareDays(firstDay, firstDay + DAYS + 1);
  const credit = (id: string, usd: string) =>
    store.transaction((tx) =>
      ledger.creditIn(tx, {
        accountId: 'a',
        amountNano: usdToNano(usd),
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id,
      }),
    );
  const charge = async (usd: string): Promise<void> => {
    const requestId = ids.ordered(clock.nowMs());
    const amount = usdToNano(usd);
    await ledger.hold({
      requestId,
      accountId: 'a',
      minNano: amount,
      maxNano: amount,
      floorNano: usdToNano('0'),
    });
    await ledger.settle(bill(clock, requestId, amount));
  };
  const page = (range: { from: number; to: number; limit: number; after?: MovementPlace }) =>
    statementPage(store.readerFor('a'), 'a', {
      fromDay: firstDay + range.from,
      toDay: firstDay + range.to,
      lastDay: firstDay + range.to,
      after: range.after ?? { createdMs: clock.nowMs() + DAY_MS },
      limit: range.limit,
    });
  return { store, clock, ledger, firstDay, credit, charge, page };
}

/** The change of the balance by the entries of a page. */
function changeOf({ movements, days }: StatementPage): bigint {
  const moved = movements.reduce(
    (sum, row) => sum + (row.credit_account === 'a' ? row.amount_nano : -row.amount_nano),
    0n,
  );
  return days.reduce((sum, day) => sum - day.usd_nano, moved);
}

onEachStore('a page of a statement', (fixture) => {
  test('has movements without charges, one entry for the charges of a day, and balances', async () => {
    const { clock, firstDay, ledger, credit, charge, page } = await bench(fixture);
    await credit('first', '10');
    for (let day = 0; day < DAYS; day += 1) {
      if (day > 0) clock.advance(DAY_MS);
      for (let count = 0; count < 3; count += 1) await charge('0.001');
    }
    for (const id of ['second', 'third', 'fourth']) await credit(id, '1');
    const ids: string[] = [];
    let after: MovementPlace = { createdMs: clock.nowMs() };
    for (;;) {
      const { movements } = await page({ from: 0, to: DAYS, limit: 2, after });
      ids.push(...movements.map((row) => row.id));
      const last = movements.at(-1);
      if (last === undefined) break;
      after = { createdMs: Number(last.created_ms), id: last.id, part: Number(last.part) };
    }
    assert.deepEqual(ids, ['third', 'second', 'fourth', 'first']);
    const { days, openingNano, closingNano } = await page({ from: 0, to: DAYS, limit: 3 });
    assert.deepEqual(
      days.map(({ day, requests, usd_nano }) => [Number(day) - firstDay, requests, usd_nano]),
      [3, 2, 1].map((day) => [day, 3n, usdToNano('0.003')]),
    );
    const present = (await ledger.balances('a')).usdNano;
    assert.deepEqual([openingNano, closingNano], [0n, present]);
    const last = await page({ from: DAYS - 1, to: DAYS, limit: 3 });
    assert.equal(last.openingNano, present - usdToNano('3') + usdToNano('0.003'));
  });

  test('its entries are the difference of its balances while others are posted', async () => {
    const { credit, charge, page } = await bench(fixture);
    await credit('first', '10');
    const readers = 2;
    let done = 0;
    const post = async (): Promise<void> => {
      for (let round = 0; done < readers; round += 1) {
        await Promise.all([credit(`credit-${round}`, '0.5'), charge('0.25'), charge('0.007')]);
      }
    };
    const read = async (): Promise<void> => {
      for (let count = 0; count < 8; count += 1) {
        const one = await page({ from: 0, to: 1, limit: 10_000 });
        assert.equal(one.openingNano, 0n);
        assert.equal(changeOf(one), one.closingNano, `page ${count}`);
      }
    };
    const reading = Array.from({ length: readers }, () => read().finally(() => (done += 1)));
    await Promise.all([post(), ...reading]);
  });
});
