import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Rgba, applyMatte } from './matte.ts';

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

test('`applyMatte` moves a coarse mask edge to the edge of the image', () => {
  const image = split(640, 240, 323);
  // A cell of the mask is 2.5 pixels wide; the edge of the mask is at 320, three pixels off.
  const values = new Float32Array(256 * 96).map((_, index) => (index % 256 >= 128 ? 1 : 0));
  applyMatte(image, split(640, 240, 323), { width: 256, height: 96, values });
  assert.equal(alphaAt(image, 300, 120), 0, 'well outside is clear');
  const [dark, bright] = [alphaAt(image, 322, 120), alphaAt(image, 323, 120)];
  assert.ok(bright - dark > 120, `the step is at the edge of the picture: ${dark} to ${bright}`);
  assert.ok(bright > 215);
  assert.equal(alphaAt(image, 340, 120), 255);
});

test('`applyMatte` accepts an image that is one pixel wide', () => {
  const image = split(1, 90_000, 0);
  applyMatte(image, split(1, 640, 0), { width: 1, height: 2, values: new Float32Array([0, 1]) });
  assert.equal(alphaAt(image, 0, 0), 0);
  assert.equal(alphaAt(image, 0, 89_999), 255);
});
