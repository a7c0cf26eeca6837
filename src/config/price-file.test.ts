import assert from 'node:assert/strict';
import { test } from 'node:test';

import { type ImportedModel, readPriceFile } from './price-file.ts';

function imported(entry: string): ImportedModel {
  const found = readPriceFile(`{"m": ${entry}}`)('m');
  assert.ok(typeof found !== 'string', 'the entry is imported');
  return found;
}

test('prices keep all digits of the file', () => {
  const { price, warnings } = imported(`{
    "mode": "chat", "input_cost_per_token": 1.5e-07, "output_cost_per_token": 0.000000600,
    "cache_read_input_token_cost": 7.5E-8, "cache_creation_input_token_cost": 3.75e-06 }`);
  assert.deepEqual(price, {
    input: '0.15',
    output: '0.6',
    cacheInput: '0.075',
    cacheWrite: '3.75',
  });
  assert.deepEqual(warnings, []);
});

test('each threshold becomes a step of the extended prices', () => {
  const { price } = imported(`{
    "input_cost_per_token": 3e-06, "output_cost_per_token": 1.5e-05,
    "input_cost_per_token_above_272k_tokens": 9e-06,
    "input_cost_per_token_above_200k_tokens": 6e-06,
    "output_cost_per_token_above_200k_tokens": 2.25e-05,
    "cache_read_input_token_cost_above_200k_tokens": 6e-07 }`);
  assert.deepEqual(price.extended, [
    { above: 200_000, input: '6', output: '22.5', cacheInput: '0.6' },
    { above: 272_000, input: '9', output: '22.5', cacheInput: '0.6' },
  ]);
});

test('a price with more than 9 decimals is rounded with a warning', () => {
  const { price, warnings } = imported('{"input_cost_per_token": 2.9999900000000002e-06}');
  assert.equal(price.input, '2.99999');
  assert.match(warnings.join(), /finer than 10\^-15 USD/);
});

test('limits and capabilities are imported', () => {
  const found = imported(`{
    "max_tokens": 8192, "max_input_tokens": 128000, "max_output_tokens": 16384,
    "supports_function_calling": true, "supports_vision": true, "supports_response_schema": false }`);
  assert.equal(found.type, 'text');
  assert.equal(found.context, 128_000);
  assert.equal(found.maxCompletionTokens, 16_384);
  assert.deepEqual(found.capabilities, ['functionCalling', 'vision', 'multipleImages']);
});

test('each type of model gets its own prices', () => {
  const embedding = imported(
    '{"mode": "embedding", "input_cost_per_token": 2e-08, "output_vector_size": 1536, "max_input_tokens": 8191}',
  );
  assert.equal(embedding.type, 'embedding');
  assert.deepEqual([embedding.dimensions, embedding.maxInputTokens], [1536, 8191]);
  assert.deepEqual(embedding.price, { input: '0.02' });
  const asr = imported('{"mode": "audio_transcription", "input_cost_per_second": 0.0001}');
  assert.equal(asr.type, 'asr');
  assert.equal(asr.price.perSecond, '0.0001');
  const speech = imported('{"mode": "audio_speech", "input_cost_per_character": 1.5e-05}');
  assert.deepEqual([speech.type, speech.price.perMillionCharacters], ['tts', '15']);
  const rerank = imported('{"mode": "rerank", "input_cost_per_query": 0.002}');
  assert.deepEqual([rerank.type, rerank.price.perSearch], ['rerank', '0.002']);
  const guard = imported('{"mode": "moderation", "input_cost_per_token": 0.0}');
  assert.deepEqual([guard.type, guard.price.input], ['moderation', '0']);
});

test('an entry that cannot be imported returns the reason', () => {
  const file = readPriceFile('{"gpt-4o": {"mode": "search"}, "sample_spec": "text"}');
  assert.equal(
    file('gpt-4o'),
    'The mode "search" of the entry cannot be imported; allowed: chat, completion, responses, embedding, audio_transcription, image_generation, image_edit, video_generation, audio_speech, rerank, moderation',
  );
  assert.equal(file('gpt-40'), 'The price file has no entry "gpt-40"; did you mean "gpt-4o"?');
  assert.throws(() => readPriceFile('{'), SyntaxError);
});
