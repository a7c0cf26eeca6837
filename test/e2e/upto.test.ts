/**
 * The scheme `upto` against the whole server, with the official client as it comes and the contracts of
 * the true Base: a ceiling is signed, what the request can cost is moved before it runs, once.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from '@x402/core/http';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import type { PrivateKeyAccount } from 'viem/accounts';
import { runCommand } from '../../src/cli/cli.ts';
import { startServerProcess } from '../app/server-process.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { startFaultProxy } from '../chains/fault-proxy.ts';
import {
  BASE,
  PAY_TO,
  type WalletFixture,
  CHAT,
  assertLedgerIsChain,
  chat,
  chatBody,
  creditOf,
  encode,
  startWalletFixture,
} from './wallet-fixture.ts';

const USD = 1_000_000n;
const NANO_OF_UNIT = 1_000n;
/** Usage of the engine of the fixture, and its cost. */
const COST_NANO = 22_000n;
/** A model whose longest completion costs 0.96 USD, and one whose shortest prompt costs some USD. */
const DEAR = `  - { id: dear, type: text, context: 8192, maxCompletionTokens: 16, price: { input: 1, output: 60000 }, replicas: [{ engine: fake, model: m }] }
  - { id: dearest, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 50000, output: 2 }, replicas: [{ engine: fake, model: m }] }
`;

