/** Resolves to `true` with the first `true`, and to `false` once all are `false`. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isAny } from './is-any.ts';

const never = new Promise<boolean>(() => undefined);

test('one `true` is enough, whatever the others do', async () => {
  assert.equal(await isAny([never, Promise.resolve(false), Promise.resolve(true)]), true);
  const late = Promise.withResolvers<boolean>();
  assert.equal(await isAny([Promise.resolve(true), late.promise]), true);
  late.reject(new Error('nobody hears it'));
});

test('`false` needs all promises, or none at all', async () => {
  assert.equal(await isAny([Promise.resolve(false), Promise.resolve(false)]), false);
  assert.equal(await isAny([]), false);
  await assert.rejects(isAny([Promise.reject(new Error('lost')), Promise.resolve(false)]), /lost/);
});
