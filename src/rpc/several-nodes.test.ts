/** Calls to several nodes at once: second calls for slow reads, broadcasts, and repaired batches. */
import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { after, describe, test } from 'node:test';
import { concat, fromRlp, type Hex, keccak256, toRlp, type TransactionSerializable } from 'viem';
import { privateKeyToAccount } from 'viem/accounts';
import {
  benches,
  call,
  fault,
  idsAndResults,
  json,
  list,
  requestCounts,
} from '../../test/rpc/bench.ts';
import { echoNode, type NodeResponse, replyWith, sendText } from '../../test/rpc/node.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';
import { Hedges, ResponseTimes } from './hedges.ts';
import { RpcFigures } from './rpc.ts';

const { bench, close } = benches();
after(close);

/** A node that responds until `hangs` is set. */
function node(): {
  readonly respond: NodeResponse;
  hangs: boolean;
  readonly held: ServerResponse[];
} {
  const state = {
    hangs: false,
    held: [] as ServerResponse[],
    respond: ((request, response) => {
      if (state.hangs) state.held.push(response);
      else echoNode()(request, response);
    }) satisfies NodeResponse,
  };
  return state;
}

const hedgesOf = (figures: RpcFigures): string =>
  figures.hedges
    .lines()
    .filter((line) => line.includes('ethereum-mainnet#1'))
    .join();

describe('a slow read', () => {
  test('also goes to the next node, and the first call is cancelled', async () => {
    const first = node();
    const two = await bench([first.respond, echoNode()], { hedgeShare: 0.05 });
    for (let round = 0; round < 12; round += 1) await two.send(call('eth_call'));
    assert.deepEqual(requestCounts(two), [12, 0]);
    first.hangs = true;
    const response = await two.send(call('eth_call', 'slow'));
    assert.deepEqual([json(response).result, response.credits], ['eth_call done', 20]);
    assert.deepEqual(requestCounts(two), [13, 1]);
    await until(() => first.held[0]?.destroyed === true, 'the end of the first call');
    assert.match(hedgesOf(two.figures), / 1$/);
  });

  test('of a batch ends no other call of the batch', async () => {
    const first = node();
    const settings = { hedgeShare: 0.05, upstream: { maxBatch: 1 } };
    const two = await bench([first.respond, echoNode()], settings);
    for (let round = 0; round < 12; round += 1) await two.send(call('eth_call'));
    two.nodes[0]!.respond = (request, response) => {
      if (request.calls[0]!.method === 'eth_call') first.held.push(response);
      else setTimeout(() => echoNode()(request, response), 300);
    };
    const response = await two.send([call('eth_call', 1), call('eth_getCode', 2)]);
    assert.deepEqual(idsAndResults(response), [1, 'eth_call done', 2, 'eth_getCode done']);
    assert.equal(response.credits, 40);
    await until(() => first.held[0]?.destroyed === true, 'the end of the first call');
  });

  test('has the result of the second node if the first fails, even if it is null', async () => {
    const first = node();
    const settings = { hedgeShare: 0.05, upstream: { timeoutMs: 400 } };
    const two = await bench([first.respond, echoNode(() => null)], settings);
    const read = call('eth_getTransactionReceipt', 1, ['0x1']);
    for (let round = 0; round < 12; round += 1) await two.send(read);
    first.hangs = true;
    const response = await two.send(read);
    assert.deepEqual([json(response).result, response.credits], [null, 20]);
    assert.deepEqual(requestCounts(two), [13, 1]);
  });

  test('is repeated neither as a write nor with `hedgeShare: 0`', async () => {
    const first = node();
    const two = await bench([first.respond, echoNode()], {
      hedgeShare: 0,
      upstream: { timeoutMs: 300 },
    });
    for (let round = 0; round < 12; round += 1) await two.send(call('eth_call'));
    first.hangs = true;
    await two.send(call('eth_call'));
    assert.match(hedgesOf(two.figures), /^$| 0$/);
  });

  test('uses at most the share of all reads, and at most ten at once', () => {
    const [slow, other] = [{ times: new ResponseTimes() }, { times: new ResponseTimes() }];
    for (let call = 0; call < 100; call += 1) slow.times.note('eth_call', call < 90 ? 50 : 400);
    const hedges = new Hedges(0.05);
    let taken = 0;
    for (let round = 0; round < 2_000; round += 1) {
      const hedge = hedges.plan(slow, other, 'eth_call');
      if (hedge !== undefined && hedges.take()) taken += 1;
    }
    assert.ok(taken >= 100 && taken <= 110, String(taken));
    assert.equal(new Hedges(1).plan(slow, undefined, 'eth_call'), undefined);
  });

  test('waits for the time of 95 % of the responses', () => {
    const times = new ResponseTimes();
    for (let call = 0; call < 5_000; call += 1) times.note('eth_call', (call * 37) % 100);
    const p95Ms = times.p95Ms('eth_call') ?? 0;
    assert.ok(p95Ms > 85 && p95Ms < 115, String(p95Ms));
    assert.equal(times.p95Ms('eth_getLogs'), undefined);
  });
});

