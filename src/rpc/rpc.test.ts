/** The proxy against real HTTP nodes with correct and with faulty behaviour. */
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { after, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { keccak256 } from 'viem';
import {
  benches,
  call,
  CHAINS,
  fault,
  idsAndResults,
  json,
  list,
  requestCounts,
} from '../../test/rpc/bench.ts';
import {
  echoNode,
  type NodeResponse,
  replyWith,
  sendJson,
  sendText,
  startNode,
} from '../../test/rpc/node.ts';
import { Cancellation } from '../core/cancellation.ts';
import { stillClock } from '../../test/support/still-clock.ts';
import { until } from '../../test/support/until.ts';
import { type RpcResponse, delayLastBytes } from './rpc-response.ts';
import { withIdAtEnd } from './stream-id.ts';

const { bench, closing, close, proxyTo } = benches();
after(close);

const MEGABYTE = 1_048_576;
const dead: NodeResponse = (_request, response) => response.destroy();
const THREE = [call('eth_call', 'a'), call('eth_getBalance', 7), call('eth_getCode', 7)];

/** Asserts the results of `THREE`, under the caller's ids and in their order. */
function assertThree(answer: RpcResponse): void {
  assert.deepEqual(idsAndResults(answer), [
    'a',
    'eth_call done',
    7,
    'eth_getBalance done',
    7,
    'eth_getCode done',
  ]);
  assert.equal(answer.credits, 60);
}

describe('bytes of requests and responses', () => {
  test('a single call and its reply are forwarded unchanged except for their ids', async () => {
    const params = '"method":"eth_call","params":[18446744073709551615, 1.50]}';
    const result = '"result":{"rentEpoch":18446744073709551615,"x":1.50}}\n';
    const one = await bench([
      ({ calls }, response) =>
        sendText(response, `{"jsonrpc":"2.0", "id":${JSON.stringify(calls[0]!.id)},${result}`),
    ]);
    const answer = await one.send(` {"id" : 9007199254740993,"jsonrpc":"2.0", ${params}\n`);
    assert.equal(answer.body.toString(), `{"jsonrpc":"2.0", "id":9007199254740993,${result}`);
    const sent = one.nodes[0]!.requests[0]!;
    assert.equal(
      sent.text,
      `{"id" : ${JSON.stringify(sent.calls[0]!.id)},"jsonrpc":"2.0", ${params}`,
    );
    assert.equal(answer.credits, 20);
    assert.equal(answer.retries, 0);
  });

  test('every call is sent with an unused id of 13 digits', async () => {
    const one = await bench([echoNode(), echoNode()], { upstream: { weight: 1 } });
    const ids = [1, 1, '1', null, 'x'.repeat(40), 2 ** 60];
    for (const id of ids) {
      assert.equal(json(await one.send(call('eth_call', id))).id, id);
      const batch = [call('eth_call', 1), call('eth_call', 1)];
      assert.deepEqual(
        list(await one.send(batch)).map((item) => item.id),
        [1, 1],
      );
    }
    const sent = one.nodes.flatMap(({ requests }) => requests.flatMap(({ calls }) => calls));
    const seen = new Set(sent.map(({ id }) => id));
    assert.equal(seen.size, 3 * ids.length);
    for (const id of seen) assert.match(String(id), /^\d{13}$/);
  });

  test('a call without an id is sent with one, and its response has the id null', async () => {
    const one = await bench([echoNode()]);
    const answer = await one.send('{"jsonrpc":"2.0","method":"eth_call"}');
    assert.deepEqual(json(answer), { jsonrpc: '2.0', id: null, result: 'eth_call done' });
    assert.match(one.nodes[0]!.requests[0]!.text, /^\{"id":\d{13},"jsonrpc"/);
    const explicit = await one.send('{"jsonrpc":"2.0","id":null,"method":"eth_call"}');
    assert.equal(json(explicit).id, null);
  });

  test('the response has the id of the caller if the node changes the format of the id or omits it', async () => {
    const spellings: readonly ((id: number) => string)[] = [
      (id) => `"${id}"`,
      (id) => id.toExponential(),
      (id) => `${id}.0`,
    ];
    for (const spelled of spellings) {
      const other = await bench([
        ({ calls }, response) =>
          sendText(response, `{"id":${spelled(Number(calls[0]!.id))},"result":1}`),
      ]);
      const exact = await other.send('{"jsonrpc":"2.0","id":9007199254740993,"method":"eth_call"}');
      assert.equal(exact.body.toString(), '{"id":9007199254740993,"result":1}');
      assert.equal(exact.credits, 20);
    }
    for (const id of ['', '"id":null,']) {
      const lost = await bench([
        (_request, response) => sendText(response, `{${id}"jsonrpc":"2.0","result":1}`),
      ]);
      const found = await lost.send(call('eth_call', 'x'));
      assert.deepEqual(json(found), { id: 'x', jsonrpc: '2.0', result: 1 });
      assert.equal(found.credits, 5);
    }
  });

  test('batch responses keep exact integers and the ids of the caller', async () => {
    const one = await bench([
      (request, response) => {
        const items = request.calls.map(
          ({ id }) => `{"jsonrpc":"2.0","result":18446744073709551615,"id":${JSON.stringify(id)}}`,
        );
        sendText(response, `[${items.join(',')}]`);
      },
    ]);
    for (const [first, second] of [
      ['4', '5'],
      ['"é\\u0041"', '9007199254740993'],
      ['-1.5e3', '-1.5e3'],
    ]) {
      const answer = await one.send(
        `[ {"jsonrpc":"2.0","id":${first},"method":"eth_call"} ,\n{"jsonrpc":"2.0","method":"eth_call","id":${second}}]`,
      );
      assert.equal(
        answer.body.toString(),
        `[{"jsonrpc":"2.0","result":18446744073709551615,"id":${first}},{"jsonrpc":"2.0","result":18446744073709551615,"id":${second}}]`,
      );
      assert.equal(answer.credits, 40);
    }
  });

  test('`params: null` reaches a node as an empty list', async () => {
    const one = await bench([echoNode(({ params }) => params)]);
    const calls = [
      '{"id":1,"params": null ,"jsonrpc":"2.0","method":"eth_call"}',
      '{"jsonrpc":"2.0","method":"eth_call","id":"b","params":null}',
      '{"jsonrpc":"2.0","method":"eth_call","id":"c","params":[null]}',
    ];
    const answer = await one.send(`[${calls.join(',')}]`);
    assert.deepEqual(idsAndResults(answer), [1, [], 'b', [], 'c', [null]]);
    for (const text of calls.slice(0, 2)) assert.deepEqual(json(await one.send(text)).result, []);
    const bare = await one.send('{"jsonrpc":"2.0","method":"eth_call","params":null}');
    assert.deepEqual(json(bare).result, []);
    const raw = await one.send(call('eth_sendRawTransaction', 1, null as unknown as []));
    assert.deepEqual(json(raw).result, []);
  });

  test('gzip is requested and decompressed, in any spelling of the encoding', async () => {
    for (const encoding of ['gzip', 'GZIP', 'X-GZip', 'Gzip ']) {
      const one = await bench([
        (request, response) => {
          assert.equal(request.headers['accept-encoding'], 'gzip');
          response.writeHead(200, { 'content-encoding': encoding });
          const { id } = request.calls[0]!;
          response.end(gzipSync(JSON.stringify({ jsonrpc: '2.0', id, result: 'zip' })));
        },
      ]);
      assert.equal(json(await one.send(call('eth_call'))).result, 'zip', encoding);
    }
  });
});

describe('stray replies', () => {
  /** Sends the reply to the previous call, as after a late second response on the connection. */
  function lateNode(isLate: (count: number) => boolean): NodeResponse {
    let before: string | undefined;
    let count = 0;
    return (request, response) => {
      const items = itemsOf(request.calls);
      const reply = JSON.stringify(request.isBatch ? items : items[0]);
      count += 1;
      sendText(response, before !== undefined && isLate(count) ? before : reply);
      before = reply;
    };
  }
  const asSecret = (one: Awaited<ReturnType<typeof bench>>): Promise<RpcResponse> =>
    one.send(call('eth_getBalance', 1), 'bob');

  test('a call is repeated if its reply belongs to another call', async () => {
    const one = await bench([lateNode((count) => count === 2)]);
    await asSecret(one);
    const answer = await one.send(call('eth_call', 1));
    assert.deepEqual(json(answer), { jsonrpc: '2.0', id: 1, result: 'eth_call done' });
    assert.deepEqual([answer.credits, one.nodes[0]!.requests.length], [20, 3]);
    // Keep-alive is disabled for this node now.
    await one.send(call('eth_call', 2));
    const connections = one.nodes[0]!.requests.map(({ headers }) => headers.connection);
    assert.deepEqual(connections, ['keep-alive', 'keep-alive', 'close', 'close']);
  });

  test('a node that always sends the previous reply is a fault and costs nothing', async () => {
    const one = await bench([lateNode(() => true)]);
    await asSecret(one);
    for (const body of [call('eth_call', 1), call('eth_sendRawTransaction', 1)]) {
      const refused = await fault(one.send(body));
      assert.deepEqual([refused.code, refused.status], ['RPC_UPSTREAM_FAILED', 503]);
    }
    const two = await bench([lateNode(() => true), echoNode()]);
    await asSecret(two);
    const answer = await two.send(call('eth_call', 1), 'alice');
    assert.equal(json(answer).result, 'eth_call done');
  });

  test('a batch is repeated if its reply belongs to another batch', async () => {
    const one = await bench([lateNode((count) => count === 2)]);
    await one.send([call('eth_getBalance', 1), call('eth_getBalance', 2)], 'bob');
    const answer = await one.send([call('eth_call', 1), call('eth_call', 2)], 'alice');
    assert.deepEqual(
      list(answer).map(({ result }) => result),
      ['eth_call done', 'eth_call done'],
    );
  });

  test('errors and long results of another call are rejected', async () => {
    const error = { code: 3, message: 'execution reverted: secret' };
    const other = await bench([(_request, response) => sendJson(response, { id: 7, error })]);
    assert.equal((await fault(other.send(call('eth_call')))).code, 'RPC_UPSTREAM_FAILED');
    const unknown = await bench([(_request, response) => sendJson(response, { id: null, error })]);
    assert.equal((await unknown.send(call('eth_call'))).credits, 5);
    const result = 's'.repeat(2 * MEGABYTE);
    const head = await bench([(_request, response) => sendJson(response, { id: 7, result })]);
    assert.equal((await fault(head.send(call('eth_call')))).code, 'RPC_UPSTREAM_FAILED');
    const tail = await bench([(_request, response) => sendJson(response, { result, id: 7 })]);
    const streamed = await tail.send(call('eth_call'));
    await assert.rejects(streamed.rest!.toArray(), /without the id of the call/);
  });
});

describe('batch invariants', () => {
  const onBatch =
    (change: (items: ReturnType<typeof itemsOf>) => unknown): NodeResponse =>
    (request, response) => {
      const items = itemsOf(request.calls);
      sendJson(response, request.isBatch ? change(items) : items[0]);
    };
  const rejection = { id: null, error: { code: -32600, message: 'batch of 3 is not allowed' } };
  const replies: Readonly<Record<string, NodeResponse>> = {
    'in another order': onBatch((items) => items.reverse()),
    'without one item': onBatch((items) => items.slice(1)),
    'with an item twice': onBatch(([first, ...others]) => [first, first, ...others]),
    'with two different items for one call': onBatch((items) => [
      ...items,
      { ...items[0], result: 'another result' },
    ]),
    'with items for no call': onBatch((items) => [
      { id: 99, result: 'unknown' },
      ...items,
      { id: null, result: 1 },
    ]),
    'with a single error object': onBatch(() => rejection),
    'with the first item only': onBatch((items) => items.slice(0, 1)),
    'with an empty array': onBatch(() => []),
  };
  for (const [name, reply] of Object.entries(replies)) {
    test(`a reply ${name} becomes one item per call, in order and at its price`, async () => {
      assertThree(await (await bench([reply])).send(THREE));
    });
  }

  test('batches are split by the maximum of the node, and a part of one call is not a batch', async () => {
    const one = await bench([echoNode()], { upstream: { maxBatch: 2 } });
    assertThree(await one.send(THREE));
    assert.deepEqual(
      one.nodes[0]!.requests.map((request) => request.calls.length).sort((a, b) => a - b),
      [1, 2],
    );
    assert.equal(
      one.nodes[0]!.requests.find((request) => request.calls.length === 1)!.isBatch,
      false,
    );
  });

  test('a batch of one call is sent as a single call, and its response is an array', async () => {
    const one = await bench([echoNode()]);
    const answer = await one.send([call('eth_call', 'x')]);
    assert.equal(answer.body.toString(), '[{"jsonrpc":"2.0","id":"x","result":"eth_call done"}]');
    assert.equal(one.nodes[0]!.requests[0]!.isBatch, false);
    const nothing = echoNode(() => null);
    const two = await bench([nothing, echoNode()]);
    const found = await two.send([call('eth_getTransactionReceipt', 1)]);
    assert.equal(list(found)[0]!.result, 'eth_getTransactionReceipt done');
    assert.equal(found.retries, 1);
  });

  test('items without a reply get an error of the server and cost nothing', async () => {
    const partly: NodeResponse = (request, response) => {
      if (!request.isBatch) dead(request, response);
      else sendJson(response, itemsOf(request.calls).slice(0, 2));
    };
    const answer = await (await bench([partly])).send(THREE);
    const items = list(answer);
    assert.equal(items.length, 3);
    assert.equal(items[1]!.result, 'eth_getBalance done');
    assert.deepEqual([items[2]!.id, items[2]!.error.code], [7, -32603]);
    assert.equal(answer.credits, 40);
  });

  test('error items reach the caller unchanged and cost five credits', async () => {
    const error = { code: -32602, message: 'bad params', data: [1] };
    const one = await bench([
      replyWith(({ method }) => (method === 'eth_call' ? { error } : { result: '0x1' })),
    ]);
    const answer = await one.send([call('eth_blockNumber', 1), call('eth_call', 2)]);
    assert.equal(answer.credits, 25);
    assert.deepEqual(list(answer)[1]!.error, error);
  });

  test('only the calls without a reply are sent to the next node', async () => {
    const limited = replyWith(({ method }) =>
      method === 'eth_getBalance'
        ? { error: { code: 429, message: 'rate limit' } }
        : { result: `${method} done` },
    );
    const two = await bench([limited, echoNode()]);
    assertThree(await two.send(THREE));
    assert.equal(two.nodes[1]!.requests.length, 1);
    assert.equal(two.nodes[1]!.requests[0]!.calls.length, 1);
  });
});

function itemsOf(
  calls: readonly { id: unknown; method: string }[],
): { jsonrpc: string; id: unknown; result: string }[] {
  return calls.map((one) => ({ jsonrpc: '2.0', id: one.id, result: `${one.method} done` }));
}

describe('failover', () => {
  const broken = /^The node sent an invalid response$/;
  const cut = /^The connection to the node failed$/;
  const quota = /quota of the nodes is used up/;
  const account = /reject the requests of this service/;
  const faulty: readonly (readonly [name: string, node: NodeResponse, message: RegExp])[] = [
    ['closes the connection', dead, cut],
    [
      'sends text with status 200',
      (_request, response) => sendText(response, 'invalid host specified'),
      broken,
    ],
    ['sends no body', (_request, response) => response.writeHead(204).end(), broken],
    [
      'sends half of a reply',
      (_request, response) => sendText(response, '{"jsonrpc":"2.0","id":1,"result":{"a":'),
      broken,
    ],
    [
      'redirects',
      (_request, response) =>
        response.writeHead(307, { location: 'http://169.254.169.254/' }).end(),
      broken,
    ],
    [
      'sends incomplete gzip',
      (_request, response) => {
        const zipped = gzipSync(JSON.stringify({ id: 1, result: 'x'.repeat(5_000) }));
        response.writeHead(200, { 'content-encoding': 'gzip' });
        response.end(zipped.subarray(0, zipped.length - 12));
      },
      cut,
    ],
    [
      'has no quota by status',
      (_request, response) => sendText(response, 'Too Many Requests', 429),
      quota,
    ],
    [
      'has no quota by code',
      replyWith({ error: { code: -32005, message: 'daily request count exceeded, rate limited' } }),
      quota,
    ],
    [
      'has an unpaid bill',
      replyWith({ error: { code: -32000, message: 'billing: payment required' } }, 402),
      account,
    ],
    [
      'rejects the API key',
      replyWith({ error: { code: -32600, message: 'Must be authenticated! key-secret' } }, 401),
      account,
    ],
    ['hangs', () => undefined, /^No node responded in time/],
  ];
  for (const [name, node, message] of faulty) {
    test(`a call goes to the next node if the first one ${name}`, async () => {
      const { clock, pass } = stillClock();
      const two = await bench([node, echoNode()], { upstream: { timeoutMs: 150 }, clock });
      const sending = two.send(call('eth_call'));
      if (name === 'hangs') {
        await until(() => two.nodes[0]!.requests.length === 1);
        pass(300);
      }
      const answer = await sending;
      assert.equal(json(answer).result, 'eth_call done');
      assert.deepEqual([answer.credits, answer.retries], [20, 1]);
    });

    test(`a call costs nothing if the only node ${name}, and the error does not name it`, async () => {
      const isSlow = name === 'hangs';
      const one = await bench([node], isSlow ? { upstream: { timeoutMs: 150 } } : {});
      const refused = await fault(one.send(call('eth_call')));
      assert.equal(refused.code, isSlow ? 'RPC_TIMEOUT' : 'RPC_UPSTREAM_FAILED');
      assert.equal(refused.status, 503);
      assert.equal(refused.options.retryAfterSeconds, 5);
      assert.match(refused.message, message);
      assert.equal((await fault(one.send(THREE))).code, refused.code);
      const texts = JSON.stringify([refused.message, refused.options, one.lines]);
      assert.doesNotMatch(texts, /127\.0\.0\.1|key-secret/);
    });
  }

  test('a result with an error status is a result', async () => {
    const one = await bench([replyWith({ result: 'fine' }, 500)]);
    const answer = await one.send(call('eth_call'));
    assert.deepEqual([json(answer).result, answer.credits], ['fine', 20]);
  });

  test('a plain 4xx of all nodes becomes an error item and costs five credits', async () => {
    const one = await bench([
      (_request, response) => sendText(response, '<html>request too large</html>', 413),
    ]);
    const answer = await one.send([call('eth_call', 1), call('eth_call', 2)]);
    assert.equal(answer.credits, 10);
    assert.equal(list(answer)[0]!.error.code, -32600);
    assert.doesNotMatch(answer.body.toString(), /html/);
  });

  test('an unreachable node is used last after five faults', async () => {
    const two = await bench([dead, echoNode()]);
    for (let round = 0; round < 12; round += 1) await two.send(call('eth_call'), `caller ${round}`);
    // Five faults, and at most two calls whose connection a request of the server also used.
    assert.ok(two.nodes[0]!.requests.length <= 7, String(two.nodes[0]!.requests.length));
    assert.equal(two.nodes[1]!.requests.length, 12);
    assert.ok(two.lines.some((line) => line.message === 'RPC upstream is used last'));
  });

  test('a caller stays with the node of its last response', async () => {
    const two = await bench([echoNode(), echoNode()], { upstream: { weight: 1 } });
    for (let round = 0; round < 10; round += 1) await two.send(call('eth_call'), 'alice');
    assert.deepEqual(
      requestCounts(two).toSorted((a, b) => a - b),
      [0, 10],
    );
  });

  test('a node of another chain receives no call, and alone it leads to 503', async () => {
    const wrong = await startNode('0x2');
    const right = await startNode('0x1');
    closing.push(wrong.close, right.close);
    const two = proxyTo([{ url: wrong.url, weight: 1e6 }, { url: right.url }]);
    assert.equal(json(await two.send(call('eth_call'))).result, 'eth_call done');
    const one = proxyTo([{ url: wrong.url }], { network: 'base-mainnet' });
    assert.equal((await fault(one.send(call('eth_call')))).code, 'RPC_NETWORK_UNAVAILABLE');
    assert.equal(wrong.requests.length, 0);
    assert.doesNotMatch(JSON.stringify([two.lines, one.lines]), /127\.0\.0\.1|key-secret/);
  });

  /** Two nodes of which the first does not listen. */
  async function closedFirst(network: string): Promise<ReturnType<typeof proxyTo>> {
    const [closed, open] = await Promise.all([0, 1].map(() => startNode(CHAINS[network]!)));
    await closed!.close();
    closing.push(open!.close);
    return proxyTo(
      [
        { url: closed!.url, weight: 1e6 },
        { url: open!.url, weight: 1e-6 },
      ],
      {
        network,
      },
    );
  }

  test('a refused connection leads to the next node, also for a write', async () => {
    const evm = await closedFirst('ethereum-mainnet');
    assert.equal(json(await evm.send(call('eth_call'))).result, 'eth_call done');
    const solana = await closedFirst('solana-mainnet');
    assert.equal(json(await solana.send(call('sendTransaction'))).result, 'sendTransaction done');
  });

  test('a network without nodes leads to 503', async () => {
    const unavailable = await fault(proxyTo([]).send(call('eth_call')));
    assert.deepEqual([unavailable.status, unavailable.options.retryAfterSeconds], [503, 5]);
  });

  test('calls above the rate of a node go to the next node, or wait for the only one', async () => {
    const two = await bench([echoNode(), echoNode()], { upstream: { ratePerSecond: 2 } });
    for (let round = 0; round < 3; round += 1) await two.send(call('eth_call'));
    assert.deepEqual(requestCounts(two), [2, 1]);
    const one = await bench([echoNode()], { upstream: { ratePerSecond: 20 } });
    await Promise.all(Array.from({ length: 22 }, async (_, id) => one.send(call('eth_call', id))));
    assert.equal(one.nodes[0]!.requests.length, 22);
  });
});

describe('nulls and writes', () => {
  const nothing = echoNode(() => null);
  test('a null of a lookup is checked at one other node', async () => {
    const better = await bench([nothing, echoNode(() => ({ hash: '0x1' }))]);
    const found = await better.send(call('eth_getTransactionByHash', 1, ['0x1']));
    assert.deepEqual(json(found).result, { hash: '0x1' });
    assert.equal(found.credits, 20);
    const none = await bench([nothing, nothing]);
    assert.equal(json(await none.send(call('eth_getTransactionReceipt'))).result, null);
    const broken = await bench([nothing, dead]);
    assert.equal(json(await broken.send(call('eth_getTransactionReceipt'))).result, null);
    const plain = await bench([nothing, echoNode()]);
    assert.equal(json(await plain.send(call('eth_getBlockByNumber'))).result, null);
    assert.equal(plain.nodes[1]!.requests.length, 0);
  });

  test('in a batch only the lookups with a null are checked at another node', async () => {
    const two = await bench([
      echoNode((one) => (one.method === 'eth_getTransactionReceipt' ? null : 'first')),
      echoNode(() => 'second'),
    ]);
    const answer = await two.send([
      call('eth_call', 1),
      call('eth_getTransactionReceipt', 2),
      call('eth_getBlockByNumber', 3),
    ]);
    assert.deepEqual(idsAndResults(answer), [1, 'first', 2, 'second', 3, 'first']);
    assert.equal(two.nodes[1]!.requests.length, 1);
    assert.equal(answer.credits, 60);
  });

  const RAW = `0x02f8${'ab'.repeat(120)}`;
  const HASH = keccak256(RAW as `0x${string}`);
  const failing =
    (message: string): NodeResponse =>
    (request, response) => {
      const [one] = request.calls;
      if (one!.method === 'eth_getTransactionByHash')
        sendJson(response, {
          id: one!.id,
          result: one!.params![0] === HASH ? { hash: HASH } : null,
        });
      else sendJson(response, { jsonrpc: '2.0', id: one!.id, error: { code: -32000, message } });
    };

  test('a raw transaction is sent to the next node, and "already known" is a success', async () => {
    const two = await bench([dead, failing('already known')]);
    const answer = await two.send(call('eth_sendRawTransaction', 'tx', [RAW]));
    assert.deepEqual(json(answer), { jsonrpc: '2.0', id: 'tx', result: HASH });
    assert.equal(answer.credits, 20);
  });

  test('"nonce too low" is a success only if the node has this transaction', async () => {
    const there = await bench([failing('nonce too low: next nonce 5, tx nonce 4')]);
    assert.equal(json(await there.send(call('eth_sendRawTransaction', 1, [RAW]))).result, HASH);
    const other = `0x02f8${'cd'.repeat(120)}`;
    const refused = await there.send([
      call('eth_sendRawTransaction', 1, [other]),
      call('eth_sendRawTransaction', 2, [RAW]),
    ]);
    const items = list(refused);
    assert.match(items[0]!.error.message, /nonce too low/);
    assert.equal(items[1]!.result, HASH);
    assert.equal(refused.credits, 25);
  });

  test('Solana and Starknet writes are never sent twice after bytes were sent', async () => {
    for (const [network, method] of [
      ['solana-mainnet', 'sendTransaction'],
      ['starknet-mainnet', 'starknet_addInvokeTransaction'],
    ] as const) {
      for (const node of [
        dead,
        (_request, response) => sendText(response, 'busy', 429),
      ] as NodeResponse[]) {
        const two = await bench([node, echoNode()], { network });
        assert.equal((await fault(two.send(call(method)))).code, 'RPC_UPSTREAM_FAILED');
        assert.equal(two.nodes[0]!.requests.length + two.nodes[1]!.requests.length, 1);
        const again = await bench([node, echoNode()], { network });
        const read = network === 'solana-mainnet' ? 'getBalance' : 'starknet_call';
        const batch = await again.send([call(method, 1), call(read, 2)]);
        assert.equal(list(batch)[0]!.error.code, -32603);
        assert.match(String(list(batch)[1]!.result), /done/);
        const calls = again.nodes.flatMap((one) =>
          one.requests.flatMap((request) => request.calls),
        );
        assert.equal(calls.filter((one) => one.method === method).length, 1);
      }
    }
  });
});

describe('shared responses', () => {
  test('identical pending head reads share one call, and each is charged under its own id', async () => {
    const slow: NodeResponse = (request, response) =>
      void setTimeout(() => echoNode(() => '0x9')(request, response), 30);
    const one = await bench([slow]);
    const answers = await Promise.all(
      [1, 'b', 3].map(async (id) => one.send(call('eth_gasPrice', id))),
    );
    assert.deepEqual(
      answers.map((answer) => [json(answer).id, json(answer).result, answer.credits]),
      [
        [1, '0x9', 20],
        ['b', '0x9', 20],
        [3, '0x9', 20],
      ],
    );
    assert.equal(one.nodes[0]!.requests.length, 1);
    await one.send(call('eth_gasPrice', 4));
    assert.equal(one.nodes[0]!.requests.length, 2);
    const off = await bench([slow], { mergeHeadReads: false });
    await Promise.all([1, 2, 3].map(async (id) => off.send(call('eth_gasPrice', id))));
    assert.equal(off.nodes[0]!.requests.length, 3);
  });

  test('constants and blocks by hash are cached and charged; nulls are not cached', async () => {
    const one = await bench([
      echoNode(({ method, params }) => (params?.[0] === 'none' ? null : method)),
    ]);
    for (let round = 0; round < 3; round += 1) {
      const answer = await one.send(call('net_version', `v${round}`));
      assert.deepEqual(
        [json(answer).id, json(answer).result, answer.credits],
        [`v${round}`, 'net_version', 20],
      );
      await one.send(call('eth_getBlockByHash', round, ['0xaa', false]));
      await one.send(call('eth_getBlockByHash', round, ['none', false]));
      await one.send([call('net_version', 1), call('eth_call', 2)]);
    }
    const counts = new Map<string, number>();
    for (const { method, params } of one.nodes[0]!.requests.flatMap(({ calls }) => calls)) {
      const name = `${method} ${String(params?.[0])}`;
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    assert.deepEqual(Object.fromEntries(counts), {
      'net_version undefined': 1,
      'eth_getBlockByHash 0xaa': 1,
      'eth_getBlockByHash none': 3,
      'eth_call undefined': 3,
    });
    const off = await bench([echoNode()], { cacheBytes: 0 });
    for (let round = 0; round < 3; round += 1) await off.send(call('net_version', round));
    assert.equal(off.nodes[0]!.requests.length, 3);
  });

  test('a call with additional members shares no response with others', async () => {
    // Like eRPC, the node reads the network of a call from the body.
    const one = await bench([
      echoNode((one) => Reflect.get(one, 'networkId') ?? `${one.method} done`),
    ]);
    for (const method of ['net_version', 'eth_getBlockByHash']) {
      const plain = call(method, 1, ['0xaa', false]);
      const foreign = { ...plain, networkId: 'evm:666' };
      assert.equal(json(await one.send(foreign, 'mallory')).result, 'evm:666');
      assert.equal(list(await one.send([foreign], 'mallory'))[0]!.result, 'evm:666');
      assert.equal(json(await one.send(plain)).result, `${method} done`);
      assert.equal(list(await one.send([plain]))[0]!.result, `${method} done`);
      assert.equal(json(await one.send(foreign, 'mallory')).result, 'evm:666');
    }
    const [merged, own] = await Promise.all([
      one.send({ ...call('eth_gasPrice', 1), networkId: 'evm:666' }, 'mallory'),
      one.send(call('eth_gasPrice', 2)),
    ]);
    assert.equal(json(merged).result, 'evm:666');
    assert.equal(json(own).result, 'eth_gasPrice done');
  });

  test('only bundler methods are sent to the bundler', async () => {
    const [node, bundler] = await Promise.all(
      ['node', 'bundler'].map((name) =>
        startNode(
          '0x1',
          echoNode(() => name),
        ),
      ),
    );
    closing.push(node!.close, bundler!.close);
    const proxy = proxyTo([{ url: node!.url }, { url: bundler!.url, kind: 'bundler' }]);
    const answer = await proxy.send([call('eth_supportedEntryPoints', 1), call('eth_call', 2)]);
    assert.deepEqual(
      list(answer).map((item) => item.result),
      ['bundler', 'node'],
    );
  });
});

describe('sizes', () => {
  /** Sends a result of `megabytes` without buffering it. */
  const huge =
    (megabytes: number, head = '{"jsonrpc":"2.0","id":OURS,"result":"', end = '"}'): NodeResponse =>
    ({ calls }, response) => {
      const id = String(calls[0]!.id);
      const chunk = Buffer.alloc(MEGABYTE, 0x61);
      let left = megabytes;
      response.writeHead(200, { 'content-type': 'application/json' });
      response.write(head.replace('OURS', id));
      const send = (): void => {
        while (left > 0) {
          left -= 1;
          if (!response.write(chunk)) return void response.once('drain', send);
        }
        response.end(end.replace('OURS', id));
      };
      send();
    };

  test('a reply of 200 MB is streamed with bounded memory, and settled before its last byte', async () => {
    const one = await bench([huge(200)]);
    const before = process.memoryUsage();
    const answer = await one.send(call('debug_traceTransaction'));
    assert.equal(answer.credits, 40);
    assert.ok(answer.rest !== undefined);
    let size = answer.body.length;
    let settledAt = 0;
    let peak = 0;
    const total = 200 * MEGABYTE + '{"jsonrpc":"2.0","id":1,"result":"'.length + 2;
    for await (const chunk of delayLastBytes(answer.rest, async () => void (settledAt = size))) {
      size += (chunk as Buffer).length;
      const now = process.memoryUsage();
      peak = Math.max(peak, now.rss - before.rss);
    }
    assert.equal(size, total);
    assert.ok(settledAt > 0 && settledAt < total);
    assert.ok(peak < 120 * MEGABYTE, `memory grew by ${peak / MEGABYTE} MB`);
  });

  test('a long error costs five credits, and an incomplete long reply fails the stream', async () => {
    const error = await bench([huge(2, '{"id":OURS,"error":{"code":3,"message":"x"},"more":"')]);
    const answer = await error.send(call('eth_call'));
    assert.equal(answer.credits, 5);
    await answer.rest!.toArray();
    const broken = await bench([
      ({ calls }, response) => {
        response.writeHead(200, { 'content-length': 3 * MEGABYTE });
        response.write(`{"jsonrpc":"2.0","id":${JSON.stringify(calls[0]!.id)},"result":"`);
        response.write(Buffer.alloc(2 * MEGABYTE, 0x61), () => response.destroy());
      },
    ]);
    const cut = await broken.send(call('eth_call'));
    let settled = false;
    await assert.rejects(delayLastBytes(cut.rest!, async () => void (settled = true)).toArray());
    assert.equal(settled, false);
  });

  for (const [name, text] of [
    ['an invalid number', '{"a":01}'],
    ['an invalid literal', '[tru]'],
    ['a control character', '["\n"]'],
    ['an invalid escape', '["\\x"]'],
    ['a missing comma', '[1 2]'],
    ['an incomplete result', '{"a":['],
  ] as const) {
    test(`a reply with ${name} goes to the next node and is not sold`, async () => {
      const invalid: NodeResponse = ({ calls, isBatch }, response) => {
        const items = calls.map(({ id }) => `{"id":${JSON.stringify(id)},"result":${text}}`);
        sendText(response, isBatch ? `[${items.join(',')}]` : items[0]!);
      };
      const two = await bench([invalid, echoNode()]);
      assert.equal(json(await two.send(call('eth_call'))).result, 'eth_call done');
      assertThree(await two.send(THREE, 'bob'));
      const one = await bench([invalid]);
      assert.equal((await fault(one.send(call('eth_call')))).code, 'RPC_UPSTREAM_FAILED');
    });

    test(`a long reply with ${name} fails over before its first byte, or fails its stream`, async () => {
      const long =
        (padded: number): NodeResponse =>
        ({ calls }, response) => {
          const padding = `"${'a'.repeat(padded)}"`;
          const rest = `"${'a'.repeat(2 * MEGABYTE)}"`;
          const id = JSON.stringify(calls[0]!.id);
          sendText(response, `{"id":${id},"result":[${padding},${text},${rest}]}`);
        };
      const two = await bench([long(10), echoNode()]);
      if (text !== '{"a":[') {
        assert.equal(json(await two.send(call('eth_call'))).result, 'eth_call done');
        assert.equal(two.nodes[1]!.requests.length, 1);
      }
      const one = await bench([long(2 * MEGABYTE)]);
      const begun = await one.send(call('eth_call'));
      let settled = false;
      await assert.rejects(
        delayLastBytes(begun.rest!, async () => void (settled = true)).toArray(),
      );
      assert.equal(settled, false);
    });
  }

  test('a long reply is requested from one node only', async () => {
    const two = await bench([huge(3), huge(3)]);
    for (const method of ['eth_call', 'eth_sendRawTransactionSync']) {
      const answer = await two.send(call(method));
      assert.equal(answer.retries, 0);
      await answer.rest!.toArray();
    }
    assert.deepEqual(requestCounts(two), [2, 0]);
  });

  test('a batch goes to the next node if the reply has a million items', async () => {
    const flooding: NodeResponse = (request, response) => {
      const items = itemsOf(request.calls).map((item) => JSON.stringify(item));
      sendText(response, `[${items.join(',')}${',{}'.repeat(1_000_000)}]`);
    };
    const two = await bench([flooding, echoNode()]);
    const answer = await two.send(THREE);
    assertThree(answer);
    assert.equal(answer.retries, 1);
  });

  test('a stream that fails before it is read does not end the process', async () => {
    const one = await bench([huge(3)]);
    const answer = await one.send(call('eth_call'));
    await one.rpc.close();
    // Gives an unhandled error time to appear.
    await new Promise((resolve) => setImmediate(resolve));
    await assert.rejects(answer.rest!.toArray(), /did not send its reply to the end/);
  });

  const read = async (answer: RpcResponse): Promise<string> =>
    Buffer.concat([answer.body, ...(await answer.rest!.toArray())]).toString('latin1');
  const big = '{"jsonrpc":"2.0","id":9007199254740993,"method":"eth_call"}';

  test('a stream has the id of the caller, in any format and position of the id of the node', async () => {
    for (const [head, end, shown] of [
      [
        '{"jsonrpc":"2.0", "id": OURS ,"result":"',
        '"}\n',
        '{"jsonrpc":"2.0", "id": ID ,"result":"',
      ],
      ['{"id":"OURS","result":"', '"}', '{"id":ID,"result":"'],
      ['{"jsonrpc":"2.0","result":"', '","id":OURS}', '{"jsonrpc":"2.0","result":"'],
      ['{"result":"', '","id" : "OURS" , "more":1}\n', '{"result":"'],
    ] as const) {
      const one = await bench([huge(2, head, end)]);
      const text = await read(await one.send(big));
      assert.ok(text.startsWith(shown.replace('ID', '9007199254740993')), text.slice(0, 80));
      const tail = end.replace(/:[^,}]*OURS[^,}]*/, ':9007199254740993');
      assert.ok(text.endsWith(`aaaa${tail}`), text.slice(-80));
      assert.equal(JSON.parse(text).result, 'a'.repeat(2 * MEGABYTE));
    }
  });

  test('large requests and large batch responses are sent in pieces', async () => {
    const params = [`0x${'ab'.repeat(2 * MEGABYTE)}`];
    const one = await bench([echoNode(({ params }) => params)]);
    const single = await one.send(call('eth_call', 'x', params));
    assert.deepEqual(JSON.parse(await read(single)), { jsonrpc: '2.0', id: 'x', result: params });
    const null1 = { jsonrpc: '2.0', id: 'null', method: 'eth_call', params: null };
    for (const calls of [
      [call('eth_call', 1, params), call('eth_call', 'b')],
      [null1, call('eth_call', 'b', params)],
    ]) {
      const answer = await one.send(calls);
      assert.equal(answer.credits, 40);
      const items = JSON.parse(await read(answer)) as { id: unknown; result: unknown }[];
      assert.deepEqual(
        items.map(({ id, result }) => [id, result]),
        (calls as { id: unknown; params: unknown }[]).map((one) => [one.id, one.params ?? []]),
      );
    }
  });

  test('an id after the result is replaced wherever the chunks of the reply end', async () => {
    const result = 'a'.repeat(MEGABYTE);
    for (const cut of [0, 1, 5, 12, 13, 20, 25, 26]) {
      const one = await bench([
        ({ calls }, response) => {
          const tail = `","id":${JSON.stringify(calls[0]!.id)}}`;
          response.writeHead(200);
          response.write(`{"jsonrpc":"2.0","result":"${result}${tail.slice(0, cut)}`);
          setImmediate(() => {
            for (const letter of tail.slice(cut)) response.write(letter);
            response.end();
          });
        },
      ]);
      const answer = await one.send(call('eth_call', 'x'));
      assert.deepEqual(JSON.parse(await read(answer)), { jsonrpc: '2.0', result, id: 'x' });
    }
  });

  test('a reply that breaks off after its reader has left ends no process', async () => {
    const node = new Readable({ read: () => undefined });
    node.on('error', () => undefined); // as `NodeExchange` does
    const { rest } = withIdAtEnd(Buffer.alloc(1_024), node, 1, Buffer.from('1'));
    const reader = rest.iterator({ destroyOnReturn: false });
    node.push('x');
    await reader.next();
    await reader.return?.();
    node.destroy(new Error('The node did not send its reply to the end'));
    await new Promise((closed) => rest.once('close', closed));
    assert.notEqual(rest.errored, null);
  });

  test('replies above the limits end the exchange: single, batch, gzip bomb, memory of all', async () => {
    const limits = {
      maxReplyBytes: 2 * MEGABYTE,
      maxBatchReplyBytes: MEGABYTE,
      replyMemoryBytes: 8 * MEGABYTE,
    };
    const one = await bench([huge(3)], limits);
    const answer = await one.send(call('eth_call'));
    await assert.rejects(answer.rest!.toArray());
    assert.match((await fault(one.send(THREE))).message, /larger than the limit/);
    const text = `[{"id":1,"result":"${'a'.repeat(64 * MEGABYTE)}`;
    const gzipBomb: NodeResponse = (_request, response) => {
      response.writeHead(200, { 'content-encoding': 'gzip' });
      response.end(gzipSync(text));
    };
    const bomb = await bench([gzipBomb], limits);
    assert.match((await fault(bomb.send(THREE))).message, /larger than the limit/);
    const tight = await bench([huge(3)], { replyMemoryBytes: MEGABYTE / 2 });
    assert.equal((await fault(tight.send(THREE))).code, 'RPC_UPSTREAM_FAILED');
    const small = await bench([echoNode()], { replyMemoryBytes: MEGABYTE / 2 });
    for (let round = 0; round < 20; round += 1) assertThree(await small.send(THREE));
  });
});

describe('disconnects and timeouts', () => {
  test('a caller that disconnects before a response ends the exchange and is not charged', async () => {
    const began = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<void>();
    const one = await bench([
      (_request, response) => {
        response.on('close', ended.resolve);
        began.resolve();
      },
    ]);
    const leaving = new Cancellation();
    const running = one.send(call('eth_call'), 'alice', leaving);
    await began.promise;
    leaving.abort();
    assert.deepEqual([(await running).kind, (await running).credits], ['abandoned', 0]);
    await ended.promise;
  });

  test('a node is used last after three callers disconnected late, but not after early disconnects', async () => {
    for (const waitedMs of [500, 2_000]) {
      const { clock, pass } = stillClock();
      const hanging: NodeResponse = () => undefined;
      const two = await bench([hanging, echoNode()], { clock });
      const hasReceived = (count: number): Promise<void> =>
        until(() => two.nodes[0]!.requests.length === count);
      for (let caller = 1; caller <= 3; caller += 1) {
        const signal = new Cancellation();
        const running = two.send(call('eth_getLogs'), `caller ${caller}`, signal);
        await hasReceived(caller);
        pass(waitedMs);
        signal.abort();
        assert.deepEqual([(await running).kind, (await running).credits], ['abandoned', 0]);
      }
      const next = two.send(call('eth_getLogs'), 'another caller');
      if (waitedMs < 1_000) await hasReceived(4);
      else assert.equal(json(await next).result, 'eth_getLogs done');
      // The node still hangs when it is closed.
      next.catch(() => undefined);
    }
  });

  test('a batch whose caller has disconnected is not sent and costs nothing', async () => {
    const one = await bench([echoNode()]);
    const left = await one.send(THREE, 'alice', AbortSignal.abort());
    assert.deepEqual([left.kind, left.credits, one.nodes[0]!.requests.length], ['abandoned', 0, 0]);
  });

  test('items without a reply at the time limit become errors and cost nothing', async () => {
    const answered = Promise.withResolvers<void>();
    const slow: NodeResponse = (request, response) => {
      if (request.calls[0]!.method === 'eth_getLogs') return;
      echoNode()(request, response);
      if (request.calls[0]!.method === 'eth_call') response.once('finish', answered.resolve);
    };
    const { clock, pass } = stillClock();
    const limits = { upstream: { maxBatch: 1 }, totalTimeoutMs: 200 };
    const one = await bench([slow], { ...limits, clock });
    const sending = one.send([call('eth_call', 1), call('eth_getLogs', 2)]);
    await answered.promise;
    // The later call has a response, so the earlier reply has arrived too.
    await one.send(call('eth_gasPrice'));
    pass(300);
    const answer = await sending;
    assert.equal(list(answer)[0]!.result, 'eth_call done');
    assert.equal(list(answer)[1]!.error.code, -32603);
    assert.equal(answer.credits, 20);
  });

  test('a node that accepts connections and sends nothing leads to 503', async () => {
    const sockets = new Set<{ destroy(): void }>();
    const mute = createServer((socket) => void sockets.add(socket));
    await new Promise<void>((resolve) => {
      mute.listen(0, '127.0.0.1', resolve);
    });
    const url = `http://127.0.0.1:${(mute.address() as AddressInfo).port}`;
    const { rpc, send } = proxyTo([{ url, timeoutMs: 100 }]);
    assert.equal((await fault(send(call('eth_call')))).status, 503);
    await rpc.close();
    for (const socket of sockets) socket.destroy();
    mute.close();
  });
});
