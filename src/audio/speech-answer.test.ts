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

test('only JSON with a text that somebody can have spoken is usable', () => {
  const answers = new SpeechAnswers();
  const said = (text: string): Buffer => Buffer.from(JSON.stringify({ text }));
  assert.equal(answers.isUsable(said(''), 1_000), true);
  assert.equal(answers.isUsable(Buffer.from('{"text":"a","error":null}'), 1_000), true);
  const garbage = ['', 'hello', '{}', '{"text":1}', '[]', '{"text":"","error":"no memory"}'];
  for (const body of garbage) {
    assert.equal(answers.isUsable(Buffer.from(body), 1_000), false, body);
  }
  assert.equal(answers.isUsable(said('a'.repeat(61_000)), 600_000), true);
  assert.equal(answers.isUsable(said('a'.repeat(61_001)), 600_000), false);
});
