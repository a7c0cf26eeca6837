/** The head that callers see while nodes are apart, lie about theirs, or are on another history. */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { storeFixture } from '../../test/databases/stores.ts';
import {
  benches,
  type Bench,
  type BenchOptions,
  call,
  fault,
  json,
  requestCounts,
} from '../../test/rpc/bench.ts';
import { testChain } from '../../test/rpc/chain.ts';
import { echoNode, replyWith } from '../../test/rpc/node.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';
import { systemClock } from '../core/clock.ts';
import { isShared } from '../db/db.ts';
import { RPC_MIGRATIONS } from './rpc.ts';
import { ServedHeads } from './served-heads.ts';

const { bench, closing, close, proxyTo } = benches();
after(close);

/** Nodes with these heads, the first one preferred. */
async function withHeads(heads: readonly number[], options?: BenchOptions): Promise<Bench> {
  const made = await bench(
    heads.map(() => echoNode()),
    options,
  );
  for (const [index, node] of made.nodes.entries())
    node.head = () => `0x${heads[index]!.toString(16)}`;
  return made;
}

const blockNumber = async ({ send }: Pick<Bench, 'send'>, caller?: string): Promise<number> =>
  Number(json(await send(call('eth_blockNumber'), caller)).result);

describe('the head of several nodes', () => {
  const table: readonly (readonly [heads: number[], head: number])[] = [
    [[100, 100], 100],
    [[101, 100], 100],
    [[100, 101, 102], 101],
    [[105, 104, 103, 102, 101, 100], 102],
    [[1_000_000_000, 100, 101], 100],
    [[1, 100, 101], 100],
  ];
  for (const [heads, head] of table) {
    test(`nodes at ${heads.join(', ')} give ${head}`, async () => {
      const made = await withHeads(heads);
      const response = await made.send(call('eth_blockNumber', 'a'));
      assert.deepEqual(json(response), {
        jsonrpc: '2.0',
        id: 'a',
        result: `0x${head.toString(16)}`,
      });
      assert.equal(response.credits, 20);
      const batch = await made.send([call('eth_blockNumber', 1), call('eth_call', 2)]);
      assert.match(batch.body.toString(), new RegExp(`"id":1,"result":"0x${head.toString(16)}"`));
      assert.equal(batch.credits, 40);
    });
  }

  test('on Solana it is a number, and a call with options goes to a node', async () => {
    const made = await withHeads([100, 101], { network: 'solana-mainnet' });
    assert.equal(json(await made.send(call('getSlot'))).result, 100);
    const finalized = call('getSlot', 1, [{ commitment: 'finalized' }]);
    assert.equal(json(await made.send(finalized)).result, 'getSlot done');
  });

  test('on Solana a node that lags does not hold back the head of two', async () => {
    const made = await withHeads([1, 100_000], { network: 'solana-mainnet' });
    assert.equal(json(await made.send(call('getSlot'))).result, 100_000);
  });

  test('a single node returns its own head', async () => {
    const made = await bench([echoNode()]);
    made.nodes[0]!.head = () => '0x0010';
    assert.equal(json(await made.send(call('eth_blockNumber'))).result, '0x0010');
  });

  test('the first call waits for slow nodes instead of returning the head of one', async () => {
    const made = await withHeads([105, 104, 103, 102, 101, 100]);
    for (const node of made.nodes) node.headDelayMs = 1_200;
    const callers = ['alice', 'bob', 'carol'];
    const heads = new Set(await Promise.all(callers.map((caller) => blockNumber(made, caller))));
    const [head = 0] = heads;
    // The lowest head of the first four nodes that report theirs.
    assert.ok(heads.size === 1 && head >= 100 && head <= 102, String([...heads]));
  });

  test('it does not go back when nodes leave or fall behind', async () => {
    const clock = new TestClock();
    const heads = [100, 101, 102];
    const made = await withHeads(heads, { clock });
    assert.equal(await blockNumber(made), 101);
    heads[1] = 98;
    heads[2] = 99;
    clock.advance(20_000);
    assert.equal(await blockNumber(made), 101);
  });
});

