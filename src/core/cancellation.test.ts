/** A cancellation notifies each listener once, and aborts its signal. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cancellation, NEVER_CANCELLED } from './cancellation.ts';

test('each listener is told once, in order; one that was taken off is not', () => {
  const cancellation = new Cancellation();
  const told: string[] = [];
  const listeners = ['a', 'b', 'c', 'd'].map((name) => (): void => void told.push(name));
  for (const listener of listeners) cancellation.addEventListener('abort', listener);
  const [first, , third] = listeners;
  cancellation.removeEventListener('abort', first!);
  cancellation.removeEventListener('abort', third!);
  assert.equal(cancellation.aborted, false);
  cancellation.abort();
  cancellation.abort();
  assert.equal(cancellation.aborted, true);
  assert.deepEqual(told, ['b', 'd']);
});

test('a signal that is asked for before or after says the same', () => {
  const cancellation = new Cancellation();
  const { signal } = cancellation;
  assert.equal(signal.aborted, false);
  cancellation.abort();
  assert.equal(signal.aborted, true);
  assert.equal(cancellation.signal, signal);
  const late = new Cancellation();
  late.abort();
  assert.equal(late.signal.aborted, true);
});

test('what is never cancelled keeps nobody who listens', () => {
  NEVER_CANCELLED.addEventListener('abort', () => assert.fail('told'));
  NEVER_CANCELLED.abort();
  assert.equal(NEVER_CANCELLED.aborted, false);
  assert.equal(NEVER_CANCELLED.signal.aborted, false);
});