describe('a raw transaction', () => {
  const RAW = `0x02f8${'ab'.repeat(120)}`;
  const HASH = keccak256(RAW as `0x${string}`);
  const send = call('eth_sendRawTransaction', 'tx', [RAW]);
  const accepts = echoNode(() => HASH);
  const known = replyWith({ error: { code: -32000, message: 'already known' } });
  const poor = replyWith({ error: { code: -32000, message: 'insufficient funds' } });

  test('goes to three nodes once, and the first success is the response', async () => {
    const hanging = node();
    hanging.hangs = true;
    const four = await bench([hanging.respond, accepts, accepts, accepts]);
    const response = await four.send(send);
    assert.deepEqual([json(response).result, response.credits], [HASH, 20]);
    const counts = requestCounts(four);
    assert.equal(Math.max(...counts), 1);
    for (const held of hanging.held) held.destroy();
  });

  test('is a success if one node accepts it or has it already', async () => {
    for (const nodes of [
      [poor, known],
      [known, poor],
      [poor, accepts],
      [accepts, known],
    ]) {
      const response = await (await bench(nodes)).send(send);
      assert.equal(json(response).result, HASH);
    }
  });

  test('is an error for five credits if no node accepts it', async () => {
    const response = await (await bench([poor, poor])).send(send);
    assert.deepEqual([json(response).error.message, response.credits], ['insufficient funds', 5]);
  });

  test('goes to the other nodes if none of the first three responds', async () => {
    const dead: NodeResponse = (_request, response) => response.destroy();
    const four = await bench([dead, dead, dead, dead]);
    for (const each of four.nodes.slice(1)) each.respond = accepts;
    assert.equal(json(await four.send(send)).result, HASH);
  });
});

