/** The proxy against real HTTP nodes with correct and with faulty behaviour. */
import assert from 'node:assert/strict';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { after, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { keccak256 } from 'viem';
import {
  benches,
  call,
  CHAINS,
  fault,
  json,
  list,
  makeRpc,
  NETWORK,
} from '../../test/rpc/bench.ts';
import { plainly, sendJson, sendText, startNode } from '../../test/rpc/node.ts';
import type { NodeResponse } from '../../test/rpc/node.ts';
import { Cancellation } from '../core/cancellation.ts';
import { systemClock } from '../core/clock.ts';
import { stillClock } from '../../test/support/still-clock.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { memoryLog } from '../../test/support/memory-log.ts';
import type { LogLine } from '../../test/support/memory-log.ts';
import { until } from '../../test/support/until.ts';
import { holdLastBytes } from './rpc.ts';
import type { RpcResponse } from './rpc.ts';

const { bench, closing, close } = benches();
after(close);

const MEGABYTE = 1_048_576;
const dead: NodeResponse = (_request, response) => response.destroy();
const THREE = [call('eth_call', 'a'), call('eth_getBalance', 7), call('eth_getCode', 7)];

/** Asserts three calls with their methods as results, under the callers' ids and in their order. */
function assertThree(answer: RpcResponse): void {
  const items = list(answer);
  assert.deepEqual(
    items.map((item) => [item.id, item.result]),
    [
      ['a', 'eth_call done'],
      [7, 'eth_getBalance done'],
      [7, 'eth_getCode done'],
    ],
  );
  assert.equal(answer.credits, 60);
}

describe('bytes', () => {
  test('only the ids of a single call and of its reply change on the way', async () => {
    const params = '"method":"eth_call","params":[18446744073709551615, 1.50]}';
    const result = '"result":{"rentEpoch":18446744073709551615,"x":1.50}}\n';
    const one = await bench([
      ({ calls }, response) =>
        sendText(response, `{"jsonrpc":"2.0", "id":${JSON.stringify(calls[0]!.id)},${result}`),
    ]);
    const answer = await one.ask(` {"id" : 9007199254740993,"jsonrpc":"2.0", ${params}\n`);
    assert.equal(answer.body.toString(), `{"jsonrpc":"2.0", "id":9007199254740993,${result}`);
    const sent = one.nodes[0]!.asked[0]!;
    assert.equal(
      sent.text,
      `{"id" : ${JSON.stringify(sent.calls[0]!.id)},"jsonrpc":"2.0", ${params}`,
    );
    assert.equal(answer.credits, 20);
    assert.equal(answer.retries, 0);
  });

  test('a node sees ids of ours, and no two calls have the same', async () => {
    const one = await bench([plainly(), plainly()], { upstream: { weight: 1 } });
    const ids = [1, 1, '1', null, 'x'.repeat(40), 2 ** 60];
    for (const id of ids) {
      assert.equal(json(await one.ask(call('eth_call', id))).id, id);
      const batch = [call('eth_call', 1), call('eth_call', 1)];
      assert.deepEqual(
        list(await one.ask(batch)).map((item) => item.id),
        [1, 1],
      );
    }
    const sent = one.nodes.flatMap(({ asked }) => asked.flatMap(({ calls }) => calls));
    const seen = new Set(sent.map(({ id }) => id));
    assert.equal(seen.size, 3 * ids.length);
    for (const id of seen) assert.match(String(id), /^\d{13}$/);
  });

  test('a call without an id is answered with null, and the node sees an id', async () => {
    const one = await bench([plainly()]);
    const answer = await one.ask('{"jsonrpc":"2.0","method":"eth_call"}');
    assert.deepEqual(json(answer), { jsonrpc: '2.0', id: null, result: 'eth_call done' });
    assert.match(one.nodes[0]!.asked[0]!.text, /^\{"id":\d{13},"jsonrpc"/);
    const explicit = await one.ask('{"jsonrpc":"2.0","id":null,"method":"eth_call"}');
    assert.equal(json(explicit).id, null);
  });

  test('an id that the node spells otherwise or lost comes back as the caller sent it', async () => {
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
      const exact = await other.ask('{"jsonrpc":"2.0","id":9007199254740993,"method":"eth_call"}');
      assert.equal(exact.body.toString(), '{"id":9007199254740993,"result":1}');
      assert.equal(exact.credits, 20);
    }
    for (const id of ['', '"id":null,']) {
      const lost = await bench([
        (_request, response) => sendText(response, `{${id}"jsonrpc":"2.0","result":1}`),
      ]);
      const found = await lost.ask(call('eth_call', 'x'));
      assert.deepEqual(json(found), { id: 'x', jsonrpc: '2.0', result: 1 });
      assert.equal(found.credits, 5);
    }
  });

  test('batches keep exact integers and the ids of the caller', async () => {
    const big: NodeResponse = (request, response) => {
      const items = request.calls.map(
        (one) => `{"jsonrpc":"2.0","result":18446744073709551615,"id":${JSON.stringify(one.id)}}`,
      );
      sendText(response, `[${items.join(',')}]`);
    };
    const one = await bench([big]);
    for (const [first, second] of [
      ['4', '5'],
      ['"é\\u0041"', '9007199254740993'],
      ['-1.5e3', '-1.5e3'],
    ]) {
      const answer = await one.ask(
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
    const one = await bench([plainly((asked) => asked.params)]);
    const calls = [
      '{"id":1,"params": null ,"jsonrpc":"2.0","method":"eth_call"}',
      '{"jsonrpc":"2.0","method":"eth_call","id":"b","params":null}',
      '{"jsonrpc":"2.0","method":"eth_call","id":"c","params":[null]}',
    ];
    const answer = await one.ask(`[${calls.join(',')}]`);
    assert.deepEqual(
      list(answer).map(({ id, result }) => [id, result]),
      [
        [1, []],
        ['b', []],
        ['c', [null]],
      ],
    );
    for (const text of calls.slice(0, 2)) assert.deepEqual(json(await one.ask(text)).result, []);
    const bare = await one.ask('{"jsonrpc":"2.0","method":"eth_call","params":null}');
    assert.deepEqual(json(bare).result, []);
    const raw = await one.ask(call('eth_sendRawTransaction', 1, null as unknown as []));
    assert.deepEqual(json(raw).result, []);
  });

  test('replies are asked for and read in gzip, whatever the case of its name', async () => {
    for (const encoding of ['gzip', 'GZIP', 'X-GZip', 'Gzip ']) {
      const one = await bench([
        (request, response) => {
          assert.equal(request.headers['accept-encoding'], 'gzip');
          response.writeHead(200, { 'content-encoding': encoding });
          const { id } = request.calls[0]!;
          response.end(gzipSync(JSON.stringify({ jsonrpc: '2.0', id, result: 'zip' })));
        },
      ]);
      assert.equal(json(await one.ask(call('eth_call'))).result, 'zip', encoding);
    }
  });
});

describe('stray replies', () => {
  /** Sends the reply to the previous call, as after a late second response on the connection. */
  function lateNode(isLate: (count: number) => boolean): NodeResponse {
    let before: string | undefined;
    let count = 0;
    return (request, response) => {
      const items = answersOf(request.calls);
      const reply = JSON.stringify(request.isBatch ? items : items[0]);
      count += 1;
      sendText(response, before !== undefined && isLate(count) ? before : reply);
      before = reply;
    };
  }
  const asSecret = (one: Awaited<ReturnType<typeof bench>>): Promise<RpcResponse> =>
    one.ask(call('eth_getBalance', 1), 'bob');

  test("the reply to another call is nobody else's: the call goes out again", async () => {
    const one = await bench([lateNode((count) => count === 2)]);
    await asSecret(one);
    const answer = await one.ask(call('eth_call', 1));
    assert.deepEqual(json(answer), { jsonrpc: '2.0', id: 1, result: 'eth_call done' });
    assert.deepEqual([answer.credits, one.nodes[0]!.asked.length], [20, 3]);
    // Keep-alive is disabled for this node now.
    await one.ask(call('eth_call', 2));
    const connections = one.nodes[0]!.asked.map(({ headers }) => headers.connection);
    assert.deepEqual(connections, ['keep-alive', 'keep-alive', 'close', 'close']);
  });

  test('a node that is one reply behind for good answers no call, and costs nothing', async () => {
    const one = await bench([lateNode(() => true)]);
    await asSecret(one);
    for (const body of [call('eth_call', 1), call('eth_sendRawTransaction', 1)]) {
      const refused = await fault(one.ask(body));
      assert.deepEqual([refused.code, refused.status], ['RPC_UPSTREAM_FAILED', 503]);
    }
    const two = await bench([lateNode(() => true), plainly()]);
    await asSecret(two);
    const answer = await two.ask(call('eth_call', 1), 'alice');
    assert.equal(json(answer).result, 'eth_call done');
  });

  test('a batch takes nothing from the reply to another batch', async () => {
    const one = await bench([lateNode((count) => count === 2)]);
    await one.ask([call('eth_getBalance', 1), call('eth_getBalance', 2)], 'bob');
    const answer = await one.ask([call('eth_call', 1), call('eth_call', 2)], 'alice');
    assert.deepEqual(
      list(answer).map(({ result }) => result),
      ['eth_call done', 'eth_call done'],
    );
  });

  test('an error of another call and a long result of another call are refused as well', async () => {
    const error = { code: 3, message: 'execution reverted: secret' };
    const other = await bench([(_request, response) => sendJson(response, { id: 7, error })]);
    assert.equal((await fault(other.ask(call('eth_call')))).code, 'RPC_UPSTREAM_FAILED');
    const unknown = await bench([(_request, response) => sendJson(response, { id: null, error })]);
    assert.equal((await unknown.ask(call('eth_call'))).credits, 5);
    const result = 's'.repeat(2 * MEGABYTE);
    const head = await bench([(_request, response) => sendJson(response, { id: 7, result })]);
    assert.equal((await fault(head.ask(call('eth_call')))).code, 'RPC_UPSTREAM_FAILED');
    const tail = await bench([(_request, response) => sendJson(response, { result, id: 7 })]);
    const streamed = await tail.ask(call('eth_call'));
    await assert.rejects(streamed.rest!.toArray(), /without the id of the call/);
  });
});

describe('batch invariants', () => {
  const shapes: Readonly<Record<string, NodeResponse>> = {
    reordered: (request, response) => sendJson(response, answersOf(request.calls).reverse()),
    'one dropped': (request, response) => {
      if (request.isBatch) sendJson(response, answersOf(request.calls).slice(1));
      else sendJson(response, answersOf(request.calls)[0]);
    },
    duplicated: (request, response) => {
      const items = answersOf(request.calls);
      if (request.isBatch) sendJson(response, [items[0], items[0], ...items.slice(1)]);
      else sendJson(response, items[0]);
    },
    'duplicated with a lie': (request, response) => {
      const items = answersOf(request.calls);
      if (request.isBatch) sendJson(response, [...items, { ...items[0], result: 'a lie' }]);
      else sendJson(response, items[0]);
    },
    'extra items': (request, response) => {
      const items = answersOf(request.calls);
      sendJson(
        response,
        request.isBatch
          ? [{ id: 99, result: 'nobody' }, ...items, { id: null, result: 1 }]
          : items[0],
      );
    },
    'a single error object': (request, response) => {
      if (request.isBatch)
        sendJson(response, {
          jsonrpc: '2.0',
          id: null,
          error: { code: -32600, message: 'batch of 3 is not allowed' },
        });
      else sendJson(response, answersOf(request.calls)[0]);
    },
    'only the first answered': (request, response) => {
      sendJson(
        response,
        request.isBatch ? answersOf(request.calls).slice(0, 1) : answersOf(request.calls)[0],
      );
    },
    'an empty array': (request, response) => {
      sendJson(response, request.isBatch ? [] : answersOf(request.calls)[0]);
    },
  };
  for (const [name, shape] of Object.entries(shapes)) {
    test(`a node that answers ${name}: every item in order, under its id, at its price`, async () => {
      assertThree(await (await bench([shape])).ask(THREE));
    });
  }

  test('batches are cut to what the node takes, and single items travel alone', async () => {
    const one = await bench([plainly()], { upstream: { maxBatch: 2 } });
    assertThree(await one.ask(THREE));
    assert.deepEqual(
      one.nodes[0]!.asked.map((request) => request.calls.length).sort((a, b) => a - b),
      [1, 2],
    );
    assert.equal(one.nodes[0]!.asked.find((request) => request.calls.length === 1)!.isBatch, false);
  });

  test('a batch of one is asked as one call, and answered as a batch', async () => {
    const one = await bench([plainly()]);
    const answer = await one.ask([call('eth_call', 'x')]);
    assert.equal(answer.body.toString(), '[{"jsonrpc":"2.0","id":"x","result":"eth_call done"}]');
    assert.equal(one.nodes[0]!.asked[0]!.isBatch, false);
    const nothing = plainly(() => null);
    const two = await bench([nothing, plainly()]);
    const found = await two.ask([call('eth_getTransactionReceipt', 1)]);
    assert.equal(list(found)[0]!.result, 'eth_getTransactionReceipt done');
    assert.equal(found.retries, 1);
  });

  test('items that no node answers carry our error, cost nothing, and leave the rest as it is', async () => {
    const partly: NodeResponse = (request, response) => {
      if (!request.isBatch) dead(request, response);
      else sendJson(response, answersOf(request.calls).slice(0, 2));
    };
    const answer = await (await bench([partly])).ask(THREE);
    const items = list(answer);
    assert.equal(items.length, 3);
    assert.equal(items[1]!.result, 'eth_getBalance done');
    assert.deepEqual([items[2]!.id, items[2]!.error.code], [7, -32603]);
    assert.equal(answer.credits, 40);
  });

  test('error items cost five credits and reach the caller as they are', async () => {
    const mixed: NodeResponse = (request, response) =>
      sendJson(
        response,
        request.calls.map((one, index) =>
          index === 0
            ? { jsonrpc: '2.0', id: one.id, result: '0x1' }
            : {
                jsonrpc: '2.0',
                id: one.id,
                error: { code: -32602, message: 'bad params', data: [1] },
              },
        ),
      );
    const answer = await (
      await bench([mixed])
    ).ask([call('eth_blockNumber', 1), call('eth_call', 2)]);
    assert.equal(answer.credits, 25);
    assert.deepEqual(list(answer)[1]!.error, { code: -32602, message: 'bad params', data: [1] });
  });

  test('the part that one node left open goes to the next', async () => {
    const limited: NodeResponse = (request, response) =>
      sendJson(
        response,
        answersOf(request.calls).map((item, index) =>
          index === 1
            ? { jsonrpc: '2.0', id: item.id, error: { code: 429, message: 'rate limit' } }
            : item,
        ),
      );
    const two = await bench([limited, plainly()]);
    assertThree(await two.ask(THREE));
    assert.equal(two.nodes[1]!.asked.length, 1);
    assert.equal(two.nodes[1]!.asked[0]!.calls.length, 1);
  });
});

function answersOf(
  calls: readonly { id: unknown; method: string }[],
): { jsonrpc: string; id: unknown; result: string }[] {
  return calls.map((one) => ({ jsonrpc: '2.0', id: one.id, result: `${one.method} done` }));
}

describe('failover', () => {
  const faulty: Readonly<Record<string, NodeResponse>> = {
    'that drops the connection': dead,
    'that answers text with 200': (_request, response) =>
      sendText(response, 'invalid host specified'),
    'that answers nothing': (_request, response) => response.writeHead(204).end(),
    'that answers half a reply': (_request, response) =>
      sendText(response, '{"jsonrpc":"2.0","id":1,"result":{"a":'),
    'that redirects': (_request, response) =>
      response.writeHead(307, { location: 'http://169.254.169.254/' }).end(),
    'that cuts gzip short': (_request, response) => {
      const zipped = gzipSync(JSON.stringify({ jsonrpc: '2.0', id: 1, result: 'x'.repeat(5_000) }));
      response.writeHead(200, { 'content-encoding': 'gzip' });
      response.end(zipped.subarray(0, zipped.length - 12));
    },
    'whose quota is used up': (_request, response) => sendText(response, 'Too Many Requests', 429),
    'whose quota is used up, said in an item': (request, response) =>
      sendJson(response, {
        jsonrpc: '2.0',
        id: request.calls[0]!.id,
        error: { code: -32005, message: 'daily request count exceeded, request rate limited' },
      }),
    'with an unpaid bill': (request, response) =>
      sendJson(
        response,
        {
          jsonrpc: '2.0',
          id: request.calls[0]!.id,
          error: { code: -32000, message: 'billing: payment required' },
        },
        402,
      ),
    'with a wrong key': (request, response) =>
      sendJson(
        response,
        {
          jsonrpc: '2.0',
          id: request.calls[0]!.id,
          error: { code: -32600, message: 'Must be authenticated! key-secret' },
        },
        401,
      ),
    'that hangs': () => undefined,
  };
  const words: Readonly<Record<string, RegExp>> = {
    'that drops the connection': /^The connection to the node failed$/,
    'that cuts gzip short': /^The connection to the node failed$/,
    'whose quota is used up': /take no further request at the moment/,
    'whose quota is used up, said in an item': /take no further request at the moment/,
    'with an unpaid bill': /do not serve this service/,
    'with a wrong key': /do not serve this service/,
    'that hangs': /^No node answered in time/,
  };
  for (const [name, answer] of Object.entries(faulty)) {
    const said = words[name] ?? /^What the node sent is no answer to the request$/;
    test(`from a node ${name}`, async () => {
      const { clock, pass } = stillClock();
      const two = await bench([answer, plainly()], { upstream: { timeoutMs: 150 }, clock });
      const asked = two.ask(call('eth_call'));
      if (name === 'that hangs') {
        await until(() => two.nodes[0]!.asked.length === 1);
        pass(300);
      }
      const got = await asked;
      assert.equal(json(got).result, 'eth_call done');
      assert.equal(got.credits, 20);
      assert.equal(got.retries, 1);
    });

    test(`alone, a node ${name} is told of, costs nothing and stays unnamed`, async () => {
      const isSlow = name === 'that hangs';
      const one = await bench([answer], isSlow ? { upstream: { timeoutMs: 150 } } : {});
      const refused = await fault(one.ask(call('eth_call')));
      assert.equal(refused.code, isSlow ? 'RPC_TIMEOUT' : 'RPC_UPSTREAM_FAILED');
      assert.equal(refused.status, 503);
      assert.equal(refused.options.retryAfterSeconds, 5);
      assert.match(refused.message, said);
      assert.equal((await fault(one.ask(THREE))).code, refused.code);
      const told = JSON.stringify([refused.message, refused.options, one.lines]);
      assert.doesNotMatch(told, /127\.0\.0\.1|key-secret/);
    });
  }

  test('an error object of a healthy node is final', async () => {
    for (const error of [
      { code: 3, message: 'execution reverted: quota exceeded', data: '0x08c379a0' },
      { code: -32000, message: 'insufficient funds for gas * price + value' },
      { code: -32005, message: 'query returned more than 10000 results' },
      { code: -32601, message: 'the method does not exist' },
    ]) {
      const two = await bench([
        (request, response) =>
          sendJson(response, { jsonrpc: '2.0', id: request.calls[0]!.id, error }),
        plainly(),
      ]);
      const answer = await two.ask(call('eth_call'));
      assert.deepEqual(json(answer).error, error);
      assert.equal(answer.credits, 5);
      assert.equal(two.nodes[1]!.asked.length, 0);
    }
  });

  test('a result under a status of failure is a result', async () => {
    const one = await bench([
      (request, response) =>
        sendJson(response, { jsonrpc: '2.0', id: request.calls[0]!.id, result: 'fine' }, 500),
    ]);
    const answer = await one.ask(call('eth_call'));
    assert.equal(json(answer).result, 'fine');
    assert.equal(answer.credits, 20);
  });

  test('a plain 4xx that all nodes give is an error item of five credits', async () => {
    const one = await bench([
      (_request, response) => sendText(response, '<html>request too large</html>', 413),
    ]);
    const answer = await one.ask([call('eth_call', 1), call('eth_call', 2)]);
    assert.equal(answer.credits, 10);
    assert.equal(list(answer)[0]!.error.code, -32600);
    assert.doesNotMatch(answer.body.toString(), /html/);
  });

  test('a dead first node is left after a few calls, and no longer tried', async () => {
    const two = await bench([dead, plainly()]);
    for (let round = 0; round < 12; round += 1) await two.ask(call('eth_call'), `caller ${round}`);
    // Five faults, and one call whose connection the identity request also used.
    assert.equal(two.nodes[0]!.asked.length, 6);
    assert.equal(two.nodes[1]!.asked.length, 12);
    assert.ok(two.lines.some((line) => line.message === 'RPC upstream asked last'));
  });

  test('a caller stays with the node that answered it', async () => {
    const two = await bench([plainly(), plainly()], { upstream: { weight: 1 } });
    for (let round = 0; round < 10; round += 1) await two.ask(call('eth_call'), 'alice');
    assert.deepEqual(
      two.nodes.map((node) => node.asked.length).sort((a, b) => a - b),
      [0, 10],
    );
  });

  test('a node of another chain gets no call, and alone it is 503', async () => {
    const wrong = await startNode('0x2', plainly());
    const right = await startNode('0x1', plainly());
    const lines: LogLine[] = [];
    const rpc = makeRpc(
      {
        networks: {
          [NETWORK]: {
            upstreams: [
              { url: wrong.url, weight: 1e6 },
              { url: right.url, weight: 1e-6 },
            ],
          },
          'base-mainnet': { upstreams: [{ url: wrong.url }] },
        },
      },
      { clock: systemClock(), ids: seededIds(1), log: memoryLog(lines) },
    );
    closing.push(async () => rpc.close(), wrong.close, right.close);
    const body = Buffer.from(JSON.stringify(call('eth_call')));
    assert.equal(
      json(await rpc.run(rpc.parse(NETWORK, body), { caller: 'a' })).result,
      'eth_call done',
    );
    assert.equal(
      (await fault(rpc.run(rpc.parse('base-mainnet', body), { caller: 'a' }))).code,
      'RPC_NETWORK_UNAVAILABLE',
    );
    assert.equal(wrong.asked.length, 0);
    assert.doesNotMatch(JSON.stringify(lines), /127\.0\.0\.1|key-secret/);
  });

  test('a network without nodes is 503, a port that nobody listens on fails over', async () => {
    const rpc = makeRpc(
      { networks: {}, publicNodes: false },
      { clock: systemClock(), ids: seededIds(1), log: memoryLog([]) },
    );
    const body = Buffer.from(JSON.stringify(call('eth_call')));
    const unavailable = await fault(rpc.run(rpc.parse(NETWORK, body), { caller: 'a' }));
    assert.equal(unavailable.status, 503);
    assert.equal(unavailable.options.retryAfterSeconds, 5);
    const closed = await startNode('0x1');
    await closed.close();
    const open = await startNode('0x1');
    const both = makeRpc(
      {
        networks: {
          [NETWORK]: {
            upstreams: [
              { url: closed.url, weight: 1e6 },
              { url: open.url, weight: 1e-6 },
            ],
          },
        },
      },
      { clock: systemClock(), ids: seededIds(1), log: memoryLog([]) },
    );
    closing.push(async () => both.close(), open.close);
    assert.equal(
      json(await both.run(both.parse(NETWORK, body), { caller: 'a' })).result,
      'eth_call done',
    );
  });

  test('the allowance of a node is kept: what is too much goes to the next, or waits', async () => {
    const two = await bench([plainly(), plainly()], { upstream: { ratePerSecond: 2 } });
    for (let round = 0; round < 3; round += 1) await two.ask(call('eth_call'));
    assert.deepEqual(
      two.nodes.map((node) => node.asked.length),
      [2, 1],
    );
    const one = await bench([plainly()], { upstream: { ratePerSecond: 20 } });
    await Promise.all(Array.from({ length: 22 }, async (_, id) => one.ask(call('eth_call', id))));
    assert.equal(one.nodes[0]!.asked.length, 22);
  });
});

describe('nulls and writes', () => {
  const nothing = plainly(() => null);
  test('a null lookup is asked once more elsewhere; another null is the answer', async () => {
    const better = await bench([nothing, plainly(() => ({ hash: '0x1' }))]);
    const found = await better.ask(call('eth_getTransactionByHash', 1, ['0x1']));
    assert.deepEqual(json(found).result, { hash: '0x1' });
    assert.equal(found.credits, 20);
    const none = await bench([nothing, nothing]);
    assert.equal(json(await none.ask(call('eth_getTransactionReceipt'))).result, null);
    const broken = await bench([nothing, dead]);
    assert.equal(json(await broken.ask(call('eth_getTransactionReceipt'))).result, null);
    const plain = await bench([nothing, plainly()]);
    assert.equal(json(await plain.ask(call('eth_getBlockByNumber'))).result, null);
    assert.equal(plain.nodes[1]!.asked.length, 0);
  });

  test('in a batch only the null lookups are asked again', async () => {
    const two = await bench([
      plainly((one) => (one.method === 'eth_getTransactionReceipt' ? null : 'first')),
      plainly(() => 'second'),
    ]);
    const answer = await two.ask([
      call('eth_call', 1),
      call('eth_getTransactionReceipt', 2),
      call('eth_getBlockByNumber', 3),
    ]);
    assert.deepEqual(
      list(answer).map((item) => [item.id, item.result]),
      [
        [1, 'first'],
        [2, 'second'],
        [3, 'first'],
      ],
    );
    assert.equal(two.nodes[1]!.asked.length, 1);
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

  test('a raw transaction goes on to the next node, where "already known" is success', async () => {
    const two = await bench([dead, failing('already known')]);
    const answer = await two.ask(call('eth_sendRawTransaction', 'tx', [RAW]));
    assert.deepEqual(json(answer), { jsonrpc: '2.0', id: 'tx', result: HASH });
    assert.equal(answer.credits, 20);
  });

  test('"nonce too low" is success only when that very transaction is there', async () => {
    const there = await bench([failing('nonce too low: next nonce 5, tx nonce 4')]);
    assert.equal(json(await there.ask(call('eth_sendRawTransaction', 1, [RAW]))).result, HASH);
    const other = `0x02f8${'cd'.repeat(120)}`;
    const refused = await there.ask([
      call('eth_sendRawTransaction', 1, [other]),
      call('eth_sendRawTransaction', 2, [RAW]),
    ]);
    const items = list(refused);
    assert.match(items[0]!.error.message, /nonce too low/);
    assert.equal(items[1]!.result, HASH);
    assert.equal(refused.credits, 25);
  });

  test('Solana and Starknet writes are never sent twice once bytes left', async () => {
    for (const [network, method] of [
      ['solana-mainnet', 'sendTransaction'],
      ['starknet-mainnet', 'starknet_addInvokeTransaction'],
    ] as const) {
      for (const node of [
        dead,
        (_request, response) => sendText(response, 'busy', 429),
      ] as NodeResponse[]) {
        const two = await bench([node, plainly()], { network });
        assert.equal((await fault(two.ask(call(method)))).code, 'RPC_UPSTREAM_FAILED');
        assert.equal(two.nodes[0]!.asked.length + two.nodes[1]!.asked.length, 1);
        const again = await bench([node, plainly()], { network });
        const read = network === 'solana-mainnet' ? 'getBalance' : 'starknet_call';
        const batch = await again.ask([call(method, 1), call(read, 2)]);
        assert.equal(list(batch)[0]!.error.code, -32603);
        assert.match(String(list(batch)[1]!.result), /done/);
        const asked = again.nodes.flatMap((one) => one.asked).flatMap((request) => request.calls);
        assert.equal(asked.filter((one) => one.method === method).length, 1);
      }
    }
  });

  test('a write may fail over while nothing has left', async () => {
    const closed = await startNode(CHAINS['solana-mainnet']!);
    await closed.close();
    const open = await startNode(CHAINS['solana-mainnet']!);
    const rpc = makeRpc(
      {
        networks: {
          'solana-mainnet': {
            upstreams: [
              { url: closed.url, weight: 1e6 },
              { url: open.url, weight: 1e-6 },
            ],
          },
        },
      },
      { clock: systemClock(), ids: seededIds(1), log: memoryLog([]) },
    );
    closing.push(async () => rpc.close(), open.close);
    const answer = await rpc.run(
      rpc.parse('solana-mainnet', Buffer.from(JSON.stringify(call('sendTransaction')))),
      { caller: 'a' },
    );
    assert.match(String(json(answer).result), /done/);
  });
});

describe('sharing', () => {
  test('identical head reads in flight are merged, each under its own id and at its own price', async () => {
    const slow: NodeResponse = (request, response) =>
      void setTimeout(() => plainly(() => '0x9')(request, response), 30);
    const one = await bench([slow]);
    const answers = await Promise.all(
      [1, 'b', 3].map(async (id) => one.ask(call('eth_gasPrice', id))),
    );
    assert.deepEqual(
      answers.map((answer) => [json(answer).id, json(answer).result, answer.credits]),
      [
        [1, '0x9', 20],
        ['b', '0x9', 20],
        [3, '0x9', 20],
      ],
    );
    assert.equal(one.nodes[0]!.asked.length, 1);
    await one.ask(call('eth_gasPrice', 4));
    assert.equal(one.nodes[0]!.asked.length, 2);
    const off = await bench([slow], { mergeHeadReads: false });
    await Promise.all([1, 2, 3].map(async (id) => off.ask(call('eth_gasPrice', id))));
    assert.equal(off.nodes[0]!.asked.length, 3);
  });

  test('constants and blocks by hash are kept, billed as usual, and neither errors nor nulls are', async () => {
    const one = await bench([
      plainly((asked) => (asked.params?.[0] === 'none' ? null : asked.method)),
    ]);
    for (let round = 0; round < 3; round += 1) {
      const answer = await one.ask(call('net_version', `v${round}`));
      assert.deepEqual(
        [json(answer).id, json(answer).result, answer.credits],
        [`v${round}`, 'net_version', 20],
      );
      await one.ask(call('eth_getBlockByHash', round, ['0xaa', false]));
      await one.ask(call('eth_getBlockByHash', round, ['none', false]));
      await one.ask([call('net_version', 1), call('eth_call', 2)]);
    }
    const counts = new Map<string, number>();
    for (const asked of one.nodes[0]!.asked.flatMap((request) => request.calls)) {
      const name = `${asked.method} ${String(asked.params?.[0])}`;
      counts.set(name, (counts.get(name) ?? 0) + 1);
    }
    assert.deepEqual(Object.fromEntries(counts), {
      'net_version undefined': 1,
      'eth_getBlockByHash 0xaa': 1,
      'eth_getBlockByHash none': 3,
      'eth_call undefined': 3,
    });
    const off = await bench([plainly()], { cacheBytes: 0 });
    for (let round = 0; round < 3; round += 1) await off.ask(call('net_version', round));
    assert.equal(off.nodes[0]!.asked.length, 3);
  });

  test('a call with members of its own shares no answer with others', async () => {
    // Like eRPC, it reads the network of a call from the body.
    const one = await bench([
      plainly((asked) => Reflect.get(asked, 'networkId') ?? `${asked.method} done`),
    ]);
    for (const method of ['net_version', 'eth_getBlockByHash']) {
      const plain = call(method, 1, ['0xaa', false]);
      const foreign = { ...plain, networkId: 'evm:666' };
      assert.equal(json(await one.ask(foreign, 'mallory')).result, 'evm:666');
      assert.equal(list(await one.ask([foreign], 'mallory'))[0]!.result, 'evm:666');
      assert.equal(json(await one.ask(plain)).result, `${method} done`);
      assert.equal(list(await one.ask([plain]))[0]!.result, `${method} done`);
      assert.equal(json(await one.ask(foreign, 'mallory')).result, 'evm:666');
    }
    const [merged, own] = await Promise.all([
      one.ask({ ...call('eth_gasPrice', 1), networkId: 'evm:666' }, 'mallory'),
      one.ask(call('eth_gasPrice', 2)),
    ]);
    assert.equal(json(merged).result, 'evm:666');
    assert.equal(json(own).result, 'eth_gasPrice done');
  });

  test('bundler methods go to the bundler, all others never', async () => {
    const node = await startNode(
      '0x1',
      plainly(() => 'node'),
    );
    const bundler = await startNode(
      '0x1',
      plainly(() => 'bundler'),
    );
    const rpc = makeRpc(
      {
        networks: {
          [NETWORK]: { upstreams: [{ url: node.url }, { url: bundler.url, kind: 'bundler' }] },
        },
      },
      { clock: systemClock(), ids: seededIds(1), log: memoryLog([]) },
    );
    closing.push(async () => rpc.close(), node.close, bundler.close);
    const body = Buffer.from(
      JSON.stringify([call('eth_supportedEntryPoints', 1), call('eth_call', 2)]),
    );
    const answer = await rpc.run(rpc.parse(NETWORK, body), { caller: 'a' });
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

  test('a reply of 200 MB streams through bounded memory, settled before its last byte', async () => {
    const one = await bench([huge(200)]);
    const before = process.memoryUsage();
    const answer = await one.ask(call('debug_traceTransaction'));
    assert.equal(answer.credits, 40);
    assert.ok(answer.rest !== undefined);
    let size = answer.body.length;
    let settledAt = 0;
    let peak = 0;
    const total = 200 * MEGABYTE + '{"jsonrpc":"2.0","id":1,"result":"'.length + 2;
    for await (const chunk of holdLastBytes(answer.rest, async () => void (settledAt = size))) {
      size += (chunk as Buffer).length;
      const now = process.memoryUsage();
      peak = Math.max(peak, now.rss - before.rss);
    }
    assert.equal(size, total);
    assert.ok(settledAt > 0 && settledAt < total);
    assert.ok(peak < 120 * MEGABYTE, `memory grew by ${peak / MEGABYTE} MB`);
  });

  test('a long error is billed as one, and a long reply that breaks off fails the stream', async () => {
    const error = await bench([huge(2, '{"id":OURS,"error":{"code":3,"message":"x"},"more":"')]);
    const answer = await error.ask(call('eth_call'));
    assert.equal(answer.credits, 5);
    for await (const chunk of answer.rest!) assert.ok(chunk);
    const broken = await bench([
      ({ calls }, response) => {
        response.writeHead(200, { 'content-length': 3 * MEGABYTE });
        response.write(`{"jsonrpc":"2.0","id":${JSON.stringify(calls[0]!.id)},"result":"`);
        response.write(Buffer.alloc(2 * MEGABYTE, 0x61), () => response.destroy());
      },
    ]);
    const cut = await broken.ask(call('eth_call'));
    let settled = false;
    await assert.rejects(async () => {
      for await (const chunk of holdLastBytes(cut.rest!, async () => void (settled = true)))
        assert.ok(chunk);
    });
    assert.equal(settled, false);
  });

  test('a long answer is asked of one node', async () => {
    const two = await bench([huge(3), huge(3)]);
    for (const method of ['eth_call', 'eth_sendRawTransaction']) {
      const answer = await two.ask(call(method));
      assert.equal(answer.retries, 0);
      for await (const chunk of answer.rest!) assert.ok(chunk);
    }
    assert.deepEqual(
      two.nodes.map(({ asked }) => asked.length),
      [2, 0],
    );
  });

  test('a batch that is answered with items without end is asked of the next node', async () => {
    const flooding: NodeResponse = (request, response) => {
      const items = answersOf(request.calls).map((item) => JSON.stringify(item));
      sendText(response, `[${items.join(',')}${',{}'.repeat(1_000_000)}]`);
    };
    const two = await bench([flooding, plainly()]);
    const answer = await two.ask(THREE);
    assertThree(answer);
    assert.equal(answer.retries, 1);
  });

  test('a stream that breaks before its reader begins ends that answer, not the process', async () => {
    const one = await bench([huge(3)]);
    const answer = await one.ask(call('eth_call'));
    await one.rpc.close();
    // Gives an unhandled error time to appear.
    await new Promise((resolve) => setImmediate(resolve));
    await assert.rejects(async () => {
      for await (const chunk of answer.rest!) assert.ok(chunk);
    }, /did not send its reply to the end/);
  });

  const read = async (answer: RpcResponse): Promise<string> =>
    Buffer.concat([answer.body, ...(await answer.rest!.toArray())]).toString('latin1');
  const big = '{"jsonrpc":"2.0","id":9007199254740993,"method":"eth_call"}';

  test('a stream carries the id of the caller, however the node spells and places ours', async () => {
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
      const text = await read(await one.ask(big));
      assert.ok(text.startsWith(shown.replace('ID', '9007199254740993')), text.slice(0, 80));
      const tail = end.replace(/:[^,}]*OURS[^,}]*/, ':9007199254740993');
      assert.ok(text.endsWith(`aaaa${tail}`), text.slice(-80));
      assert.equal(JSON.parse(text).result, 'a'.repeat(2 * MEGABYTE));
    }
  });

  test('a large request is written in pieces, and a large batch is answered in pieces', async () => {
    const params = [`0x${'ab'.repeat(2 * MEGABYTE)}`];
    const one = await bench([plainly((asked) => asked.params)]);
    const single = await one.ask(call('eth_call', 'x', params));
    assert.deepEqual(JSON.parse(await read(single)), { jsonrpc: '2.0', id: 'x', result: params });
    const null1 = { jsonrpc: '2.0', id: 'null', method: 'eth_call', params: null };
    for (const calls of [
      [call('eth_call', 1, params), call('eth_call', 'b')],
      [null1, call('eth_call', 'b', params)],
    ]) {
      const answer = await one.ask(calls);
      assert.equal(answer.credits, 40);
      const items = JSON.parse(await read(answer)) as { id: unknown; result: unknown }[];
      assert.deepEqual(
        items.map(({ id, result }) => [id, result]),
        (calls as { id: unknown; params: unknown }[]).map((one) => [one.id, one.params ?? []]),
      );
    }
  });

  test('an id behind the result is found wherever the chunks of the reply are cut', async () => {
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
      const answer = await one.ask(call('eth_call', 'x'));
      assert.deepEqual(JSON.parse(await read(answer)), { jsonrpc: '2.0', result, id: 'x' });
    }
  });

  test('replies over the limits end the exchange: single, batch, gzip bomb, memory of all', async () => {
    const limits = {
      maxReplyBytes: 2 * MEGABYTE,
      maxBatchReplyBytes: MEGABYTE,
      replyMemoryBytes: 8 * MEGABYTE,
    };
    const one = await bench([huge(3)], limits);
    const answer = await one.ask(call('eth_call'));
    await assert.rejects(async () => {
      for await (const chunk of answer.rest!) assert.ok(chunk);
    });
    assert.match((await fault(one.ask(THREE))).message, /larger than the limit/);
    const bomb = await bench(
      [
        (_request, response) => {
          response.writeHead(200, { 'content-encoding': 'gzip' });
          response.end(
            gzipSync(
              Buffer.concat([
                Buffer.from('[{"id":1,"result":"'),
                Buffer.alloc(64 * MEGABYTE, 0x61),
              ]),
            ),
          );
        },
      ],
      limits,
    );
    assert.match((await fault(bomb.ask(THREE))).message, /larger than the limit/);
    const tight = await bench([huge(3)], { replyMemoryBytes: MEGABYTE / 2 });
    assert.equal((await fault(tight.ask(THREE))).code, 'RPC_UPSTREAM_FAILED');
    const small = await bench([plainly()], { replyMemoryBytes: MEGABYTE / 2 });
    for (let round = 0; round < 20; round += 1) assertThree(await small.ask(THREE));
  });
});

describe('leaving and lateness', () => {
  test('a caller that leaves before an answer ends the exchange, and owes nothing', async () => {
    let began: () => void = () => undefined;
    const beginning = new Promise<void>((resolve) => {
      began = resolve;
    });
    let gone: () => void = () => undefined;
    const leaving = new Promise<void>((resolve) => {
      gone = resolve;
    });
    const one = await bench([
      (_request, response) => {
        response.on('close', () => gone());
        began();
      },
    ]);
    const controller = new AbortController();
    const parsed = one.rpc.parse(NETWORK, Buffer.from(JSON.stringify(call('eth_call'))));
    const running = one.rpc.run(parsed, { caller: 'alice', signal: controller.signal });
    await beginning;
    controller.abort();
    assert.deepEqual([(await running).kind, (await running).credits], ['abandoned', 0]);
    await leaving;
  });

  test('a node that three callers gave up on late is asked last, and not after early ones', async () => {
    for (const waitedMs of [500, 2_000]) {
      const { clock, pass } = stillClock();
      const hanging: NodeResponse = () => undefined;
      const two = await bench([hanging, plainly()], { clock });
      const isAsked = (count: number): Promise<void> =>
        until(() => two.nodes[0]!.asked.length === count);
      for (let caller = 1; caller <= 3; caller += 1) {
        const signal = new Cancellation();
        const parsed = two.rpc.parse(NETWORK, Buffer.from(JSON.stringify(call('eth_getLogs'))));
        const running = two.rpc.run(parsed, { caller: `caller ${caller}`, signal });
        await isAsked(caller);
        pass(waitedMs);
        signal.abort();
        assert.deepEqual([(await running).kind, (await running).credits], ['abandoned', 0]);
      }
      const next = two.ask(call('eth_getLogs'), 'somebody else');
      if (waitedMs < 1_000) await isAsked(4);
      else assert.equal(json(await next).result, 'eth_getLogs done');
      // The node still hangs when it is closed.
      next.catch(() => undefined);
    }
  });

  test('a caller that leaves a batch before a node has it owes nothing', async () => {
    const one = await bench([plainly()]);
    const body = Buffer.from(JSON.stringify(THREE));
    const signal = AbortSignal.abort();
    const left = await one.rpc.run(one.rpc.parse(NETWORK, body), { caller: 'alice', signal });
    assert.deepEqual([left.kind, left.credits, one.nodes[0]!.asked.length], ['abandoned', 0, 0]);
  });

  test('items of a slow part become errors of ours when the time is over', async () => {
    const answered = Promise.withResolvers<void>();
    const slow: NodeResponse = (request, response) => {
      if (request.calls[0]!.method === 'eth_getLogs') return;
      plainly()(request, response);
      if (request.calls[0]!.method === 'eth_call') response.once('finish', answered.resolve);
    };
    const { clock, pass } = stillClock();
    const limits = { upstream: { maxBatch: 1 }, totalTimeoutMs: 200 };
    const one = await bench([slow], { ...limits, clock });
    const asked = one.ask([call('eth_call', 1), call('eth_getLogs', 2)]);
    await answered.promise;
    // The later call has been answered, so the earlier reply has arrived as well.
    await one.ask(call('eth_gasPrice'));
    pass(300);
    const answer = await asked;
    assert.equal(list(answer)[0]!.result, 'eth_call done');
    assert.equal(list(answer)[1]!.error.code, -32603);
    assert.equal(answer.credits, 20);
  });

  test('a node that accepts and says nothing at all is a timeout', async () => {
    const sockets = new Set<{ destroy(): void }>();
    const mute = createServer((socket) => void sockets.add(socket));
    await new Promise<void>((resolve) => {
      mute.listen(0, '127.0.0.1', resolve);
    });
    const url = `http://127.0.0.1:${(mute.address() as AddressInfo).port}`;
    const rpc = makeRpc(
      { networks: { [NETWORK]: { upstreams: [{ url, timeoutMs: 100 }] } } },
      { clock: systemClock(), ids: seededIds(1), log: memoryLog([]) },
    );
    const parsed = rpc.parse(NETWORK, Buffer.from(JSON.stringify(call('eth_call'))));
    assert.equal((await fault(rpc.run(parsed, { caller: 'a' }))).status, 503);
    await rpc.close();
    for (const socket of sockets) socket.destroy();
    mute.close();
  });
});
