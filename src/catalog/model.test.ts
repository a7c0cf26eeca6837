import assert from 'node:assert/strict';
import { test } from 'node:test';

import { parametersInId, tierOf } from './model.ts';

test('the tier follows the size in the model id', () => {
  const tiers = {
    'qwen3:0.6b': 'XS',
    'smollm2-135m-instruct': 'XS',
    'gemma-3-4b-it': 'XS',
    'llama-3.1-8b': 'S',
    'phi-4-14B': 'S',
    'mistral-small-24b': 'M',
    'llama3.3:70b-instruct-q4_K_M': 'M',
    'mixtral-8x22b': 'L',
    'mixtral-8x7b': 'M',
    'qwen3-235b-a22b': 'L',
    'qwen3-30b-a3b': 'M',
    'gpt-4o': 'M',
    atlas: 'M',
  };
  for (const [id, tier] of Object.entries(tiers)) assert.equal(tierOf(id), tier, id);
});

test('the boundary sizes belong to the smaller tier', () => {
  assert.equal(tierOf('', 4e9), 'XS');
  assert.equal(tierOf('', 4e9 + 1), 'S');
  assert.equal(tierOf('', 15e9), 'S');
  assert.equal(tierOf('', 80e9), 'M');
  assert.equal(tierOf('', 80e9 + 1), 'L');
});

test('a version number is not a size', () => {
  assert.equal(parametersInId('llama-3.1'), undefined);
  assert.equal(parametersInId('model-v2b1'), undefined);
});