describe('the result of a broadcast', () => {
  const account = privateKeyToAccount(`0x${'11'.repeat(32)}`);
  const to = account.address;
  const fees = { chainId: 1, gas: 21_000n, maxFeePerGas: 9n, maxPriorityFeePerGas: 1n };
  const accessList = [{ address: to, storageKeys: [] }];
  const blobFee = {
    maxFeePerBlobGas: 1n,
    blobVersionedHashes: [`0x01${'22'.repeat(31)}`],
  } as const;
  const signed = (fields: TransactionSerializable): Promise<Hex> => account.signTransaction(fields);
  /** A blob transaction as nodes receive it: its fields in a list with the blobs. */
  const withBlobs = async (version: readonly Hex[]): Promise<Hex> => {
    const raw = await signed({ type: 'eip4844', to, ...fees, ...blobFee });
    const fields = fromRlp(`0x${raw.slice(4)}`);
    return concat(['0x03', toRlp([fields, ...version, ['0xb0'], ['0xc0'], ['0xd0']])]);
  };
  const authorize = (): Promise<Awaited<ReturnType<typeof account.signAuthorization>>> =>
    account.signAuthorization({ address: to, chainId: 1, nonce: 0 });
  const TYPES: Readonly<Record<string, () => Promise<Hex>>> = {
    'a legacy transaction': () => signed({ type: 'legacy', to, chainId: 1, gasPrice: 9n, gas: 1n }),
    'a legacy transaction without a chain': () => signed({ type: 'legacy', to, gasPrice: 9n }),
    'an access list transaction': () =>
      signed({ type: 'eip2930', to, chainId: 1, gasPrice: 9n, gas: 1n, accessList }),
    'a fee market transaction': () =>
      signed({ type: 'eip1559', to, ...fees, data: `0x${'ab'.repeat(100_000)}` }),
    'a blob transaction without blobs': () => signed({ type: 'eip4844', to, ...fees, ...blobFee }),
    'a blob transaction': () => withBlobs([]),
    'a blob transaction with cell proofs': () => withBlobs(['0x01']),
    'a transaction that sets code': async () =>
      signed({ type: 'eip7702', to, ...fees, authorizationList: [await authorize()] }),
  };
  /** Blobs are not part of the hash. */
  const hashOf = (raw: Hex): Hex => {
    const fields = raw.startsWith('0x03') ? fromRlp(`0x${raw.slice(4)}`) : [];
    const [first] = fields;
    return keccak256(Array.isArray(first) ? concat(['0x03', toRlp(first)]) : raw);
  };
  const other = keccak256('0x02');

  for (const [name, sign] of Object.entries(TYPES)) {
    test(`of ${name} is the hash of its bytes`, async () => {
      const raw = await sign();
      const hash = hashOf(raw);
      const send = call('eth_sendRawTransaction', 'tx', [raw]);
      const batch = [call('eth_gasPrice', 1), call('eth_sendRawTransaction', 2, [raw])];
      for (const wrong of [other, hash.slice(0, -1), null, { hash }]) {
        const two = await bench([echoNode(() => wrong), echoNode(() => hash)]);
        const single = await two.send(send);
        assert.deepEqual([json(single).result, single.credits], [hash, 20]);
        const both = await two.send(batch);
        assert.deepEqual([list(both)[1]!.result, both.credits], [hash, 40]);
      }
      const one = await bench([echoNode(() => hash.toUpperCase().replace('X', 'x'))]);
      assert.equal(String(json(await one.send(send)).result).toLowerCase(), hash);
    });
  }

  test('is not sold if no node returns the hash', async () => {
    const two = await bench([echoNode(() => other), echoNode(() => null)]);
    const raw = await TYPES['a fee market transaction']!();
    const send = call('eth_sendRawTransaction', 1, [raw]);
    assert.equal((await fault(two.send(send))).code, 'RPC_UPSTREAM_FAILED');
    const batch = await two.send([call('eth_sendRawTransaction', 1, [raw]), call('eth_call', 2)]);
    assert.deepEqual([list(batch)[0]!.error.code, batch.credits], [-32603, 20]);
    const [network] = two.rpc.status();
    assert.deepEqual(
      network!.nodes.map(({ failures }) => failures),
      [2, 2],
    );
  });

  test('is returned unchanged if the type of the transaction is unknown', async () => {
    const one = await bench([echoNode(() => other)]);
    for (const raw of ['0x71f8', '0x00', '0x', '0x0', 'f8', 1])
      assert.equal(json(await one.send(call('eth_sendRawTransaction', 1, [raw]))).result, other);
  });
});

