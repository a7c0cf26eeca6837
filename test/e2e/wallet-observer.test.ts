/**
 * An observer of the chain can rebuild every payment header from calldata, and sends it wherever a
 * payer would. The server does not serve the observer, reveals no balance, and still serves the
 * retry of the payer, which is identified by data that is never on the chain. No money is
 * transferred for a request that cannot be served.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, afterEach, before, describe, test } from 'node:test';
import {
  decodePaymentRequiredHeader,
  decodePaymentResponseHeader,
  encodePaymentSignatureHeader,
} from '@x402/core/http';
import { type Hex, concatHex, decodeFunctionData, numberToHex } from 'viem';
import type { PrivateKeyAccount } from 'viem/accounts';
import type { TestApp } from '../app/test-app.ts';
import { USDC, USDC_ABI } from '../chains/anvil.ts';
import {
  BASE,
  CHAT,
  PAY_TO,
  type WalletFixture,
  assertLedgerIsChain,
  chat,
  creditOf,
  encode,
  evmPayment,
  signIn,
  solanaClient,
  startWalletFixture,
  topUp,
} from './wallet-fixture.ts';

const FIVE_USD = 5_000_000_000n;
const COST_NANO = 22_000n;
const ZEROS: Hex = `0x${'00'.repeat(65)}`;
const NAMES = ['PAYMENT-SIGNATURE', 'X-402-Payment', 'X-PAYMENT'] as const;

interface Refusal {
  readonly error: string;
  readonly code?: string;
}

describe('a payment header from the chain does not authenticate', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;

  before(async () => {
    fixture = await startWalletFixture();
    farebox = await fixture.startApp({
      yaml: `limits: { guard: { failures: 1000000 } }
rpc: { networks: { base-mainnet: { upstreams: [{ url: ${fixture.anvil.rpcUrl} }] } } }`,
    });
  });

  after(async () => {
    await farebox.stop();
    await fixture.stop();
  });

  afterEach(async () => {
    await fixture.anvil.client.setAutomine(true);
    await assertLedgerIsChain(farebox, fixture);
  });

  /** The header that anybody can make of the newest transaction, in the layout of version 2 or 1. */
  async function observed(change: { signature?: Hex; version?: 1 | 2 } = {}): Promise<string> {
    const latest = await fixture.anvil.client.getBlockNumber();
    const [newest, before] = await Promise.all(
      [latest, latest - 1n].map((blockNumber) =>
        fixture.anvil.client.getBlock({ blockNumber, includeTransactions: true }),
      ),
    );
    const transactions = [newest, before].flatMap((block) => block?.transactions ?? []);
    const input = transactions.find(({ to }) => to === USDC.toLowerCase())?.input;
    assert.ok(input !== undefined, 'the newest blocks have a payment');
    const { args } = decodeFunctionData({ abi: USDC_ABI, data: input });
    const [from, to, value, validAfter, validBefore, nonce, v, r, s] = args as readonly [
      Hex,
      Hex,
      bigint,
      bigint,
      bigint,
      Hex,
      number,
      Hex,
      Hex,
    ];
    const signature = change.signature ?? concatHex([r, s, numberToHex(v)]);
    const authorization = {
      from,
      to,
      value: String(value),
      validAfter: String(validAfter),
      validBefore: String(validBefore),
      nonce,
    };
    const payload = { authorization, signature };
    return change.version === 1
      ? encode({ x402Version: 1, scheme: 'exact', network: 'base', payload })
      : encode({ x402Version: 2, accepted: { scheme: 'exact', network: BASE }, payload });
  }

  const rpc = async (headers: Readonly<Record<string, string>>): Promise<Response> =>
    await fetch(`${farebox.url}/crypto/rpc/base-mainnet`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body: '{"jsonrpc":"2.0","id":1,"method":"eth_chainId","params":[]}',
    });

  /** Sends `header` to each endpoint under each payment name, and expects no service and no balance. */
  async function assertWorthless(header: string, statuses: readonly number[]): Promise<void> {
    for (const name of NAMES) {
      for (const ask of [chat, async (_: string, headers: object) => rpc(headers as never)]) {
        const answer = await ask(fixture.origin, { [name]: header });
        const body = await answer.text();
        assert.ok(statuses.includes(answer.status), `${name}: ${answer.status} ${body}`);
        assert.equal(answer.headers.get('X-Balance-Remaining'), null);
        assert.equal(answer.headers.get('PAYMENT-CLAIM'), null);
        assert.doesNotMatch(body, /balance/i);
      }
    }
  }

  async function money(account: PrivateKeyAccount): Promise<bigint> {
    return await fixture.anvil.balance(account.address);
  }

  test('the header of a served request, rebuilt from calldata, gets no service', async () => {
    const account = await fixture.evmWallet();
    const payment = await evmPayment(account);
    assert.equal((await chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment })).status, 200);
    const left = FIVE_USD - COST_NANO;
    assert.equal(await creditOf(farebox, account.address), left);
    await assertWorthless(await observed(), [409]);
    await assertWorthless(await observed({ version: 1 }), [409]);
    await assertWorthless(payment, [409]);
    await assertWorthless(await observed({ signature: ZEROS }), [400]);
    assert.equal(await creditOf(farebox, account.address), left);
  });

  test('the header of a top-up does not authenticate either, and reveals no balance', async () => {
    const account = await fixture.evmWallet();
    const payment = await evmPayment(account);
    const paid = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': payment });
    const { data } = (await paid.json()) as { data: Record<string, unknown> };
    assert.equal(data['newBalance'], 5);
    await assertWorthless(await observed(), [409]);
    for (const header of [await observed(), await observed({ version: 1 }), payment]) {
      const again = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': header });
      assert.equal(again.status, 200);
      const { newBalance: _, ...rest } = data;
      const told = (await again.json()) as { data: object };
      assert.deepEqual(told.data, { ...rest, alreadyCredited: true });
      const response = decodePaymentResponseHeader(again.headers.get('PAYMENT-RESPONSE') ?? '');
      assert.equal(response.success, true);
    }
    const forged = await topUp(fixture.origin, {
      'PAYMENT-SIGNATURE': await observed({ signature: ZEROS }),
    });
    assert.equal(forged.status, 400);
    assert.equal(((await forged.json()) as Refusal).error, 'PAYMENT_VERIFICATION_FAILED');
    assert.equal(await creditOf(farebox, account.address), FIVE_USD);
    const signedIn = await chat(fixture.origin, {
      'PAYMENT-SIGNATURE': payment,
      'SIGN-IN-WITH-X': await signIn(account, fixture.origin),
    });
    assert.equal(signedIn.status, 200, 'only a sign-in spends credit');
  });

  for (const proof of ['the claim of its answer', 'its idempotency key'] as const) {
    test(`after a 202 the payer is served by ${proof}, the observer is not`, async () => {
      const account = await fixture.evmWallet();
      const payment = { 'PAYMENT-SIGNATURE': await evmPayment(account) };
      const key = { 'Idempotency-Key': randomUUID() };
      await fixture.anvil.client.setAutomine(false);
      const pending = await chat(fixture.origin, { ...payment, ...key });
      assert.equal(pending.status, 202);
      const claim = pending.headers.get('PAYMENT-CLAIM') ?? '';
      assert.match(claim, /^[\w-]{43}$/);
      const early = await chat(fixture.origin, payment);
      assert.equal(early.status, 202, 'who only has the header is told to wait');
      assert.equal(early.headers.get('PAYMENT-CLAIM'), null);
      await fixture.anvil.client.setAutomine(true);
      await fixture.anvil.client.mine({ blocks: 1 });
      await assertWorthless(await observed(), [409]);
      for (const wrong of [
        { 'PAYMENT-CLAIM': claim.replace(/^./, (first) => (first === 'A' ? 'B' : 'A')) },
        { 'PAYMENT-CLAIM': '' },
        { 'Idempotency-Key': randomUUID() },
      ]) {
        const refused = await chat(fixture.origin, { ...payment, ...wrong });
        assert.equal(refused.status, 409);
      }
      const mine = proof === 'its idempotency key' ? key : { 'PAYMENT-CLAIM': claim };
      const served = await chat(fixture.origin, { ...payment, ...mine });
      assert.equal(served.status, 200);
      assert.equal(served.headers.get('X-Balance-Remaining'), '4.999978');
      const again = await chat(fixture.origin, { ...payment, ...mine });
      // The key returns its stored response; the claim was used.
      assert.equal(again.status, proof === 'its idempotency key' ? 200 : 409);
      assert.equal(await creditOf(farebox, account.address), FIVE_USD - COST_NANO);
    });
  }

  test('a payment on Solana serves its request once, and its replay shows no balance', async () => {
    const wallet = await fixture.solanaWallet();
    const required = decodePaymentRequiredHeader(
      (await topUp(fixture.origin, {})).headers.get('PAYMENT-REQUIRED') ?? '',
    );
    const payload = await solanaClient(wallet, fixture.solana.rpcUrl).createPaymentPayload(
      required,
    );
    const header = encodePaymentSignatureHeader(payload);
    assert.equal((await chat(fixture.origin, { 'PAYMENT-SIGNATURE': header })).status, 200);
    await assertWorthless(header, [409]);
    const again = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': header });
    const { data } = (await again.json()) as { data: Record<string, unknown> };
    assert.equal(data['alreadyCredited'], true);
    assert.equal(data['newBalance'], undefined);
    const wire = Buffer.from(String(payload.payload['transaction']), 'base64');
    // The count of signatures, the slot of the fee payer, then the payer's own.
    wire.fill(0, 65, 129);
    const forged = { ...payload, payload: { transaction: wire.toString('base64') } };
    await assertWorthless(encode(forged), [400]);
    const refused = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': encode(forged) });
    assert.equal(refused.status, 400);
  });

  test('a short idempotency key does not identify the payer, because it can be guessed', async () => {
    const account = await fixture.evmWallet();
    const payment = { 'PAYMENT-SIGNATURE': await evmPayment(account) };
    await fixture.anvil.client.setAutomine(false);
    const pending = await chat(fixture.origin, { ...payment, 'Idempotency-Key': '1' });
    assert.equal(pending.status, 202);
    await fixture.anvil.client.setAutomine(true);
    await fixture.anvil.client.mine({ blocks: 1 });
    const guessed = await chat(fixture.origin, { ...payment, 'Idempotency-Key': '1' });
    assert.equal(guessed.status, 409);
  });

  test('the same header of several requests at once serves one of them', async () => {
    const account = await fixture.evmWallet();
    const payment = await evmPayment(account);
    const answers = await Promise.all(
      Array.from({ length: 4 }, () => chat(fixture.origin, { 'PAYMENT-SIGNATURE': payment })),
    );
    const statuses = answers.map(({ status }) => status).sort((a, b) => a - b);
    assert.deepEqual(statuses, [200, 409, 409, 409]);
    assert.equal(await creditOf(farebox, account.address), FIVE_USD - COST_NANO);
  });

  test('no money is transferred for a request that cannot be served, and the header stays valid', async () => {
    const account = await fixture.evmWallet();
    const payment = { 'PAYMENT-SIGNATURE': await evmPayment(account) };
    const before = await money(account);
    const messages = [{ role: 'user', content: 'Hi' }];
    for (const [status, body] of [
      [404, JSON.stringify({ model: 'none', messages })],
      [400, JSON.stringify({ model: 'm' })],
      [400, JSON.stringify({ model: 'm', messages: [] })],
      [400, JSON.stringify({ model: 'm', messages, temperature: 'hot' })],
      [400, '{'],
    ] as const) {
      const refused = await chat(fixture.origin, payment, body);
      assert.equal(refused.status, status, await refused.text());
      assert.equal(refused.headers.get('PAYMENT-RESPONSE'), null);
    }
    const wrongType = await fetch(`${farebox.url}/chat/completions`, {
      method: 'POST',
      headers: { 'content-type': 'text/plain', ...payment },
      body: CHAT,
    });
    assert.equal(wrongType.status, 415);
    const method = await rpc(payment).then(async (good) => good.status);
    assert.equal(method, 200, 'the first request that can be served opens the payment');
    assert.equal(await money(account), before - 5_000_000n);
    assert.equal((await chat(fixture.origin, payment)).status, 409);
  });

  test('an invalid method, an unknown network and unpriced routes accept no payment', async () => {
    const account = await fixture.evmWallet();
    const payment = { 'PAYMENT-SIGNATURE': await evmPayment(account) };
    const before = await money(account);
    const json = { 'content-type': 'application/json', ...payment };
    const post = async (path: string, body: string): Promise<Response> =>
      await fetch(`${farebox.url}${path}`, { method: 'POST', headers: json, body });
    const call = '{"jsonrpc":"2.0","id":1,"method":"debug_nothing","params":[]}';
    assert.equal((await post('/crypto/rpc/base-mainnet', call)).status, 400);
    assert.equal((await post('/crypto/rpc/nowhere', call)).status, 400);
    assert.ok((await post('/embeddings', '{"model":"m","input":"a"}')).status < 500);
    assert.equal((await post('/video/complete', '{"queue_id":"x"}')).status, 400);
    for (const path of ['/usage', '/billing/balance']) {
      const refused = await fetch(`${farebox.url}${path}`, { headers: payment });
      assert.equal(refused.status, 400);
      const { code } = (await refused.json()) as Refusal;
      assert.equal(code, 'PAYMENT_HEADER_NOT_ACCEPTED');
    }
    assert.equal(await money(account), before);
    assert.equal((await chat(fixture.origin, payment)).status, 200);
  });
});

