/** Wallets of a database that is older than their accounts. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../test/databases/stores.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { LEDGER_MIGRATIONS, Ledger } from '../billing/ledger/ledger.ts';
import { silentLog } from '../core/log.ts';
import { STORE_MIGRATIONS } from '../db/db.ts';
import { IDENTITY_MIGRATIONS, Identity } from '../identity/identity.ts';
import { openWalletAccounts } from './wallet-accounts.ts';

const WALLETS = 1_203;

onEachStore('wallets of an older database', (fixture) => {
  test('each gets the account of its first day, once', async () => {
    const store = await fixture.open([
      ...STORE_MIGRATIONS,
      ...LEDGER_MIGRATIONS,
      ...IDENTITY_MIGRATIONS,
    ]);
    const clock = new TestClock();
    const parts = { store, clock, ids: seededIds(1), log: silentLog };
    const ledger = new Ledger(parts);
    const identity = new Identity({ ...parts, keyPrefix: 'SVC' });
    const wallets = Array.from(
      { length: WALLETS },
      (_, at) => `0x${at.toString().padStart(40, '0')}`,
    );
    await store.transaction(async (tx) => {
      for (const wallet of wallets) await ledger.openAccount(`wallet:${wallet}`, tx);
      await ledger.openAccount('acct_1', tx);
    });
    const openedMs = clock.nowMs();
    clock.advance(1_000);
    await identity.openWalletAccount(wallets[0] ?? '');
    await openWalletAccounts({ store, identity });
    const accounts = await identity.accounts({ limit: 2 * WALLETS });
    assert.equal(accounts.length, WALLETS);
    assert.deepEqual(new Set(accounts.map(({ name }) => name)), new Set(wallets));
    assert.equal(accounts.filter(({ createdMs }) => createdMs === openedMs).length, WALLETS - 1);
    await ledger.openAccount('wallet:0xlater');
    await openWalletAccounts({ store, identity });
    assert.equal((await identity.accounts({ limit: 2 * WALLETS })).length, WALLETS);
    await identity.stop();
  });
});
