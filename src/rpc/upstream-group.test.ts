/** The order of nodes by breaker, pause, lag, weight, speed and stickiness. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { silentLog } from '../core/log.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { CallIds } from './call-ids.ts';
import { Catalogue } from './catalogue.ts';
import type { NodeClient } from './node-client.ts';
import { RpcFigures } from './node-figures.ts';
import { ServedHeads } from './served-heads.ts';
import { UpstreamGroup } from './upstream-group.ts';
import { Upstream } from './upstream.ts';

const NETWORK = new Catalogue().network('ethereum-mainnet')!;

const UNREACHABLE = {
  ok: false,
  fault: 'transport',
  isSent: false,
  isAborted: false,
  isBlameless: false,
  tookMs: 0,
} as const;

interface Bench {
  readonly clock: TestClock;
  readonly group: UpstreamGroup;
  readonly upstreams: readonly Upstream[];
  readonly heads: string[];
  readonly polls: () => number;
  /** How often each node came first in `draws` draws. */
  readonly share: (draws?: number) => number[];
}

/** Nodes with a fake transport that replies to identity and head requests from `heads`. */
function bench(weights: readonly number[]): Bench {
  const clock = new TestClock();
  const callIds = new CallIds(0.5);
  const figures = new RpcFigures();
  const heads = weights.map(() => '0x64');
  let polls = 0;
  const upstreams = weights.map((weight, index) => {
    const client: NodeClient = {
      secrets: [],
      post: async ({ body }) => {
        if (heads[index] === 'dead') return UNREACHABLE;
        const text = body instanceof Buffer ? body.toString() : '';
        const isHead = text.includes('eth_blockNumber');
        if (text.includes('eth_getBlock')) return UNREACHABLE;
        if (isHead) polls += 1;
        const { id } = JSON.parse(text) as { id: number };
        const result = `{"id":${id},"result":"${isHead ? heads[index]! : '0x1'}"}`;
        const reply = { ok: true, rest: undefined, budgetBytes: 0, tookMs: 0 } as const;
        if (heads[index] === 'locked') return { ...reply, status: 401, body: Buffer.from('no') };
        return { ...reply, status: 200, body: Buffer.from(result) };
      },
      disableKeepAlive: () => undefined,
      close: async () => undefined,
    };
    const settings = {
      name: `node ${index}`,
      kind: 'node',
      weight,
      maxBatch: 100,
      ratePerSecond: 0,
      timeoutMs: 1_000,
      connections: 8,
      maxRequestBytes: 0,
    } as const;
    return new Upstream(settings, {
      network: NETWORK,
      client,
      callIds,
      clock,
      log: silentLog,
      figures: figures.of(NETWORK.slug, settings.name),
    });
  });
  const group = new UpstreamGroup(NETWORK, upstreams, {
    clock,
    ids: seededIds(5),
    figures,
    heads: new ServedHeads(undefined, clock),
    log: silentLog,
    hedgeShare: 0,
  });
  return {
    clock,
    group,
    upstreams,
    heads,
    polls: () => polls,
    share: (draws = 400) => {
      const counts = weights.map(() => 0);
      for (let draw = 0; draw < draws; draw += 1) {
        const [first] = group.candidates('node', `caller ${draw}`, []);
        const index = first === undefined ? -1 : upstreams.indexOf(first);
        if (index >= 0) counts[index]! += 1;
      }
      return counts;
    },
  };
}

/** Waits for the polls that a call has started. */
async function polled(): Promise<void> {
  // Polls only wait for promises, which settle before the next turn of the event loop.
  await new Promise((resolve) => setImmediate(resolve));
}

test('nodes are selected by weight, and slow ones less often', () => {
  const weighted = bench([3, 1]).share();
  assert.ok(weighted[0]! > 260 && weighted[0]! < 340, String(weighted));
  const slow = bench([1, 1]);
  slow.upstreams[0]!.noteResponse(10);
  slow.upstreams[1]!.noteResponse(90);
  const counts = slow.share();
  assert.ok(counts[0]! > 320, String(counts));
});

test('a lagging node is used after the others, and a syncing one last', async () => {
  const b = bench([1, 1, 1, 1, 1]);
  b.heads[3] = '0x62';
  b.heads[4] = '0x1';
  await b.group.head.prepare();
  const names = b.group.candidates('node', 'b', []).map((one) => one.settings.name);
  assert.deepEqual(names.slice(3), ['node 3', 'node 4']);
});

test('heads are polled only while there are requests', async () => {
  const b = bench([1, 1]);
  b.clock.advance(600_000);
  assert.equal(b.polls(), 0);
  await b.group.head.prepare();
  assert.equal(b.polls(), 2);
  assert.equal(b.group.head.prepare(), undefined);
  for (let round = 0; round < 100; round += 1) {
    b.clock.advance(3_000);
    await polled();
  }
  // For a minute after the request.
  assert.ok(b.polls() > 38 && b.polls() < 46, String(b.polls()));
});

