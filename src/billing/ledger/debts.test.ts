import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { DAY_MS, dayOf } from '../../core/clock.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { usdToNano } from '../../core/money.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger, bill } from '../../../test/support/test-ledger.ts';
import { type HoldResult, LEDGER_MIGRATIONS } from './ledger.ts';

const HOUSE = 'house:top-up:base';

onEachStore('reversed credits', (fixture) => {
  async function open() {
    const store = await fixture.open(LEDGER_MIGRATIONS);
    const clock = new TestClock();
    const ledger = new TestLedger({ store, clock, ids: systemIds(), log: silentLog });
    await ledger.start();
    const topUp = (id: string, usd: string) =>
      store.transaction((tx) =>
        ledger.creditIn(tx, {
          accountId: 'a',
          amountNano: usdToNano(usd),
          from: HOUSE,
          kind: 'TOP_UP',
          id,
        }),
      );
    const reverse = (id: string, usd: string) =>
      store.transaction((tx) =>
        ledger.reverseIn(tx, { accountId: 'a', amountNano: usdToNano(usd), to: HOUSE, id }),
      );
    const hold = (requestId: string, usd: string): Promise<HoldResult> =>
      ledger.hold({
        requestId,
        accountId: 'a',
        minNano: usdToNano(usd),
        maxNano: usdToNano(usd),
        floorNano: usdToNano(0),
      });
    const settle = (requestId: string, usd: string) =>
      ledger.settle(bill(clock, requestId, usdToNano(usd)));
    const assertClean = async () => assert.deepEqual((await ledger.audit()).differences, []);
    return { store, clock, ledger, topUp, reverse, hold, settle, assertClean };
  }

  test('`reverseIn` takes a covered credit back whole and records no debt', async () => {
    const { ledger, topUp, reverse, hold, assertClean } = await open();
    await topUp('p1', '5');
    await topUp('p2', '7');
    assert.deepEqual(await reverse('p1-reversed', '5'), {
      takenNano: usdToNano(5),
      missingNano: 0n,
    });
    assert.equal((await ledger.balances('a')).usdNano, usdToNano(7));
    assert.equal((await ledger.funds('a')).debtNano, 0n);
    assert.equal(await ledger.receivedFrom(HOUSE), usdToNano(7));
    assert.equal((await hold('r1', '7')).ok, true);
    await assertClean();
  });

  test('a reversal of spent credit is a debt, and the account spends nothing until it is paid', async () => {
    const { ledger, topUp, reverse, hold, settle, assertClean } = await open();
    await ledger.openAccount('a');
    await ledger.setDailyAllocation('a', usdToNano(3));
    await topUp('p1', '5');
    // 3 of today's daily credit and 4 of the 5 USD are held while the credit is reversed.
    assert.equal((await hold('running', '7')).ok, true);
    assert.deepEqual(await reverse('p1-reversed', '5'), {
      takenNano: usdToNano(1),
      missingNano: usdToNano(4),
    });
    await assertClean();
    assert.equal(await ledger.receivedFrom(HOUSE), 0n, 'what came in went back');
    assert.equal((await ledger.audit()).debtNano, usdToNano(4));
    await settle('running', '4');
    assert.equal((await ledger.balances('a')).usdNano, usdToNano(3), 'freed by the settle');
    for (const usd of ['3', '0.000001']) {
      const refused = await hold(`refused-${usd}`, usd);
      assert.equal(refused.ok, false);
    }
    await ledger.collectDebts();
    assert.equal((await ledger.funds('a')).debtNano, usdToNano(1));
    assert.equal((await ledger.balances('a')).usdNano, 0n);
    await assertClean();
    assert.equal(await topUp('p2', '0.4'), 0n, 'a credit pays the debt first');
    assert.equal((await hold('still', '0.1')).ok, false);
    assert.equal(await topUp('p3', '5'), usdToNano('4.4'));
    assert.equal((await ledger.funds('a')).debtNano, 0n);
    assert.equal((await hold('again', '4.4')).ok, true);
    await assertClean();
  });

  test('`collectDebts` collects a small debt beside many large ones without balance', async () => {
    const { store, ledger, topUp, reverse, hold, settle, assertClean } = await open();
    for (let at = 0; at < 130; at += 1) {
      const [accountId, id] = [`poor-${at}`, `reversed-${at}`];
      await ledger.openAccount(accountId);
      await store.transaction((tx) =>
        ledger.reverseIn(tx, { accountId, amountNano: usdToNano(100), to: HOUSE, id }),
      );
    }
    await topUp('p1', '5');
    await hold('running', '5');
    await reverse('p1-reversed', '2');
    await settle('running', '1');
    await ledger.collectDebts();
    assert.equal((await ledger.balances('a')).usdNano, usdToNano(2));
    assert.equal((await hold('later', '2')).ok, true);
    await assertClean();
  });

  test('`debitIn` takes nothing from an account with a debt', async () => {
    const { store, ledger, topUp, reverse, hold, settle, assertClean } = await open();
    await topUp('p1', '5');
    await hold('running', '5');
    await reverse('p1-reversed', '5');
    await settle('running', '1');
    const debit = await store.transaction((tx) =>
      ledger.debitIn(tx, {
        accountId: 'a',
        amountNano: usdToNano(1),
        to: 'house:payout:base',
        kind: 'PAYOUT',
        id: 'refund',
      }),
    );
    assert.equal(debit, undefined);
    await assertClean();
  });

  test('concurrent holds and a reversal never take more than the balance', async () => {
    const { ledger, topUp, reverse, hold, settle, assertClean } = await open();
    await topUp('p1', '10');
    const [reversal, ...holds] = await Promise.all([
      reverse('p1-reversed', '10'),
      ...Array.from({ length: 20 }, (_, index) => hold(`r${index}`, '1')),
    ]);
    const granted = holds.filter(({ ok }) => ok).length;
    assert.equal(reversal.takenNano + reversal.missingNano, usdToNano(10));
    for (const [index, { ok }] of holds.entries()) if (ok) await settle(`r${index}`, '1');
    await ledger.collectDebts();
    assert.equal((await ledger.balances('a')).usdNano, 0n);
    assert.equal((await ledger.audit()).debtNano, usdToNano(granted));
    await assertClean();
  });

  test('the audit stays exact after old postings of a debt are dropped', async () => {
    const { clock, ledger, topUp, reverse, hold, settle, assertClean } = await open();
    await ledger.prepareDays(dayOf(clock.nowMs()), dayOf(clock.nowMs()) + 1);
    await topUp('p1', '5');
    await hold('r', '5');
    await settle('r', '3');
    await reverse('p1-reversed', '5');
    await topUp('p2', '1');
    const before = await ledger.audit();
    clock.advance(5 * DAY_MS);
    const today = dayOf(clock.nowMs());
    await ledger.prepareDays(today - 1, today + 1);
    assert.ok((await ledger.dropOld({ usageDay: today - 2, postingDay: today - 2 })) > 0);
    assert.deepEqual(await ledger.audit(), before);
    assert.equal(await ledger.receivedFrom(HOUSE), usdToNano(1));
    await topUp('p3', '9');
    assert.equal((await ledger.balances('a')).usdNano, usdToNano(7));
    await assertClean();
  });
});
