/** Turns at a node on a virtual clock: which request is sent when, and which one waits. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { TestClock } from '../../test/support/test-clock.ts';
import { Cancellation } from '../core/cancellation.ts';
import { NodeShare } from './node-share.ts';

const SECOND_MS = 1_000;

/** Lets admitted requests continue. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 10; turn += 1) await Promise.resolve();
}

interface Arrival {
  readonly caller: string;
  readonly calls: number;
}

/** `a100` is a batch of 100 calls by caller a. */
function arrivals(text: string): Arrival[] {
  return text.split(' ').map((one) => ({ caller: one.charAt(0), calls: Number(one.slice(1)) }));
}

describe('the order in which requests wait', () => {
  const table: readonly {
    readonly name: string;
    /** Requests in order of arrival, after a first request that used the whole second. */
    readonly came: string;
    readonly went: string;
  }[] = [
    {
      name: 'a single call goes before batches that came first',
      came: 'a100 b100 c100 d1',
      went: 'd1 a100 b100 c100',
    },
    {
      name: 'callers with equal requests take turns',
      came: 'a1 a1 a1 b1 b1 c1',
      went: 'a1 b1 c1 a1 b1 a1',
    },
    {
      name: 'many single calls weigh as much as one batch',
      came: 'a3 b1 b1 b1 b1',
      went: 'b1 b1 a3 b1 b1',
    },
    {
      name: 'a smaller batch goes first',
      came: 'a50 b20 c10',
      went: 'c10 b20 a50',
    },
    {
      name: 'requests of one caller keep their order, whatever their size',
      came: 'a100 a1 b1 b1',
      went: 'b1 b1 a100 a1',
    },
    {
      name: 'eight callers with batches do not come between the calls of a ninth',
      came: 'a100 b100 c100 d100 e100 f100 g100 h100 i1 i1 i1',
      went: 'i1 i1 i1 a100 b100 c100 d100 e100 f100 g100 h100',
    },
  ];
  for (const { name, came, went } of table) {
    test(name, async () => {
      const clock = new TestClock();
      const share = new NodeShare(64, 100, clock);
      assert.ok(share.take('z', 100));
      const order: string[] = [];
      for (const { caller, calls } of arrivals(came)) {
        void share.wait(caller, calls, 600_000, undefined).then((holder) => {
          if (holder !== undefined) share.give(holder);
          order.push(`${caller}${calls}`);
        });
      }
      for (let step = 0; step < 1_000; step += 1) {
        await settled();
        clock.advance(SECOND_MS / 100);
      }
      assert.equal(order.join(' '), went);
    });
  }
});

test('single calls wait at most a second although eight callers send batches of 100', async () => {
  const RATE = 100;
  const clock = new TestClock();
  const share = new NodeShare(256, RATE, clock);
  const beganMs = clock.monotonicMs();
  let isOver = false;
  let batches = 0;
  const hog = async (caller: string): Promise<void> => {
    while (!isOver) {
      const holder = share.take(caller, 100) ?? (await share.wait(caller, 100, 45_000, undefined));
      if (holder === undefined) continue;
      batches += 1;
      await clock.sleep(50);
      share.give(holder);
    }
  };
  // Each caller keeps several batches waiting.
  for (let caller = 0; caller < 8; caller += 1)
    for (let line = 0; line < 4; line += 1) void hog(`hog ${caller}`);
  const tookMs: number[] = [];
  let failed = 0;
  const honest = async (caller: string): Promise<void> => {
    for (let call = 0; call < 20; call += 1) {
      const startedMs = clock.monotonicMs();
      const holder = share.take(caller, 1) ?? (await share.wait(caller, 1, 10_000, undefined));
      if (holder === undefined) failed += 1;
      else {
        tookMs.push(clock.monotonicMs() - startedMs);
        await clock.sleep(20);
        share.give(holder);
      }
    }
  };
  const honestCallers = Promise.all(['x', 'y', 'z'].map(honest)).then(() => (isOver = true));
  for (let step = 0; !isOver && step < 10_000; step += 1) {
    clock.advance(10);
    await settled();
  }
  await honestCallers;
  assert.deepEqual([failed, tookMs.length], [0, 60]);
  // A batch that has begun borrows up to one second.
  assert.ok(Math.max(...tookMs) <= SECOND_MS + 50, `${Math.max(...tookMs)} ms`);
  // The batches get the remaining capacity.
  const earned = ((clock.monotonicMs() - beganMs) * RATE) / SECOND_MS;
  assert.ok(batches * 100 + tookMs.length >= earned, `${batches} batches`);
  share.close();
});

