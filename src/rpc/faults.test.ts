/** Many calls over faults of nodes beside one sound node: no call fails, and no fault is charged. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { benches, call, json, list } from '../../test/rpc/bench.ts';
import { echoNode, type NodeResponse, replyWith, sendText } from '../../test/rpc/node.ts';

const { bench, close } = benches();
after(close);

const CALLS_PER_FAULT = 25;

const error = (code: number, message: string, status?: number): NodeResponse =>
  replyWith({ error: { code, message } }, status);
const text =
  (body: string, status = 200): NodeResponse =>
  (_request, response) =>
    sendText(response, body, status);
/** Sends the reply of a sound node after a change. */
const changed =
  (change: (reply: string) => string): NodeResponse =>
  ({ calls, isBatch }, response) => {
    const items = calls.map(({ id, method }) => ({ jsonrpc: '2.0', id, result: `${method} done` }));
    sendText(response, change(JSON.stringify(isBatch ? items : items[0])));
  };

const FAULTS: Readonly<Record<string, NodeResponse>> = {
  'closes the connection': (_request, response) => response.destroy(),
  'closes the connection within the reply': (_request, response) => {
    response.writeHead(200, { 'content-length': 1_000 });
    response.write('{"jsonrpc":"2.0",');
    setImmediate(() => response.destroy());
  },
  'does not respond': () => undefined,
  'sends no body': text(''),
  'sends text': text('invalid host specified'),
  'sends HTML': text('<html></html>', 502),
  redirects: (_request, response) => {
    response.writeHead(302, { location: 'http://127.0.0.1:1/' });
    response.end();
  },
  'sends incomplete gzip': (_request, response) => {
    response.writeHead(200, { 'content-encoding': 'gzip' });
    response.end(Buffer.from([0x1f, 0x8b, 0x08, 0x00]));
  },
  'sends an unknown encoding': (_request, response) => {
    response.writeHead(200, { 'content-encoding': 'zstd' });
    response.end('{}');
  },
  'returns 401': text('unauthorized', 401),
  'returns 402': text('payment required', 402),
  'returns 403': text('forbidden', 403),
  'returns 404': text('not found', 404),
  'returns 429': text('too many requests', 429),
  'returns 500': text('error', 500),
  'returns 503': text('unavailable', 503),
  'returns 504': text('timeout', 504),
  'sends half of the reply': changed((reply) => reply.slice(0, -9)),
  'sends an invalid number': changed((reply) =>
    reply.replace(/"result":"/, '"result":01,"more":"'),
  ),
  'sends an invalid literal': changed((reply) =>
    reply.replace(/"result":"/, '"result":nul,"more":"'),
  ),
  'sends a control character': changed((reply) => reply.replace('done', 'do\u0001ne')),
  'sends an invalid escape': changed((reply) => reply.replace('done', String.raw`do\xne`)),
  'sends more after the reply': changed((reply) => `${reply}{}`),
  'sends the reply to another call': changed((reply) => reply.replaceAll(/"id":\d+/g, '"id":7')),
  'sends no result': changed((reply) => reply.replaceAll(/"result":"[^"]*"/g, '"more":1')),
  'sends null': text('null'),
  'sends an error that is a text': replyWith({ error: 'failed' }),
  'has no quota': error(-32005, 'daily request count exceeded, request rate limited'),
  'is over its rate': error(-32007, '50/second request limit reached'),
  'has no credits': error(-32600, 'Monthly capacity limit exceeded'),
  'has no backend': error(-32011, 'no backends available for method', 503),
  'lacks the method': error(-32601, 'the method eth_call does not exist/is not available'),
  'lacks the method in its plan': error(-32600, 'Unsupported method: eth_call on ETH_MAINNET'),
  'lacks the block': error(-32000, 'header not found'),
  'lacks the state': error(-32000, 'missing trie node abc (path )'),
  'lacks the history': error(4444, 'pruned history unavailable'),
  'lacks the old state': error(-32000, 'required historical state unavailable'),
  'has no time': error(-32002, 'request timed out'),
  'fails inside': error(-32603, 'Internal error'),
  'needs an index': error(-32000, 'transaction indexing is in progress'),
};

test('10,000 calls over 40 faults: none fails, and each costs its result once', async () => {
  const names = Object.keys(FAULTS);
  assert.equal(names.length, 40);
  let calls = 0;
  for (const name of names) {
    // The faulty node is preferred.
    const two = await bench([FAULTS[name]!, echoNode()], { upstream: { timeoutMs: 200 } });
    for (let round = 0; round < CALLS_PER_FAULT; round += 1) {
      const caller = `caller ${round % 5}`;
      const single = await two.send(call('eth_call', round), caller);
      assert.deepEqual([json(single).result, single.credits], ['eth_call done', 20], name);
      const items = Array.from({ length: 9 }, (_, id) => call('eth_call', id));
      const batch = await two.send(items, caller);
      for (const item of list(batch)) assert.equal(item.result, 'eth_call done', name);
      assert.equal(batch.credits, 180, name);
      calls += 10;
    }
  }
  assert.equal(calls, 10_000);
});

test('a sound node returns results to callers beside a node that does not respond', async () => {
  const two = await bench([FAULTS['does not respond']!, echoNode()], {
    hedgeShare: 0.05,
    upstream: { timeoutMs: 200 },
  });
  for (let round = 0; round < 400; round += 1) await two.send(call('eth_call', round));
  // The first calls wait for the timeout. Then the node is used last, each time for twice as long.
  assert.ok(two.nodes[0]!.requests.length < 8, String(two.nodes[0]!.requests.length));
});