describe('transfers of other wallets', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;

  before(async () => {
    fixture = await startWalletFixture();
    farebox = await fixture.startApp();
  });

  after(async () => {
    await farebox.stop();
    await fixture.stop();
  });

  test('a transfer to the same receiver for another purpose does not authenticate', async () => {
    const account = await fixture.evmWallet();
    const header = await evmPayment(account);
    const { payload } = JSON.parse(Buffer.from(header, 'base64').toString()) as {
      payload: { authorization: Record<string, string>; signature: Hex };
    };
    const one = payload.authorization;
    await fixture.anvil.callToken('transferWithAuthorization', [
      one['from'],
      PAY_TO,
      5_000_000n,
      0n,
      BigInt(one['validBefore'] ?? ''),
      one['nonce'],
      Number(`0x${payload.signature.slice(130)}`),
      payload.signature.slice(0, 66),
      `0x${payload.signature.slice(66, 130)}`,
    ]);
    const first = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': header });
    assert.ok([400, 402, 409].includes(first.status), String(first.status));
    assert.equal(first.headers.get('X-Balance-Remaining'), null);
    await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': header });
    const second = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': header });
    assert.ok([400, 402, 409].includes(second.status), String(second.status));
  });

  test('a payment that is too small for the request is rejected before the transfer', async () => {
    await farebox.stop();
    farebox = await fixture.startApp({ yaml: 'limits: { minimumCreditUsd: 6 }' });
    const account = await fixture.evmWallet();
    const before = await fixture.anvil.balance(account.address);
    const header = await evmPayment(account);
    const refused = await chat(fixture.origin, { 'PAYMENT-SIGNATURE': header });
    assert.equal(refused.status, 402);
    assert.ok(refused.headers.get('PAYMENT-REQUIRED'));
    assert.equal(await fixture.anvil.balance(account.address), before);
    const larger = await evmPayment(account, {
      authorization: { value: '6000000' },
      accepted: { amount: '6000000' },
    });
    assert.equal((await chat(fixture.origin, { 'PAYMENT-SIGNATURE': larger })).status, 200);
  });
});
