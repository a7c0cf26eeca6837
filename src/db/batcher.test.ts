/** Batches start at once for a single caller, and after a pause if many wait. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TestClock } from '../../test/support/test-clock.ts';
import { Batcher } from './db.ts';

function open(clock: TestClock) {
  const sizes: number[] = [];
  const ends: (() => void)[] = [];
  const batcher = new Batcher<number, number>(
    async (items) => {
      sizes.push(items.length);
      await new Promise<void>((resolve) => ends.push(resolve));
      return items;
    },
    { maxInFlight: 2, maxItems: 100, gather: { clock, leastBeside: 10, pauseFrom: 3 } },
  );
  return { batcher, sizes, ends };
}

const turn = () => new Promise<void>((resolve) => setImmediate(() => setImmediate(resolve)));

test('a single call, or one beside another, waits for no pause', async () => {
  const { batcher, sizes, ends } = open(new TestClock());
  const first = batcher.add(1);
  await turn();
  const second = batcher.add(2);
  await turn();
  assert.deepEqual(sizes, [1]);
  ends.shift()?.();
  assert.equal(await first, 1);
  await turn();
  assert.deepEqual(sizes, [1, 1]);
  ends.shift()?.();
  assert.equal(await second, 2);
});

test('if several calls wait, the next batch is delayed by the duration of the last', async () => {
  const clock = new TestClock();
  const { batcher, sizes, ends } = open(clock);
  const answers = [batcher.add(1)];
  await turn();
  for (const item of [2, 3, 4]) answers.push(batcher.add(item));
  await turn();
  clock.advance(4);
  ends.shift()?.();
  await turn();
  answers.push(batcher.add(5));
  await turn();
  clock.advance(3);
  await turn();
  assert.deepEqual(sizes, [1], 'it waits for the callers that received results');
  clock.advance(1);
  await turn();
  assert.deepEqual(sizes, [1, 4]);
  ends.shift()?.();
  assert.deepEqual(await Promise.all(answers), [1, 2, 3, 4, 5]);
});

test('a full batch starts at once and ends the pause', async () => {
  const clock = new TestClock();
  const { batcher, sizes, ends } = open(clock);
  const answers = [batcher.add(0)];
  await turn();
  for (let item = 1; item < 4; item += 1) answers.push(batcher.add(item));
  await turn();
  clock.advance(2);
  ends.shift()?.();
  await turn();
  for (let item = 4; item < 11; item += 1) answers.push(batcher.add(item));
  await turn();
  assert.deepEqual(sizes, [1, 10]);
  answers.push(batcher.add(11));
  clock.advance(2);
  await turn();
  assert.deepEqual(sizes, [1, 10], 'one more waits for the patience of a batch beside another');
  ends.shift()?.();
  await turn();
  assert.deepEqual(sizes, [1, 10, 1]);
  ends.shift()?.();
  assert.equal((await Promise.all(answers)).length, 12);
});
