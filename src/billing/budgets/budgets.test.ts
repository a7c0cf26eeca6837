import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../../test/databases/stores.ts';
import { TestClock } from '../../../test/support/test-clock.ts';
import { TestLedger } from '../../../test/support/test-ledger.ts';
import { systemIds } from '../../core/ids.ts';
import { silentLog } from '../../core/log.ts';
import { usdToNano } from '../../core/money.ts';
import { IDENTITY_MIGRATIONS, Identity } from '../../identity/identity.ts';
import { LEDGER_MIGRATIONS } from '../ledger/ledger.ts';
import { BudgetCaps } from './budgets.ts';

onEachStore('caps of budgets', (fixture) => {
  test('begin with the limit that holds, whatever a remembered key says of it', async () => {
    const store = await fixture.open([...IDENTITY_MIGRATIONS, ...LEDGER_MIGRATIONS]);
    const parts = { store, clock: new TestClock(), ids: systemIds(), log: silentLog };
    const identity = new Identity({ ...parts, keyPrefix: 'SVC' });
    const ledger = new TestLedger(parts);
    await ledger.start();
    const { id: accountId } = await identity.createAccount('alice', 'paid');
    await ledger.openAccount(accountId, store);
    const remembered = await store.transaction((tx) =>
      identity.createBudget(
        { accountId, tag: 'user', value: undefined, period: 'EPOCH', usdLimitNano: usdToNano('2') },
        tx,
      ),
    );
    const caps = new BudgetCaps({ ...parts, ledger, identity });
    const caller = { parentIds: [], budgets: [remembered] };
    const limits = () => store.query('SELECT usd_limit_nano AS usd FROM ledger_allowance');
    const changed = { ...remembered, usdLimitNano: usdToNano('1') };
    await store.transaction((tx) => identity.updateBudget(changed, tx));
    await caps.open(caller, { user: 'anna' });
    assert.deepEqual(await limits(), [{ usd: usdToNano('1') }]);
    await store.transaction((tx) => identity.deleteBudget(changed, tx));
    await caps.open(caller, { user: 'bert' });
    assert.equal((await limits()).length, 1);
    await ledger.stop();
    await identity.stop();
  });
});
