/** One caller must not be able to affect the others through the nodes. */
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
  json,
  list,
  makeRpc,
  NETWORK,
  type TestUpstream,
} from '../../test/rpc/bench.ts';
import { plainly, sendJson, sendText } from '../../test/rpc/node.ts';
import type { NodeResponse } from '../../test/rpc/node.ts';
import { systemClock } from '../core/clock.ts';
import { stillClock } from '../../test/support/still-clock.ts';
import { until } from '../../test/support/until.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { memoryLog } from '../../test/support/memory-log.ts';
import type { LogLine } from '../../test/support/memory-log.ts';
import { Rpc } from './rpc.ts';

const { bench, closing, close } = benches();
after(close);

const MEGABYTE = 1_048_576;

describe('ids', () => {
  test('an id of up to 1,024 bytes comes back, a longer one is a 400 that says so', async () => {
    const one = await bench([plainly()]);
    const longest = 'x'.repeat(1_022);
    assert.equal(json(await one.ask(call('eth_call', longest))).id, longest);
    for (const id of ['x'.repeat(1_023), 'x'.repeat(1.2 * MEGABYTE)]) {
      const single = await fault(one.ask(call('eth_call', id)));
      assert.equal(single.status, 400);
      assert.match(single.message, /"id" must be at most 1024 bytes long, not \d+/);
      const batch = await fault(one.ask([call('eth_call', 1), call('eth_call', id)]));
      assert.match(batch.message, /"id" of item 1 must be at most 1024 bytes/);
    }
    const digits = `{"jsonrpc":"2.0","id":${'9'.repeat(2_000)},"method":"eth_call"}`;
    assert.equal((await fault(one.ask(digits))).status, 400);
    assert.equal(one.nodes[0]!.asked.length, 1);
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

function rpcOf(
  upstreams: readonly TestUpstream[],
  network = NETWORK,
): {
  readonly lines: LogLine[];
  readonly ask: (body: unknown, caller?: string) => ReturnType<Rpc['run']>;
} {
  const lines: LogLine[] = [];
  const rpc = makeRpc(
    { networks: { [network]: { upstreams } }, publicNodes: false },
    { clock: systemClock(), ids: seededIds(3), log: memoryLog(lines) },
  );
  closing.unshift(() => rpc.close());
  return {
    lines,
    ask: async (body, caller = 'mallory') => rpc.run(rpc.parse(network, bytesOf(body)), { caller }),
  };
}

/** Closes a used connection as soon as the next request is written to it. */
async function drowsyNode(
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

const bytesOf = (body: unknown): Buffer =>
  Buffer.isBuffer(body) ? body : Buffer.from(JSON.stringify(body));

const large = (megabytes: number): object =>
  call('eth_call', 1, [`0x${'ab'.repeat((megabytes * MEGABYTE) / 2)}`]);

describe('sizes', () => {
  test('a node that refuses early is heard every time, and what it refuses is a 413 in words', async () => {
    const body = bytesOf(large(6));
    for (const refusal of [TOO_LARGE, TOO_LARGE.replace('\r\n', '\r\nconnection: close\r\n')]) {
      const url = await refusingNode(MEGABYTE, refusal);
      for (let round = 0; round < 12; round += 1) {
        // The node has no recorded state yet.
        const { ask, lines } = rpcOf([{ url }]);
        const refused = await fault(ask(body));
        assert.equal(refused.status, 413);
        assert.match(refused.message, /^The request of \d+ bytes .* send at most \d+ bytes$/);
        assert.equal(json(await ask(call('eth_call'), 'alice')).result, 'eth_call done');
        assert.deepEqual(lines, []);
      }
    }
  });

  test('a node that closes without a word is never taken out for it', async () => {
    const { ask, lines } = rpcOf([{ url: await refusingNode(MEGABYTE, '') }]);
    const body = bytesOf(large(8));
    for (let round = 0; round < 30; round += 1) {
      const refused = await fault(ask(body, `mallory ${round % 5}`));
      assert.equal(refused.code, 'RPC_UPSTREAM_FAILED');
      assert.match(refused.message, /^The node closed the connection before it had read/);
      assert.equal(json(await ask(call('eth_call'), 'alice')).result, 'eth_call done');
    }
    assert.deepEqual(lines, []);
  });

  test('a node that takes more is asked instead, also for a write', async () => {
    const urls = await Promise.all([refusingNode(MEGABYTE), refusingNode(16 * MEGABYTE)]);
    const { ask } = rpcOf([
      { url: urls[0], weight: 1e6 },
      { url: urls[1], weight: 1e-6 },
    ]);
    const body = bytesOf(large(3));
    for (let round = 0; round < 3; round += 1) {
      const answer = await ask(body, `caller ${round}`);
      assert.equal(json(answer).result, 'eth_call done');
      assert.equal(answer.credits, 20);
      // A request of the rejected size is not sent to the first node again.
      assert.equal(answer.retries, round === 0 ? 1 : 0);
    }
  });

  test('a size that one caller was refused for is not refused to the next', async () => {
    const odd: NodeResponse = (request, response) => {
      if (request.text.includes('trouble')) sendText(response, 'response too large', 413);
      else plainly()(request, response);
    };
    const one = await bench([odd]);
    const params = [`0x${'ab'.repeat(50_000)}`];
    for (let round = 0; round < 3; round += 1) {
      const refused = await fault(one.ask(call('eth_call', 1, ['trouble', ...params]), 'mallory'));
      assert.equal(refused.status, 413);
      const answer = await one.ask(call('eth_call', 1, ['a longer one', ...params]), 'alice');
      assert.equal(json(answer).result, 'eth_call done');
    }
  });

  test('the set limit of a node keeps larger requests from it and is named', async () => {
    const one = await bench([plainly()], { upstream: { maxRequestBytes: 100_000 } });
    const refused = await fault(one.ask(large(1)));
    assert.equal(refused.code, 'PAYLOAD_TOO_LARGE');
    // A little less than the limit of the node, because our ids are longer.
    assert.match(refused.message, /send at most 99980 bytes$/);
    assert.equal(one.nodes[0]!.asked.length, 0);
    const params = [`0x${'ab'.repeat(20_000)}`];
    const items = Array.from({ length: 9 }, (_, id) => call('eth_call', id, params));
    const answer = await one.ask(items);
    assert.equal(answer.credits, 180);
    assert.deepEqual(
      one.nodes[0]!.asked.map((request) => request.calls.length).sort((a, b) => a - b),
      [1, 2, 2, 2, 2],
    );
  });

  test('a batch is cut to what the node takes, and an item that no node takes says so', async () => {
    const { ask } = rpcOf([{ url: await refusingNode(MEGABYTE) }]);
    const half = (id: number): object => call('eth_call', id, [`0x${'ab'.repeat(MEGABYTE / 4)}`]);
    const answer = await ask([half(1), half(2), { ...large(2), id: 3 }, call('eth_call', 4)]);
    const items = list(answer);
    assert.deepEqual(
      items.map((item) => [item.id, item.result]),
      [
        [1, 'eth_call done'],
        [2, 'eth_call done'],
        [3, undefined],
        [4, 'eth_call done'],
      ],
    );
    assert.match(items[2]!.error.message, /No node takes a request of this size/);
    assert.equal(answer.credits, 60);
    assert.equal((await fault(ask([large(3), large(3)]))).status, 413);
  });

  test('a 413 that answers the call is an answer, and a small one an error item', async () => {
    const range: NodeResponse = (request, response) =>
      sendJson(
        response,
        { jsonrpc: '2.0', id: request.calls[0]!.id, error: { code: -32614, message: 'range' } },
        413,
      );
    const one = await bench([range]);
    assert.equal(json(await one.ask(large(1))).error.code, -32614);
    const plain = await bench([(_request, response) => sendText(response, 'too large', 413)]);
    assert.equal((await plain.ask(call('eth_call'))).credits, 5);
  });
});

describe('a connection that the node closes as the next request is written', () => {
  test('costs a read nothing, and speaks against nobody', async () => {
    for (const params of [[], [`0x${'ab'.repeat(MEGABYTE)}`]]) {
      const { url, methods } = await drowsyNode();
      const { ask, lines } = rpcOf([{ url }]);
      for (let round = 0; round < 8; round += 1) {
        const answer = await ask(call('eth_call', 1, params));
        assert.equal(json(answer).result, 'eth_call done');
        assert.equal(answer.credits, 20);
      }
      assert.deepEqual(lines, []);
      // Eight responses, one to the server's own request, and the requests written in vain.
      assert.ok(methods.length > 9 + 4, `${methods.length} requests`);
    }
  });

  test('takes a broadcast to the node again, and no other write', async () => {
    const ethereum = await drowsyNode();
    const { ask } = rpcOf([{ url: ethereum.url }]);
    await ask(call('eth_call'));
    const raw = await ask(call('eth_sendRawTransaction', 1, ['0x01']));
    assert.equal(json(raw).result, 'eth_sendRawTransaction done');
    const starknet = await drowsyNode(CHAINS['starknet-mainnet']);
    const other = rpcOf([{ url: starknet.url }], 'starknet-mainnet');
    await other.ask(call('starknet_call'));
    const write = 'starknet_addInvokeTransaction';
    assert.equal((await fault(other.ask(call(write, 1, [{}])))).code, 'RPC_UPSTREAM_FAILED');
    assert.equal(starknet.methods.filter((method) => method === write).length, 1);
    assert.equal(json(await other.ask(call('starknet_call'))).result, 'starknet_call done');
  });
});

describe('faults', () => {
  /** Fails for requests that contain "trouble", and responds to all others. */
  const poisoned: NodeResponse = (request, response) => {
    if (request.text.includes('trouble')) response.destroy();
    else plainly()(request, response);
  };

  test('a caller whose calls break a node takes it from nobody', async () => {
    const one = await bench([poisoned]);
    for (let round = 0; round < 40; round += 1) {
      await fault(one.ask(call('eth_call', 1, ['trouble']), 'mallory'));
      if (round % 10 === 0)
        assert.equal(json(await one.ask(call('eth_call'), 'alice')).result, 'eth_call done');
    }
    assert.equal(json(await one.ask(call('eth_call'), 'alice')).result, 'eth_call done');
    assert.deepEqual(one.lines, []);
  });

  test('a dead node is left for one caller as for many', async () => {
    const two = await bench([(_request, response) => response.destroy(), plainly()], {
      upstream: { timeoutMs: 500 },
    });
    const dead = await bench([plainly()]);
    await dead.nodes[0]!.close();
    for (let round = 0; round < 8; round += 1)
      assert.equal((await fault(dead.ask(call('eth_call'), 'alice'))).status >= 500, true);
    assert.ok(dead.lines.some((line) => line.message === 'RPC upstream taken out'));
    for (let round = 0; round < 12; round += 1) await two.ask(call('eth_call'), 'alice');
    assert.ok(two.nodes[1]!.asked.length === 12);
  });
});

describe('shares', () => {
  /** A node that responds only when the test releases it. */
  function slowNode() {
    const waiting: (() => void)[] = [];
    let isLet = false;
    const answer: NodeResponse = (request, response) => {
      const isSlow = request.calls[0]!.method === 'debug_traceTransaction';
      if (isSlow && !isLet) waiting.push(() => plainly()(request, response));
      else plainly()(request, response);
    };
    return {
      answer,
      waiting,
      answerAll: () => {
        isLet = true;
        for (const go of waiting) go();
      },
    };
  }
  const slowCall = call('debug_traceTransaction');
  const times = async (count: number, ask: () => Promise<unknown>): Promise<unknown> =>
    Promise.all(Array.from({ length: count }, ask));

  test('a caller goes ahead at once beside callers with hundreds of slow calls', async () => {
    const slow = slowNode();
    const one = await bench([slow.answer], { clock: stillClock().clock });
    await one.ask(call('eth_call'));
    const hogs = ['eve', 'mallory', 'trudy'].map(async (hog) =>
      times(100, () => one.ask(slowCall, hog)),
    );
    // Alice receives her responses before any of the others does.
    for (let round = 0; round < 5; round += 1) await one.ask(call('eth_call'), 'alice');
    await until(() => slow.waiting.length > 50, 'the work of the others');
    for (let round = 0; round < 5; round += 1) await one.ask(call('eth_call'), 'alice');
    slow.answerAll();
    await Promise.all(hogs);
  });

  test('the rate of a node is shared in turns over the callers', async () => {
    const one = await bench([plainly()], { upstream: { ratePerSecond: 50 } });
    const hog = times(180, () => one.ask(call('eth_call'), 'mallory'));
    await Promise.all([one.ask(call('eth_gasPrice'), 'alice'), hog]);
    const methods = one.nodes[0]!.asked.map((request) => request.calls[0]!.method);
    // With turns it is in the first group that the node accepts; in a single queue it would be
    // last.
    const turn = methods.indexOf('eth_gasPrice');
    assert.ok(turn >= 0 && turn < 90, `alice came as number ${turn}`);
  });

  test('who merges with a caller that must wait does not wait with it', async () => {
    const slow = slowNode();
    const one = await bench([slow.answer], { clock: stillClock().clock });
    await one.ask(call('eth_call'));
    const hog = times(140, () => one.ask(slowCall, 'mallory'));
    let isOwnOver = false;
    const own = one.ask(call('eth_gasPrice'), 'mallory').finally(() => (isOwnOver = true));
    await one.ask(call('eth_gasPrice'), 'alice');
    assert.equal(isOwnOver, false);
    slow.answerAll();
    await Promise.all([hog, own]);
  });

  test('a caller that leaves while it waits costs nothing and gives its place back', async () => {
    const slow = slowNode();
    const one = await bench([slow.answer]);
    await one.ask(call('eth_call'));
    const hog = times(130, () => one.ask(slowCall, 'mallory'));
    const controller = new AbortController();
    const body = Buffer.from(JSON.stringify(call('eth_call')));
    const leaving = one.rpc.run(one.rpc.parse(NETWORK, body), {
      caller: 'mallory',
      signal: controller.signal,
    });
    controller.abort();
    assert.deepEqual([(await leaving).kind, (await leaving).credits], ['abandoned', 0]);
    slow.answerAll();
    await hog;
  });

  test('one caller cannot take the memory of all replies', async () => {
    const big: NodeResponse = (request, response) =>
      sendJson(
        response,
        request.calls.map(({ id }) => ({ id, result: 'x'.repeat(MEGABYTE / 2) })),
      );
    const held: NodeResponse = (request, response) => {
      if (!request.isBatch) return plainly(() => 'x'.repeat(100_000))(request, response);
      response.write(`[{"id":1,"result":"${'x'.repeat(MEGABYTE / 2 - 100)}"`);
    };
    const { clock, pass } = stillClock();
    const one = await bench([held], {
      replyMemoryBytes: 2 * MEGABYTE,
      totalTimeoutMs: 700,
      clock,
    });
    const hogs = times(8, async () =>
      fault(one.ask([call('eth_call', 1), call('eth_call', 2)], 'mallory')),
    );
    await until(() => one.nodes[0]!.asked.length > 3, 'what mallory has asked');
    assert.equal((await one.ask(call('eth_call'), 'alice')).credits, 20);
    pass(1_000);
    await hogs;
    const all = await bench([big], { replyMemoryBytes: 4 * MEGABYTE });
    assert.equal((await all.ask([call('eth_call', 1), call('eth_call', 2)])).credits, 40);
  });
});
