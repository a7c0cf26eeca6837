/**
 * A signed payment spends what it signs: a shop that obtained a signature over this server's receiver
 * cannot spend the credit that the wallet has here. A sign-in, a wallet token or an API key of the wallet
 * in the same request does.
 */
import assert from 'node:assert/strict';
import { request } from 'node:http';
import { after, afterEach, before, describe, test } from 'node:test';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { PaymentRequiredV1Schema } from '@x402/core/schemas';
import { createWalletClient, http, publicActions } from 'viem';
import { wrapFetchWithPayment as wrapFetchVersionOne } from 'x402-fetch';
import type { PrivateKeyAccount } from 'viem/accounts';
import { boundNonce } from '../../src/payments/extensions/bound-nonce.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { BASE_CHAIN } from '../chains/anvil.ts';
import { until } from '../support/until.ts';
import {
  type WalletFixture,
  assertLedgerIsChain,
  chat,
  chatBody,
  creditOf,
  evmPayment,
  signIn,
  startWalletFixture,
  topUp,
  uptoPayment,
} from './wallet-fixture.ts';

/** A model whose shortest prompt costs some USD, and one of which each output token costs 0.02 USD. */
const MODELS = `  - { id: prompt, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 50000, output: 2 }, replicas: [{ engine: fake, model: m }] }
  - { id: output, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 20000 }, replicas: [{ engine: fake, model: m }] }
`;
const USD_NANO = 1_000_000_000n;
const ONE_USD = { authorization: { value: '1000000' } };

