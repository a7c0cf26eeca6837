import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { sharp } from '../../test/support/sharp.ts';
import { imageSize } from './media-type.ts';

const solid = (width: number, height: number) =>
  sharp({ create: { width, height, channels: 3, background: '#406080' } });

describe('imageSize()', () => {
  const MADE: [string, () => Promise<Buffer>][] = [
    ['a PNG', () => solid(301, 203).png().toBuffer()],
    ['a JPEG', () => solid(301, 203).jpeg().toBuffer()],
    ['a progressive JPEG', () => solid(301, 203).jpeg({ progressive: true }).toBuffer()],
    ['a JPEG with a profile', () => solid(301, 203).withIccProfile('p3').jpeg().toBuffer()],
    ['a WebP', () => solid(301, 203).webp().toBuffer()],
    ['a lossless WebP', () => solid(301, 203).webp({ lossless: true }).toBuffer()],
    ['a WebP with metadata', () => solid(301, 203).withIccProfile('p3').webp().toBuffer()],
    ['a GIF', () => solid(301, 203).gif().toBuffer()],
    ['a TIFF', () => solid(301, 203).tiff().toBuffer()],
    ['an AVIF', () => solid(301, 203).avif({ effort: 0 }).toBuffer()],
  ];
  for (const [name, make] of MADE) {
    test(`reads ${name}`, async () => {
      assert.deepEqual(imageSize(await make()), { width: 301, height: 203 });
    });
  }

  test('returns `undefined` for a truncated or invalid header', async () => {
    const jpeg = await solid(301, 203).jpeg().toBuffer();
    for (const bytes of [
      Buffer.alloc(0),
      Buffer.from('text, and long enough'),
      jpeg.subarray(0, 60),
    ]) {
      assert.equal(imageSize(bytes), undefined);
    }
  });

  test('ends on invalid segments', () => {
    const looping = Buffer.alloc(100_000, 0xff);
    looping[1] = 0xd8;
    assert.equal(imageSize(looping), undefined);
    const tiff = Buffer.concat([
      Buffer.from('II*\0'),
      Buffer.from([8, 0, 0, 0]),
      Buffer.alloc(60, 255),
    ]);
    assert.equal(imageSize(tiff), undefined);
  });
});
