import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { ledgerBench } from '../../../test/support/ledger-bench.ts';
import { DAY_MS, MINUTE_MS } from '../../core/clock.ts';
import { usdToNano } from '../../core/money.ts';
import { spendingSince, spentEver } from './ledger.ts';

onEachStore('`spentEver`', (fixture) => {
  async function bench() {
    const b = await ledgerBench(fixture);
    const ever = (keyId = 'k') => spentEver(b.store, { accountId: 'a', keyId }, b.clock.nowMs());
    const same = async (usd: string) => {
      const all = [...(await spendingSince(b.store, 'a', 0)).values()];
      const sum = all.reduce((total, { usdNano }) => total + usdNano, 0n);
      assert.equal(sum, usdToNano(usd));
      assert.equal((await ever()).account.usdNano, sum);
      assert.equal((await ever('other')).account.usdNano, sum);
    };
    const late = async (usd: string, days: number) => {
      const { requestId } = await b.hold(usd);
      const { usage, ...of } = b.billed(requestId, usd);
      const createdMs = usage.createdMs - days * DAY_MS;
      await b.ledger.settle({ ...of, usage: { ...usage, createdMs, keyId: 'other' } });
    };
    return { ...b, ever, same, late };
  }

  test('sums all days, also after midnight and for late charges of past days', async () => {
    const b = await bench();
    await b.same('0');
    await b.spend('1');
    await b.same('1');
    const { requestId } = await b.hold('0.5');
    b.clock.advance(DAY_MS);
    await b.spend('2');
    await b.settle(requestId, '0.25');
    await b.same('3.25');
    for (let day = 0; day < 5; day += 1) {
      b.clock.advance(DAY_MS);
      await b.same(`${3.25 + day * 0.75}`);
      await b.spend('0.5');
      await b.late('0.25', day);
      await b.same(`${4 + day * 0.75}`);
    }
    await b.late('0.125', 4);
    await b.same('7.125');
    assert.equal((await b.ever()).key.usdNano, usdToNano('5.75'));
    assert.equal((await b.ever('other')).key.usdNano, usdToNano('1.375'));
    b.clock.advance(-3 * DAY_MS);
    await b.same('7.125');
    await b.audit();
  });

  test('reads the rollups of a past day once', async () => {
    const b = await bench();
    await b.spend('1');
    b.clock.advance(30 * DAY_MS);
    await b.spend('2');
    await b.same('3');
    // Rows of past days must not be read again.
    const forge = (usd: string) =>
      b.store.query('UPDATE ledger_usage_day SET usd_nano = $1 WHERE day < $2', [
        usdToNano(usd),
        Math.floor(b.clock.nowMs() / DAY_MS) - 2,
      ]);
    await forge('50');
    assert.equal((await b.ever()).account.usdNano, usdToNano('3'));
    b.clock.advance(DAY_MS);
    assert.equal((await b.ever()).account.usdNano, usdToNano('3'));
    await forge('1');
    await b.same('3');
  });

  test('is exact while settles run concurrently', async () => {
    const b = await bench();
    b.clock.advance(10 * DAY_MS + MINUTE_MS);
    let isDone = false;
    const settling = Promise.all(
      Array.from({ length: 20 }, async (_, at) => b.late('0.01', at % 5)),
    ).finally(() => {
      isDone = true;
    });
    for (let before = 0n; !isDone;) {
      const { usdNano } = (await b.ever()).account;
      assert.ok(usdNano >= before);
      before = usdNano;
    }
    await settling;
    await b.same('0.2');
  });
});
