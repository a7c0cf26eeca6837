/** The books: the journal sums to the ledger at every date, and the formats are exact. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { nano, usdToNano } from '../../core/money.ts';
import { beancountFile, booksCsv } from '../../server/ops/books-format.ts';
import {
  type Books,
  CUSTOMERS,
  LEDGER_MIGRATIONS,
  journalSums,
  postCardFee,
  readBooks,
} from './ledger.ts';

/** Credits minus debits of customers. */
function changeOf({ entries }: Pick<Books, 'entries'>): bigint {
  return entries.reduce((sum, { debit, credit, amountNano }) => {
    const change = credit === CUSTOMERS ? amountNano : 0n;
    return sum + change - (debit === CUSTOMERS ? amountNano : 0n);
  }, 0n);
}

onEachStore('books', (fixture) => {
  test('the journal equals the ledger to the nano at every date', async () => {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const clock = new TestClock();
    const ids = systemIds();
    const ledger = new TestLedger({ store, clock, ids, log: silentLog });
    await ledger.start();
    const firstDay = dayOf(clock.nowMs());
    await ledger.prepareDays(firstDay, firstDay + 8);
    const owedAfter: bigint[] = [];
    for (let day = 0; day < 6; day += 1) {
      for (const accountId of ['a', 'b', 'c']) {
        await store.transaction((tx) =>
          ledger.creditIn(tx, {
            accountId,
            amountNano: usdToNano('3.000000001'),
            from: day % 2 === 0 ? 'house:top-up:base' : 'house:top-up:stripe',
            kind: 'TOP_UP',
            id: `pay-${day}-${accountId}`,
            note: 'Say "hi", =1+1',
          }),
        );
        // The account with a debt spends nothing.
        for (let at = 0; at < 3 && accountId !== 'c'; at += 1) {
          const requestId = ids.ordered(clock.nowMs());
          const amount = usdToNano('0.000000123');
          await ledger.hold({
            requestId,
            accountId,
            minNano: amount,
            maxNano: amount,
            floorNano: nano(0n),
          });
          await ledger.settle(bill(clock, requestId, amount, { accountId }));
        }
      }
      if (day === 3) {
        await ledger.moveOnce({
          direction: 'debit',
          accountId: 'a',
          amountNano: usdToNano('1.5'),
          reference: 'back',
        });
        await store.transaction((tx) =>
          ledger.reverseIn(tx, {
            accountId: 'c',
            amountNano: usdToNano('100'),
            to: 'house:top-up:base',
            id: 'reversal-1',
          }),
        );
        for (const [id, cents] of [
          ['fee', 1_588n],
          ['back', -1_500n],
        ] as const) {
          const fee = {
            provider: 'stripe',
            amountNano: cents * 10_000_000n,
            id,
            note: 'pay',
          } as const;
          await store.transaction((tx) => postCardFee(tx, fee, clock.nowMs()));
        }
      }
      owedAfter.push((await ledger.audit()).owedNano);
      clock.advance(DAY_MS);
    }
    const audit = await ledger.audit();
    assert.ok(audit.ok);
    for (let from = 0; from < 6; from += 1) {
      for (let to = from; to < 6; to += 1) {
        const books = await readBooks(store, firstDay + from, firstDay + to);
        assert.equal(books.owedNano, owedAfter[to], `owed after day ${to}`);
        assert.equal(books.owedBeforeNano, from === 0 ? 0n : owedAfter[from - 1]);
        assert.equal(books.owedBeforeNano + changeOf(books), books.owedNano);
      }
    }
    const gas = { payments: [], totals: [] };
    const all = { ...(await readBooks(store, firstDay, firstDay + 5)), gas };
    const charges = all.entries.filter(({ kind }) => kind === 'CHARGE');
    assert.deepEqual([charges.length, charges[0]?.postings], [6, 6]);
    const revenue = journalSums(all).find(({ kind }) => kind === 'CHARGE');
    assert.equal(revenue?.amountNano, audit.revenueNano);

    const fees = journalSums(all).filter(({ kind }) => kind === 'FEE');
    const [kept, cost] = ['house:fees-paid:stripe', 'house:card-fees:stripe'];
    assert.deepEqual(
      fees.map(({ debit, credit, amountNano }) => [debit, credit, amountNano]),
      [
        [kept, cost, usdToNano('15')],
        [cost, kept, usdToNano('15.88')],
      ],
    );
    const csv = booksCsv(all).trim().split('\r\n');
    assert.equal(csv.length, all.entries.length + 1);
    assert.match(
      csv[1] ?? '',
      /^\d{4}-\d\d-\d\d,pay-0-a,TOP_UP,house:top-up:base,customers,3\.000000001,1,a,"Say ""hi"", =1\+1",,$/,
    );
    const file = beancountFile(all);
    // Each transaction is balanced, and the last line is what is owed.
    const sums = file
      .split('\n\n')
      .filter((part) => / \* /.test(part))
      .map((part) =>
        [...part.matchAll(/ {2}[A-Z]\S+ {2}(-?)(\d+)\.(\d{9}) USD/g)].reduce(
          (sum, [, sign, whole, decimals]) =>
            sum + BigInt(`${whole}${decimals}`) * (sign === '-' ? -1n : 1n),
          0n,
        ),
      );
    assert.equal(sums.length, all.entries.length + 1);
    assert.ok(sums.every((sum) => sum === 0n));
    assert.match(file, /\d balance Liabilities:Customers -\d+\.\d{9} USD\n$/);
    assert.match(file, /"TOP_UP: Say \\"hi\\", =1\+1"/);
    const cards = ['Expenses:Card-Fees:Stripe', 'Assets:Fees-Paid:Stripe', 'Assets:Top-Up:Stripe'];
    for (const name of [...cards, 'Assets:Top-Up:Base', 'Expenses:Bad-Debt']) {
      assert.match(file, new RegExp(`open ${name} USD`));
    }
  });
});
