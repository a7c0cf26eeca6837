import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FairQueue } from './fair-queue.ts';

function queueOf(...items: readonly string[]): FairQueue<string> {
  const queue = new FairQueue<string>();
  for (const item of items) queue.add(item[0]!, item);
  return queue;
}

function drain(queue: FairQueue<string>): string[] {
  const order: string[] = [];
  for (let next = queue.next(); next !== undefined; next = queue.next()) order.push(next);
  assert.equal(queue.size, 0);
  return order;
}

test('callers take turns, and the items of one caller keep their order', () => {
  assert.deepEqual(drain(queueOf('a1', 'a2', 'a3', 'b1', 'c1', 'b2')), [
    'a1',
    'b1',
    'c1',
    'a2',
    'b2',
    'a3',
  ]);
});

test('a caller that may not go is skipped and keeps its place', () => {
  const queue = queueOf('a1', 'a2', 'b1');
  assert.equal(
    queue.next((caller) => caller !== 'a'),
    'b1',
  );
  assert.equal(
    queue.next((caller) => caller !== 'a'),
    undefined,
  );
  assert.deepEqual(drain(queue), ['a1', 'a2']);
});

test('`remove` removes an item once', () => {
  const queue = queueOf('a1', 'a2', 'b1');
  queue.remove('a', 'a1');
  queue.remove('a', 'a1');
  queue.remove('x', 'x1');
  queue.remove('b', 'b1');
  assert.deepEqual([queue.size, queue.sizeOf('a'), queue.sizeOf('b')], [1, 1, 0]);
  assert.deepEqual(drain(queue), ['a2']);
});

test('the newest item of the longest line is dropped, only for a shorter line', () => {
  const queue = queueOf('a1', 'a2', 'a3', 'b1');
  assert.equal(queue.takeLastOfLongest('a'), undefined);
  const before = queue.size;
  assert.equal(queue.takeLastOfLongest('c'), 'a3');
  assert.equal(queue.size, before - 1);
  assert.equal(queueOf('a1', 'a2', 'a3', 'b1').takeLastOfLongest('b'), 'a3');
  assert.equal(queueOf('a1', 'b1').takeLastOfLongest('c'), undefined);
});
