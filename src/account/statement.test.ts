/** The statement of an account: its entries are the difference of its balances, for every range of days. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { refundedJob } from '../../test/support/test-ledger.ts';
import { DAY_MS, dayOf, dayStartMs, isoTime } from '../core/clock.ts';
import { usdToNano } from '../core/money.ts';
import { StatementResponse } from './statement.ts';

describe('the balances of a statement', () => {
  const clock = new TestClock();
  const firstDay = dayOf(clock.nowMs());
  let bench: Bench;
  let accountId: string;
  let admin: string;

  before(async () => {
    bench = await startWithEngine({ clock });
    ({ accountId } = await bench.farebox.account('5'));
    admin = await bench.farebox.key({ accountId, kind: 'ADMIN' });
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
  });

  const dateOf = (day: number): string => isoTime(dayStartMs(day)).slice(0, 10);
  const query = (from: number, to: number): string => `from=${dateOf(from)}&to=${dateOf(to)}`;

  const nanoOf = (text: string | null = null): bigint => BigInt((text ?? '').replace('.', ''));

  async function statement(from: number, to: number) {
    const path = `/billing/statement?limit=100&${query(from, to)}`;
    return StatementResponse.parse((await call(bench.farebox, path, { secret: admin })).body);
  }

  async function refundedVideo(requestId: string, usd: string): Promise<void> {
    clock.advance(1_000);
    await refundedJob(bench.farebox.app.stores, clock, { requestId, accountId, usd });
  }

  test('opening plus entries is closing, and closing is the next opening', async () => {
    const { ledger, store } = bench.farebox.app.stores;
    for (let day = 0; day < 4; day += 1) {
      const chat = await call(bench.farebox, '/chat/completions', {
        secret: await bench.farebox.key({ accountId }),
        body: chatBody(),
      });
      assert.equal(chat.status, 200, chat.text);
      if (day === 1) {
        await refundedVideo('paid-in-usd', '0.35');
        await ledger.setDailyAllocation(accountId, usdToNano('1'));
        await refundedVideo('paid-in-daily-credit', '0.25');
      }
      if (day === 2) {
        await ledger.setDailyAllocation(accountId, usdToNano('0'));
        await store.transaction((tx) =>
          ledger.reverseIn(tx, {
            accountId,
            amountNano: usdToNano('7'),
            to: 'house:top-up:base',
            id: 'reversed',
          }),
        );
        await store.transaction((tx) =>
          ledger.creditIn(tx, {
            accountId,
            amountNano: usdToNano('30.000000001'),
            from: 'house:top-up:stripe',
            kind: 'TOP_UP',
            id: 'paid',
          }),
        );
      }
      clock.advance(DAY_MS);
    }
    const { usdNano } = await ledger.balances(accountId);
    for (let from = 0; from < 4; from += 1) {
      for (let to = from; to < 4; to += 1) {
        const { openingUsd, closingUsd, data } = await statement(firstDay + from, firstDay + to);
        const sum = data.reduce(
          (total, { amount }) => total + BigInt(Math.round(amount.usd * 1e9)),
          0n,
        );
        assert.equal(nanoOf(openingUsd) + sum, nanoOf(closingUsd));
        if (from === 0) assert.equal(openingUsd, '0.000000000');
        if (to === 3) assert.equal(nanoOf(closingUsd), usdNano);
        const next = await statement(firstDay + to + 1, firstDay + 5);
        assert.equal(next.openingUsd, closingUsd);
      }
    }
    const file = await call(
      bench.farebox,
      `/billing/statement?format=csv&${query(firstDay + 1, firstDay + 2)}`,
      { secret: admin },
    );
    const lines = file.text.trimEnd().split('\r\n');
    const { openingUsd, closingUsd, data } = await statement(firstDay + 1, firstDay + 2);
    assert.equal(lines[1], `${dateOf(firstDay + 2)},CLOSING_BALANCE,,,${closingUsd},,,,,`);
    assert.equal(lines.at(-1), `${dateOf(firstDay + 1)},OPENING_BALANCE,,,${openingUsd},,,,,`);
    assert.equal(lines.length, data.length + 3);
    const sum = lines.slice(2, -1).reduce((total, line) => total + nanoOf(line.split(',')[2]), 0n);
    assert.equal(nanoOf(openingUsd) + sum, nanoOf(closingUsd), 'the file has the same amounts');
  });

  test('a refund of daily credit adds daily credit, and no USD', async () => {
    const { data } = await statement(firstDay, firstDay + 4);
    const refunds = data.filter(({ type }) => type === 'REFUND');
    assert.deepEqual(
      refunds.map(({ amount }) => amount),
      [
        { usd: 0, diem: 0.25 },
        { usd: 0.35, diem: 0 },
      ],
    );
    const listed = await call(bench.farebox, '/billing/transactions', { secret: admin });
    assert.deepEqual(
      listed.body.data
        .filter(({ type }: { type: string }) => type === 'REFUND')
        .map(({ amount, currency }: { amount: number; currency: string }) => [amount, currency]),
      [
        [0.25, 'DIEM'],
        [0.35, 'USD'],
      ],
    );
  });

  test('a balance is null if entries since then were deleted', async () => {
    await bench.farebox.app.stores.ledger.dropOld({
      usageDay: undefined,
      postingDay: firstDay + 2,
    });
    const { openingUsd, closingUsd } = await statement(firstDay + 1, firstDay + 2);
    assert.deepEqual([openingUsd, typeof closingUsd], [null, 'string']);
    const before = await statement(firstDay, firstDay);
    assert.deepEqual([before.openingUsd, before.closingUsd], [null, null]);
  });
});