describe('amounts that a payment can spend', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;

  before(async () => {
    fixture = await startWalletFixture('', ', upto: true');
    await fixture.anvil.deployPermit2();
    const yaml = fixture.yaml.replace('payments:', `${MODELS}payments:`);
    farebox = await startTestApp({ port: fixture.port, yaml });
  });
  after(async () => {
    await farebox.stop();
    await fixture.stop();
  });
  afterEach(async () => {
    fixture.upstream.otherwise = { kind: 'json', usage: true };
    await farebox.audit();
    await assertLedgerIsChain(farebox, fixture);
  });

  /** A wallet with 20 USD of credit. */
  async function customer(): Promise<PrivateKeyAccount> {
    const account = await fixture.evmWallet();
    await fixture.anvil.approvePermit2(account.address, 100_000_000n);
    const payment = await evmPayment(account, { authorization: { value: '20000000' } });
    assert.equal((await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': payment })).status, 200);
    return account;
  }

  const signedIn = async (account: PrivateKeyAccount) => ({
    'SIGN-IN-WITH-X': await signIn(account, fixture.origin),
  });

  /** A wallet token, with a limit if one is named. */
  async function tokenOf(account: PrivateKeyAccount, query = ''): Promise<string> {
    const headers = await signedIn(account);
    const url = `${fixture.origin}/api/v1/x402/token${query}`;
    const made = await fetch(url, { method: 'POST', headers });
    const { data } = (await made.json()) as { data: { token: string } };
    return data.token;
  }

  async function keyOf(account: PrivateKeyAccount): Promise<string> {
    const url = `${fixture.origin}/api/v1/api_keys/generate_web3_key`;
    const { data } = (await (await fetch(url)).json()) as { data: { token: string } };
    const made = await fetch(url, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        apiKeyType: 'INFERENCE',
        description: 'mine',
        address: account.address,
        token: data.token,
        signature: await account.signMessage({ message: data.token }),
      }),
    });
    const { data: key } = (await made.json()) as { data: { apiKey: string } };
    return key.apiKey;
  }

  test('a request that costs more than the payment gets 402 with the price, and nothing is transferred', async () => {
    const account = await customer();
    const stranger = await fixture.evmWallet();
    const proofs: Record<string, string>[] = [
      {},
      await signedIn(stranger),
      { 'SIGN-IN-WITH-X': 'e30=' },
      { authorization: `Bearer ${farebox.owner.secret}` },
      { authorization: 'Bearer SVC_INFERENCE_KEY_unknown' },
    ];
    for (const proof of proofs) {
      const payment = await evmPayment(account, ONE_USD);
      const answer = await chat(
        fixture.origin,
        { 'PAYMENT-SIGNATURE': payment, ...proof },
        chatBody('prompt'),
      );
      assert.equal(answer.status, 402, JSON.stringify(proof));
      const body = (await answer.json()) as Record<string, unknown>;
      assert.match(String(body['message']), /^The payment of 1 USD is below the [\d.]+ USD/);
      assert.equal(body['currentBalanceUsd'], 1, 'says nothing of the credit');
      const required = decodePaymentRequiredHeader(answer.headers.get('PAYMENT-REQUIRED') ?? '');
      const most = Math.max(...required.accepts.map(({ amount }) => Number(amount)));
      assert.ok(most >= Number(body['minimumBalanceUsd']) * 1e6);
    }
    assert.equal(await creditOf(farebox, account.address), 20n * USD_NANO);
    assert.equal(await fixture.anvil.balance(account.address), 80_000_000n);
  });

  test('a sign-in, wallet token or API key of the payer in the same request allows spending its credit', async () => {
    for (const proofOf of [
      signedIn,
      async (account: PrivateKeyAccount) => ({ authorization: `Bearer ${await tokenOf(account)}` }),
      async (account: PrivateKeyAccount) => ({ 'x-api-key': await keyOf(account) }),
    ]) {
      const account = await customer();
      const payment = await evmPayment(account, ONE_USD);
      const answer = await chat(
        fixture.origin,
        { 'PAYMENT-SIGNATURE': payment, ...(await proofOf(account)) },
        chatBody('prompt'),
      );
      assert.equal(answer.status, 200, await answer.clone().text());
      assert.ok((await creditOf(farebox, account.address)) < 21n * USD_NANO);
      assert.equal(await fixture.anvil.balance(account.address), 79_000_000n);
    }
  });

  test('a token with a limit allows at most its limit', async () => {
    const account = await customer();
    const token = await tokenOf(account, '?usdLimit=0.01');
    const answer = await chat(
      fixture.origin,
      {
        'PAYMENT-SIGNATURE': await evmPayment(account, ONE_USD),
        authorization: `Bearer ${token}`,
      },
      chatBody('prompt'),
    );
    assert.equal(answer.status, 402);
    assert.match(await answer.text(), /spend limit of this wallet token/);
    assert.equal(await fixture.anvil.balance(account.address), 80_000_000n);
  });

  test('a long completion ends at the amount of the payment (`exact` and `upto`), and the rest becomes credit', async () => {
    const account = await customer();
    const body = JSON.stringify({ ...JSON.parse(chatBody('output')), max_tokens: 64 });
    for (const [payment, limit, credited] of [
      [await evmPayment(account, ONE_USD), USD_NANO, USD_NANO],
      [await uptoPayment(account, fixture.gasAddress, '400000'), (2n * USD_NANO) / 5n, 0n],
    ] as const) {
      const before = await creditOf(farebox, account.address);
      let asked = 0;
      fixture.upstream.script.push({
        kind: 'own',
        answer: (response, sent) => {
          const wanted = JSON.parse(sent) as { max_tokens?: number };
          asked = wanted.max_tokens ?? 0;
          response.setHeader('content-type', 'application/json');
          response.end(
            JSON.stringify({
              id: 'c',
              object: 'chat.completion',
              created: 1,
              model: 'm',
              choices: [
                {
                  index: 0,
                  finish_reason: 'length',
                  message: { role: 'assistant', content: 'Hi' },
                },
              ],
              usage: { prompt_tokens: 8, completion_tokens: asked, total_tokens: 8 + asked },
            }),
          );
        },
      });
      const answer = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment }, body);
      assert.equal(answer.status, 200, await answer.clone().text());
      assert.equal(BigInt(asked), limit / 20_000_000n - 1n, 'the prompt costs a little too');
      const spent = before + credited - (await creditOf(farebox, account.address));
      assert.ok(spent > limit - 30_000_000n && spent <= limit, String(spent));
    }
  });

  test('a nonce that is not bound to the resource is rejected before a transfer', async () => {
    const account = await customer();
    const salt = `0x${'5a'.repeat(32)}`;
    const pay = async (nonce: string) => {
      const extensions = { 'bound-nonce': { info: { hash: 'keccak256', salt } } };
      const payment = await evmPayment(account, {
        authorization: { value: '1000000', nonce },
        envelope: { extensions },
      });
      return chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment });
    };
    const resource = `${fixture.origin}/api/v1/chat/completions`;
    for (const nonce of [
      `0x${'11'.repeat(32)}`,
      boundNonce('https://shop.example', resource, salt),
      boundNonce(fixture.origin, `${fixture.origin}/api/v1/embeddings`, salt),
    ]) {
      const refused = await pay(nonce);
      assert.equal(refused.status, 400);
      assert.match(await refused.text(), /must be the hash of the origin, the resource/);
    }
    assert.equal(await fixture.anvil.balance(account.address), 80_000_000n);
    assert.equal((await pay(boundNonce(fixture.origin, resource, salt))).status, 200);
  });

  test('a client of version 1 buys a request above 0.10 USD: its 402 names the price', async () => {
    const account = await fixture.evmWallet();
    const url = `${fixture.origin}/api/v1/chat/completions?x402Version=1`;
    const post = (body: string, headers: Record<string, string> = {}): RequestInit => ({
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
    });
    const pricesOf = async (answer: Response): Promise<number[]> => {
      assert.equal(answer.status, 402);
      const { accepts } = PaymentRequiredV1Schema.parse(await answer.json());
      return accepts.map(({ maxAmountRequired }) => Number(maxAmountRequired));
    };
    const named = JSON.stringify({ ...JSON.parse(chatBody('output')), max_tokens: 50 });
    const asked = await fetch(url, post(named));
    assert.ok(asked.headers.get('PAYMENT-REQUIRED'), 'version 2 reads its header');
    const [price = 0] = await pricesOf(asked);
    assert.ok(price > 1_000_000 && price < 1_010_000, String(price));
    const [useful = 0] = await pricesOf(await fetch(url, post(chatBody('output'))));
    assert.ok(useful > 100_000 && useful <= 1_290_000, String(useful));
    assert.equal((await pricesOf(await fetch(url, post(chatBody('m')))))[0], 100_000);
    const [most = 0] = await pricesOf(await fetch(url, post(chatBody('prompt'))));
    const signer = createWalletClient({
      account,
      chain: BASE_CHAIN,
      transport: http(fixture.anvil.rpcUrl),
    }).extend(publicActions) as never; // typed by another version of viem
    const pay = wrapFetchVersionOne(fetch, signer, BigInt(most));
    assert.equal((await pay(url, post(named))).status, 200);
    assert.equal(await fixture.anvil.balance(account.address), 100_000_000n - BigInt(price));
    const served = await pay(url, post(chatBody('prompt')));
    assert.equal(served.status, 200, await served.clone().text());
    assert.equal(await fixture.anvil.balance(account.address), 100_000_000n - BigInt(price + most));
    // A payment that is too small gets the price, in the same layout.
    const small = await evmPayment(account, { authorization: { value: '150000' } });
    const refused = await fetch(url, post(named, { 'X-PAYMENT': small }));
    assert.ok(((await pricesOf(refused))[0] ?? 0) >= 300_000);
    // An impossible request is rejected before the payment.
    assert.equal((await fetch(url, post(chatBody('nobody')))).status, 404);
    assert.equal((await fetch(url, post('{'))).status, 400);
    const form = new FormData();
    form.set('model', 'm');
    const unpriced = `${fixture.origin}/api/v1/audio/transcriptions?x402Version=1`;
    const plain = await fetch(unpriced, { method: 'POST', body: form });
    assert.deepEqual((await pricesOf(plain))[0], 100_000);
  });

  test('open requests with a payment only leave the slots of its wallet to its sign-in', async () => {
    const account = await customer();
    const headers = { 'PAYMENT-SIGNATURE': await evmPayment(account) };
    const open = Array.from({ length: 5 }, () => {
      const body = { 'content-type': 'application/json', 'content-length': 100 };
      const sent = request(`${fixture.origin}/api/v1/chat/completions`, {
        method: 'POST',
        headers: { ...headers, ...body },
      });
      sent.on('error', () => undefined); // it is destroyed below
      sent.write('{');
      return sent;
    });
    const isFull = async () => (await chat(fixture.origin, headers, '{}')).status === 429;
    await until(isFull, 'all slots of the payer', 200);
    assert.equal((await chat(fixture.origin, await signedIn(account))).status, 200);
    for (const one of open) one.destroy();
  });

  test('one payment serves one of several concurrent requests', async () => {
    const account = await customer();
    for (const payment of [
      await evmPayment(account, ONE_USD),
      await uptoPayment(account, fixture.gasAddress, '1000000'),
    ]) {
      const answers = await Promise.all(
        Array.from({ length: 4 }, () => chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment })),
      );
      const statuses = answers.map(({ status }) => status).sort((a, b) => a - b);
      assert.deepEqual(statuses, [200, 409, 409, 409]);
    }
  });

  test('a ceiling serves one request if one transfers tokens and another needs none', async () => {
    const account = await fixture.evmWallet();
    await fixture.anvil.approvePermit2(account.address, 100_000_000n);
    const first = await evmPayment(account, ONE_USD);
    assert.equal((await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': first })).status, 200);
    const ceiling = await uptoPayment(account, fixture.gasAddress, '20000000');
    const shown = { 'PAYMENT-SIGNATURE': ceiling };
    const long = JSON.stringify({ ...JSON.parse(chatBody('output')), max_tokens: 64 });
    const bodies = [long, chatBody('m'), long, chatBody('m')];
    const answers = await Promise.all(bodies.map((body) => chat(fixture.origin, shown, body)));
    const served = answers.filter(({ status }) => status === 200);
    assert.equal(served.length, 1, answers.map(({ status }) => status).join(' '));
  });
});
