import assert from 'node:assert/strict';
import { test } from 'node:test';
import { blockingTurn, engineQueue } from './engine-queue.ts';

test('a response is sent before the work of the next caller blocks the event loop', async () => {
  const queue = engineQueue({ running: 1, waiting: 4, retryAfterSeconds: 1 });
  const { signal } = new AbortController();
  const order: string[] = [];
  const request = async (caller: string): Promise<void> => {
    await blockingTurn(queue.turnsOf(caller, signal))(() => {
      order.push(`work of ${caller}`);
      return Promise.resolve();
    });
    // Node writes a response to its socket on the next tick.
    process.nextTick(() => order.push(`response to ${caller}`));
  };
  await Promise.all([request('a'), request('b')]);
  assert.deepEqual(order.slice(0, 3), ['work of a', 'response to a', 'work of b']);
});
