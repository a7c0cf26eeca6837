import assert from 'node:assert/strict';
import { test } from 'node:test';
import { deleteInBatches } from './delete-in-batches.ts';

test('a run ends although there are always more rows, so that other jobs run', async () => {
  let batches = 0;
  const deleted = await deleteInBatches(2, async () => {
    batches += 1;
    assert.ok(batches < 10_000, 'the run does not end');
    return ['a', 'b'];
  });
  assert.equal(deleted, 2 * batches);
});