describe('a node that gets no calls', () => {
  const callers = Array.from({ length: 12 }, (_, index) => `caller ${index}`);

  test('is one that reports a head far ahead of the others', async () => {
    const made = await withHeads([1_000_000_000, 100, 101]);
    for (const caller of callers) {
      await made.send(call('eth_call', 1, [{}, 'latest']), caller);
      assert.equal(await blockNumber(made, caller), 100);
    }
    const [liar = -1] = requestCounts(made);
    assert.equal(liar, 0);
  });

  test('is one of two that shows no recent block for its head', async () => {
    const made = await withHeads([1_000_000_000, 100]);
    for (const caller of callers) await made.send(call('eth_gasPrice'), caller);
    assert.equal(requestCounts(made)[0], 0);
    assert.equal(await blockNumber(made), 100);
  });

  test('is one with another block than the others', async () => {
    const made = await withHeads([101, 100, 100]);
    made.nodes[0]!.hashOf = () => 'another hash';
    for (const caller of callers) await made.send(call('eth_gasPrice'), caller);
    assert.equal(requestCounts(made)[0], 0);
    const message = 'RPC upstream is not used: it has another block than most nodes';
    assert.equal(made.lines.filter((line) => line.message === message).length, 1);
  });

  test('gets them again a minute after the last comparison of most nodes', async () => {
    const clock = new TestClock();
    const made = await withHeads([100, 100, 100], { clock });
    const [other, ...most] = made.nodes;
    other!.hashOf = () => 'a block of a reorganisation';
    await made.send(call('eth_gasPrice'));
    for (const node of most) await node.close();
    clock.advance(30_000);
    const failed = await fault(made.send(call('eth_gasPrice')));
    assert.equal(failed.code, 'RPC_UPSTREAM_FAILED');
    clock.advance(60_000);
    assert.equal(json(await made.send(call('eth_gasPrice'))).result, 'eth_gasPrice done');
  });

  test('is one behind the block of a call, but it gets other calls', async () => {
    const made = await withHeads([99, 100, 100]);
    for (const params of [
      [{}, '0x64'],
      [{}, { blockNumber: '0x64' }],
    ])
      for (const caller of callers) await made.send(call('eth_call', 1, params), caller);
    for (const caller of callers)
      await made.send(call('eth_getLogs', 1, [{ fromBlock: '0x1', toBlock: '0x64' }]), caller);
    assert.equal(requestCounts(made)[0], 0);
    await made.send(call('eth_call', 1, [{}, '0x63']), 'alice');
    assert.equal(requestCounts(made)[0], 1);
  });
});

