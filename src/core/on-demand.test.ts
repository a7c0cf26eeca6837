import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onDemand } from './on-demand.ts';

test('concurrent calls share one value, and a failure is retried', async () => {
  let made = 0;
  const get = onDemand(async () => {
    made += 1;
    if (made === 1) throw new Error('Not yet');
    return made;
  });
  await assert.rejects(get, /Not yet/);
  assert.deepEqual(await Promise.all([get(), get()]), [2, 2]);
  assert.equal(await get(), 2);
});
