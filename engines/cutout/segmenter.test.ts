import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RECIPES, modelInput, modelMask } from './segmenter.ts';

test('`modelInput` divides by the brightest value and normalises with the ImageNet mean and deviation', () => {
  const rgb = Buffer.alloc(320 * 320 * 3);
  rgb.set([100, 50, 200]);
  const input = modelInput(rgb, RECIPES.u2net);
  const plane = 320 * 320;
  assert.ok(Math.abs(input[0]! - (0.5 - 0.485) / 0.229) < 1e-6);
  assert.ok(Math.abs(input[plane]! - (0.25 - 0.456) / 0.224) < 1e-6);
  assert.ok(Math.abs(input[2 * plane]! - (1 - 0.406) / 0.225) < 1e-6);
  assert.ok(Math.abs(input[1]! - -0.485 / 0.229) < 1e-6);
});

test('`modelInput` scales to 0..1 for the person model', () => {
  const input = modelInput(Buffer.alloc(256 * 256 * 3, 51), RECIPES.person);
  assert.ok(Math.abs(input[0]! - 0.2) < 1e-6);
});

test('`modelInput` accepts a black image of the largest model', () => {
  const input = modelInput(Buffer.alloc(1024 * 1024 * 3), RECIPES.isnet);
  assert.equal(input[0], -0.5);
});

test('`modelMask` stretches to 0..1 and returns an empty mask for a flat output', () => {
  const stretched = modelMask(new Float32Array([-2, 0, 2]), RECIPES.u2net);
  assert.deepEqual([...stretched], [0, 0.5, 1]);
  assert.deepEqual([...modelMask(new Float32Array([3, 3]), RECIPES.u2net)], [0, 0]);
  assert.deepEqual([...modelMask(new Float32Array([0.25]), RECIPES.person)], [0.25]);
});
