import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NO_OPTIONS, TranscriptionResponses } from './transcription-engine.ts';

const answer = (language: unknown): Buffer =>
  Buffer.from(JSON.stringify({ text: ' x ', language }));

test('names, codes and regions of languages become one code', () => {
  const answers = new TranscriptionResponses(NO_OPTIONS);
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
    const said = answers.read(answer(given), { startMs: 0, endMs: 1_000 });
    assert.deepEqual([said.text, said.language], ['x', code]);
  }
});

test('only JSON with a text that somebody can have spoken is usable', () => {
  const answers = new TranscriptionResponses(NO_OPTIONS);
  const said = (text: string): Buffer => Buffer.from(JSON.stringify({ text }));
  assert.equal(answers.isUsable(said(''), 1_000), true);
  assert.equal(answers.isUsable(Buffer.from('{"text":"a","error":null}'), 1_000), true);
  const garbage = ['', 'hello', '{}', '{"text":1}', '[]', '{"text":"","error":"no memory"}'];
  for (const body of garbage) {
    assert.equal(answers.isUsable(Buffer.from(body), 1_000), false, body);
  }
  assert.equal(answers.isUsable(said('a'.repeat(61_000)), 600_000), true);
  assert.equal(answers.isUsable(said('a'.repeat(61_001)), 600_000), false);
  const timed = (times: object): Buffer => Buffer.from(JSON.stringify({ text: 'a', ...times }));
  const stretch = { start: 0, end: 1 };
  const segments = [{ ...stretch, text: 'a'.repeat(1_101) }];
  const words = Array.from({ length: 1_101 }, () => ({ ...stretch, word: '' }));
  assert.equal(answers.isUsable(timed({ segments: segments.concat(segments) }), 12_000), false);
  assert.equal(answers.isUsable(timed({ segments }), 12_000), true);
  assert.equal(answers.isUsable(timed({ words }), 1_000), false);
  assert.equal(answers.isUsable(timed({ words }), 2_000), true);
});

test('times of a piece become times of the media, within the piece', () => {
  const answers = new TranscriptionResponses({ times: ['segment', 'word'] });
  const body = {
    text: 'x y',
    segments: [{ start: -1, end: 2.0004, text: ' x ', tokens: [1], avg_logprob: -0.5 }],
    words: [{ word: 'y', start: 9, end: 3 }],
  };
  const piece = { startMs: 60_000, endMs: 65_000 };
  const said = answers.read(Buffer.from(JSON.stringify(body)), piece);
  assert.deepEqual(said.segments, [{ start: 60, end: 62, text: ' x ', avg_logprob: -0.5 }]);
  assert.deepEqual(said.words, [{ start: 65, end: 65, word: 'y' }]);
  assert.equal(said.lacks, undefined);
  for (const [answer, lacks] of [
    [{ text: 'x' }, 'segment'],
    [{ ...body, words: 'no' }, 'word'],
    [{ text: ' ' }, undefined],
  ] as const) {
    assert.equal(answers.read(Buffer.from(JSON.stringify(answer)), piece).lacks, lacks);
  }
  assert.equal(answers.askForLess(), false);
});
