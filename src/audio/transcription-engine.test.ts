import assert from 'node:assert/strict';
import { test } from 'node:test';
import { NO_OPTIONS, TranscriptionResponses } from './transcription-engine.ts';

const bodyIn = (language: unknown): Buffer =>
  Buffer.from(JSON.stringify({ text: ' x ', language }));

test('`read` converts names, codes and regions of languages to one code', () => {
  const responses = new TranscriptionResponses(NO_OPTIONS);
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
    const transcript = responses.read(bodyIn(given), { startMs: 0, endMs: 1_000 });
    assert.deepEqual([transcript.text, transcript.language], ['x', code]);
  }
});

test('`isUsable` accepts only JSON with a text that fits the duration of the sound', () => {
  const responses = new TranscriptionResponses(NO_OPTIONS);
  const transcript = (text: string): Buffer => Buffer.from(JSON.stringify({ text }));
  assert.equal(responses.isUsable(transcript(''), 1_000), true);
  assert.equal(responses.isUsable(Buffer.from('{"text":"a","error":null}'), 1_000), true);
  const garbage = ['', 'hello', '{}', '{"text":1}', '[]', '{"text":"","error":"no memory"}'];
  for (const body of garbage) {
    assert.equal(responses.isUsable(Buffer.from(body), 1_000), false, body);
  }
  assert.equal(responses.isUsable(transcript('a'.repeat(60_200)), 600_000), true);
  assert.equal(responses.isUsable(transcript('a'.repeat(60_201)), 600_000), false);
  const timed = (times: object): Buffer => Buffer.from(JSON.stringify({ text: 'a', ...times }));
  const range = { start: 0, end: 1 };
  const segments = [{ ...range, text: 'a'.repeat(301) }];
  const words = Array.from({ length: 301 }, () => ({ ...range, word: '' }));
  assert.equal(responses.isUsable(timed({ segments: segments.concat(segments) }), 4_000), false);
  assert.equal(responses.isUsable(timed({ segments }), 4_000), true);
  assert.equal(responses.isUsable(timed({ words }), 1_000), false);
  assert.equal(responses.isUsable(timed({ words }), 2_000), true);
});

test('`read` converts times of a piece to times of the media, clamped to the piece', () => {
  const responses = new TranscriptionResponses({ times: ['segment', 'word'] });
  const complete = {
    text: 'x y',
    segments: [{ start: -1, end: 2.0004, text: ' x ', tokens: [1], seek: 100, avg_logprob: -0.5 }],
    words: [{ word: 'y', start: 9, end: 3 }],
  };
  const piece = { startMs: 60_000, endMs: 65_000 };
  const transcript = responses.read(Buffer.from(JSON.stringify(complete)), piece);
  // A frame of `seek` has 10 ms.
  assert.deepEqual(transcript.segments, [
    { start: 60, end: 62, text: ' x ', avg_logprob: -0.5, tokens: [1], seek: 6_100 },
  ]);
  assert.deepEqual(transcript.words, [{ start: 65, end: 65, word: 'y' }]);
  assert.equal(transcript.lacks, undefined);
  for (const [body, lacks] of [
    [{ text: 'x' }, 'segment'],
    [{ ...complete, words: 'no' }, 'word'],
    [{ text: ' ' }, undefined],
  ] as const) {
    assert.equal(responses.read(Buffer.from(JSON.stringify(body)), piece).lacks, lacks);
  }
  assert.deepEqual(responses.optionalFields(false), []);
});

test('`read` takes words from segments, and joins tokens to words', () => {
  const word = (text: string, start: number) => ({ word: text, start, end: start + 1 });
  const segments = [
    { start: 0, end: 3, text: ' Fare box,', words: [' Fare', ' bo', 'x', ','].map(word) },
    { start: 3, end: 5, text: ' it runs', words: [word('it', 3), word('runs', 4)] },
  ];
  const body = { text: 'Fare box, it runs', segments };
  const responses = new TranscriptionResponses({ times: ['segment', 'word'] });
  const piece = { startMs: 10_000, endMs: 15_000 };
  const transcript = responses.read(Buffer.from(JSON.stringify(body)), piece);
  assert.deepEqual(transcript.words, [
    { word: 'Fare', start: 10, end: 11 },
    { word: 'box,', start: 11, end: 14 },
    { word: 'it', start: 13, end: 14 },
    { word: 'runs', start: 14, end: 15 },
  ]);
  assert.deepEqual(Object.keys(transcript.segments[0] ?? {}), ['start', 'end', 'text']);
  assert.equal(transcript.lacks, undefined);
  const many = Array.from({ length: 301 }, () => word('', 0));
  const long = { text: 'a', segments: [{ start: 0, end: 1, text: 'a', words: many }] };
  assert.equal(responses.isUsable(Buffer.from(JSON.stringify(long)), 1_000), false);
});