test('a caller stays with its node for five seconds, unless the node is paused', () => {
  const b = bench([1, 1]);
  const [, second] = b.upstreams;
  b.group.stick('node', 'alice', second!);
  const first = (): boolean => b.group.candidates('node', 'alice', [])[0] === second;
  for (let draw = 0; draw < 50; draw += 1) assert.ok(first());
  second!.noteFault('quota', 'bob');
  assert.equal(first(), false);
  b.clock.advance(2_000);
  for (let draw = 0; draw < 50; draw += 1) assert.ok(first());
  b.clock.advance(3_000);
  assert.ok(Array.from({ length: 50 }, first).includes(false));
});

test('only own requests of the server open and close the breaker', async () => {
  const b = bench([1]);
  const [only] = b.upstreams;
  b.heads[0] = 'dead';
  for (let fault = 0; fault < 5; fault += 1) only!.noteFault('transport', `caller ${fault}`);
  assert.equal(b.group.hasOpen(), true);
  await polled();
  assert.equal(b.group.hasOpen(), false);
  b.clock.advance(2_000);
  assert.equal(b.group.hasOpen(), true);
  assert.equal(only!.isVerified, false);
  only!.noteFault('transport', 'a caller from before');
  assert.equal(b.group.hasOpen(), true);
  assert.equal(await only!.verify(), false);
  assert.equal(b.group.hasOpen(), false);
  b.clock.advance(2_000);
  assert.equal(b.group.hasOpen(), false);
  b.clock.advance(2_000);
  b.heads[0] = '0x64';
  assert.equal(await only!.verify(), true);
  assert.equal(only!.isOut, false);
  b.clock.advance(10_000);
  for (let round = 0; round < 19; round += 1) {
    only!.noteFault('broken', `caller ${round % 3}`);
    only!.noteResponse(0);
  }
  assert.equal(only!.isPaused, false);
  only!.noteFault('broken', 'caller 1');
  assert.equal(only!.isPaused, true);
  await polled();
  assert.equal(b.group.hasOpen(), true);
});

test('a node with faults for several callers is used last, but stays available', async () => {
  const b = bench([1e6, 1e-6]);
  const [first, second] = b.upstreams;
  await first!.verify();
  for (let fault = 0; fault < 500; fault += 1) {
    first!.noteFault('broken', `caller ${fault % 9}`);
    await polled();
  }
  assert.deepEqual(b.group.candidates('node', 'alice', []), [second, first]);
  b.clock.advance(10_000);
  assert.deepEqual(b.group.candidates('node', 'bob', []), [first, second]);
});

test('faults of two callers never open the breaker while own requests succeed', async () => {
  const b = bench([1]);
  const [only] = b.upstreams;
  await only!.verify();
  for (let fault = 0; fault < 500; fault += 1) {
    only!.noteFault(fault % 2 === 0 ? 'broken' : 'transport', fault % 3 === 0 ? 'eve' : 'mallory');
    b.clock.advance(20);
    await polled();
    assert.equal(b.group.hasOpen(), true);
    assert.equal(only!.isPaused, false);
  }
  for (const fault of ['refused', 'too-large', 'request-too-large', 'quota'] as const)
    for (let caller = 0; caller < 100; caller += 1) only!.noteFault(fault, `caller ${caller}`);
  assert.equal(b.group.hasOpen(), true);
});

test('a node that fails for one caller and for an own request is disabled', async () => {
  const b = bench([1]);
  const [only] = b.upstreams;
  await only!.verify();
  b.heads[0] = 'dead';
  for (let fault = 0; fault < 5; fault += 1) only!.noteFault('transport', 'alice');
  await polled();
  assert.equal(b.group.hasOpen(), false);
});

test('a rejected API key pauses a node only if an own request is rejected too', async () => {
  const b = bench([1, 1]);
  const [first] = b.upstreams;
  await first!.verify();
  first!.noteFault('auth', 'eve');
  await polled();
  assert.equal(first!.isPaused, false);
  b.clock.advance(1_000);
  b.heads[0] = 'locked';
  first!.noteFault('auth', 'alice');
  await polled();
  assert.equal(first!.isPaused, true);
});

test('a disabled node is checked by own requests while others serve the callers', async () => {
  const b = bench([1, 1]);
  const [first, second] = b.upstreams;
  b.heads[0] = 'dead';
  for (let fault = 0; fault < 5; fault += 1) first!.noteFault('transport', `caller ${fault}`);
  await polled();
  b.heads[0] = '0x64';
  b.clock.advance(2_000);
  assert.deepEqual(b.group.candidates('node', 'alice', []), [second]);
  await polled();
  assert.equal(b.group.candidates('node', 'alice', []).length, 2);
});
