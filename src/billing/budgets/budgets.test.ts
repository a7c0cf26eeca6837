import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger } from '../../../test/support/test-ledger.ts';
import { Fault } from '../../core/faults.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { usdToNano } from '../../core/money.ts';
import { IDENTITY_MIGRATIONS, Identity, type LimitPeriod } from '../../identity/identity.ts';
import { LEDGER_MIGRATIONS } from '../ledger/ledger.ts';
import { BudgetCaps } from './budgets.ts';

onEachStore('caps of budgets', (fixture) => {
  async function bench() {
    const store = await fixture.open([...IDENTITY_MIGRATIONS, ...LEDGER_MIGRATIONS]);
    const parts = { store, clock: new TestClock(), ids: systemIds(), log: silentLog };
    const identity = new Identity({ ...parts, keyPrefix: 'SVC' });
    const ledger = new TestLedger(parts);
    await ledger.start();
    const { id: accountId } = await identity.createAccount('alice', 'paid');
    await ledger.openAccount(accountId, store);
    const budget = (period: LimitPeriod) =>
      store.transaction((tx) =>
        identity.createBudget(
          { accountId, tag: 'user', value: undefined, period, usdLimitNano: usdToNano('2') },
          tx,
        ),
      );
    const stop = async () => {
      await ledger.stop();
      await identity.stop();
    };
    return { ...parts, identity, ledger, accountId, budget, stop };
  }

  test('a budget per tag value rejects new values above its bound and still counts known ones', async () => {
    const { budget, stop, ...parts } = await bench();
    const lifetime = await budget('LIFETIME');
    const caller = { parentIds: [], budgets: [lifetime] };
    const caps = new BudgetCaps({ ...parts, maxValues: 2 });
    const refused = (error: unknown) =>
      error instanceof Fault &&
      error.code === 'BUDGET_LIMIT_REACHED' &&
      /2 values/.test(error.message);
    for (const user of ['anna', 'bert']) await caps.open(caller, { user });
    await assert.rejects(caps.open(caller, { user: 'carl' }), refused);
    const other = new BudgetCaps({ ...parts, maxValues: 2 });
    await assert.rejects(other.open(caller, { user: 'carl' }), refused);
    assert.equal((await other.open(caller, { user: 'anna' }))?.length, 1);
    assert.equal(await caps.open(caller, { project: 'search' }), undefined);
    const rows = await parts.store.query('SELECT id FROM ledger_allowance');
    assert.equal(rows.length, 2);
    await stop();
  });

  test('two processes exceed the bound of tag values by at most one reuse of their counts', async () => {
    const { budget, stop, ...parts } = await bench();
    const caller = { parentIds: [], budgets: [await budget('LIFETIME')] };
    const bounds = { maxValues: 10, countedValues: 2 };
    const processes = [0, 1].map(() => new BudgetCaps({ ...parts, ...bounds }));
    const isTaken = async (at: number): Promise<boolean> => {
      const process = processes[at % 2];
      assert.ok(process);
      return await process.open(caller, { user: `u${at}` }).then(
        () => true,
        () => false,
      );
    };
    let taken = 0;
    for (let at = 0; at < 40; at += 1) if (await isTaken(at)) taken += 1;
    assert.ok(taken >= 10 && taken <= 12, `${taken} values`);
    await stop();
  });

  test('a new cap has the stored limit of its budget, not that of a cached key', async () => {
    const { budget, stop, ...parts } = await bench();
    const { store, identity } = parts;
    const remembered = await budget('EPOCH');
    const caps = new BudgetCaps(parts);
    const caller = { parentIds: [], budgets: [remembered] };
    const limits = () => store.query('SELECT usd_limit_nano AS usd FROM ledger_allowance');
    const changed = { ...remembered, usdLimitNano: usdToNano('1') };
    await store.transaction((tx) => identity.updateBudget(changed, tx));
    await caps.open(caller, { user: 'anna' });
    assert.deepEqual(await limits(), [{ usd: usdToNano('1') }]);
    await store.transaction((tx) => identity.deleteBudget(changed, tx));
    await caps.open(caller, { user: 'bert' });
    assert.equal((await limits()).length, 1);
    await stop();
  });
});
