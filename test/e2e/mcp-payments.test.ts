/**
 * Tools that are paid by a wallet, on a private Base: the MCP transport of x402 with the reference
 * client, in both of its bindings, and what becomes of a paid call whose server is killed.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import * as modern from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  extractDiscoveryInfoFromExtension,
  validateDiscoveryExtension,
  validateDiscoveryExtensionSpec,
} from '@x402/extensions/bazaar';
import { generatePrivateKey, privateKeyToAccount } from 'viem/accounts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';
import type { TestApp } from '../app/test-app.ts';
import { startFarebox } from './farebox-process.ts';
import {
  PAY_TO,
  type WalletFixture,
  creditOf,
  evmClient,
  evmPayment,
  signIn,
  startWalletFixture,
  topUp,
} from './wallet-fixture.ts';
import { until } from '../support/until.ts';

const INFO = { name: 'test', version: '1' };
const CHAT = { name: 'chat', arguments: { prompt: 'Hi', model: 'm' } };
const EXTENSION = 'org.x402/payment';
const NANO_PER_UNIT = 1_000n;

type Meta = Record<string, unknown>;

describe('tools that a wallet pays for', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;
  let client: Client;

  before(async () => {
    fixture = await startWalletFixture();
    fixture.upstream.otherwise = {
      kind: 'answer',
      content: 'Hello',
      promptTokens: 5,
      completionTokens: 3,
    };
    farebox = await fixture.startApp();
    client = await connected(farebox.app.address);
  });
  after(async () => {
    await client.close();
    await farebox.audit();
    await farebox.stop();
    await fixture.stop();
  });

  const connected = async (origin: string): Promise<Client> => {
    const made = new Client(INFO);
    await made.connect(new StreamableHTTPClientTransport(new URL('/mcp', origin)));
    // From then on it holds what it gets against the schemas of the tools.
    await made.listTools();
    return made;
  };
  const pay = async (to: Client, payment: unknown, more: Meta = {}) =>
    to.callTool({ ...CHAT, _meta: { 'x402/payment': payment, ...more } });

  test('a call without credit returns payment options, and runs after the payment', async () => {
    const account = await fixture.evmWallet();
    const refused = await client.callTool(CHAT);
    assert.equal(refused.isError, true);
    const required = refused.structuredContent as Meta;
    const [{ text }] = refused.content as [{ text: string }];
    assert.deepEqual(JSON.parse(text), required);
    assert.equal((required['resource'] as Meta)['url'], 'mcp://tool/chat');
    const { bazaar } = required['extensions'] as { bazaar: never };
    assert.deepEqual(validateDiscoveryExtensionSpec(bazaar), { valid: true });
    assert.deepEqual(validateDiscoveryExtension(bazaar), { valid: true });
    const { input } = extractDiscoveryInfoFromExtension(bazaar) as { input: Meta };
    assert.deepEqual([input['type'], input['toolName']], ['mcp', 'chat']);
    assert.deepEqual(Object.keys(input['example'] as Meta), ['prompt', 'max_tokens']);
    const payment = await evmClient(account).createPaymentPayload(required as never);
    const result = await pay(client, payment);
    assert.deepEqual((result.structuredContent as Meta)['text'], 'Hello');
    const settled = result._meta?.['x402/payment-response'] as Meta;
    assert.deepEqual([settled['success'], settled['network']], [true, 'eip155:8453']);
    assert.equal(String(settled['payer']).toLowerCase(), account.address.toLowerCase());
    const paidNano = BigInt(String(settled['amount'])) * NANO_PER_UNIT;
    assert.equal(await fixture.anvil.balance(PAY_TO), BigInt(String(settled['amount'])));
    assert.equal(await creditOf(farebox, account.address), paidNano - 11_000n);
    // The same payment again transfers no money and does not authenticate.
    const again = await pay(client, payment);
    assert.equal(again.isError, true);
    assert.match(JSON.stringify(again.content), /PAYMENT_ALREADY_CREDITED/);
    assert.equal(await creditOf(farebox, account.address), paidNano - 11_000n);
  });

  test('an invalid payment is rejected with payment options, and transfers nothing', async () => {
    const account = await fixture.evmWallet();
    const required = (await client.callTool(CHAT)).structuredContent as Meta;
    const payment = await evmClient(account).createPaymentPayload(required as never);
    const { payload } = payment as unknown as { payload: { signature: string } };
    const forged = { ...payment, payload: { ...payload, signature: `0x${'11'.repeat(65)}` } };
    const refused = await pay(client, forged);
    const offer = refused.structuredContent as Meta;
    assert.equal(refused.isError, true);
    assert.notEqual(offer['error'], required['error']);
    assert.equal((offer['accepts'] as unknown[]).length, (required['accepts'] as unknown[]).length);
    assert.equal(await creditOf(farebox, account.address), 0n);
    const none = await client.callTool({ name: 'balance', arguments: {} });
    assert.equal(none.structuredContent, undefined);
  });

  test('malformed and oversized payments are rejected with a message', async () => {
    for (const payment of [null, 7, 'x', {}, { padding: 'x'.repeat(100_000) }]) {
      const refused = await pay(client, payment);
      assert.equal(refused.isError, true);
      const { error } = refused.structuredContent as { error: string };
      assert.match(
        error,
        /payment (?:header|needs)|x402Version/,
        JSON.stringify(payment).slice(0, 99),
      );
    }
  });

  test('a sign-in by wallet calls a tool from its credit, once', async () => {
    const account = await fixture.evmWallet();
    const ask = async (header: string, name: string): Promise<{ status: number; body: Meta }> => {
      const params = { ...CHAT, name, ...(name === 'chat' ? {} : { arguments: {} }) };
      const answer = await fetch(new URL('/mcp', farebox.app.address), {
        method: 'POST',
        headers: { 'content-type': 'application/json', 'sign-in-with-x': header },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params }),
      });
      return { status: answer.status, body: (await answer.json()) as Meta };
    };
    const resultOf = async (name: string): Promise<Meta> => {
      const { status, body } = await ask(await signIn(account, fixture.origin), name);
      assert.equal(status, 200, JSON.stringify(body));
      return body['result'] as Meta;
    };
    const poor = await resultOf('chat');
    assert.equal(poor['isError'], true);
    assert.ok(Array.isArray((poor['structuredContent'] as Meta)['accepts']));
    const paid = await topUp(fixture.origin, { 'PAYMENT-SIGNATURE': await evmPayment(account) });
    assert.equal(paid.status, 200);
    const answered = (await resultOf('chat'))['structuredContent'] as Meta;
    assert.equal(answered['text'], 'Hello');
    assert.equal(await creditOf(farebox, account.address), 5_000_000_000n - 11_000n);
    const left = (await resultOf('balance'))['structuredContent'] as Meta;
    assert.equal(left['balance_usd'], 4.999989);
    const header = await signIn(account, fixture.origin);
    assert.equal((await ask(header, 'balance')).status, 200);
    const { status, body } = await ask(header, 'chat');
    assert.equal(status, 401);
    const error = body['error'] as { code: number; data: Meta };
    assert.deepEqual([error.code, error.data['code']], [401, 'X402_SIGN_IN_NONCE_REUSED']);
    const other = await ask(await signIn(account, 'https://elsewhere.example'), 'balance');
    assert.equal(other.status, 401);
    assert.equal(await creditOf(farebox, account.address), 5_000_000_000n - 11_000n);
  });

  test('a client that knows the extension gets its result type', async () => {
    const capabilities = { extensions: { [EXTENSION]: {} } };
    const meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientCapabilities': capabilities,
    };
    const ask = async (method: string, params: Meta, name?: string): Promise<Meta> => {
      const answer = await fetch(new URL('/mcp', farebox.app.address), {
        method: 'POST',
        headers: {
          'content-type': 'application/json',
          accept: 'application/json, text/event-stream',
          'mcp-protocol-version': '2026-07-28',
          'mcp-method': method,
          ...(name === undefined ? {} : { 'mcp-name': name }),
        },
        body: JSON.stringify({ jsonrpc: '2.0', id: 1, method, params }),
      });
      return ((await answer.json()) as { result: Meta }).result;
    };
    const { capabilities: offered } = await ask('server/discover', { _meta: meta });
    assert.deepEqual((offered as Meta)['extensions'], { [EXTENSION]: {} });
    const refused = await ask('tools/call', { ...CHAT, _meta: meta }, 'chat');
    assert.equal(refused['resultType'], 'payment_required');
    const account = await fixture.evmWallet();
    const payment = await evmClient(account).createPaymentPayload(
      refused['paymentRequired'] as never,
    );
    const paid = { ...meta, 'x402/payment': payment };
    const result = await ask('tools/call', { ...CHAT, _meta: paid }, 'chat');
    assert.equal(result['resultType'], 'complete');
    assert.ok((await creditOf(farebox, account.address)) > 0n);
  });

  test('the other official client pays in the same way', async () => {
    const account = await fixture.evmWallet();
    const other = new modern.Client(INFO, { versionNegotiation: { mode: 'auto' } });
    const url = new URL('/mcp', farebox.app.address);
    await other.connect(new modern.StreamableHTTPClientTransport(url));
    await other.listTools();
    const refused = await other.callTool(CHAT);
    const payment = await evmClient(account).createPaymentPayload(
      refused.structuredContent as never,
    );
    const result = await other.callTool({ ...CHAT, _meta: { 'x402/payment': payment } });
    assert.equal((result.structuredContent as Meta)['text'], 'Hello');
    await other.close();
  });

  test('examples/mcp/pay.ts pays and calls a tool', async () => {
    const account = generatePrivateKey();
    await fixture.anvil.mint(privateKeyToAccount(account).address, 100_000_000n);
    const file = fileURLToPath(new URL('../../examples/mcp/pay.ts', import.meta.url));
    const env = { FAREBOX_ORIGIN: farebox.app.address, PRIVATE_KEY: account, MODEL: 'm' };
    const child = endWithUs(spawn(process.execPath, [file], { env: childEnvironment(env) }));
    let said = '';
    child.stdout.on('data', (piece: Buffer) => (said += piece.toString()));
    child.stderr.on('data', (piece: Buffer) => (said += piece.toString()));
    await new Promise((resolve) => child.once('close', resolve));
    assert.match(said, /completion Hello/);
    assert.match(said, /success: true/);
  });

  test('after a kill during a paid call the payment is credit, and nothing is charged', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'farebox-mcp-kill-'));
    const yaml = `listen: { host: 127.0.0.1, port: 0 }\nembedded: { enabled: false }\ndiscovery: { enabled: false }\n${fixture.yaml}`;
    const account = await fixture.evmWallet();
    let running = await startFarebox({ folder, yaml });
    try {
      const first = await connected(new URL(running.url).origin);
      const required = (await first.callTool(CHAT)).structuredContent as Meta;
      const payment = await evmClient(account).createPaymentPayload(required as never);
      const asked = fixture.upstream.seen.length;
      fixture.upstream.script.push({ kind: 'hang' });
      const cut = pay(first, payment).catch((error: unknown) => error);
      // Before the payment the engine is only checked for availability.
      const isAsked = () =>
        fixture.upstream.seen.slice(asked).some(({ method }) => method === 'POST');
      await until(isAsked, 'the request at the engine');
      await running.stop('SIGKILL');
      assert.ok((await cut) instanceof Error);
      running = await startFarebox({ folder, yaml });
      const origin = new URL(running.url).origin;
      const second = await connected(origin);
      const again = await pay(second, payment);
      assert.match(JSON.stringify(again.content), /PAYMENT_ALREADY_CREDITED/);
      await second.close();
      await running.stop();
      const app = await fixture.startApp({ dataFolder: join(folder, 'data'), port: 0 });
      const amount = (payment as unknown as { accepted: { amount: string } }).accepted.amount;
      assert.equal(await creditOf(app, account.address), BigInt(amount) * NANO_PER_UNIT);
      await app.audit();
      await app.stop();
    } finally {
      await running.stop('SIGKILL');
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