describe('blocks', () => {
  test('`latest` of a block becomes the number of the head that callers see', async () => {
    const made = await withHeads([101, 100]);
    await made.send(
      '{"id":1,"jsonrpc":"2.0","params":["latest" , false],"method":"eth_getBlockByNumber"}',
    );
    await made.send(call('eth_call', 1, [{}, 'latest']));
    const sent = made.nodes.flatMap(({ requests }) =>
      requests.map(({ calls }) => calls[0]!.params),
    );
    assert.deepEqual(sent, [
      ['0x64', false],
      [{}, 'latest'],
    ]);
  });

  const TAGGED: readonly (readonly [method: string, params: unknown[], sent: unknown[]])[] = [
    ['eth_getBlockByNumber', ['finalized', true], ['0x32', true]],
    ['eth_getBlockByNumber', ['safe', true], ['0x50', true]],
    ['eth_getBlockByNumber', ['earliest', true], ['earliest', true]],
    ['eth_getBalance', ['0xa', 'finalized'], ['0xa', '0x32']],
    ['eth_getStorageAt', ['0xa', '0x0', 'safe'], ['0xa', '0x0', '0x50']],
    ['eth_call', [{ to: '0xa' }, 'finalized', {}], [{ to: '0xa' }, '0x32', {}]],
    ['eth_feeHistory', ['0x1', 'finalized', []], ['0x1', '0x32', []]],
    [
      'eth_getLogs',
      [{ fromBlock: 'finalized', address: ['0xa'], toBlock: 'latest' }],
      [{ fromBlock: '0x32', address: ['0xa'], toBlock: 'latest' }],
    ],
    [
      'eth_getLogs',
      [{ fromBlock: '0x1', toBlock: 'safe' }],
      [{ fromBlock: '0x1', toBlock: '0x50' }],
    ],
  ];
  for (const [method, params, sent] of TAGGED) {
    test(`${method} with ${JSON.stringify(params)} is sent with one number`, async () => {
      const made = await withHeads([100, 100, 100]);
      const finalized = ['0x40', '0x32', '0x28'];
      for (const [index, node] of made.nodes.entries())
        node.tagged = (tag) => (tag === 'safe' ? '0x50' : finalized[index]);
      for (const caller of ['alice', 'bob', 'carol']) {
        await made.send(call(method, 1, params), caller);
        await made.send([call('eth_gasPrice', 1), call(method, 2, params)], caller);
      }
      const seen = made.nodes
        .flatMap(({ requests }) => requests.flatMap(({ calls }) => calls))
        .filter((one) => one.method === method);
      assert.ok(seen.length > 0);
      for (const one of seen) assert.deepEqual(one.params, sent);
    });
  }

  test('`finalized` does not go back when a node restarts from an older block', async () => {
    const clock = new TestClock();
    const made = await withHeads([100, 100, 100], { clock });
    const finalized = ['0x32', '0x32', '0x32'];
    for (const [index, node] of made.nodes.entries()) node.tagged = () => finalized[index];
    const numbers: unknown[] = [];
    const read = async (): Promise<void> => {
      await made.send(call('eth_getBalance', 1, ['0xa', 'finalized']));
      numbers.push(made.nodes.flatMap(({ requests }) => requests).at(-1)?.calls[0]!.params?.[1]);
      for (const node of made.nodes) node.requests.length = 0;
    };
    await read();
    finalized[1] = '0x10';
    finalized[2] = '0x10';
    clock.advance(12_000);
    await read();
    finalized.fill('0x40');
    clock.advance(12_000);
    await read();
    assert.deepEqual(numbers, ['0x32', '0x32', '0x40']);
  });

  test('a tag that no node has is sent unchanged', async () => {
    const made = await withHeads([100, 100]);
    await made.send(call('eth_getBalance', 1, ['0xa', 'safe']));
    const [sent] = made.nodes.flatMap(({ requests }) => requests);
    assert.deepEqual(sent?.calls[0]!.params, ['0xa', 'safe']);
  });

  const NEWEST: readonly (readonly [method: string, params: unknown[]])[] = [
    ['eth_getBalance', ['0xa', 'latest']],
    ['eth_call', [{}, 'latest']],
    ['eth_call', [{}]],
    ['eth_getStorageAt', ['0xa', '0x0', 'latest']],
    ['eth_getTransactionCount', ['0xa', 'pending']],
    ['eth_getCode', ['0xa', 'latest']],
    ['eth_estimateGas', [{}]],
    ['eth_feeHistory', ['0x1', 'latest', []]],
    ['eth_getLogs', [{ fromBlock: 'latest' }]],
  ];
  for (const [method, params] of NEWEST) {
    test(`${method} with ${JSON.stringify(params)} goes to nodes with the head`, async () => {
      const made = await withHeads([98, 100, 100]);
      for (const caller of ['alice', 'bob', 'carol'])
        await made.send(call(method, 1, params), caller);
      assert.equal(requestCounts(made)[0], 0);
      const sent = made.nodes[1]!.requests.concat(made.nodes[2]!.requests);
      assert.deepEqual(sent[0]!.calls[0]!.params, params);
    });
  }

  test('a state of a node that lags is returned if the nodes with the head fail', async () => {
    const made = await withHeads([99, 100, 100]);
    const lacking = replyWith({ error: { code: -32603, message: 'internal error' } });
    for (const node of made.nodes.slice(1)) node.respond = lacking;
    const response = await made.send(call('eth_call', 1, [{}, 'latest']));
    assert.equal(json(response).result, 'eth_call done');
  });

  test('an empty result for the next blocks is checked at the other nodes', async () => {
    const clock = systemClock();
    const chain = testChain(clock, 1e9);
    const nodes = await Promise.all([
      chain.node(() => 1),
      chain.node(() => 1),
      chain.node(() => 0),
    ]);
    closing.push(...nodes.map((node) => node.close));
    const made = proxyTo(nodes.map(({ url }, index) => ({ url, weight: index === 2 ? 1e-6 : 1 })));
    assert.equal(await blockNumber(made), 999);
    const logs = await made.send(
      call('eth_getLogs', 1, [{ fromBlock: '0x3e8', toBlock: '0x3e8' }]),
    );
    assert.deepEqual(json(logs).result, [{ blockNumber: '0x3e8' }]);
    const block = await made.send(call('eth_getBlockByNumber', 1, ['0x3e8', true]), 'bob');
    assert.deepEqual(json(block).result, { number: '0x3e8' });
    assert.deepEqual([logs.credits, block.credits], [20, 20]);
  });
});

/** The connections that wait for a lock on a row of the head. */
const WAITING = `SELECT 1 FROM pg_stat_activity
  WHERE wait_event_type = 'Lock' AND query LIKE 'INSERT INTO rpc_head%'
    AND datname = current_database()`;

