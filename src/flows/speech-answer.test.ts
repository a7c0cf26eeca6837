import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SpeechAnswers } from './speech-answer.ts';

const answer = (language: unknown): Buffer =>
  Buffer.from(JSON.stringify({ text: ' x ', language }));

test('names, codes and regions of languages become one code', () => {
  const answers = new SpeechAnswers();
  for (const [given, code] of [
    ['english', 'en'],
    ['German', 'de'],
    ['hebrew', 'he'],
    ['indonesian', 'id'],
    ['pt', 'pt'],
    ['en-US', 'en'],
    ['yue', 'yue'],
    ['klingon', ''],
    [null, ''],
  ]) {
    assert.deepEqual(answers.read(answer(given)), { text: 'x', language: code });
  }
});

test('only JSON with a text is usable', () => {
  const answers = new SpeechAnswers();
  assert.equal(answers.isUsable(Buffer.from('{"text":""}')), true);
  for (const body of ['', 'hello', '{}', '{"text":1}', '[]']) {
    assert.equal(answers.isUsable(Buffer.from(body)), false);
  }
});
