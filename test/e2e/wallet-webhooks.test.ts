import assert from 'node:assert/strict';
import { test } from 'node:test';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { call, startWithEngine } from '../app/call.ts';
import { signIn } from './wallet-fixture.ts';
import { freePort } from '../support/free-port.ts';
import { usdToNano } from '../../src/core/money.ts';

test('a wallet creates a webhook if it has credit, since wallets are free', async (t) => {
  const port = await freePort();
  const bench = await startWithEngine({
    port,
    yaml: `payments: { base: { rpcUrl: 'http://127.0.0.1:9', payTo: '0x00000000000000000000000000000000000fa12b', gasKey: '0x${'11'.repeat(32)}' } }`,
  });
  t.after(() => bench.stop());
  const wallet = privateKeyToAccount(generatePrivateKey());
  const create = async () =>
    call(bench.farebox, '/webhooks', {
      headers: { 'sign-in-with-x': await signIn(wallet, `http://127.0.0.1:${port}`) },
      body: {
        url: 'https://1.1.1.1/hook',
        events: ['balance.low'],
        thresholds: { balanceUsd: 1 },
      },
    });
  const rejected = await create();
  assert.deepEqual([rejected.status, rejected.body.code], [402, 'PAYMENT_REQUIRED']);
  const { identity, ledger, store } = bench.farebox.app.stores;
  const accountId = await identity.openWalletAccount(wallet.address);
  await store.transaction((tx) =>
    ledger.creditIn(tx, {
      accountId,
      amountNano: usdToNano('1'),
      from: 'house:operator-credit',
      kind: 'CREDIT',
      id: 'credit',
    }),
  );
  assert.equal((await create()).status, 200);
});