describe('upto', () => {
  const folder = mkdtempSync(join(tmpdir(), 'farebox-upto-'));
  let fixture: WalletFixture;
  let yaml: string;
  let farebox: TestApp;

  before(async () => {
    fixture = await startWalletFixture('', ', upto: true');
    await fixture.anvil.deployPermit2();
    yaml = `${fixture.yaml.replace('payments:', `${DEAR}payments:`)}
rpc: { networks: { base-mainnet: { upstreams: [{ url: "${fixture.anvil.rpcUrl}" }] } }, publicNodes: false }
`;
    farebox = await startTestApp({ port: fixture.port, yaml, dataFolder: join(folder, 'data') });
  });
  after(async () => {
    await farebox.stop();
    await fixture.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  afterEach(async () => {
    await farebox.audit();
    await assertLedgerIsChain(farebox, fixture);
  });

  async function buyer(): Promise<PrivateKeyAccount> {
    const account = await fixture.evmWallet(100n * USD);
    await fixture.anvil.approvePermit2(account.address, 100n * USD);
    return account;
  }

  const clientOf = (account: PrivateKeyAccount, rpcUrl?: string): x402Client => {
    const options = rpcUrl === undefined ? undefined : { rpcUrl };
    return new x402Client().register(BASE, new UptoEvmScheme(account, options));
  };

  async function paying(client: x402Client, path: string, body: string): Promise<Response> {
    return await wrapFetchWithPayment(fetch, client)(`${fixture.origin}/api/v1${path}`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body,
    });
  }

  /** Base units that the response reports as transferred, and that left the wallet since `before`. */
  async function moved(answer: Response, account: PrivateKeyAccount, before: bigint) {
    const text = await answer.text();
    assert.equal(answer.status, 200, text);
    const told = decodePaymentResponseHeader(answer.headers.get('PAYMENT-RESPONSE') ?? '');
    assert.equal(told.success, true);
    const left = before - (await fixture.anvil.balance(account.address));
    assert.equal(told.amount, String(left));
    return left;
  }

  test('@x402/fetch with its default limits pays a chat with the minimum of its ceiling', async () => {
    const account = await buyer();
    const answer = await paying(clientOf(account), '/chat/completions', CHAT);
    assert.equal(await moved(answer, account, 100n * USD), 100_000n);
    assert.equal(answer.headers.get('X-Balance-Remaining'), '0.099978');
    assert.equal(await creditOf(farebox, account.address), 100_000_000n - COST_NANO);
  });

  test('@x402/fetch pays without ETH and signs the Permit2 approval', async () => {
    const account = await fixture.evmWallet();
    const client = clientOf(account, fixture.anvil.rpcUrl);
    for (const [round, left] of ['0.099978', '0.199956'].entries()) {
      const before = await fixture.anvil.balance(account.address);
      const answer = await paying(client, '/chat/completions', CHAT);
      assert.equal(answer.headers.get('X-Balance-Remaining'), left);
      assert.equal(await moved(answer, account, before), 100_000n, String(round));
    }
    const { client: node } = fixture.anvil;
    assert.equal(await node.getBalance({ address: account.address }), 0n);
    assert.equal(await node.getTransactionCount({ address: account.address }), 0);
  });

  test('@x402/fetch pays a JSON-RPC call', async () => {
    const account = await fixture.evmWallet();
    const call = { jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] };
    const answer = await paying(
      clientOf(account, fixture.anvil.rpcUrl),
      '/crypto/rpc/base-mainnet',
      JSON.stringify(call),
    );
    assert.equal(answer.headers.get('x-svc-rpc-cost-usd'), '0.00001250');
    assert.equal(await moved(answer, account, 100n * USD), 100_000n);
    assert.equal(await creditOf(farebox, account.address), 100_000_000n - 12_500n);
  });

  test('a request transfers the cost of its longest completion minus the credit', async () => {
    const account = await buyer();
    const first = await paying(clientOf(account), '/chat/completions', chatBody('dear'));
    const units = await moved(first, account, 100n * USD);
    // 16 tokens at 60,000 USD a million, and some of the prompt.
    assert.ok(units > 960_000n && units < 961_000n, String(units));
    const spent = units * NANO_OF_UNIT - (await creditOf(farebox, account.address));
    const second = await paying(clientOf(account), '/chat/completions', chatBody('dear'));
    const missing = await moved(second, account, 100n * USD - units);
    assert.ok(missing > 100_000n && missing < units);
    assert.equal(missing, (spent + 999n) / NANO_OF_UNIT);
  });

  test('a ceiling below the price is rejected before a transfer; the amount in the 402 is enough', async () => {
    const account = await buyer();
    const client = clientOf(account);
    const refused = await paying(client, '/chat/completions', chatBody('dearest'));
    assert.equal(refused.status, 402);
    const said = (await refused.json()) as { code: string; minimumBalanceUsd: number };
    assert.equal(said.code, 'PAYMENT_REQUIRED');
    assert.ok(said.minimumBalanceUsd > 1);
    assert.equal(await fixture.anvil.balance(account.address), 100n * USD);
    const required = decodePaymentRequiredHeader(refused.headers.get('PAYMENT-REQUIRED') ?? '');
    const asked = required.accepts.find(({ scheme }) => scheme === 'upto');
    assert.ok(Number(asked?.amount) >= said.minimumBalanceUsd * 1e6);
    client.setSpendControls({ maxAmountPerPayment: '$25' });
    const payment = encode(await client.createPaymentPayload(required));
    const served = await chat(
      fixture.origin,
      { 'PAYMENT-SIGNATURE': payment },
      chatBody('dearest'),
    );
    const units = await moved(served, account, 100n * USD);
    assert.ok(units <= BigInt(asked?.amount ?? 0));
  });

  test('a wallet without Permit2 approval gets instructions, and its signature stays valid', async () => {
    const account = await fixture.evmWallet();
    const required = (await chat(fixture.origin, {})).headers.get('PAYMENT-REQUIRED') ?? '';
    const payload = await clientOf(account).createPaymentPayload(
      decodePaymentRequiredHeader(required),
    );
    const headers = { 'PAYMENT-SIGNATURE': encode(payload) };
    const refused = await chat(fixture.origin, headers);
    const said = (await refused.json()) as { message: string; details: { reason: string } };
    assert.equal(refused.status, 400);
    assert.equal(said.details.reason, 'permit2_allowance_required');
    assert.match(said.message, /sign the approval too .*, or pay with the scheme exact/);
    await fixture.anvil.approvePermit2(account.address, USD);
    assert.equal((await chat(fixture.origin, headers)).status, 200);
    assert.equal((await chat(fixture.origin, headers)).status, 409, 'a signature serves once');
  });

  test('a wallet pays until its credit covers a request; then nothing is transferred', async () => {
    const account = await buyer();
    for (const [amount, left] of [
      [100_000n, '0.099978'],
      [100_000n, '0.199956'],
      [0n, '0.199934'],
      [0n, '0.199912'],
    ] as const) {
      const before = await fixture.anvil.balance(account.address);
      const answer = await paying(clientOf(account), '/chat/completions', CHAT);
      assert.equal(answer.headers.get('X-Balance-Remaining'), left);
      assert.equal(await moved(answer, account, before), amount);
    }
  });

  test('a retry of a request that was paid from credit gets the stored response by its key', async () => {
    const account = await buyer();
    for (const _ of [1, 2]) await paying(clientOf(account), '/chat/completions', CHAT);
    const required = (await chat(fixture.origin, {})).headers.get('PAYMENT-REQUIRED') ?? '';
    const payload = await clientOf(account).createPaymentPayload(
      decodePaymentRequiredHeader(required),
    );
    const shown = { 'PAYMENT-SIGNATURE': encode(payload) };
    const own = { ...shown, 'Idempotency-Key': `served-from-credit-${account.address}` };
    const first = await chat(fixture.origin, own);
    const again = await chat(fixture.origin, own);
    assert.deepEqual([first.status, again.status], [200, 200]);
    assert.equal(await again.text(), await first.text());
    assert.equal((await chat(fixture.origin, shown)).status, 409, 'shown without its key');
    assert.equal(await creditOf(farebox, account.address), 200_000_000n - 3n * COST_NANO);
    assert.equal(await fixture.anvil.balance(account.address), 100n * USD - 200_000n);
  });

  test('after a kill during the settlement the retry is served from one credit, and the books match the chain', async () => {
    await farebox.stop();
    const proxy = await startFaultProxy(fixture.anvil.rpcUrl);
    const through = yaml.replaceAll(fixture.anvil.rpcUrl, proxy.url);
    const first = await startServerProcess(folder, through, fixture.port);
    const account = await buyer();
    const required = (await chat(fixture.origin, {})).headers.get('PAYMENT-REQUIRED') ?? '';
    const payload = await clientOf(account).createPaymentPayload(
      decodePaymentRequiredHeader(required),
    );
    const own = {
      'PAYMENT-SIGNATURE': encode(payload),
      'Idempotency-Key': `chat-of-${account.address}`,
    };
    proxy.fate = (seen) => {
      if (seen === 'eth_sendRawTransaction') first.child.kill('SIGKILL');
      return 'pass';
    };
    await assert.rejects(chat(fixture.origin, own));
    await first.gone;
    proxy.fate = () => 'pass';
    farebox = await startTestApp({ port: fixture.port, yaml, dataFolder: join(folder, 'data') });
    // Another request would need more, but the signed amount on the chain is fixed.
    const answers = await Promise.all([own, own].map((headers) => chat(fixture.origin, headers)));
    for (const { status } of answers) assert.ok([200, 202, 409].includes(status), String(status));
    const again = await chat(fixture.origin, own);
    assert.equal(again.status, 200, await again.text());
    assert.equal(await fixture.anvil.balance(account.address), 100n * USD - 100_000n);
    assert.equal(await creditOf(farebox, account.address), 100_000_000n - COST_NANO);
    await proxy.stop();

    writeFileSync(
      join(folder, 'farebox.yaml'),
      `embedded: { enabled: false }\ndiscovery: { enabled: false }\n${yaml}`,
    );
    let said = '';
    const code = await runCommand({
      argv: ['audit', '--chain', '--json'],
      env: { FAREBOX_DATA: join(folder, 'data') },
      cwd: folder,
      stdout: { write: (text) => void (said += text) },
      // The prices of the test are far outside the usual, and the configuration warns of them.
      stderr: { write: () => undefined },
      onSignal: () => undefined,
    });
    const { chain } = JSON.parse(said) as {
      chain: { differences: unknown[]; unknown: unknown[]; payments: number };
    };
    assert.deepEqual([code, chain.differences, chain.unknown], [0, [], []]);
    assert.ok(chain.payments >= 7);
    assert.ok((await fixture.anvil.balance(PAY_TO)) > 0n);
  });
});
