import assert from 'node:assert/strict';
import { test } from 'node:test';

import { editDistance, nearestOf } from './nearest-word.ts';

test('the edit distance counts inserts, deletes, replacements and swaps', () => {
  assert.equal(editDistance('', 'abc'), 3);
  assert.equal(editDistance('abc', 'abc'), 0);
  assert.equal(editDistance('abc', 'acb'), 1);
  assert.equal(editDistance('kitten', 'sitting'), 3);
});

test('the nearest word is found whatever its case, unless it is too different', () => {
  const words = ['input', 'output', 'cacheInput'];
  assert.equal(nearestOf('inptu', words), 'input');
  assert.equal(nearestOf('OUTPUT', words), 'output');
  assert.equal(nearestOf('cacheinput', words), 'cacheInput');
  assert.equal(nearestOf('zebra', words), undefined);
  assert.equal(nearestOf('x'.repeat(1_000), words), undefined);
});
