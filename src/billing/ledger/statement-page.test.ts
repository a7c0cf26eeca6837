import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type StoreFixture, onEachStore } from '../../../test/databases/stores.ts';
import { ledgerBench } from '../../../test/support/ledger-bench.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { usdToNano } from '../../core/money.ts';
import { statementPage } from './ledger.ts';
import type { MovementPlace, StatementPage } from './statement-page.ts';

const DAYS = 4;

async function bench(fixture: StoreFixture) {
  const { store, clock, ledger, credit, spend } = await ledgerBench(fixture);
  const firstDay = dayOf(clock.nowMs());
  await ledger.prepareDays(firstDay, firstDay + DAYS + 1);
  const page = (range: { from: number; to: number; limit: number; after?: MovementPlace }) =>
    statementPage(store.readerFor('a'), 'a', {
      fromDay: firstDay + range.from,
      toDay: firstDay + range.to,
      lastDay: firstDay + range.to,
      after: range.after ?? { createdMs: clock.nowMs() + DAY_MS },
      limit: range.limit,
    });
  return { clock, ledger, firstDay, credit, spend, page };
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
    const { clock, firstDay, ledger, credit, spend, page } = await bench(fixture);
    for (let day = 0; day < DAYS; day += 1) {
      if (day > 0) clock.advance(DAY_MS);
      for (let count = 0; count < 3; count += 1) await spend('0.001');
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
    assert.deepEqual(ids, ['third', 'second', 'fourth', 'credit']);
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
    const { credit, spend, page } = await bench(fixture);
    const readers = 2;
    let done = 0;
    const post = async (): Promise<void> => {
      for (let round = 0; done < readers; round += 1) {
        await Promise.all([credit(`credit-${round}`, '0.5'), spend('0.25'), spend('0.007')]);
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

  test('it has an opening balance if no posting of the account was deleted', async () => {
    const { firstDay, ledger, page } = await bench(fixture);
    await ledger.dropOld({ usageDay: undefined, postingDay: firstDay - 1 });
    const { openingNano, closingNano } = await page({ from: -firstDay, to: 0, limit: 3 });
    assert.deepEqual([openingNano, closingNano], [0n, (await ledger.balances('a')).usdNano]);
  });
});