describe('a batch reply with an invalid item', () => {
  /** Returns the items of a batch with an invalid number in the item of `eth_gasPrice`. */
  const broken: NodeResponse = ({ calls, isBatch }, response) => {
    const items = calls.map(({ id, method }) =>
      method === 'eth_gasPrice'
        ? `{"id":${String(id)},"result":01}`
        : `{"id":${String(id)},"result":"${method} done"}`,
    );
    sendText(response, isBatch ? `[${items.join(',')}]` : items[0]!);
  };
  const batch = [call('eth_call', 1), call('eth_gasPrice', 2), call('eth_getCode', 3)];

  test('loses only that item, which costs nothing', async () => {
    const one = await bench([broken]);
    const response = await one.send(batch);
    assert.deepEqual(idsAndResults(response), [
      1,
      'eth_call done',
      2,
      undefined,
      3,
      'eth_getCode done',
    ]);
    assert.equal(list(response)[1]!.error.code, -32603);
    assert.equal(response.credits, 40);
  });

  test('is completed by another node', async () => {
    const two = await bench([broken, echoNode()]);
    const response = await two.send(batch);
    assert.deepEqual(idsAndResults(response), [
      1,
      'eth_call done',
      2,
      'eth_gasPrice done',
      3,
      'eth_getCode done',
    ]);
    assert.equal(response.credits, 60);
    assert.deepEqual(
      two.nodes[1]!.requests.map(({ calls }) => calls.length),
      [1],
    );
  });
});

test('the oldest state of a node is learned from its errors', async () => {
  const clock = new TestClock();
  const pruned: NodeResponse = (request, response) =>
    (request.calls[0]!.params?.[1] === '0x5'
      ? replyWith({ error: { code: -32000, message: 'missing trie node abc' } })
      : echoNode())(request, response);
  const two = await bench([pruned, echoNode()], { clock });
  for (const each of two.nodes) each.head = () => '0x1000';
  const read = (block: string, caller: string): Promise<unknown> =>
    two.send(call('eth_getBalance', 1, ['0x1', block]), caller);
  await read('0x5', 'alice');
  assert.deepEqual(requestCounts(two), [1, 1]);
  await read('0x4', 'bob');
  await read('0x5', 'carol');
  assert.deepEqual(requestCounts(two), [1, 3]);
  await read('0x6', 'dave');
  assert.deepEqual(requestCounts(two), [2, 3]);
});

test('a range that ends after the newest block says nothing about the history of a node', async () => {
  const message = 'One of the blocks specified in filter (fromBlock, toBlock) cannot be found.';
  const strict: NodeResponse = (request, response) => {
    const [filter] = (request.calls[0]!.params ?? []) as { toBlock: string }[];
    const isAhead = Number(filter?.toBlock) > 0x1000;
    (isAhead ? replyWith({ error: { code: -32000, message } }) : echoNode())(request, response);
  };
  const two = await bench([strict, echoNode()], { clock: new TestClock() });
  for (const each of two.nodes) each.head = () => '0x1000';
  const logs = (fromBlock: string, toBlock: string, caller: string): Promise<unknown> =>
    two.send(call('eth_getLogs', 1, [{ fromBlock, toBlock }]), caller);
  await logs('0x900', '0x1001', 'alice');
  assert.deepEqual(requestCounts(two), [1, 1]);
  await logs('0x800', '0x900', 'bob');
  assert.deepEqual(requestCounts(two), [2, 1]);
  assert.equal(two.rpc.status()[0]!.nodes[0]!.oldestLogs, null);
});

test('the check returns the blocks, the history and the missing methods of a node', async () => {
  const pruned = replyWith(({ method, params = [] }) => {
    if (method === 'trace_block') return { error: { code: -32601, message: 'method not found' } };
    const [filter, block] = params;
    if (method === 'eth_getLogs') return { result: [filter] };
    if (method !== 'eth_getBalance') return { error: { code: -32602, message: 'missing value' } };
    if (Number(block) >= 0x300) return { result: '0x0' };
    return { error: { code: -32000, message: 'missing trie node abc' } };
  });
  const one = await bench([pruned]);
  one.nodes[0]!.head = () => '0x1000';
  const [health] = await one.rpc.probeNodes();
  assert.deepEqual(health, {
    network: 'ethereum-mainnet',
    node: 'ethereum-mainnet#1',
    problem: undefined,
    map: ['newest block 4096', 'state from block 768', 'logs from block 1', 'lacks trace_block'],
  });
});
