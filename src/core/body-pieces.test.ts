import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { BodyPieces } from './body-pieces.ts';

test('pieces of any size are joined in their order', async () => {
  const sizes = [1, 1_023, 1_024, 3, 40_000, 5, ...Array.from({ length: 50 }, () => 900), 2_000];
  for (const count of [0, 1, 2, sizes.length]) {
    const given = sizes.slice(0, count).map((size) => randomBytes(size));
    const body = new BodyPieces();
    for (const piece of given) body.add(piece);
    assert.deepEqual(await body.joined(), Buffer.concat(given));
    assert.equal(body.sizeBytes, Buffer.concat(given).length);
  }
});
