/**
 * Wallets against the whole server, with unmodified official clients on a private Base and a
 * private Solana: pay, sign in, chat, read the balance. After each test the ledger is the chain.
 */
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import {
  decodePaymentRequiredHeader,
  decodePaymentResponseHeader,
  encodePaymentSignatureHeader,
} from '@x402/core/http';
import { PaymentRequiredV2Schema } from '@x402/core/schemas';
import { ExactEvmScheme } from '@x402/evm/exact/client';
import {
  decodePaymentResponseHeader as decodeForAxios,
  wrapAxiosWithPayment,
  x402Client as AxiosPaymentClient,
} from '@x402/axios';
import { wrapFetchWithPayment, x402Client } from '@x402/fetch';
import { ExactSvmScheme } from '@x402/svm/exact/client';
import axios from 'axios';
import OpenAI from 'openai';
import { batchEnd, chatLine, linesOfFile, startBatch } from '../support/batch-client.ts';
import { VeniceClient } from 'venice-x402-client';
import { createWalletClient, http, publicActions } from 'viem';
import { wrapFetchWithPayment as wrapFetchVersionOne } from 'x402-fetch';
import { type PrivateKeyAccount, generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { runCommand } from '../../src/cli/cli.ts';
import { systemClock } from '../../src/core/clock.ts';
import { decimalUsd, usdToNano } from '../../src/core/money.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { refundedJob } from '../support/test-ledger.ts';
import { BASE_CHAIN } from '../chains/anvil.ts';
import {
  BASE,
  CHAT,
  SOLANA,
  type WalletFixture,
  assertLedgerIsChain,
  chat,
  creditOf,
  encode,
  evmClient,
  evmPayment,
  signIn,
  signingIn,
  solanaClient,
  startWalletFixture,
  topUp,
} from './wallet-fixture.ts';

/** Usage of the engine of the fixture, and its cost. */
const COST_NANO = 22_000n;
const FIVE_USD = 5_000_000_000n;
const TEN_USD = 10_000_000_000n;
const POST_CHAT = {
  method: 'POST',
  headers: { 'content-type': 'application/json' },
  body: CHAT,
};

interface TopUpBody {
  readonly success: boolean;
  readonly data: {
    readonly walletAddress: string;
    readonly amountCredited: number;
    readonly newBalance: number;
    readonly paymentId: string;
  };
}

describe('wallets', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;

  before(async () => {
    fixture = await startWalletFixture('  facilitator: { expose: true }');
    farebox = await fixture.startApp();
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

  async function paidWallet() {
    const account = await fixture.evmWallet();
    const answer = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': await evmPayment(account) });
    assert.equal(answer.status, 200);
    return account;
  }

  function versionOneSigner(account: PrivateKeyAccount): never {
    const client = createWalletClient({
      account,
      chain: BASE_CHAIN,
      transport: http(fixture.anvil.rpcUrl),
    });
    return client.extend(publicActions) as never; // typed by another version of viem
  }

  test('@x402/fetch tops up and chats on Base; the balance falls by exactly the cost', async () => {
    const account = await fixture.evmWallet();
    const pay = wrapFetchWithPayment(fetch, evmClient(account));
    const paid = await pay(`${fixture.origin}/api/v1/x402/top-up`, { method: 'POST' });
    assert.equal(paid.status, 200);
    const body = (await paid.json()) as TopUpBody;
    const { paymentId } = body.data;
    assert.match(paymentId, /^x402-[0-9a-f]{32}$/);
    assert.deepEqual(body, {
      success: true,
      data: {
        walletAddress: account.address.toLowerCase(),
        amountCredited: 5,
        newBalance: 5,
        paymentId,
      },
    });
    const settlement = decodePaymentResponseHeader(paid.headers.get('PAYMENT-RESPONSE') ?? '');
    assert.equal(settlement.success, true);
    assert.equal(settlement.network, 'eip155:8453');
    const client = signingIn(evmClient(account), account);
    const answer = await wrapFetchWithPayment(fetch, client)(
      `${fixture.origin}/api/v1/chat/completions`,
      POST_CHAT,
    );
    assert.equal(answer.status, 200);
    const { cost } = (await answer.json()) as { cost: { usd: number } };
    assert.equal(cost.usd, Number(COST_NANO) / 1e9);
    assert.equal(answer.headers.get('X-Balance-Remaining'), '4.999978');
    assert.equal(await creditOf(farebox, account.address), FIVE_USD - COST_NANO);
  });

  test('@x402/fetch tops up and chats on Solana', async () => {
    const signer = await fixture.solanaWallet();
    const client = signingIn(solanaClient(signer, fixture.solana.rpcUrl), signer);
    const paying = wrapFetchWithPayment(fetch, solanaClient(signer, fixture.solana.rpcUrl));
    const paid = await paying(`${fixture.origin}/api/v1/x402/top-up`, { method: 'POST' });
    assert.equal(paid.status, 200, await paid.clone().text());
    const answer = await wrapFetchWithPayment(fetch, client)(
      `${fixture.origin}/api/v1/chat/completions`,
      POST_CHAT,
    );
    assert.equal(answer.status, 200);
    assert.equal(await creditOf(farebox, signer.address), FIVE_USD - COST_NANO);
  });

  for (const rail of ['Base', 'Solana'] as const) {
    test(`an unmodified client pays on /chat/completions and is served, on ${rail}`, async () => {
      const wallet = rail === 'Base' ? await fixture.evmWallet() : await fixture.solanaWallet();
      const client =
        'signMessages' in wallet ? solanaClient(wallet, fixture.solana.rpcUrl) : evmClient(wallet);
      const answer = await wrapFetchWithPayment(fetch, client)(
        `${fixture.origin}/api/v1/chat/completions`,
        POST_CHAT,
      );
      assert.equal(answer.status, 200);
      const settlement = decodePaymentResponseHeader(answer.headers.get('PAYMENT-RESPONSE') ?? '');
      assert.equal(settlement.success, true);
      assert.equal(answer.headers.get('X-Balance-Remaining'), '9.999978');
      assert.equal(await creditOf(farebox, wallet.address), TEN_USD - COST_NANO);
    });
  }

  test('a signed-in client without credit pays in the same call', async () => {
    const account = await fixture.evmWallet();
    const client = signingIn(evmClient(account), account);
    const call = wrapFetchWithPayment(fetch, client);
    for (const left of ['9.999978', '9.999956']) {
      const answer = await call(`${fixture.origin}/api/v1/chat/completions`, POST_CHAT);
      assert.equal(answer.status, 200);
      assert.equal(answer.headers.get('X-Balance-Remaining'), left);
    }
  });

  test('x402-fetch of version 1 pays the body that `?x402Version=1` gives', async () => {
    const account = await fixture.evmWallet();
    const pay = wrapFetchVersionOne(fetch, versionOneSigner(account), 25_000_000n);
    const paid = await pay(`${fixture.origin}/api/v1/x402/top-up?x402Version=1`, {
      method: 'POST',
    });
    assert.equal(paid.status, 200, await paid.clone().text());
    assert.ok(paid.headers.get('X-PAYMENT-RESPONSE'));
    assert.equal(await creditOf(farebox, account.address), FIVE_USD);
  });

  for (const rail of ['Base', 'Solana'] as const) {
    test(`a stock @x402/fetch with its default limits gets its first answers, on ${rail}`, async () => {
      const wallet = rail === 'Base' ? await fixture.evmWallet() : await fixture.solanaWallet();
      const client =
        'signMessages' in wallet
          ? new x402Client().register(SOLANA, new ExactSvmScheme(wallet, fixture.solana))
          : new x402Client().register(BASE, new ExactEvmScheme(wallet));
      const call = wrapFetchWithPayment(fetch, client);
      for (const left of ['0.999978', '1.999956']) {
        const answer = await call(`${fixture.origin}/api/v1/chat/completions`, POST_CHAT);
        assert.equal(answer.status, 200, await answer.clone().text());
        assert.equal(answer.headers.get('X-Balance-Remaining'), left);
      }
      const paid = await call(`${fixture.origin}/api/v1/x402/top-up`, { method: 'POST' });
      assert.equal(paid.status, 200, 'the same amount is taken as credit alone');
      assert.equal(await creditOf(farebox, wallet.address), 3_000_000_000n - 2n * COST_NANO);
    });
  }

  for (const rail of ['Base', 'Solana'] as const) {
    test(`a stock @x402/axios gets its first answer, on ${rail}`, async () => {
      const wallet = rail === 'Base' ? await fixture.evmWallet() : await fixture.solanaWallet();
      const payer =
        'signMessages' in wallet
          ? new AxiosPaymentClient().register(SOLANA, new ExactSvmScheme(wallet, fixture.solana))
          : new AxiosPaymentClient().register(BASE, new ExactEvmScheme(wallet));
      const client = wrapAxiosWithPayment(axios.create(), payer);
      const answer = await client.post(
        `${fixture.origin}/api/v1/chat/completions`,
        JSON.parse(CHAT),
      );
      assert.equal(answer.data.choices[0].message.content, 'Hello ');
      const settlement = decodeForAxios(String(answer.headers['payment-response']));
      assert.equal(settlement.success, true);
      assert.equal(answer.headers['x-balance-remaining'], '9.999978');
      assert.equal(await creditOf(farebox, wallet.address), TEN_USD - COST_NANO);
    });
  }

  test('an unmodified x402-fetch of version 1 with its default limit gets its first response', async () => {
    const account = await fixture.evmWallet();
    const call = wrapFetchVersionOne(fetch, versionOneSigner(account));
    const url = `${fixture.origin}/api/v1/chat/completions?x402Version=1`;
    const answer = await call(url, POST_CHAT);
    assert.equal(answer.status, 200, await answer.clone().text());
    assert.equal(answer.headers.get('X-Balance-Remaining'), '0.099978');
    assert.equal(await creditOf(farebox, account.address), 100_000_000n - COST_NANO);
    // A client of version 2 can also pay if the URL has `x402Version=1`.
    const other = await fixture.evmWallet();
    const payer = new x402Client().register(BASE, new ExactEvmScheme(other));
    assert.equal((await wrapFetchWithPayment(fetch, payer)(url, POST_CHAT)).status, 200);
  });

  test('another amount below the minimum is rejected as a first payment', async () => {
    const account = await fixture.evmWallet();
    const pay = async (value: string) =>
      topUp(fixture.origin, {
        'PAYMENT-SIGNATURE': await evmPayment(account, { authorization: { value } }),
      });
    for (const value of ['999999', '1000001', '4999999', '100000']) {
      const refused = await pay(value);
      assert.equal(refused.status, 400);
      const { error, message } = (await refused.json()) as { error: string; message: string };
      assert.equal(error, 'AMOUNT_TOO_LOW');
      assert.equal(message, 'Pay at least 5 USD, or exactly 1 USD');
    }
    assert.equal((await pay('1000000')).status, 200);
  });

  test('venice-x402-client tops up, reads its balance, chats, streams and lists transactions', async () => {
    const key = generatePrivateKey();
    const account = privateKeyToAccount(key);
    await fixture.anvil.mint(account.address, 100_000_000n);
    const client = new VeniceClient(key, { apiUrl: fixture.origin });
    await client.topUp(10);
    assert.equal(client.balance, 10);
    const balance = await client.getBalance();
    assert.deepEqual(balance, {
      walletAddress: account.address.toLowerCase(),
      balanceUsd: 10,
      canConsume: true,
      minimumTopUpUsd: 5,
      suggestedTopUpUsd: 10,
    });
    const messages = [{ role: 'user' as const, content: 'Hi' }];
    const answer = await client.chat({ model: 'm', messages });
    assert.equal(answer.choices[0]?.message.content, 'Hello ');
    assert.equal(client.balance, 9.999978);
    fixture.upstream.otherwise = { kind: 'stream', chunks: 3, usage: true };
    let streamed = '';
    for await (const piece of client.chatStream({ model: 'm', messages })) streamed += piece;
    assert.equal(streamed, ' w0 w1 w2');
    const history = await client.getTransactions({ limit: 2 });
    assert.deepEqual(
      history.transactions.map(({ type, amount }) => [type, amount]),
      [
        ['CHARGE', -0.000018],
        ['CHARGE', -0.000022],
      ],
    );
    assert.equal(history.currentBalance, 9.99996);
    assert.equal(history.transactions[0]?.balanceAfter, 9.99996);
    assert.equal(history.transactions[0]?.modelId, 'm');
    assert.deepEqual(history.pagination, { limit: 2, offset: 0, hasMore: true });
    const rest = await client.getTransactions({ limit: 2, offset: 2 });
    assert.deepEqual(
      rest.transactions.map(({ type, amount, requestId }) => [type, amount, requestId]),
      [['TOP_UP', 10, null]],
    );
  });

  test('parallel requests cannot exceed the limit of a wallet token, which can be listed and revoked', async () => {
    const account = await paidWallet();
    const tokens = async (method: string, path = '', wallet = account) =>
      fetch(`${fixture.origin}/api/v1/x402/token${path}`, {
        method,
        headers: { 'SIGN-IN-WITH-X': await signIn(wallet, fixture.origin) },
      });
    const wrong = await tokens('POST', '?usdLimit=-1');
    assert.equal(wrong.status, 400);
    const made = await tokens('POST', '?usdLimit=0.00036');
    assert.equal(made.status, 200);
    const { data } = (await made.json()) as {
      data: { id: string; token: string; expiresAt: string };
    };
    const bearer = { authorization: `Bearer ${data.token}` };
    const batch = async () =>
      await Promise.all(Array.from({ length: 5 }, () => chat(fixture.origin, bearer)));
    let answers = await batch();
    assert.ok(answers.some(({ status }) => status === 200));
    for (let round = 0; round < 8 && answers.some(({ status }) => status === 200); round += 1) {
      answers = await batch();
    }
    const last = answers[0]!;
    assert.equal(last.status, 402);
    const refused = (await last.json()) as { code: string; error: { message: string } };
    assert.equal(refused.code, 'API_KEY_USD_SPEND_LIMIT_EXCEEDED');
    assert.match(JSON.stringify(refused), /spend limit of this wallet token is reached/);
    const spent = FIVE_USD - (await creditOf(farebox, account.address));
    assert.ok(spent > 0n && spent <= 360_000n, String(spent));
    const state = await fetch(`${fixture.origin}/api/v1/key`, { headers: bearer });
    const { data: limited } = (await state.json()) as { data: Record<string, unknown> };
    assert.deepEqual(
      [limited['limit'], limited['limit_remaining'], limited['limit_reset']],
      [0.00036, Number(360_000n - spent) / 1e9, null],
    );
    assert.equal(limited['expires_at'], data.expiresAt);
    const whole = (await (await tokens('POST')).json()) as { data: { id: string; token: string } };
    const wholeBearer = { authorization: `Bearer ${whole.data.token}` };
    const own = `/x402/transactions/${account.address}`;
    for (const path of ['/webhooks', '/billing/statement', '/billing/transactions', own]) {
      const statusFor = async (headers: Record<string, string>) =>
        (await fetch(`${fixture.origin}/api/v1${path}`, { headers })).status;
      assert.deepEqual([await statusFor(bearer), await statusFor(wholeBearer)], [401, 200], path);
    }
    assert.equal((await tokens('DELETE', `/${whole.data.id}`)).status, 200);
    const listed = (await (await tokens('GET')).json()) as {
      data: { id: string; usd: { limit: string; spent: string } | null; diem: null }[];
    };
    assert.deepEqual(
      listed.data.map(({ id, usd, diem }) => ({ id, usd, diem })),
      [
        {
          id: data.id,
          usd: { limit: '0.00036', spent: decimalUsd(spent) },
          diem: null,
        },
      ],
    );
    const stranger = await fixture.evmWallet();
    assert.equal((await tokens('DELETE', `/${data.id}`, stranger)).status, 400);
    assert.equal((await chat(fixture.origin, bearer)).status, 402);
    const byToken = await fetch(`${fixture.origin}/api/v1/x402/token/${data.id}`, {
      method: 'DELETE',
      headers: bearer,
    });
    assert.equal(byToken.status, 401);
    assert.equal((await tokens('DELETE', `/${data.id}`)).status, 200);
    assert.equal((await chat(fixture.origin, bearer)).status, 401);
    assert.deepEqual(((await (await tokens('GET')).json()) as { data: unknown[] }).data, []);
    assert.equal((await tokens('DELETE', `/${data.id}`)).status, 400);
  });

  test('a batch of a wallet token stays within its limit, and stops when the token is revoked', async () => {
    const account = await paidWallet();
    const tokens = async (method: string, path: string) =>
      fetch(`${fixture.origin}/api/v1/x402/token${path}`, {
        method,
        headers: { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) },
      });
    const made = (await (await tokens('POST', '?usdLimit=0.00036')).json()) as {
      data: { id: string; token: string };
    };
    const other = (await (await tokens('POST', '')).json()) as { data: { token: string } };
    const clientOf = (apiKey: string) =>
      new OpenAI({ baseURL: `${fixture.origin}/api/v1`, apiKey, maxRetries: 0 });
    const [limited, free] = [clientOf(made.data.token), clientOf(other.data.token)];
    const lines = (count: number) =>
      Array.from({ length: count }, (_, at) => chatLine(`${at}`, { model: 'm' }));
    const within = await batchEnd(free, (await startBatch(limited, lines(60))).id);
    const spent = FIVE_USD - (await creditOf(farebox, account.address));
    assert.ok(spent > 0n && spent <= 360_000n, String(spent));
    const refused = await linesOfFile(free, within.error_file_id);
    assert.deepEqual(new Set(refused.map(({ response }) => response?.status_code)), new Set([402]));
    const gate = Promise.withResolvers<void>();
    fixture.upstream.otherwise = { kind: 'answer', after: gate.promise, content: 'Hi' };
    const { id } = await startBatch(limited, lines(60));
    assert.equal((await tokens('DELETE', `/${made.data.id}`)).status, 200);
    gate.resolve();
    const revoked = await batchEnd(free, id);
    fixture.upstream.otherwise = { kind: 'json', usage: true };
    const errors = await linesOfFile(free, revoked.error_file_id);
    assert.ok(errors.some(({ response }) => response?.status_code === 401));
    await farebox.audit();
  });

  test('a wallet token is an API key for the openai SDK, and cannot renew itself', async () => {
    const account = await paidWallet();
    const exchanged = await fetch(`${fixture.origin}/api/v1/x402/token`, {
      method: 'POST',
      headers: { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) },
    });
    assert.equal(exchanged.status, 200);
    const { data } = (await exchanged.json()) as { data: { token: string; expiresAt: string } };
    assert.match(data.token, /^svc_wallet_/);
    assert.ok(Date.parse(data.expiresAt) > Date.now());
    const openai = new OpenAI({
      baseURL: `${fixture.origin}/api/v1`,
      apiKey: data.token,
      maxRetries: 0,
    });
    const messages = [{ role: 'user' as const, content: 'Hi' }];
    const { response } = await openai.chat.completions
      .create({ model: 'm', messages })
      .withResponse();
    assert.equal(response.headers.get('X-Balance-Remaining'), '4.999978');
    fixture.upstream.otherwise = { kind: 'stream', chunks: 2, usage: true };
    const streaming = await openai.chat.completions
      .create({ model: 'm', messages, stream: true })
      .withResponse();
    // The headers of a stream show what its hold leaves.
    const shown = Number(streaming.response.headers.get('X-Balance-Remaining'));
    assert.ok(shown > 4.99 && shown < 4.999978, String(shown));
    let last;
    for await (const chunk of streaming.data) last = chunk;
    assert.ok(last?.usage);
    const renewed = await fetch(`${fixture.origin}/api/v1/x402/token`, {
      method: 'POST',
      headers: { authorization: `Bearer ${data.token}` },
    });
    assert.equal(renewed.status, 401);
    // Nor with a sign-in beside it that proves nothing, or that was used before.
    const used = await signIn(account, fixture.origin);
    const tokens = `${fixture.origin}/api/v1/x402/token`;
    assert.equal((await fetch(tokens, { headers: { 'SIGN-IN-WITH-X': used } })).status, 200);
    const inHeaders = [{ authorization: `Bearer ${data.token}` }, { 'x-api-key': data.token }];
    for (const proof of ['e30', used]) {
      for (const token of inHeaders) {
        const headers = { ...token, 'SIGN-IN-WITH-X': proof };
        assert.equal((await fetch(tokens, { headers })).status, 401);
        assert.equal((await fetch(tokens, { method: 'POST', headers })).status, 401);
        const session = await fetch(`${fixture.origin}/api/v1/console/session`, {
          method: 'POST',
          headers,
        });
        assert.equal(session.status, 401);
      }
    }
    const forged = await chat(fixture.origin, { authorization: `Bearer ${data.token}x` });
    assert.equal(forged.status, 401);
  });

  test('a wallet creates API keys for its credit, each token once', async () => {
    const account = await paidWallet();
    const url = `${fixture.origin}/api/v1/api_keys/generate_web3_key`;
    const { data } = (await (await fetch(url)).json()) as { data: { token: string } };
    const proof = {
      address: account.address,
      token: data.token,
      signature: await account.signMessage({ message: data.token }),
    };
    const make = async (changes: object) => {
      const wanted = { apiKeyType: 'INFERENCE', description: 'mine', consumptionLimit: { usd: 1 } };
      const answer = await fetch(url, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...wanted, ...proof, ...changes }),
      });
      const body = (await answer.json()) as {
        code?: string;
        data?: { apiKey: string; description: string };
      };
      return { status: answer.status, ...body };
    };
    const other = privateKeyToAccount(generatePrivateKey());
    for (const [changes, code] of [
      [{ address: other.address }, 'X402_SIGN_IN_INVALID_SIGNATURE'],
      [{ address: 'me' }, 'X402_SIGN_IN_INVALID_WALLET'],
      [{ token: `${data.token}x` }, 'X402_INVALID_SIGN_IN'],
      [{ token: 'a.b.c' }, 'X402_INVALID_SIGN_IN'],
    ] as const) {
      const refused = await make(changes);
      assert.deepEqual([refused.status, refused.code], [401, code]);
    }
    const made = await make({ description: undefined });
    assert.deepEqual([made.status, made.data?.description], [200, 'Web3 API key']);
    const secret = made.data?.apiKey ?? '';
    assert.match(secret, /^SVC_INFERENCE_KEY_/);
    const again = await make({});
    assert.deepEqual([again.status, again.code], [401, 'X402_INVALID_SIGN_IN']);
    const answer = await chat(fixture.origin, { authorization: `Bearer ${secret}` });
    assert.equal(answer.status, 200);
    assert.equal(await creditOf(farebox, account.address), FIVE_USD - COST_NANO);
    // Wallets cost nothing to make: those of one address make 20 keys a minute. A minute may turn.
    const codes = new Set<string | undefined>();
    for (let at = 0; at < 41; at += 1) codes.add((await make({ token: 'a.b.c' })).code);
    assert.ok(codes.has('RATE_LIMIT_EXCEEDED'), [...codes].join(' '));
  });

  test('a wallet without credit stores no files', async () => {
    const upload = async (wallet: Awaited<ReturnType<typeof paidWallet>>) => {
      const body = new FormData();
      body.set('purpose', 'batch');
      body.set('file', new Blob(['{}']), 'a.jsonl');
      const headers = { 'SIGN-IN-WITH-X': await signIn(wallet, fixture.origin) };
      return await fetch(`${fixture.origin}/api/v1/files`, { method: 'POST', headers, body });
    };
    assert.equal((await upload(await fixture.evmWallet())).status, 402);
    assert.equal((await upload(await paidWallet())).status, 200);
  });

  test('the discovery of a paid route is valid for stock clients and under 4 KB', async () => {
    const answer = await chat(fixture.origin, {});
    assert.equal(answer.status, 402);
    const header = answer.headers.get('PAYMENT-REQUIRED') ?? '';
    assert.ok(header.length < 4_096, `${header.length} characters`);
    const required = decodePaymentRequiredHeader(header);
    PaymentRequiredV2Schema.parse(required);
    assert.deepEqual(
      required.accepts.map(({ network, amount }) => [network, amount]),
      [
        ['eip155:8453', '10000000'],
        ['solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp', '10000000'],
        ['eip155:8453', '1000000'],
        ['solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp', '1000000'],
      ],
    );
    assert.equal(required.resource?.url, `${fixture.origin}/api/v1/chat/completions`);
    assert.equal(required.resource?.description, 'Chat completions');
    const body = (await answer.json()) as Record<string, unknown>;
    PaymentRequiredV2Schema.parse(body);
    const options = body['authOptions'] as Record<string, unknown>;
    assert.deepEqual(Object.keys(options), ['apiKey', 'x402Wallet']);
    const top = await topUp(fixture.origin, {});
    assert.equal(top.status, 402);
    const topHeader = top.headers.get('PAYMENT-REQUIRED') ?? '';
    assert.ok(topHeader.length < 4_096, `${topHeader.length} characters`);
    assert.equal(decodePaymentRequiredHeader(topHeader).accepts[0]?.amount, '5000000');
  });

  test('a 402 with payment options has the published shape on every route and in every error format', async () => {
    const account = await fixture.evmWallet();
    const valid = JSON.stringify({ ...JSON.parse(CHAT), max_tokens: 5, input: 'Hi' });
    for (const path of ['/chat/completions', '/responses', '/messages']) {
      for (const headers of [
        {},
        { 'x-svc-error-format': 'openai' },
        { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) },
      ]) {
        const answer = await fetch(`${fixture.origin}/api/v1${path}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json', ...headers },
          body: valid,
        });
        const body = (await answer.json()) as Record<string, unknown>;

        assert.equal(answer.status, 402, `${path} ${JSON.stringify(body)}`);
        PaymentRequiredV2Schema.parse(body);
        assert.equal(typeof body['error'], 'string');
        assert.equal(body['request_id'], undefined);
      }
      const old = await fetch(`${fixture.origin}/api/v1${path}?x402Version=1`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: valid,
      });
      assert.deepEqual(Object.keys((await old.json()) as object), [
        'x402Version',
        'error',
        'accepts',
      ]);
    }
  });

  test('a 402 about too little credit has every field of the specification and the header', async () => {
    const account = await fixture.evmWallet();
    const answer = await chat(fixture.origin, {
      'SIGN-IN-WITH-X': await signIn(account, fixture.origin),
    });
    assert.equal(answer.status, 402);
    const body = (await answer.json()) as Record<string, unknown>;
    PaymentRequiredV2Schema.parse(body);
    const { siwxChallenge, topUpInstructions, message, ...others } = body;
    const { x402Version: _, accepts: _accepts, resource: _resource, extensions, ...rest } = others;
    assert.deepEqual(rest, {
      error: 'Payment required',
      code: 'PAYMENT_REQUIRED',
      reason: 'insufficient_balance',
      currentBalanceUsd: 0,
      minimumBalanceUsd: 0.1,
      description: 'Chat completions',
      suggestedTopUpUsd: 10,
      minimumTopUpUsd: 5,
      supportedTokens: ['USDC'],
      supportedChains: ['base', 'solana'],
    });
    assert.equal(typeof message, 'string');
    const steps = topUpInstructions as Record<string, unknown>;
    assert.equal(steps['network'], 'eip155:8453');
    assert.equal(steps['tokenDecimals'], 6);
    assert.equal(steps['minimumAmountUsd'], 5);
    for (const name of ['step1', 'step2', 'step3', 'receiverWallet', 'tokenAddress']) {
      assert.equal(typeof steps[name], 'string', name);
    }
    const challenge = siwxChallenge as { info: Record<string, unknown>; supportedChains: unknown };
    assert.equal(challenge.info['uri'], `${fixture.origin}/api/v1/chat/completions`);
    assert.deepEqual(
      (challenge.supportedChains as { type: string }[]).map(({ type }) => type),
      ['eip191', 'eip1271', 'ed25519'],
    );
    assert.ok('offer-receipt' in (extensions as object));
    const header = answer.headers.get('PAYMENT-REQUIRED') ?? '';
    PaymentRequiredV2Schema.parse(decodePaymentRequiredHeader(header));
    assert.ok(header.length < 4_096);
  });

  test('a wallet that never paid has a balance of 0 and no transactions', async () => {
    const account = privateKeyToAccount(generatePrivateKey());
    const get = async (path: string): Promise<unknown> => {
      const answer = await fetch(`${fixture.origin}/api/v1/x402/${path}/${account.address}`, {
        headers: { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) },
      });
      assert.equal(answer.status, 200);
      return ((await answer.json()) as { data: unknown }).data;
    };
    const balance = (await get('balance')) as Record<string, unknown>;
    assert.equal(balance['balanceUsd'], 0);
    assert.equal(balance['canConsume'], false);
    const history = (await get('transactions')) as { transactions: unknown[] };
    assert.deepEqual(history.transactions, []);
  });

  test('another wallet is 403, no wallet is 402, a bad path is 400, a payment there is 400', async () => {
    const account = privateKeyToAccount(generatePrivateKey());
    const other = privateKeyToAccount(generatePrivateKey()).address;
    const ask = async (wallet: string, headers: Record<string, string>) => {
      const url = `${fixture.origin}/api/v1/x402/balance/${wallet}`;
      const answer = await fetch(url, { headers });
      return [answer.status, ((await answer.json()) as { code?: string }).code];
    };
    const signed = async () => ({ 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) });
    assert.deepEqual(await ask(other, await signed()), [403, 'X402_WALLET_MISMATCH']);
    assert.deepEqual(await ask('0x12', await signed()), [400, 'INVALID_REQUEST']);
    assert.deepEqual(await ask(other, {}), [402, undefined]);
    const key = { authorization: `Bearer ${farebox.owner.secret}` };
    assert.deepEqual(await ask(other, key), [401, 'AUTHENTICATION_FAILED']);
    const paying = { 'PAYMENT-SIGNATURE': encode({}) };
    assert.deepEqual(await ask(other, paying), [400, 'PAYMENT_HEADER_NOT_ACCEPTED']);
  });

  test('the sixth concurrent request of one wallet gets 429', async () => {
    const account = await paidWallet();
    fixture.upstream.otherwise = { kind: 'stream', chunks: 3, everyMs: 100, usage: true };
    const body = JSON.stringify({ ...JSON.parse(CHAT), stream: true });
    const proofs = await Promise.all(
      Array.from({ length: 6 }, () => signIn(account, fixture.origin)),
    );
    const answers = await Promise.all(
      proofs.map((proof) => chat(fixture.origin, { 'SIGN-IN-WITH-X': proof }, body)),
    );
    const statuses = answers.map(({ status }) => status).sort((a, b) => a - b);
    const texts = await Promise.all(answers.map((answer) => answer.text()));
    const refusal = texts.find((_, index) => answers[index]?.status === 429) ?? '{}';
    assert.deepEqual(statuses, [200, 200, 200, 200, 200, 429]);
    assert.equal((JSON.parse(refusal) as { code: string }).code, 'X402_CONCURRENCY_LIMIT');
  });

  test('a pending payment gets 202 with the advice to send the same header again', async () => {
    const account = await fixture.evmWallet();
    const payment = await evmPayment(account);
    await fixture.anvil.client.setAutomine(false);
    try {
      const answer = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': payment });
      assert.equal(answer.status, 202);
      assert.ok(Number(answer.headers.get('Retry-After')) > 0);
      assert.equal(answer.headers.get('x-svc-host-name'), null);
      const told = decodePaymentResponseHeader(answer.headers.get('PAYMENT-RESPONSE') ?? '');
      assert.equal(told.success, false);
      assert.equal(told.errorReason, 'settlement_pending');
      const body = (await answer.json()) as { error: string; message: string };
      assert.equal(body.error, 'SETTLEMENT_PENDING');
      assert.match(body.message, /same header again/);
      const serving = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment });
      assert.equal(serving.status, 202);
      assert.equal(serving.headers.get('PAYMENT-CLAIM'), null);
    } finally {
      await fixture.anvil.client.setAutomine(true);
      await fixture.anvil.client.mine({ blocks: 1 });
    }
    const answer = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': payment });
    assert.equal(answer.status, 200);
    assert.equal(((await answer.json()) as TopUpBody).success, true);
    const elsewhere = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment });
    assert.equal(elsewhere.status, 409, 'a top-up serves no request');
    assert.equal(await creditOf(farebox, account.address), FIVE_USD);
  });

  test('the manifest names the paid resources, and the facilitator settles for others', async () => {
    const manifest = (await (await fetch(`${fixture.origin}/.well-known/x402.json`)).json()) as {
      topUp: string;
      resources: { url: string }[];
    };
    assert.equal(manifest.topUp, `${fixture.origin}/api/v1/x402/top-up`);
    const urls = manifest.resources.map(({ url }) => url);
    assert.ok(urls.includes(`${fixture.origin}/api/v1/chat/completions`));
    assert.ok(urls.includes(`${fixture.origin}/api/v1/crypto/rpc/{network}`));
    const facilitator = `${fixture.origin}/api/v1/x402/facilitator`;
    const supported = (await (await fetch(`${facilitator}/supported`)).json()) as {
      kinds: { network: string }[];
    };
    assert.equal(supported.kinds.length, 2);
    const account = await fixture.evmWallet();
    const client = evmClient(account);
    const required = await topUp(fixture.origin, {});
    const paymentRequired = decodePaymentRequiredHeader(
      required.headers.get('PAYMENT-REQUIRED') ?? '',
    );
    const payload = await client.createPaymentPayload(paymentRequired);
    assert.ok(encodePaymentSignatureHeader(payload).length < 8_192);
    const verified = await fetch(`${facilitator}/verify`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({
        x402Version: 2,
        paymentPayload: payload,
        paymentRequirements: payload.accepted,
      }),
    });
    assert.deepEqual(((await verified.json()) as { isValid: boolean }).isValid, true);
  });

  test('the operator pays unused credit back from the command line, while the server runs', async () => {
    const account = await paidWallet();
    const { status } = await chat(fixture.origin, {
      'SIGN-IN-WITH-X': await signIn(account, fixture.origin),
    });
    assert.equal(status, 200);
    const before = await fixture.anvil.balance(account.address);
    const refund = async (...words: string[]): Promise<[number, string]> => {
      let output = '';
      const terminal = { write: (text: string) => (output += text) };
      const code = await runCommand({
        argv: ['refund', ...words],
        env: { FAREBOX_DATA: farebox.config.dataFolder, FAREBOX_CONFIG: configFile },
        cwd: farebox.config.dataFolder,
        stdout: terminal,
        stderr: terminal,
        onSignal: () => undefined,
      });
      return [code, output];
    };
    const configFile = join(farebox.config.dataFolder, 'refund.yaml');
    writeFileSync(configFile, `${fixture.yaml}\n`);
    assert.equal((await refund(account.address))[0], 2);
    const [tooMuch, why] = await refund(account.address, '5');
    assert.equal(tooMuch, 1);
    assert.match(why, /less than 5\.000000 USD of unused credit/);
    const [tooEarly, named] = await refund(account.address, 'all');
    assert.equal(tooEarly, 1);
    assert.match(
      named,
      /Nothing was paid back\. Kept as credit, because the payment is not final yet: 5\.000000 USD of x402-\w+ \(0x\w+\)/,
    );
    await fixture.anvil.client.mine({ blocks: 70 });
    const [paid, said] = await refund(account.address, 'all');
    assert.equal(paid, 0, said);
    assert.match(said, /^Paid 4\.999978 USD to 0x/);
    assert.equal((await fixture.anvil.balance(account.address)) - before, 4_999_978n);
    assert.equal(await creditOf(farebox, account.address), 0n);
    const id = /refund-[\w-]+/.exec(said)?.[0] ?? '';
    assert.match((await refund('--state', id))[1], /^Paid/);
    const history = await fetch(`${fixture.origin}/api/v1/x402/transactions/${account.address}`, {
      headers: { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) },
    });
    const { data } = (await history.json()) as {
      data: { transactions: { type: string; amount: number }[] };
    };
    assert.deepEqual(
      data.transactions.map(({ type, amount }) => [type, amount]),
      [
        ['REFUND', -4.999978],
        ['CHARGE', -0.000022],
        ['TOP_UP', 5],
      ],
    );
  });

  test('the transactions of a wallet show refunds in the unit of the charge', async () => {
    const account = await paidWallet();
    const accountId = `wallet:${account.address.toLowerCase()}`;
    const { ledger } = farebox.app.stores;
    await ledger.setDailyAllocation(accountId, usdToNano('5'));
    await refundedJob(farebox.app.stores, systemClock(), {
      requestId: `video-${account.address}`,
      accountId,
      usd: '6',
    });
    const answer = await fetch(`${fixture.origin}/api/v1/x402/transactions/${account.address}`, {
      headers: { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) },
    });
    const { data } = (await answer.json()) as {
      data: { transactions: { type: string; amount: number; currency: string }[] };
    };
    assert.deepEqual(
      new Set(
        data.transactions.map(({ type, amount, currency }) => `${type} ${amount} ${currency}`),
      ),
      new Set(['TOP_UP 5 USD', 'CHARGE -5 DIEM', 'CHARGE -1 USD', 'REFUND 5 DIEM', 'REFUND 1 USD']),
    );
  });

  test('a browser may send and read every wallet header', async () => {
    const preflight = await fetch(`${fixture.origin}/api/v1/x402/top-up`, {
      method: 'OPTIONS',
      headers: { origin: 'https://app.example', 'access-control-request-method': 'POST' },
    });
    const allowed = preflight.headers.get('access-control-allow-headers') ?? '';
    for (const name of ['payment-signature', 'x-payment', 'sign-in-with-x', 'x-sign-in-with-x']) {
      assert.ok(allowed.includes(name), name);
    }
    const answer = await fetch(`${fixture.origin}/api/v1/x402/top-up`, {
      method: 'POST',
      headers: { origin: 'https://app.example' },
    });
    const exposed = answer.headers.get('access-control-expose-headers') ?? '';
    for (const name of ['PAYMENT-REQUIRED', 'PAYMENT-RESPONSE', 'X-Balance-Remaining']) {
      assert.ok(exposed.includes(name), name);
    }
  });
});

test('the limits of the wallet routes are those of the specification', async () => {
  const fixture = await startWalletFixture();
  const yaml = fixture.yaml.replace(/ {2}routesPerMinute.*\n/, '');
  // One moment for the whole test: limits count by the minute.
  const moment = Date.now();
  const clock = { ...systemClock(), nowMs: () => moment };
  const farebox = await startTestApp({ port: fixture.port, yaml, clock });
  try {
    const account = privateKeyToAccount(generatePrivateKey());
    const statuses = async (count: number, ask: () => Promise<Response>): Promise<number[]> => {
      const seen: number[] = [];
      for (let index = 0; index < count; index += 1) seen.push((await ask()).status);
      return seen;
    };
    const tops = await statuses(11, () => topUp(fixture.origin, {}));
    assert.deepEqual(tops, [...Array<number>(10).fill(402), 429]);
    const elsewhere = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': encode({}) });
    assert.equal(elsewhere.status, 429, 'a payment on a paid route counts as a top-up');
    for (const [path, most] of [
      ['balance', 30],
      ['transactions', 20],
    ] as const) {
      const answers = await statuses(most + 1, async () =>
        fetch(`${fixture.origin}/api/v1/x402/${path}/${account.address}`, {
          headers: { 'SIGN-IN-WITH-X': await signIn(account, fixture.origin) },
        }),
      );
      assert.deepEqual(answers, [...Array<number>(most).fill(200), 429], path);
    }
  } finally {
    await farebox.stop();
    await fixture.stop();
  }
});

test('without rails every wallet path returns an error, and API keys work', async () => {
  const farebox = await startTestApp();
  try {
    const account = privateKeyToAccount(generatePrivateKey());
    const origin = new URL(farebox.url).origin;
    const ask = async (answer: Promise<Response>): Promise<[number, unknown]> => {
      const { status, body } = await answer.then(async (one) => ({
        status: one.status,
        body: (await one.json()) as { code?: string },
      }));
      return [status, body.code];
    };
    const off = [503, 'X402_NOT_CONFIGURED'];
    const proof = { 'SIGN-IN-WITH-X': await signIn(account, origin) };
    assert.deepEqual(await ask(topUp(origin, {})), off);
    assert.deepEqual(await ask(chat(origin, proof)), off);
    assert.deepEqual(await ask(chat(origin, { 'PAYMENT-SIGNATURE': encode({}) })), off);
    const balance = `${farebox.url}/x402/balance/${account.address}`;
    assert.deepEqual(await ask(fetch(balance, { headers: proof })), off);
    assert.deepEqual(await ask(chat(origin, {})), [402, undefined]);
    const manifest = await fetch(`${origin}/.well-known/x402.json`);
    assert.equal(manifest.status, 404);
  } finally {
    await farebox.stop();
  }
});
