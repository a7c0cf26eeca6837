import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { test } from 'node:test';
import { ImagesBody } from './images-body.ts';

test('images are written as base64 in turns, and the end is appended', async () => {
  const images = [randomBytes(9_000_001), randomBytes(1), randomBytes(1_572_865)];
  let turns = 0;
  let isDone = false;
  const count = (): void => {
    turns += 1;
    if (!isDone) setImmediate(count);
  };
  setImmediate(count);
  const body = await ImagesBody.of(images.flatMap((bytes) => ['<é>', bytes]));
  isDone = true;
  const written = images.map((bytes) => `<é>${bytes.toString('base64')}`).join('');
  assert.equal(body.end('€').toString(), `${written}€`);
  assert.ok(turns >= 6, `${turns} turns`);
});

test('an end that is larger than the spare bytes is appended', async () => {
  const body = await ImagesBody.of(['[', Buffer.from('a')]);
  const long = 'x'.repeat(200_000);
  assert.equal(body.end(long).toString(), `[YQ==${long}`);
});
