import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readPriceList } from './price-list.ts';

const pricesIn = (text: string) =>
  readPriceList(text).map((one) => {
    const { facts: _facts, ...price } = one;
    return price;
  });

test('the price file of LiteLLM is read with all kinds of tokens and tiers', () => {
  const list = pricesIn(`{
    "sample_spec": { "mode": "chat", "max_tokens": 1 },
    "claude-x": { "litellm_provider": "anthropic", "input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05,
      "cache_creation_input_token_cost": 3.75e-06, "cache_creation_input_token_cost_above_1hr": 6e-06 },
    "azure/omni": { "litellm_provider": "azure", "input_cost_per_token": 2.5e-06, "output_cost_per_token": 1e-05,
      "input_cost_per_audio_token": 4e-05, "output_cost_per_audio_token": 8e-05, "output_cost_per_reasoning_token": 9e-06,
      "input_cost_per_token_priority": 4.25e-06 } }`);
  assert.deepEqual(list, [
    {
      key: 'claude-x',
      provider: 'anthropic',
      model: 'claude-x',
      price: { input: '3', output: '15', cacheWrite: '3.75', cacheWrite1h: '6' },
      warnings: [],
    },
    {
      key: 'azure/omni',
      provider: 'azure',
      model: 'omni',
      price: {
        input: '2.5',
        output: '10',
        audioInput: '40',
        audioOutput: '80',
        reasoning: '9',
        serviceTiers: { priority: { input: '4.25' } },
      },
      warnings: [],
    },
  ]);
});

test('api.json of models.dev is read', () => {
  const list = pricesIn(`{ "google": { "id": "google", "models": {
    "gem": { "id": "gem", "cost": { "input": 1.25, "output": 10, "cache_read": 0.31, "input_audio": 1.5,
      "context_over_200k": { "input": 2.5, "output": 15 } } },
    "free": { "id": "free" } } } }`);
  const extended = {
    above: 200_000,
    input: '2.5',
    output: '15',
    cacheInput: '0.31',
    audioInput: '1.5',
  };
  const price = { input: '1.25', output: '10', cacheInput: '0.31', audioInput: '1.5', extended };
  assert.deepEqual(list, [
    { key: 'google/gem', provider: 'google', model: 'gem', price, warnings: [] },
  ]);
});

test('the models of OpenRouter are read, without those whose price depends on the request', () => {
  const list = pricesIn(`{ "data": [
    { "id": "openrouter/auto", "pricing": { "prompt": "-1", "completion": "-1" } },
    { "id": "meta/llama", "pricing": { "prompt": "0.0000001", "completion": "0.00000045", "request": "0",
      "web_search": "0.01", "input_cache_read": "0.00000002" } } ] }`);
  const price = { input: '0.1', output: '0.45', cacheInput: '0.02', perSearch: '0.01' };
  assert.deepEqual(list, [
    { key: 'meta/llama', provider: 'meta', model: 'llama', price, warnings: [] },
  ]);
});

test('another file is rejected', () => {
  for (const text of ['[]', '{}', '3'])
    assert.throws(() => readPriceList(text), /must be the price file/);
  assert.throws(() => readPriceList('<html>'), /not valid JSON/);
});

test('each list has the context and the type of its models', () => {
  const facts = (text: string) => readPriceList(text).map((one) => one.facts);
  assert.deepEqual(
    facts(`{ "e": { "mode": "embedding", "input_cost_per_token": 1e-07, "max_input_tokens": 8191,
      "output_vector_size": 1536 } }`),
    [{ type: 'embedding', maxInputTokens: 8191, dimensions: 1536, capabilities: [] }],
  );
  assert.deepEqual(
    facts(`{ "google": { "models": { "gem": { "cost": { "input": 1 }, "tool_call": true,
      "limit": { "context": 1000000, "output": 65536 } } } } }`),
    [
      {
        type: 'text',
        context: 1_000_000,
        maxCompletionTokens: 65_536,
        capabilities: ['functionCalling'],
      },
    ],
  );
  assert.deepEqual(
    facts(`{ "data": [{ "id": "a/b", "pricing": { "prompt": "0.1" }, "context_length": 4096,
      "top_provider": { "max_completion_tokens": null } }] }`),
    [{ type: 'text', context: 4096 }],
  );
});
