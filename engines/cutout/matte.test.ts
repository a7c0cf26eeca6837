import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sharp } from '../../test/support/sharp.ts';
import type { Turn } from '../../src/core/job-queue.ts';
import { type Rgba, applyMatte } from './matte.ts';
import { encodePng } from './png.ts';

const atOnce: Turn = (work) => work();

/** An image with a vertical edge at `edge`: dark on the left, bright on the right. */
function split(width: number, height: number, edge: number): Rgba {
  const data = Buffer.alloc(width * height * 4, 255);
  for (let y = 0; y < height; y += 1) {
    for (let x = 0; x < edge; x += 1) data.fill(20, (y * width + x) * 4, (y * width + x) * 4 + 3);
  }
  return { width, height, data };
}

function alphaAt(image: Rgba, x: number, y: number): number {
  return image.data[(y * image.width + x) * 4 + 3]!;
}

test('`applyMatte` moves a coarse mask edge to the edge of the image', async () => {
  const image = split(640, 240, 323);
  // A cell of the mask is 2.5 pixels wide; the edge of the mask is at 320, three pixels off.
  const values = new Float32Array(256 * 96).map((_, index) => (index % 256 >= 128 ? 1 : 0));
  const mask = { width: 256, height: 96, values };
  await applyMatte(image, split(640, 240, 323), mask, atOnce);
  assert.equal(alphaAt(image, 300, 120), 0, 'well outside is clear');
  const [dark, bright] = [alphaAt(image, 322, 120), alphaAt(image, 323, 120)];
  assert.ok(bright - dark > 120, `the step is at the edge of the picture: ${dark} to ${bright}`);
  assert.ok(bright > 215);
  assert.equal(alphaAt(image, 340, 120), 255);
});

test('`applyMatte` accepts an image that is one pixel wide', async () => {
  const image = split(1, 90_000, 0);
  const mask = { width: 1, height: 2, values: new Float32Array([0, 1]) };
  await applyMatte(image, split(1, 640, 0), mask, atOnce);
  assert.equal(alphaAt(image, 0, 0), 0);
  assert.equal(alphaAt(image, 0, 89_999), 255);
});

test('a turn has at most two million pixels, and the bands make the whole image', async () => {
  const image = split(2_500, 2_000, 1_200);
  let turns = 0;
  const counted: Turn = (work) => {
    turns += 1;
    return work();
  };
  const mask = { width: 4, height: 4, values: new Float32Array(16).map((_, at) => at % 2) };
  await applyMatte(image, split(500, 400, 240), mask, counted);
  // The coefficients, and three bands of five million pixels.
  assert.equal(turns, 4);
  const png = await encodePng(image, counted);
  assert.equal(turns, 7);
  const decoded = await sharp(png).raw().toBuffer({ resolveWithObject: true });
  assert.deepEqual([decoded.info.width, decoded.info.height], [2_500, 2_000]);
  assert.ok(decoded.data.equals(image.data));
});

test('an image of one row, and one of 90,000 rows, are valid PNG files', async () => {
  for (const image of [split(90_000, 1, 50), split(1, 90_000, 0)]) {
    const { data } = await sharp(await encodePng(image, atOnce))
      .raw()
      .toBuffer({ resolveWithObject: true });
    assert.ok(data.equals(image.data));
  }
});
