/** No caller can affect other callers through the nodes. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { after, describe, test } from 'node:test';
import { Worker } from 'node:worker_threads';
import {
  benches,
  call,
  CHAINS,
  fault,
  idsAndResults,
  json,
  list,
  NETWORK,
} from '../../test/rpc/bench.ts';
import { echoNode, type NodeResponse, replyWith, sendText } from '../../test/rpc/node.ts';
import { Cancellation } from '../core/cancellation.ts';
import { stillClock } from '../../test/support/still-clock.ts';
import { until } from '../../test/support/until.ts';

const { bench, closing, close, proxyTo } = benches();
after(close);

const MEGABYTE = 1_048_576;

describe('ids', () => {
  test('an id has at most 1,024 bytes; a longer one is rejected with 400', async () => {
    const one = await bench([echoNode()]);
    const longest = 'x'.repeat(1_022);
    assert.equal(json(await one.send(call('eth_call', longest))).id, longest);
    for (const id of ['x'.repeat(1_023), 'x'.repeat(1.2 * MEGABYTE)]) {
      const single = await fault(one.send(call('eth_call', id)));
      assert.equal(single.status, 400);
      assert.match(single.message, /"id" must be at most 1024 bytes long, not \d+/);
      const batch = await fault(one.send([call('eth_call', 1), call('eth_call', id)]));
      assert.match(batch.message, /"id" of item 1 must be at most 1024 bytes/);
    }
    const digits = `{"jsonrpc":"2.0","id":${'9'.repeat(2_000)},"method":"eth_call"}`;
    assert.equal((await fault(one.send(digits))).status, 400);
    assert.equal(one.nodes[0]!.requests.length, 1);
  });
});

const TOO_LARGE = 'HTTP/1.1 413 Payload Too Large\r\ncontent-length: 9\r\n\r\ntoo large';

/** A node that rejects requests above `limitBytes` before reading the body. */
async function refusingNode(limitBytes: number, refusal = TOO_LARGE): Promise<string> {
  const file = new URL('../../test/rpc/refusing-node-worker.ts', import.meta.url);
  const worker = new Worker(file, { workerData: { limitBytes, refusal } });
  closing.push(async () => void (await worker.terminate()));
  const port = await new Promise((resolve) => {
    worker.once('message', resolve);
  });
  return `http://127.0.0.1:${String(port)}`;
}

