/** The unchanged wallet examples against the whole server and two private chains. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { createKeyPairSignerFromPrivateKeyBytes } from '@solana/kit';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { systemIds } from '../../src/core/ids.ts';
import { boundNonce } from '../../src/payments/extensions/bound-nonce.ts';
import type { TestApp } from '../app/test-app.ts';
import {
  type WalletFixture,
  assertLedgerIsChain,
  creditOf,
  evmPayment,
  startWalletFixture,
  topUp,
} from './wallet-fixture.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';

const LEFT_NANO = 4_999_978_000n;

describe('the wallet examples', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;

  before(async () => {
    fixture = await startWalletFixture('', ', upto: true');
    await fixture.anvil.deployPermit2();
    farebox = await fixture.startApp();
  });
  after(async () => {
    await farebox.stop();
    await fixture.stop();
  });

  async function run(name: string, env: Record<string, string>): Promise<string> {
    const file = new URL(`../../examples/wallet/${name}.ts`, import.meta.url).pathname;
    const child = endWithUs(
      spawn(process.execPath, [file], {
        env: childEnvironment({ PATH: '', FAREBOX_URL: farebox.url, MODEL: 'm', ...env }),
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    );
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    child.stderr.on('data', (chunk: Buffer) => (output += chunk.toString()));
    await new Promise((resolve) => {
      child.once('close', resolve);
    });
    return output;
  }

  function assertPaidAndChatted(output: string): void {
    assert.match(output, /top-up 200/);
    assert.match(output, /chat 200/);
    assert.match(output, /credit left 4\.999978 USD/);
  }

  for (const name of ['fetch', 'viem']) {
    test(`${name}.ts tops up and chats`, async () => {
      const key = generatePrivateKey();
      const { address } = privateKeyToAccount(key);
      await fixture.anvil.mint(address, 20_000_000n);
      assertPaidAndChatted(await run(name, { PRIVATE_KEY: key }));
      assert.equal(await creditOf(farebox, address), LEFT_NANO);
      await assertLedgerIsChain(farebox, fixture);
    });
  }

  test('bound-nonce.ts pays with a nonce that is bound to this server', async () => {
    const key = generatePrivateKey();
    const { address } = privateKeyToAccount(key);
    await fixture.anvil.mint(address, 20_000_000n);
    const output = await run('bound-nonce', { PRIVATE_KEY: key });
    assert.match(output, /chat 200/);
    const [, salt = '', nonce] = /salt (0x[0-9a-f]{64}) nonce (0x[0-9a-f]{64})/.exec(output) ?? [];
    const resource = `${fixture.origin}/api/v1/chat/completions`;
    assert.equal(nonce, boundNonce(fixture.origin, resource, salt));
    assert.equal(await creditOf(farebox, address), 999_978_000n);
  });

  test('discovery.ts lists what is sold', async () => {
    const output = await run('discovery', {});
    assert.match(
      output,
      /Chat completions: http:\S+\/chat\/completions, from 1 USD\n {2}\{"model":"m",/,
    );
  });

  test('receipt.ts verifies the receipt of its chat', async () => {
    const { secret } = await farebox.account('1');
    const output = await run('receipt', { API_KEY: secret });
    assert.match(output, /chat 200/);
    assert.match(output, /cost 0\.000022000 USD, paid by account:/);
    assert.match(output, /signed by the server true/);
  });

  test('first-payment.ts chats with a stock client', async () => {
    const key = generatePrivateKey();
    await fixture.anvil.mint(privateKeyToAccount(key).address, 1_000_000n);
    const output = await run('first-payment', { PRIVATE_KEY: key });
    assert.match(output, /chat 200/);
    assert.match(output, /credit left 0\.999978 USD/);
  });

  test('upto.ts chats by a signed ceiling', async () => {
    const key = generatePrivateKey();
    const { address } = privateKeyToAccount(key);
    await fixture.anvil.mint(address, 1_000_000n);
    const output = await run('upto', { PRIVATE_KEY: key, BASE_RPC_URL: fixture.anvil.rpcUrl });
    assert.match(output, /chat 200/);
    assert.match(output, /moved 0\.1 USD/);
    assert.match(output, /credit left 0\.099978 USD/);
    assert.equal(await fixture.anvil.balance(address), 900_000n);
  });

  test('solana.ts tops up and chats', async () => {
    const seed = systemIds().bytes(32);
    const signer = await createKeyPairSignerFromPrivateKeyBytes(seed);
    await fixture.solana.setTokens(signer.address, 20_000_000n);
    const publicKey = Buffer.from(await crypto.subtle.exportKey('raw', signer.keyPair.publicKey));
    const keypair = join(farebox.config.dataFolder, 'id.json');
    writeFileSync(keypair, JSON.stringify([...seed, ...publicKey]));
    const output = await run('solana', { KEYPAIR: keypair, SOLANA_RPC_URL: fixture.solana.rpcUrl });
    assertPaidAndChatted(output);
    assert.equal(await creditOf(farebox, signer.address), LEFT_NANO);
    await assertLedgerIsChain(farebox, fixture);
  });

  test('openai-sdk.ts streams with a wallet token', async () => {
    const key = generatePrivateKey();
    const account = privateKeyToAccount(key);
    await fixture.anvil.mint(account.address, 20_000_000n);
    const paid = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': await evmPayment(account) });
    assert.equal(paid.status, 200);
    fixture.upstream.otherwise = { kind: 'stream', chunks: 3, usage: true };
    const output = await run('openai-sdk', { PRIVATE_KEY: key });
    assert.match(output, /token until 20\d\d-/);
    assert.match(output, / w0 w1 w2\n/);
  });
});
