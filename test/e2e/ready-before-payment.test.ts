/**
 * Everything is checked before a payment is settled: if the engine or the node is unavailable, any
 * kind of payment is rejected with the reason, nothing is on the chain, and the same header pays
 * later.
 */
import assert from 'node:assert/strict';
import { after, afterEach, before, describe, test } from 'node:test';
import { decodePaymentRequiredHeader } from '@x402/core/http';
import { x402Client } from '@x402/core/client';
import { UptoEvmScheme } from '@x402/evm/upto/client';
import { Challenge } from 'mppx';
import { evm } from 'mppx/evm/client';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { freePort } from '../support/free-port.ts';
import { TestUpstream } from '../support/test-upstream.ts';
import {
  BASE,
  PAY_TO,
  type WalletFixture,
  assertLedgerIsChain,
  chat,
  chatBody,
  creditOf,
  encode,
  evmClient,
  solanaClient,
  startWalletFixture,
} from './wallet-fixture.ts';

const RPC_CALL = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'eth_chainId', params: [] });

describe('before a payment moves anything', () => {
  let fixture: WalletFixture;
  let farebox: TestApp;
  let enginePort: number;

  before(async () => {
    fixture = await startWalletFixture('  mpp: true', ', upto: true');
    await fixture.anvil.deployPermit2();
    enginePort = await freePort();
    const replicas = 'replicas: [{ engine: away, model: m }]';
    const models = `
engines: { fake: { url: ${fixture.upstream.url} }, away: { url: 'http://127.0.0.1:${enginePort}' } }
models:
  - { id: gone, type: text, context: 8192, maxCompletionTokens: 64, price: { input: 1, output: 2 }, ${replicas} }
  - { id: vectors, type: embedding, price: { input: 1 }, embedding: { dimensions: 8 }, ${replicas} }
`;
    const yaml = fixture.yaml.replace(/\nengines:.*\nmodels:\n/, models);
    farebox = await startTestApp({
      port: fixture.port,
      yaml: `${yaml}
rpc: { networks: { base-mainnet: { upstreams: [{ url: "http://127.0.0.1:${enginePort}" }] } }, publicNodes: false }
`,
    });
  });
  after(async () => {
    await farebox.audit();
    await farebox.stop();
    await fixture.stop();
  });
  afterEach(async () => {
    await assertLedgerIsChain(farebox, fixture);
  });

  const post = (path: string, headers: Readonly<Record<string, string>>, body: string) =>
    fetch(fixture.origin + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json', ...headers },
      body,
    });

  type Client = Pick<x402Client, 'createPaymentPayload'>;
  const uptoClient = async (): Promise<Client> => {
    const scheme = new UptoEvmScheme(await fixture.evmWallet(), { rpcUrl: fixture.anvil.rpcUrl });
    return new x402Client().register(BASE, scheme);
  };
  const solana = async () => solanaClient(await fixture.solanaWallet(), fixture.solana.rpcUrl);
  const base = async () => evmClient(await fixture.evmWallet());

  const nothingMoved = async (): Promise<void> => {
    assert.equal(await fixture.anvil.balance(PAY_TO), 0n);
    assert.equal(await fixture.solana.tokens(fixture.receiver.address), 0n);
    const rows = await farebox.app.stores.store.query('SELECT state FROM payments_topup');
    assert.deepEqual(rows, []);
  };

  const DOORS: readonly (readonly [string, () => Promise<Client>, string, string, string])[] = [
    ['exact on Base, for a chat', base, '/chat/completions', chatBody('gone'), 'MODEL_OFFLINE'],
    ['exact on Solana, for a chat', solana, '/chat/completions', chatBody('gone'), 'MODEL_OFFLINE'],
    ['upto, for a chat', uptoClient, '/chat/completions', chatBody('gone'), 'MODEL_OFFLINE'],
    [
      'exact, for vectors',
      base,
      '/embeddings',
      JSON.stringify({ model: 'vectors', input: 'Hi' }),
      'MODEL_OFFLINE',
    ],
    [
      'exact, for a call of a node',
      base,
      '/crypto/rpc/base-mainnet',
      RPC_CALL,
      'RPC_NETWORK_UNAVAILABLE',
    ],
  ];
  for (const [name, clientOf, path, body, code] of DOORS) {
    test(`${name}: refused, and nothing has moved`, async () => {
      const client = await clientOf();
      const asked = await post(`/api/v1${path}`, {}, body);
      const required = decodePaymentRequiredHeader(asked.headers.get('PAYMENT-REQUIRED') ?? '');
      const payment = encode(await client.createPaymentPayload(required));
      const refused = await post(`/api/v1${path}`, { 'PAYMENT-SIGNATURE': payment }, body);
      const said = await refused.text();
      assert.equal(refused.status, 503, said);
      assert.ok(said.includes(code), said);
      assert.equal(refused.headers.get('PAYMENT-RESPONSE'), null);
      await nothingMoved();
    });
  }

  test('of the Machine Payments Protocol: refused, and nothing has moved', async () => {
    const account = await fixture.evmWallet();
    const asked = await chat(fixture.origin, {}, chatBody('gone'));
    const challenge = Challenge.fromResponse(asked);
    const [charge] = evm({
      account,
      currencies: [evm.assets.base.USDC],
      networks: [8453],
      maxAmount: '10',
    });
    const authorization = await charge.createCredential({ challenge } as never);
    const refused = await chat(fixture.origin, { authorization }, chatBody('gone'));
    assert.equal(refused.status, 503);
    await nothingMoved();
  });

  test('of a tool of the MCP server: refused, nothing has moved, and it pays when the engine is back', async () => {
    const account = await fixture.evmWallet();
    const callTool = async (meta: object) => {
      const answer = await post(
        '/mcp',
        { accept: 'application/json, text/event-stream' },
        JSON.stringify({
          jsonrpc: '2.0',
          id: 1,
          method: 'tools/call',
          params: { name: 'chat', arguments: { prompt: 'Hi', model: 'gone' }, _meta: meta },
        }),
      );
      const text = await answer.text();
      const data = text.startsWith('{') ? text : (/^data: (.*)$/m.exec(text)?.[1] ?? '');
      return JSON.parse(data) as { result: { isError?: boolean; structuredContent?: object } };
    };
    const required = (await callTool({})).result.structuredContent;
    const payment = await evmClient(account).createPaymentPayload(required as never);
    const paid = { 'x402/payment': payment };
    const refused = await callTool(paid);
    assert.equal(refused.result.isError, true);
    assert.match(JSON.stringify(refused), /MODEL_OFFLINE/);
    await nothingMoved();

    const back = await TestUpstream.start({ port: enginePort });
    back.otherwise = { kind: 'answer', content: 'Hi', promptTokens: 5, completionTokens: 3 };
    const served = await callTool(paid);
    assert.notEqual(served.result.isError, true, JSON.stringify(served));
    assert.ok((await creditOf(farebox, account.address)) > 0n);
    await back.kill();
  });
});
