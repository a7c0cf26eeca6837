/** The JSON-RPC proxy from the outside: unmodified clients, real nodes, exact bills. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { receiptOf } from '../../src/billing/ledger/ledger.ts';
import { JsonRpcProvider } from 'ethers';
import { http, createPublicClient } from 'viem';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { startAnvil } from '../rpc/anvil.ts';

describe('POST /crypto/rpc/{network}', () => {
  let anvil: Awaited<ReturnType<typeof startAnvil>>;
  let farebox: TestApp;

  before(async () => {
    anvil = await startAnvil(1);
    farebox = await startTestApp({
      yaml: `rpc: { networks: { ethereum-mainnet: { upstreams: [{ url: "${anvil.url}" }] } }, publicNodes: false }`,
    });
  });
  after(async () => {
    await farebox.audit();
    await farebox.stop();
    await anvil.kill();
  });

  const call = (body: unknown, headers: Record<string, string> = {}): Promise<Response> =>
    fetch(`${farebox.url}/crypto/rpc/ethereum-mainnet`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${farebox.owner.secret}`,
        'content-type': 'application/json',
        ...headers,
      },
      body: JSON.stringify(body),
    });

  test('a call costs 20 credits, an error item 5, a batch their sum', async () => {
    const good = { jsonrpc: '2.0', id: 1, method: 'eth_blockNumber', params: [] };
    const bad = { jsonrpc: '2.0', id: 2, method: 'eth_getBalance', params: ['nonsense'] };
    const one = await call(good);
    assert.equal(one.headers.get('x-svc-rpc-credits'), '20');
    assert.equal(one.headers.get('x-svc-rpc-cost-usd'), '0.00001250');
    assert.equal(one.headers.get('x-request-id')?.length, 32);
    const both = await call([good, bad], { 'x-svc-metadata': '{"user":"anna"}' });
    assert.equal(both.headers.get('x-svc-rpc-credits'), '25');
    const { ledger, store } = farebox.app.stores;
    const id = both.headers.get('x-request-id') ?? '';
    const receipt = await receiptOf(store, farebox.owner.accountId, id);
    assert.equal(receipt?.metadata, '{"user":"anna"}');
    assert.equal((await call(good, { 'x-svc-metadata': 'anna' })).status, 400);
    const paid =
      farebox.owner.creditNano - (await ledger.balances(farebox.owner.accountId)).usdNano;
    assert.equal(paid, 45n * 625n);
  });

  test('a WebSocket request gets an error that only HTTP is supported', async () => {
    const { hostname, port, pathname } = new URL(`${farebox.url}/crypto/rpc/ethereum-mainnet`);
    const headers = {
      connection: 'Upgrade',
      upgrade: 'WebSocket',
      'sec-websocket-key': Buffer.alloc(16).toString('base64'),
      'sec-websocket-version': '13',
    };
    const asked = request({ hostname, port, path: pathname, headers });
    asked.end();
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    const said = JSON.parse(Buffer.concat(await answer.toArray()).toString()) as { error: string };
    assert.equal(answer.statusCode, 405);
    assert.equal(answer.headers.allow, 'POST');
    assert.match(said.error, /WebSocket is not supported; send HTTP requests with POST/);
  });

  test('an idempotency key replays without a charge', async () => {
    const body = { jsonrpc: '2.0', id: 'x', method: 'eth_chainId' };
    const first = await call(body, { 'idempotency-key': 'same' });
    const text = await first.text();
    const { ledger } = farebox.app.stores;
    const before = (await ledger.balances(farebox.owner.accountId)).usdNano;
    const again = await call(body, { 'idempotency-key': 'same' });
    assert.equal(again.headers.get('idempotent-replayed'), 'true');
    assert.equal(await again.text(), text);
    assert.equal((await ledger.balances(farebox.owner.accountId)).usdNano, before);
    const other = await call({ ...body, id: 'y' }, { 'idempotency-key': 'same' });
    assert.equal(other.status, 400);
  });

  test('viem and ethers read through the proxy', async () => {
    const url = `${farebox.url}/crypto/rpc/ethereum-mainnet`;
    const headers = { Authorization: `Bearer ${farebox.owner.secret}` };
    const viem = createPublicClient({
      transport: http(url, { fetchOptions: { headers }, batch: { batchSize: 100 } }),
    });
    const [block, chainId] = await Promise.all([viem.getBlockNumber(), viem.getChainId()]);
    assert.deepEqual([typeof block, chainId], ['bigint', 1]);
    const { FetchRequest } = await import('ethers');
    const request = new FetchRequest(url);
    request.setHeader('Authorization', headers.Authorization);
    const provider = new JsonRpcProvider(request, 1, { staticNetwork: true });
    assert.equal(typeof (await provider.getBlockNumber()), 'number');
    provider.destroy();
  });

  test('anonymous callers can list the networks, in order', async () => {
    const body = (await (await fetch(`${farebox.url}/crypto/rpc/networks`)).json()) as {
      networks: string[];
    };
    assert.equal(body.networks.length, 27);
    assert.deepEqual(body.networks, [...body.networks].sort());
  });

  test('an unconfigured network gets 503, an unknown one 400', async () => {
    const send = (network: string): Promise<Response> =>
      fetch(`${farebox.url}/crypto/rpc/${network}`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${farebox.owner.secret}`,
          'content-type': 'application/json',
        },
        body: '{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}',
      });
    assert.equal((await send('base-mainnet')).status, 503);
    assert.equal((await send('mars-mainnet')).status, 400);
  });

  test('the 101st request of a minute is a 429 without Retry-After', async () => {
    const caller = await farebox.account('1');
    const send = (): Promise<Response> =>
      fetch(`${farebox.url}/crypto/rpc/ethereum-mainnet`, {
        method: 'POST',
        headers: { authorization: `Bearer ${caller.secret}`, 'content-type': 'application/json' },
        body: '{"jsonrpc":"2.0","id":1,"method":"eth_chainId"}',
      });
    const answers = await Promise.all(Array.from({ length: 101 }, send));
    const refused = answers.filter((answer) => answer.status === 429);
    // A minute may turn while the requests are sent; then two windows share them.
    assert.ok(refused.length <= 1);
    for (const answer of refused) {
      assert.equal(answer.headers.get('retry-after'), null);
      assert.equal(answer.headers.get('x-ratelimit-remaining'), '0');
      assert.ok(((await answer.json()) as { customMessage: string }).customMessage);
    }
  });
});