test('idle time earns no credit, and a caller that was alone has no debt', async () => {
  const clock = new TestClock();
  const share = new NodeShare(64, 10, clock);
  // A single caller within the rate, for some time.
  for (let second = 0; second < 50; second += 1) {
    for (let call = 0; call < 10; call += 1) share.give(share.take('busy', 1)!);
    clock.advance(SECOND_MS);
  }
  assert.ok(share.take('other', 10));
  const order: string[] = [];
  const wait = (caller: string): void =>
    void share.wait(caller, 1, 60_000, undefined).then(() => order.push(caller));
  for (let call = 0; call < 4; call += 1) {
    wait('idle');
    wait('busy');
  }
  for (let step = 0; step < 20; step += 1) {
    clock.advance(100);
    await settled();
  }
  // Only its last call counts, not earlier ones.
  const turns = order.slice(0, 6).filter((caller) => caller === 'busy').length;
  assert.ok(turns === 2 || turns === 3, order.join(' '));
  share.close();
});

test('a request that is aborted or times out releases its place in the queue', async () => {
  const clock = new TestClock();
  const share = new NodeShare(64, 10, clock);
  assert.ok(share.take('a', 10));
  const leaving = new Cancellation();
  const left = share.wait('a', 5, 60_000, leaving);
  const late = share.wait('b', 5, 50, undefined);
  const third = share.wait('c', 5, 60_000, undefined);
  leaving.abort();
  clock.advance(60);
  assert.deepEqual([await left, await late], [undefined, undefined]);
  clock.advance(SECOND_MS);
  assert.ok(await third);
  assert.equal(await share.wait('d', 1, 60_000, leaving), undefined);
  assert.ok(share.take('d', 20));
  const last = share.wait('d', 1, 60_000, undefined);
  share.close();
  assert.equal(await last, undefined);
});

test('a full queue drops a request of the caller with the most', async () => {
  const share = new NodeShare(64, 1, new TestClock());
  assert.ok(share.take('a', 1));
  let refused = 0;
  for (let request = 0; request < 4_096; request += 1)
    void share
      .wait('a', 1, 60_000, undefined)
      .then((one) => (refused += one === undefined ? 1 : 0));
  assert.equal(await share.wait('a', 1, 60_000, undefined), undefined);
  void share.wait('b', 1, 60_000, undefined);
  await settled();
  assert.equal(refused, 1);
  share.close();
});

test('a caller never uses more connections than remain free', async () => {
  const share = new NodeShare(8, 0, new TestClock());
  const holders = Array.from({ length: 4 }, () => share.take('a', 1)!);
  assert.equal(share.take('a', 1), undefined);
  const waiting = share.wait('a', 1, 60_000, undefined);
  assert.ok(share.take('b', 1));
  share.give(holders[0]!);
  await settled();
  // Three connections in use and four free: one more is allowed.
  assert.ok(await waiting);
  assert.equal(share.take('a', 1), undefined);
  share.close();
});

describe('hostile accounts', () => {
  const RATE = 100;
  for (const hostile of [1, 4, 16]) {
    for (const size of [1, 10, 100]) {
      test(`${hostile} with requests of ${size} calls leave an honest one its share`, async () => {
        const clock = new TestClock();
        const share = new NodeShare(256, RATE, clock);
        const served = new Map<string, number>();
        const waits: number[] = [];
        let isOver = false;
        const work = async (caller: string, calls: number): Promise<void> => {
          while (!isOver) {
            const fromMs = clock.monotonicMs();
            const holder =
              share.take(caller, calls) ?? (await share.wait(caller, calls, 1e9, undefined));
            if (holder === undefined) return;
            if (caller === 'honest') waits.push(clock.monotonicMs() - fromMs);
            served.set(caller, (served.get(caller) ?? 0) + calls);
            share.give(holder);
            await Promise.resolve();
          }
        };
        for (let account = 0; account < hostile; account += 1)
          for (let together = 0; together < 20; together += 1)
            void work(`hostile ${account}`, size);
        void work('honest', 1);
        await settled();
        const seconds = 60;
        for (let step = 0; step < seconds * 200; step += 1) {
          clock.advance(5);
          await settled();
        }
        isOver = true;
        share.close();
        const least = (seconds * RATE) / (hostile + 1);
        const honest = served.get('honest') ?? 0;
        assert.ok(honest >= 0.95 * least, `${honest} of ${least} calls`);
        waits.sort((one, other) => one - other);
        const p99Ms = waits[Math.floor(waits.length * 0.99)] ?? 0;
        // In one turn each account is served once.
        const turnMs = ((hostile * size + 1) * SECOND_MS) / RATE;
        assert.ok(p99Ms <= 2 * turnMs, `${p99Ms} ms, a turn takes ${turnMs} ms`);
      });
    }
  }
});
