/**
 * The Machine Payments Protocol with its own client, `mppx`, as it comes, on a private Base: a charge
 * by EIP-3009 pays for a request, tops up, and is refused where it is not good.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { tmpdir } from 'node:os';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Challenge, Credential, Receipt } from 'mppx';
import { evm } from 'mppx/evm/client';
import { type PrivateKeyAccount, generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';
import {
  CHAT,
  PAY_TO,
  type WalletFixture,
  assertLedgerIsChain,
  creditOf,
  signIn,
  startWalletFixture,
} from './wallet-fixture.ts';
import { freePort } from '../support/free-port.ts';

/** The types of this entry bring those of a browser, which would be everybody's. */
const MPPX_CLIENT = 'mppx/client';
const MPPX_MCP_CLIENT = 'mppx/mcp/client';
interface Wrapper {
  wrap(client: Client, config: { readonly methods: readonly unknown[] }): void;
}
const CHAT_NANO = 22_000n;
const CHARGE = { chainId: 8453 };

describe('payments of the Machine Payments Protocol', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;
  let url: string;
  let Fetch: { from(options: { readonly methods: readonly unknown[] }): typeof fetch };

  before(async () => {
    ({ Fetch } = (await import(MPPX_CLIENT)) as { Fetch: typeof Fetch });
    fixture = await startWalletFixture('  mpp: true');
    fixture.upstream.otherwise = { kind: 'json', usage: true };
    farebox = await fixture.startApp();
    url = `${fixture.origin}/api/v1/chat/completions`;
  });
  after(async () => {
    await assertLedgerIsChain(farebox, fixture);
    await farebox.audit();
    await farebox.stop();
    await fixture.stop();
  });

  const method = (account: PrivateKeyAccount) =>
    evm({ account, currencies: [evm.assets.base.USDC], networks: [8453], maxAmount: '10' });
  const payingFetch = (account: PrivateKeyAccount) => Fetch.from({ methods: [...method(account)] });
  const ask = (headers: Readonly<Record<string, string>> = {}) => ({
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: CHAT,
  });
  /** A credential for a fresh challenge of a request. */
  const credentialFor = async (
    account: PrivateKeyAccount,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<{ challenge: Challenge.Challenge; credential: string }> => {
    const asked = await fetch(url, ask(headers));
    assert.equal(asked.status, 402);
    assert.equal(asked.headers.get('cache-control'), 'no-store');
    await asked.arrayBuffer();
    const challenge = Challenge.fromResponse(asked);
    const [charge] = method(account);
    return { challenge, credential: await charge.createCredential({ challenge } as never) };
  };
  const send = (credential: string, headers: Readonly<Record<string, string>> = {}) =>
    fetch(url, ask({ authorization: credential, ...headers }));

  test('the client of the protocol pays for a chat and gets a receipt', async () => {
    const account = await fixture.evmWallet();
    const answer = await payingFetch(account)(url, ask());
    assert.equal(answer.status, 200);
    const receipt = Receipt.fromResponse(answer);
    assert.deepEqual([receipt.method, receipt.status], ['evm', 'success']);
    assert.match(receipt.reference, /^0x[0-9a-f]{64}$/);
    assert.equal(answer.headers.get('cache-control'), 'private');
    assert.equal(await creditOf(farebox, account.address), 1_000_000_000n - CHAT_NANO);
  });

  test('the client of the protocol pays the minimum top-up', async () => {
    const account = await fixture.evmWallet();
    const answer = await payingFetch(account)(`${fixture.origin}/api/v1/x402/top-up`, {
      method: 'POST',
    });
    assert.equal(answer.status, 200);
    assert.equal(await creditOf(farebox, account.address), 5_000_000_000n);
    assert.equal(Receipt.fromResponse(answer).status, 'success');
  });

  test('examples/wallet/mpp.sh pays with its command line', async () => {
    const key = generatePrivateKey();
    const { address } = privateKeyToAccount(key);
    await fixture.anvil.mint(address, 10_000_000n);
    const file = fileURLToPath(new URL('../../examples/wallet/mpp.sh', import.meta.url));
    const bin = fileURLToPath(new URL('../node_modules/mppx/dist/bin.js', import.meta.url));
    const env = { FAREBOX_URL: farebox.url, MODEL: 'm', MPPX_PRIVATE_KEY: key };
    const child = endWithUs(
      spawn('sh', [file], {
        env: childEnvironment({ ...env, HOME: tmpdir(), MPPX: `${process.execPath} ${bin}` }),
        stdio: ['ignore', 'pipe', 'pipe'],
      }),
    );
    let said = '';
    child.stdout.on('data', (piece: Buffer) => (said += piece.toString()));
    child.stderr.on('data', (piece: Buffer) => (said += piece.toString()));
    await new Promise((resolve) => child.once('close', resolve));
    assert.match(said, /payment-receipt/i);
    assert.match(said, /chat\.completion/);
    assert.equal(await creditOf(farebox, address), 1_000_000_000n - CHAT_NANO);
  });

  test('the client of the protocol pays for an MCP tool', async () => {
    const account = await fixture.evmWallet();
    const client = new Client({ name: 'test', version: '1' });
    const mcp = new URL('/mcp', farebox.app.address);
    await client.connect(new StreamableHTTPClientTransport(mcp));
    const { McpClient } = (await import(MPPX_MCP_CLIENT)) as { McpClient: Wrapper };
    McpClient.wrap(client, { methods: [...method(account)] });
    fixture.upstream.script.push({ kind: 'answer', content: 'Hello' });
    const result = await client.callTool({ name: 'chat', arguments: { prompt: 'Hi', model: 'm' } });
    assert.deepEqual(result.content, [{ type: 'text', text: 'Hello' }]);
    const receipt = result._meta?.['org.paymentauth/receipt'] as Record<string, unknown>;
    assert.deepEqual([receipt['method'], receipt['status']], ['evm', 'success']);
    assert.ok((await creditOf(farebox, account.address)) > 0n);
    await client.close();
  });

  test('all headers of a 402 fit into the 4 KB that nginx has by default', async () => {
    const account = await fixture.evmWallet();
    const proof = await signIn(account, fixture.origin);
    for (const [path, headers] of [
      ['/chat/completions', {}],
      ['/chat/completions', { 'sign-in-with-x': proof }],
      ['/responses', {}],
      ['/messages', {}],
      ['/embeddings', {}],
      ['/x402/top-up', {}],
    ] as const) {
      const asked = request(`${farebox.url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...headers },
      });
      asked.end(CHAT);
      const [answer] = (await once(asked, 'response')) as [IncomingMessage];
      answer.resume();
      assert.equal(answer.statusCode, 402, path);
      const { rawHeaders } = answer;
      let bytes = 'HTTP/1.1 402 Payment Required\r\n\r\n'.length;
      for (let at = 0; at < rawHeaders.length; at += 2) {
        bytes += `${rawHeaders[at]}: ${rawHeaders[at + 1]}\r\n`.length;
      }
      assert.ok(answer.headers['www-authenticate'] !== undefined);
      assert.ok(answer.headers['payment-required'] !== undefined);
      assert.ok(bytes < 4_096, `${path}: ${bytes} bytes`);
    }
  });

  test('the same 402 offers x402, and its challenge says the smaller payment', async () => {
    const asked = await fetch(url, ask());
    assert.notEqual(asked.headers.get('payment-required'), null);
    const challenge = Challenge.fromResponse(asked);
    assert.equal(challenge.realm, new URL(fixture.origin).host);
    const { amount, recipient, methodDetails } = challenge.request as Record<string, unknown>;
    assert.deepEqual([amount, String(recipient).toLowerCase()], ['1000000', PAY_TO]);
    assert.deepEqual(methodDetails, {
      ...CHARGE,
      credentialTypes: ['authorization'],
      decimals: 6,
    });
  });

  test('a signed-in wallet without credit gets a payment challenge', async () => {
    const account = await fixture.evmWallet();
    const headers = { 'sign-in-with-x': await signIn(account, fixture.origin) };
    const { challenge, credential } = await credentialFor(account, headers);
    assert.equal(challenge.header, 'Payment-Authorization');
    const wrong = await send(credential);
    assert.equal(wrong.status, 402);
    const answer = await fetch(url, ask({ 'payment-authorization': credential }));
    assert.equal(answer.status, 200);
    assert.equal(await creditOf(farebox, account.address), 1_000_000_000n - CHAT_NANO);
  });

  test('a credential pays once: a repeat does not authenticate and transfers nothing', async () => {
    const account = await fixture.evmWallet();
    const { credential } = await credentialFor(account);
    const key = { 'idempotency-key': 'one-payment-one-answer' };
    const [first, second] = await Promise.all([send(credential, key), send(credential, key)]);
    assert.deepEqual([first.status, second.status], [200, 200]);
    assert.equal((await send(credential)).status, 409);
    assert.equal(await creditOf(farebox, account.address), 1_000_000_000n - CHAT_NANO);
  });

  test('a changed credential gets 402 with a new challenge, and costs nothing', async () => {
    const account = await fixture.evmWallet();
    const { challenge, credential } = await credentialFor(account);
    const { payload } = Credential.deserialize(credential) as { payload: Record<string, unknown> };
    const noText = { toString: 1 };
    const request = { ...challenge.request, amount: '10' };
    const changed: [string, object, object][] = [
      ['the amount that was asked', { ...challenge, request }, payload],
      ['the id', { ...challenge, id: `${challenge.id}x` }, payload],
      ['the realm', { ...challenge, realm: 'other.example' }, payload],
      ['what tells it from others', { ...challenge, opaque: 'e30' }, payload],
      ['the expiry', { ...challenge, expires: '2030-01-01T00:00:00.000Z' }, payload],
      ['the value', challenge, { ...payload, value: '10' }],
      ['the nonce', challenge, { ...payload, nonce: `0x${'11'.repeat(32)}` }],
      ['a nonce that is no text', challenge, { ...payload, nonce: noText }],
      ['an end that is no text', challenge, { ...payload, validBefore: noText }],
      ['the end', challenge, { ...payload, validBefore: '9999999999' }],
      ['the type', challenge, { ...payload, type: 'transaction' }],
      ['the signature', challenge, { ...payload, signature: `0x${'11'.repeat(65)}` }],
    ];
    for (const [what, of, by] of changed) {
      const forged = Credential.serialize(Credential.from({ challenge: of, payload: by } as never));
      const refused = await send(forged);
      const body = (await refused.json()) as { error: string };
      assert.equal(refused.status, 402, what);
      assert.notEqual(Challenge.fromResponse(refused).id, challenge.id, what);
      assert.match(body.error, /\S/, what);
      assert.equal(refused.headers.get('payment-receipt'), null);
    }
    for (const text of ['Payment', 'Payment ???', `Payment ${'A'.repeat(20_000)}`, 'Payment e30']) {
      assert.ok([401, 402].includes((await send(text)).status), text.slice(0, 20));
    }
    assert.equal(await creditOf(farebox, account.address), 0n);
    // The one that was signed is still good.
    assert.equal((await send(credential)).status, 200);
  });

  test('a payment whose request fails becomes credit without a receipt', async () => {
    const account = await fixture.evmWallet();
    const { credential } = await credentialFor(account);
    fixture.upstream.otherwise = { kind: 'status', status: 500 };
    const failed = await send(credential);
    fixture.upstream.otherwise = { kind: 'json', usage: true };
    assert.equal(failed.status, 500);
    assert.equal(failed.headers.get('payment-receipt'), null);
    assert.notEqual(failed.headers.get('payment-response'), null);
    assert.equal(await creditOf(farebox, account.address), 1_000_000_000n);
  });

  test('without `payments.mpp` no 402 has a challenge, and the scheme is rejected', async () => {
    const { credential } = await credentialFor(await fixture.evmWallet());
    const port = await freePort();
    const plain = await startTestApp({
      port,
      yaml: fixture.yaml.replace('mpp: true', 'mpp: false'),
    });
    const asked = await fetch(`${plain.url}/chat/completions`, ask());
    const refused = await fetch(
      `${plain.url}/chat/completions`,
      ask({ authorization: credential }),
    );
    await plain.stop();
    assert.deepEqual([asked.status, asked.headers.get('www-authenticate')], [402, null]);
    assert.equal(refused.status, 401);
    assert.match(await refused.text(), /scheme Payment is not configured/);
  });
});
