/** JSON-RPC with failing nodes and disconnecting callers: charges, and calls of further nodes. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { after, before, beforeEach, describe, test } from 'node:test';
import { brotliDecompressSync, gunzipSync } from 'node:zlib';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { type TestNode, type NodeResponse, echoNode, startNode } from '../rpc/node.ts';
import { stillClock } from '../support/still-clock.ts';
import { until } from '../support/until.ts';

const MEGABYTE = 1_048_576;
const CREDIT_NANO = 625n;

describe('POST /crypto/rpc/{network} with nodes that fail', () => {
  const { clock, pass } = stillClock();
  let nodes: readonly TestNode[];
  let farebox: TestApp;
  let balanceNano: bigint;

  before(async () => {
    nodes = [await startNode('0x1'), await startNode('0x1')];
    const upstreams = nodes.map(({ url }, at) => ({ url, weight: at === 0 ? 1_000 : 0.001 }));
    farebox = await startTestApp({
      clock,
      yaml: `rpc: { networks: { ethereum-mainnet: { upstreams: ${JSON.stringify(upstreams)} } }, publicNodes: false, requestsPerMinute: 10000 }`,
    });
  });
  beforeEach(async () => {
    for (const node of nodes) node.respond = echoNode();
    balanceNano = await balance();
  });
  after(async () => {
    await farebox.audit();
    await farebox.stop();
    for (const node of nodes) await node.close();
  });

  const balance = async (): Promise<bigint> =>
    (await farebox.app.stores.ledger.balances(farebox.owner.accountId)).usdNano;
  const chargedCredits = async (): Promise<bigint> =>
    (balanceNano - (await balance())) / CREDIT_NANO;
  const held = async (): Promise<bigint> =>
    (await farebox.app.stores.ledger.funds(farebox.owner.accountId)).heldUsdNano;
  const url = (): string => `${farebox.url}/crypto/rpc/ethereum-mainnet`;
  const headers = (more: Record<string, string> = {}): Record<string, string> => ({
    authorization: `Bearer ${farebox.owner.secret}`,
    'content-type': 'application/json',
    ...more,
  });
  const bodyOf = (method: string, id: unknown = 1): string =>
    JSON.stringify({ jsonrpc: '2.0', id, method, params: [] });
  const send = (
    method: string,
    more: Record<string, string> = {},
    signal?: AbortSignal,
  ): Promise<Response> =>
    fetch(url(), {
      method: 'POST',
      headers: headers(more),
      body: bodyOf(method),
      ...(signal && { signal }),
    });

  const large: NodeResponse = ({ calls }, response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(
      `{"jsonrpc":"2.0","id":${JSON.stringify(calls[0]!.id)},"result":"${'a'.repeat(3 * MEGABYTE)}"}`,
    );
  };
  const cut: NodeResponse = ({ calls }, response) => {
    response.writeHead(200, { 'content-length': 4 * MEGABYTE });
    response.write(`{"jsonrpc":"2.0","id":${JSON.stringify(calls[0]!.id)},"result":"`);
    response.write('a'.repeat(3 * MEGABYTE), () => response.destroy());
  };

  test('a long response that the node truncates costs nothing, and its key runs again', async () => {
    for (const node of nodes) node.respond = cut;
    for (const more of [{ 'idempotency-key': 'cut' }, {}, { 'accept-encoding': 'identity' }]) {
      const answer = await send('eth_getLogs', more);
      await assert.rejects(answer.text());
      await until(async () => (await held()) === 0n, 'the end of the hold');
      assert.equal(await chargedCredits(), 0n);
    }
    for (const node of nodes) node.respond = large;
    const again = await send('eth_getLogs', { 'idempotency-key': 'cut' });
    assert.equal(again.headers.get('idempotent-replayed'), null);
    assert.equal((await again.text()).length > 3 * MEGABYTE, true);
    assert.equal(await chargedCredits(), 20n);
  });

  test('a caller that disconnects before the response is not charged, with and without a key', async () => {
    for (const more of [{}, { 'idempotency-key': 'left' }] as Record<string, string>[]) {
      const asked = Promise.withResolvers<void>();
      let answerIt: () => void = () => undefined;
      nodes[0]!.respond = (seen, response) => {
        answerIt = () => large(seen, response);
        asked.resolve();
      };
      const controller = new AbortController();
      const sent = send('debug_traceTransaction', more, controller.signal);
      await asked.promise;
      controller.abort();
      await assert.rejects(sent);
      if (more['idempotency-key'] === undefined) {
        await until(async () => (await held()) === 0n, 'the end of the hold');
        assert.equal(await chargedCredits(), 0n);
        continue;
      }
      // With a key the work continues, for the retry.
      answerIt();
      const again = await send('debug_traceTransaction', more);
      assert.equal(again.headers.get('idempotent-replayed'), 'true');
      assert.equal(await chargedCredits(), 40n);
    }
  });

  test('a node that hangs in one method gets no more calls of it, and no caller pays for it', async () => {
    let hanging = 0;
    nodes[0]!.respond = (seen, response) => {
      if (seen.calls[0]!.method === 'eth_getLogs') hanging += 1;
      else echoNode()(seen, response);
    };
    // A response that arrives just before the disconnect would be charged.
    let isLeaving = false;
    for (const node of nodes.slice(1)) {
      node.respond = (seen, response) => {
        if (!isLeaving) echoNode()(seen, response);
      };
    }
    let failed = 0;
    let answered = 0;
    for (let round = 0; round < 40; round += 1) {
      const before = hanging;
      const controller = new AbortController();
      const sent = send('eth_getLogs', {}, controller.signal).then(
        (answer) => answer.text().then(() => (answered += 1)),
        () => (failed += 1),
      );
      const isOver = sent.then(() => true);
      await until(() => hanging > before || answered + failed === round + 1);
      if (hanging > before) {
        isLeaving = true;
        pass(5_000);
        controller.abort();
        await until(async () => (await held()) === 0n, 'the end of the hold');
        isLeaving = false;
      }
      await isOver;
      const other = await send('eth_call');
      assert.equal(((await other.json()) as { result: string }).result, 'eth_call done');
      pass(1_000);
    }
    await until(async () => (await held()) === 0n, 'the end of the hold');
    assert.ok(failed <= 4, `${failed} calls failed`);
    assert.equal(await chargedCredits(), BigInt(20 * (answered + 40)));
  });

  test('a call without a response from any node gets 503 with Retry-After, never 500 or 504', async () => {
    for (const node of nodes) node.respond = (_request, response) => response.destroy();
    const failing = await send('eth_call');
    assert.deepEqual([failing.status, failing.headers.get('retry-after')], [503, '5']);
    assert.equal(((await failing.json()) as { code: string }).code, 'RPC_UPSTREAM_FAILED');
    const none = await fetch(`${farebox.url}/crypto/rpc/base-mainnet`, {
      method: 'POST',
      headers: headers(),
      body: bodyOf('eth_call'),
    });
    assert.deepEqual([none.status, none.headers.get('retry-after')], [503, '5']);
    assert.equal(await chargedCredits(), 0n);
  });

  test('a long response is compressed for callers that accept it, and only for them', async () => {
    for (const node of nodes) node.respond = large;
    const codings = {
      gzip: gunzipSync,
      br: brotliDecompressSync,
      identity: (text: Buffer) => text,
    };
    const { hostname, port, pathname } = new URL(url());
    for (const [coding, decode] of Object.entries(codings)) {
      const asked = request({
        method: 'POST',
        hostname,
        port,
        path: pathname,
        headers: headers({ 'accept-encoding': coding }),
      });
      asked.end(bodyOf('eth_getLogs', 'x'));
      const [answer] = (await once(asked, 'response')) as [IncomingMessage];
      const sent = Buffer.concat((await answer.toArray()) as Buffer[]);
      const isPlain = coding === 'identity';
      assert.equal(answer.headers['content-encoding'], isPlain ? undefined : coding);
      assert.match(String(answer.headers.vary), /Accept-Encoding/);
      assert.equal(sent.length < MEGABYTE / 10, !isPlain);
      const read = JSON.parse(decode(sent).toString()) as { id: string; result: string };
      assert.deepEqual([read.id, read.result.length], ['x', 3 * MEGABYTE]);
    }
    assert.equal(await chargedCredits(), 60n);
  });

  test('a batch with null params is served, and one with unsupported methods lists them all', async () => {
    const call = (method: string, id: number): object => ({
      jsonrpc: '2.0',
      id,
      method,
      params: null,
    });
    const post = (body: unknown): Promise<Response> =>
      fetch(url(), { method: 'POST', headers: headers(), body: JSON.stringify(body) });
    const served = await post([call('eth_call', 1), call('eth_gasPrice', 2)]);
    assert.equal(served.status, 200);
    assert.equal(await chargedCredits(), 40n);
    const refused = await post([call('eth_subscribe', 1), call('eth_call', 2), call('eth_foo', 3)]);
    const { error } = (await refused.json()) as { error: string };
    assert.equal(refused.status, 400);
    assert.match(error, /eth_subscribe .*HTTP-only.*eth_foo/);
  });
});