describe('processes with one database', () => {
  const fixture = storeFixture('postgres');

  test('show one head that never goes back, and nothing is missing up to it', async () => {
    const chain = testChain(systemClock(), 250);
    const distances = [0, 1, 2, 3, 4, 5];
    const nodes = await Promise.all(distances.map((blocks) => chain.node(() => blocks)));
    closing.push(...nodes.map((node) => node.close));
    const url = await fixture.freshUrl();
    const processes = await Promise.all(
      [1, 2, 3].map(async () => {
        const sharedStore = await fixture.open(RPC_MIGRATIONS, url);
        assert.ok(isShared(sharedStore));
        return proxyTo(nodes, { sharedStore });
      }),
    );
    const seen = new Set<number>();
    let highest = 0;
    for (let round = 0; round < 100 || seen.size < 4; round += 1) {
      const one = processes[round % processes.length]!;
      const caller = `caller ${round % 7}`;
      const head = await blockNumber(one, caller);
      assert.ok(head >= highest, `${head} after ${highest}`);
      highest = head;
      seen.add(head);
      const block = `0x${head.toString(16)}`;
      const [logs, read] = await Promise.all([
        one.send(call('eth_getLogs', 1, [{ fromBlock: block, toBlock: block }]), caller),
        one.send(call('eth_getBlockByNumber', 1, [block, true]), caller),
      ]);
      assert.deepEqual(json(logs).result, [{ blockNumber: block }]);
      assert.deepEqual(json(read).result, { number: block });
    }
  });

  /** Heads of which the first one is shown. */
  async function firstHead() {
    const store = await fixture.open(RPC_MIGRATIONS, await fixture.freshUrl());
    assert.ok(isShared(store));
    const heads = new ServedHeads(store, systemClock());
    const number = async (): Promise<number> => {
      await heads.prepare('base-mainnet');
      return heads.current('base-mainnet') ?? 0;
    };
    await heads.offer('base-mainnet', 1);
    assert.equal(await number(), 1);
    return { store, heads, number };
  }

  test('do not show a head whose announcement was stored too late for the others', async () => {
    const { store, heads } = await firstHead();
    const row = 'SELECT number FROM rpc_head';
    let offering: Promise<void> | undefined;
    await store.transaction(async (tx) => {
      await tx.query(`${row} FOR UPDATE`);
      offering = heads.offer('base-mainnet', 2);
      await until(async () => (await store.query(WAITING)).length > 0, 'a wait for the row', 50);
      await sleep(300);
    });
    await offering;
    assert.deepEqual(await store.query(row), [{ number: 1n }]);
    await heads.offer('base-mainnet', 3);
    assert.deepEqual(await store.query(row), [{ number: 3n }]);
    heads.close();
  });

  test('advance although the clock of the database was set back', async () => {
    const { store, heads, number } = await firstHead();
    await heads.offer('base-mainnet', 2);
    // As if the clock had been an hour ahead.
    await store.query(
      'UPDATE rpc_head SET effective = effective + 3600000, confirmed = confirmed + 3600000',
    );
    const seen: number[] = [];
    for (let at = 0; at < 30; at += 1) {
      await heads.offer('base-mainnet', 3 + at);
      seen.push(await number());
      await sleep(100);
    }
    assert.deepEqual(
      seen,
      seen.toSorted((one, other) => one - other),
    );
    assert.ok(seen.at(-1)! > 3, seen.join());
    heads.close();
  });

  test('a head takes effect at the same time everywhere', async () => {
    const url = await fixture.freshUrl();
    const clock = systemClock();
    const heads = await Promise.all(
      [1, 2].map(async () => {
        const store = await fixture.open(RPC_MIGRATIONS, url);
        assert.ok(isShared(store));
        return new ServedHeads(store, clock);
      }),
    );
    const [one, other] = heads;
    const read = async (from: ServedHeads): Promise<number> => {
      await from.prepare('base-mainnet');
      return from.current('base-mainnet') ?? 0;
    };
    assert.equal(await read(one!), 0);
    let highest = 0;
    for (let number = 1; number <= 3; number += 1) {
      await until(async () => {
        await one!.offer('base-mainnet', number);
        for (const from of [one!, other!]) {
          const head = await read(from);
          assert.ok(head >= highest);
          highest = head;
        }
        return highest === number;
      }, `head ${number}`);
    }
    for (const each of heads) each.close();
  });
});
