import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SliceLength } from './slice-length.ts';

/** Evaluates a prompt on a machine with this speed; returns the lengths of its slices. */
function slicesOf(length: SliceLength, tokens: number, perSecond: number): number[] {
  const slices: number[] = [];
  for (let left = tokens; left > 0; left -= slices.at(-1)!) {
    const slice = Math.min(left, length.tokens);
    slices.push(slice);
    length.record(slice, (slice / perSecond) * 1_000);
  }
  return slices;
}

test('a slice takes at most 150 ms after the first one, and has 8 to 256 tokens', () => {
  assert.deepEqual(slicesOf(new SliceLength(), 100, 100), [32, 15, 15, 15, 15, 8]);
  assert.deepEqual(slicesOf(new SliceLength(), 1_000, 5_000), [32, 64, 128, 256, 256, 256, 8]);
  assert.deepEqual(slicesOf(new SliceLength(), 60, 10), [32, 8, 8, 8, 4]);
});

test('one slow slice shortens only the next ones, and a short rest changes nothing', () => {
  const length = new SliceLength();
  slicesOf(length, 1_000, 5_000);
  length.record(256, 3_000);
  assert.equal(length.tokens, 12);
  length.record(3, 100);
  assert.equal(length.tokens, 12);
  assert.deepEqual(slicesOf(length, 180, 5_000), [12, 24, 48, 96]);
});