/** Closes a used connection as soon as the next request is written to it. */
async function closingNode(
  chain = CHAINS[NETWORK],
): Promise<{ readonly url: string; readonly methods: string[] }> {
  const methods: string[] = [];
  const server = createServer((socket) => {
    let text = '';
    let served = 0;
    socket.on('error', () => socket.destroy());
    socket.on('data', (data) => {
      text += data.toString('latin1');
      const [head = '', body = ''] = text.split('\r\n\r\n');
      const isWhole = body.length === Number(/content-length: (\d+)/i.exec(head)?.[1]);
      if (served === 0 && !isWhole) return;
      const method = /"method":"(\w+)"/.exec(text)?.[1] ?? '';
      methods.push(method);
      if (served > 0) return void socket.resetAndDestroy();
      served += 1;
      const result = method.endsWith('_chainId') ? chain : `${method} done`;
      const id = Number(/"id":(\d+)/.exec(text)?.[1]);
      const answer = { jsonrpc: '2.0', id, result };
      text = '';
      const json = JSON.stringify(body.startsWith('[') ? [answer] : answer);
      socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${json.length}\r\n\r\n${json}`);
    });
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  closing.push(async () => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, methods };
}

const large = (megabytes: number): object =>
  call('eth_call', 1, [`0x${'ab'.repeat((megabytes * MEGABYTE) / 2)}`]);

describe('sizes', () => {
  test('an early 413 of a node is always received, and becomes a 413 that states the limit', async () => {
    const body = Buffer.from(JSON.stringify(large(6)));
    for (const refusal of [TOO_LARGE, TOO_LARGE.replace('\r\n', '\r\nconnection: close\r\n')]) {
      const url = await refusingNode(MEGABYTE, refusal);
      for (let round = 0; round < 12; round += 1) {
        // The node has no recorded state yet.
        const { send, lines } = proxyTo([{ url }]);
        const refused = await fault(send(body));
        assert.equal(refused.status, 413);
        assert.match(refused.message, /^The request of \d+ bytes .* send at most \d+ bytes$/);
        assert.equal(json(await send(call('eth_call'), 'alice')).result, 'eth_call done');
        assert.deepEqual(lines, []);
      }
    }
  });

  test('a node that closes the connection on a large request is never disabled for it', async () => {
    const { send, lines } = proxyTo([{ url: await refusingNode(MEGABYTE, '') }]);
    const body = Buffer.from(JSON.stringify(large(8)));
    for (let round = 0; round < 30; round += 1) {
      const refused = await fault(send(body, `mallory ${round % 5}`));
      assert.equal(refused.code, 'RPC_UPSTREAM_FAILED');
      assert.match(refused.message, /^The node closed the connection before it had read/);
      assert.equal(json(await send(call('eth_call'), 'alice')).result, 'eth_call done');
    }
    assert.deepEqual(lines, []);
  });

  test('a large request goes to a node that accepts its size, also a write', async () => {
    const urls = await Promise.all([refusingNode(MEGABYTE), refusingNode(16 * MEGABYTE)]);
    const { send } = proxyTo([
      { url: urls[0], weight: 1e6 },
      { url: urls[1], weight: 1e-6 },
    ]);
    const body = Buffer.from(JSON.stringify(large(3)));
    for (let round = 0; round < 3; round += 1) {
      const answer = await send(body, `caller ${round}`);
      assert.equal(json(answer).result, 'eth_call done');
      assert.equal(answer.credits, 20);
      // A request of the rejected size is not sent to the first node again.
      assert.equal(answer.retries, round === 0 ? 1 : 0);
    }
  });

  test('a size rejected for one caller is not rejected for the next', async () => {
    const odd: NodeResponse = (request, response) => {
      if (request.text.includes('trouble')) sendText(response, 'response too large', 413);
      else echoNode()(request, response);
    };
    const one = await bench([odd]);
    const params = [`0x${'ab'.repeat(50_000)}`];
    for (let round = 0; round < 3; round += 1) {
      const refused = await fault(one.send(call('eth_call', 1, ['trouble', ...params]), 'mallory'));
      assert.equal(refused.status, 413);
      const answer = await one.send(call('eth_call', 1, ['a longer one', ...params]), 'alice');
      assert.equal(json(answer).result, 'eth_call done');
    }
  });

  test('`maxRequestBytes` of a node is enforced and stated', async () => {
    const one = await bench([echoNode()], { upstream: { maxRequestBytes: 100_000 } });
    const refused = await fault(one.send(large(1)));
    assert.equal(refused.code, 'PAYLOAD_TOO_LARGE');
    // Less than the limit of the node, because the ids of Farebox are longer.
    assert.match(refused.message, /send at most 99980 bytes$/);
    assert.equal(one.nodes[0]!.requests.length, 0);
    const params = [`0x${'ab'.repeat(20_000)}`];
    const items = Array.from({ length: 9 }, (_, id) => call('eth_call', id, params));
    const answer = await one.send(items);
    assert.equal(answer.credits, 180);
    assert.deepEqual(
      one.nodes[0]!.requests.map((request) => request.calls.length).sort((a, b) => a - b),
      [1, 2, 2, 2, 2],
    );
  });

  test('a batch is split by the size limit of the node, and an item above it becomes an error', async () => {
    const { send } = proxyTo([{ url: await refusingNode(MEGABYTE) }]);
    const half = (id: number): object => call('eth_call', id, [`0x${'ab'.repeat(MEGABYTE / 4)}`]);
    const answer = await send([half(1), half(2), { ...large(2), id: 3 }, call('eth_call', 4)]);
    const items = list(answer);
    assert.deepEqual(idsAndResults(answer), [
      1,
      'eth_call done',
      2,
      'eth_call done',
      3,
      undefined,
      4,
      'eth_call done',
    ]);
    assert.match(items[2]!.error.message, /No node accepts a request of this size/);
    assert.equal(answer.credits, 60);
    assert.equal((await fault(send([large(3), large(3)]))).status, 413);
  });

  test('a 413 with the id of the call is a response, and a 413 of a small call an error item', async () => {
    const one = await bench([replyWith({ error: { code: -32614, message: 'range' } }, 413)]);
    assert.equal(json(await one.send(large(1))).error.code, -32614);
    const plain = await bench([(_request, response) => sendText(response, 'too large', 413)]);
    assert.equal((await plain.send(call('eth_call'))).credits, 5);
  });
});

describe('a connection that the node closes as the next request is written', () => {
  test('does not fail a read, and is not a fault of the node', async () => {
    for (const params of [[], [`0x${'ab'.repeat(MEGABYTE)}`]]) {
      const { url, methods } = await closingNode();
      const { send, lines } = proxyTo([{ url }]);
      for (let round = 0; round < 8; round += 1) {
        const answer = await send(call('eth_call', 1, params));
        assert.equal(json(answer).result, 'eth_call done');
        assert.equal(answer.credits, 20);
      }
      assert.deepEqual(lines, []);
      // Eight responses, one to the server's own request, and the lost requests.
      assert.ok(methods.length > 9 + 4, `${methods.length} requests`);
    }
  });

  test('leads to a second broadcast of a raw transaction, but of no other write', async () => {
    const ethereum = await closingNode();
    const { send } = proxyTo([{ url: ethereum.url }]);
    await send(call('eth_call'));
    const raw = await send(call('eth_sendRawTransaction', 1, ['0x00']));
    assert.equal(json(raw).result, 'eth_sendRawTransaction done');
    const starknet = await closingNode(CHAINS['starknet-mainnet']);
    const other = proxyTo([{ url: starknet.url }], { network: 'starknet-mainnet' });
    await other.send(call('starknet_call'));
    const write = 'starknet_addInvokeTransaction';
    assert.equal((await fault(other.send(call(write, 1, [{}])))).code, 'RPC_UPSTREAM_FAILED');
    assert.equal(starknet.methods.filter((method) => method === write).length, 1);
    assert.equal(json(await other.send(call('starknet_call'))).result, 'starknet_call done');
  });
});

describe('faults', () => {
  /** Fails for requests that contain "trouble", and responds to all others. */
  const poisoned: NodeResponse = (request, response) => {
    if (request.text.includes('trouble')) response.destroy();
    else echoNode()(request, response);
  };

  test('a node stays enabled if only the calls of one caller fail', async () => {
    const one = await bench([poisoned]);
    for (let round = 0; round < 40; round += 1) {
      await fault(one.send(call('eth_call', 1, ['trouble']), 'mallory'));
      if (round % 10 === 0)
        assert.equal(json(await one.send(call('eth_call'), 'alice')).result, 'eth_call done');
    }
    assert.equal(json(await one.send(call('eth_call'), 'alice')).result, 'eth_call done');
    assert.deepEqual(one.lines, []);
  });

  test('an unreachable node is disabled or skipped, also with a single caller', async () => {
    const two = await bench([(_request, response) => response.destroy(), echoNode()], {
      upstream: { timeoutMs: 500 },
    });
    const dead = await bench([echoNode()]);
    await dead.nodes[0]!.close();
    for (let round = 0; round < 8; round += 1)
      assert.equal((await fault(dead.send(call('eth_call'), 'alice'))).status >= 500, true);
    assert.ok(dead.lines.some((line) => line.message === 'RPC upstream is disabled'));
    for (let round = 0; round < 12; round += 1) await two.send(call('eth_call'), 'alice');
    assert.ok(two.nodes[1]!.requests.length === 12);
  });
});

describe('shares', () => {
  /** A node that responds only when the test releases it. */
  function slowNode() {
    const waiting: (() => void)[] = [];
    let isReleased = false;
    const answer: NodeResponse = (request, response) => {
      const isSlow = request.calls[0]!.method === 'debug_traceTransaction';
      if (isSlow && !isReleased) waiting.push(() => echoNode()(request, response));
      else echoNode()(request, response);
    };
    return {
      answer,
      waiting,
      respondToAll: () => {
        isReleased = true;
        for (const go of waiting) go();
      },
    };
  }
  const slowCall = call('debug_traceTransaction');
  const times = async (count: number, run: () => Promise<unknown>): Promise<unknown> =>
    Promise.all(Array.from({ length: count }, run));

  test('a caller is served at once although others have hundreds of slow calls', async () => {
    const slow = slowNode();
    const one = await bench([slow.answer], { clock: stillClock().clock });
    await one.send(call('eth_call'));
    const hogs = ['eve', 'mallory', 'trudy'].map(async (hog) =>
      times(100, () => one.send(slowCall, hog)),
    );
    // Alice receives her responses before any of the others does.
    for (let round = 0; round < 5; round += 1) await one.send(call('eth_call'), 'alice');
    await until(() => slow.waiting.length > 50, 'calls of the others');
    for (let round = 0; round < 5; round += 1) await one.send(call('eth_call'), 'alice');
    slow.respondToAll();
    await Promise.all(hogs);
  });

  test('callers take turns in the rate of a node', async () => {
    const one = await bench([echoNode()], { upstream: { ratePerSecond: 50 } });
    const hog = times(180, () => one.send(call('eth_call'), 'mallory'));
    await Promise.all([one.send(call('eth_gasPrice'), 'alice'), hog]);
    const methods = one.nodes[0]!.requests.map((request) => request.calls[0]!.method);
    // With turns it is in the first group that the node accepts; in a single queue it would be
    // last.
    const turn = methods.indexOf('eth_gasPrice');
    assert.ok(turn >= 0 && turn < 90, `alice came as number ${turn}`);
  });

  test('a caller that shares a call with a waiting caller does not wait', async () => {
    const slow = slowNode();
    const one = await bench([slow.answer], { clock: stillClock().clock });
    await one.send(call('eth_call'));
    const hog = times(140, () => one.send(slowCall, 'mallory'));
    let isOwnOver = false;
    const own = one.send(call('eth_gasPrice'), 'mallory').finally(() => (isOwnOver = true));
    await one.send(call('eth_gasPrice'), 'alice');
    assert.equal(isOwnOver, false);
    slow.respondToAll();
    await Promise.all([hog, own]);
  });

  test('a caller that disconnects while waiting is not charged and releases its slot', async () => {
    const slow = slowNode();
    const one = await bench([slow.answer]);
    await one.send(call('eth_call'));
    const hog = times(130, () => one.send(slowCall, 'mallory'));
    const leaving = new Cancellation();
    const waiting = one.send(call('eth_call'), 'mallory', leaving);
    leaving.abort();
    assert.deepEqual([(await waiting).kind, (await waiting).credits], ['abandoned', 0]);
    slow.respondToAll();
    await hog;
  });

  test('one caller cannot use the memory of all replies', async () => {
    const unfinished: NodeResponse = (request, response) => {
      if (!request.isBatch) return echoNode(() => 'x'.repeat(100_000))(request, response);
      response.write(`[{"id":1,"result":"${'x'.repeat(MEGABYTE / 2 - 100)}"`);
    };
    const { clock, pass } = stillClock();
    const one = await bench([unfinished], {
      replyMemoryBytes: 2 * MEGABYTE,
      totalTimeoutMs: 700,
      clock,
    });
    const hogs = times(8, async () =>
      fault(one.send([call('eth_call', 1), call('eth_call', 2)], 'mallory')),
    );
    await until(() => one.nodes[0]!.requests.length > 3, 'requests of mallory');
    assert.equal((await one.send(call('eth_call'), 'alice')).credits, 20);
    pass(1_000);
    await hogs;
    const all = await bench([echoNode(() => 'x'.repeat(MEGABYTE / 2))], {
      replyMemoryBytes: 4 * MEGABYTE,
    });
    assert.equal((await all.send([call('eth_call', 1), call('eth_call', 2)])).credits, 40);
  });
});
