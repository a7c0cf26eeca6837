/** For which methods a node is used last, for which callers and for how long. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { TestClock } from '../../test/support/test-clock.ts';
import { MethodPauses } from './method-pauses.ts';

const SECOND_MS = 1_000;

test('a method is paused only for the caller without a response', () => {
  const clock = new TestClock();
  const slow = new MethodPauses(10 * SECOND_MS, clock);
  assert.equal(slow.hasAny, false);
  slow.note('eth_getLogs', 'alice');
  assert.equal(slow.isPaused('eth_getLogs', 'alice'), true);
  assert.equal(slow.isPaused('eth_getLogs', 'bob'), false);
  assert.equal(slow.isPaused('eth_call', 'alice'), false);
  clock.advance(10 * SECOND_MS);
  assert.equal(slow.isPaused('eth_getLogs', 'alice'), false);
});

test('the pause doubles up to five minutes, and concurrent calls count once', () => {
  const clock = new TestClock();
  const slow = new MethodPauses(10 * SECOND_MS, clock);
  for (const seconds of [10, 20, 40, 80, 160, 300, 300]) {
    for (let together = 0; together < 5; together += 1) slow.note('eth_getLogs', 'alice');
    clock.advance(seconds * SECOND_MS - 1);
    assert.equal(slow.isPaused('eth_getLogs', 'alice'), true, `${seconds} s`);
    clock.advance(1);
    assert.equal(slow.isPaused('eth_getLogs', 'alice'), false, `${seconds} s`);
  }
  slow.forget('eth_getLogs', 'alice');
  assert.equal(slow.hasAny, false);
  slow.note('eth_getLogs', 'alice');
  clock.advance(10 * SECOND_MS);
  assert.equal(slow.isPaused('eth_getLogs', 'alice'), false);
});

test('three affected callers pause a method for all, until one of them has a response', () => {
  const slow = new MethodPauses(10 * SECOND_MS, new TestClock());
  slow.note('eth_getLogs', 'alice');
  slow.note('eth_getLogs', 'bob');
  assert.equal(slow.isPaused('eth_getLogs', 'carol'), false);
  slow.note('eth_getLogs', 'dave');
  assert.equal(slow.isPaused('eth_getLogs', 'carol'), true);
  slow.forget('eth_getLogs', 'bob');
  assert.equal(slow.isPaused('eth_getLogs', 'carol'), false);
  assert.equal(slow.isPaused('eth_getLogs', 'alice'), true);
});

test('the number of methods and callers in memory is limited', () => {
  const slow = new MethodPauses(10 * SECOND_MS, new TestClock());
  for (let at = 0; at < 1_000; at += 1) slow.note(`zks_${at}`, 'alice');
  assert.equal(slow.isPaused('zks_0', 'alice'), false);
  assert.equal(slow.isPaused('zks_999', 'alice'), true);
  const other = new MethodPauses(10 * SECOND_MS, new TestClock());
  for (let at = 0; at < 1_000; at += 1) other.note('eth_call', `caller ${at}`);
  for (let at = 900; at < 1_000; at += 1) other.forget('eth_call', `caller ${at}`);
  assert.equal(other.hasAny, false);
});
