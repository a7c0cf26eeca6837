import assert from 'node:assert/strict';
import { test } from 'node:test';
import { engineWords } from './engine-refusal.ts';

const shown = (message: string): string =>
  engineWords(Buffer.from(JSON.stringify({ error: { message, code: 400 } }))).message;

test('messages about the request are shown without addresses', () => {
  for (const words of [
    "This model's maximum context length is 4096 tokens",
    'tools.0.function.parameters: "type" must be "object"',
    'temperature must be at most 2, see the documentation of node.js clients',
  ]) {
    assert.equal(shown(words), words);
  }
  assert.equal(shown('ask http://10.0.0.7:8000/v1 or 10.0.0.8:80'), 'ask [address] or [address]');
});

test('messages about internals are not shown', () => {
  for (const words of [
    'CUDA out of memory at 0x7f3a9c00',
    'Traceback (most recent call last): File "worker.py", line 3',
    'cannot open /srv/models/wan2/tensor 3',
    'RuntimeException: bad tensor',
    'connect ECONNREFUSED',
  ]) {
    assert.equal(shown(words), 'it gave no reason', words);
  }
});
