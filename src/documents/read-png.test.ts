import assert from 'node:assert/strict';
import { test } from 'node:test';
import { crc32, deflateSync } from 'node:zlib';
import { sharp } from '../../test/support/sharp.ts';
import { readPng } from './read-png.ts';
import { ReaderError } from './reader-error.ts';

const [width, height] = [61, 37];
/** Noise whose alpha increases from 0 on the left to opaque on the right. */
const pixels = Buffer.from(
  Array.from({ length: width * height * 4 }, (_, at) => {
    const x = Math.floor(at / 4) % width;
    return at % 4 === 3 ? Math.floor((x * 255) / (width - 1)) : (at * 7_919) % 251;
  }),
);
const image = () => sharp(pixels, { raw: { width, height, channels: 4 } });

test('alpha shares agree with another reader for every kind of PNG', async () => {
  const kinds = [
    image().png(),
    image().png({ adaptiveFiltering: true }),
    image().png({ progressive: true }),
    image().png({ progressive: true, adaptiveFiltering: true, compressionLevel: 9 }),
    image().toColourspace('rgb16').png({ adaptiveFiltering: true }),
    image().greyscale().png({ adaptiveFiltering: true }),
    image().png({ palette: true }),
    image().png({ palette: true, colours: 4, progressive: true }),
  ];
  for (const [at, kind] of kinds.entries()) {
    const png = await kind.toBuffer();
    const raw = await sharp(png).toColourspace('srgb').raw({ depth: 'uchar' }).toBuffer();
    const channels = raw.length / (width * height);
    const alphas = raw.filter((_, index) => index % channels === channels - 1);
    const facts = await readPng(png);
    assert.deepEqual([facts.width, facts.height], [width, height]);
    const count = (isSo: (alpha: number) => boolean): number => alphas.filter(isSo).length;
    const pixelCount = width * height;
    assert.ok(facts.alpha !== undefined, `kind ${at}`);
    assert.equal(facts.alpha.visible, count((alpha) => alpha >= 64) / pixelCount, `kind ${at}`);
    assert.equal(facts.alpha.clear, count((alpha) => alpha <= 191) / pixelCount, `kind ${at}`);
  }
});

test('a PNG without alpha channel has no alpha shares', async () => {
  for (const kind of [image().removeAlpha().png(), image().removeAlpha().png({ palette: true })]) {
    assert.equal((await readPng(await kind.toBuffer())).alpha, undefined);
  }
});

function chunk(type: string, data: Uint8Array): Buffer {
  const bytes = Buffer.concat([Buffer.alloc(4), Buffer.from(type), data, Buffer.alloc(4)]);
  bytes.writeUInt32BE(data.length, 0);
  bytes.writeUInt32BE(crc32(bytes.subarray(4, -4)), bytes.length - 4);
  return bytes;
}

function png(head: readonly number[], rows: Uint8Array, ...more: Buffer[]): Buffer {
  const header = Buffer.alloc(13);
  header.writeUInt32BE(2, 0);
  header.writeUInt32BE(2, 4);
  header.set(head, 8);
  return Buffer.concat([
    Buffer.from('\x89PNG\r\n\x1a\n', 'latin1'),
    chunk('IHDR', header),
    ...more,
    chunk('IDAT', deflateSync(rows)),
    chunk('IEND', Buffer.alloc(0)),
  ]);
}

test('an incomplete or damaged PNG is rejected', async () => {
  const rgba = [8, 6, 0, 0, 0];
  const rows = Buffer.alloc(2 * 9);
  assert.deepEqual((await readPng(png(rgba, rows))).alpha, { visible: 0, clear: 1 });
  const wrong: [string, Buffer][] = [
    ['a missing row', png(rgba, rows.subarray(9))],
    ['an additional byte', png(rgba, Buffer.alloc(19))],
    ['a bomb', png(rgba, Buffer.alloc(50_000_000))],
    ['an unknown filter', png(rgba, Buffer.alloc(18, 5))],
    ['an unknown colour type', png([8, 5, 0, 0, 0], rows)],
    ['a depth that its colour cannot have', png([4, 6, 0, 0, 0], rows)],
    ['an unknown interlace', png([8, 6, 0, 0, 2], rows)],
    ['no palette', png([8, 3, 0, 0, 0], Buffer.alloc(6))],
    ['bytes after its end', Buffer.concat([png(rgba, rows), Buffer.alloc(1)])],
    ['another end', Buffer.concat([png(rgba, rows), chunk('IEND', Buffer.alloc(0))])],
  ];
  for (const [name, bytes] of wrong) {
    await assert.rejects(readPng(bytes), ReaderError, name);
  }
  const whole = await image().png().toBuffer();
  for (let length = 0; length < whole.length; length += 97) {
    await assert.rejects(readPng(whole.subarray(0, length)), ReaderError, `${length} bytes`);
  }
  for (let at = 0; at < whole.length; at += 53) {
    const flipped = Buffer.from(whole);
    flipped[at] = (flipped[at] ?? 0) ^ 4;
    await assert.rejects(readPng(flipped), ReaderError, `a wrong bit at ${at}`);
  }
});
