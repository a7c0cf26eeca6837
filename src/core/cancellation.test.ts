/** A cancellation notifies each listener once, and aborts its signal. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cancellation, NEVER_CANCELLED } from './cancellation.ts';

test('listeners are called once, in order, unless they were removed', () => {
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

test('a signal created before or after the abort is aborted', () => {
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

test('`NEVER_CANCELLED` keeps no listeners', () => {
  NEVER_CANCELLED.addEventListener('abort', () => assert.fail('told'));
  NEVER_CANCELLED.abort();
  assert.equal(NEVER_CANCELLED.aborted, false);
  assert.equal(NEVER_CANCELLED.signal.aborted, false);
});
