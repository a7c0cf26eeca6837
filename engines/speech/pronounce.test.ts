import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { Fault } from '../../src/core/faults.ts';
import { useEnginePackages } from '../../test/support/engine-packages.ts';
import { loadPronouncer } from './load-pronouncer.ts';
import { SpellOut } from './spell-out.ts';

useEnginePackages('speech');
const pronouncer = loadPronouncer();

function phonemesOf(text: string): string {
  return pronouncer
    .pieces(text)
    .map(({ phonemes }) => phonemes)
    .join(' | ');
}

describe('numbers and short forms are read as words', () => {
  const spellOut = new SpellOut(pronouncer.numbers);
  const cases: [string, string][] = [
    ['$1,250.75', 'one thousand two hundred fifty dollars and seventy-five cents'],
    ['$1', 'one dollar'],
    ['$3.5 million', 'three point five million dollars'],
    ['£20, €1.00', 'twenty pounds, one euro'],
    ['£2.01', 'two pounds and one penny'],
    ['1,000,000', 'one million'],
    ['100,000 people, 2,000', 'one hundred thousand people, two thousand'],
    ['3.14', 'three point one four'],
    ['007', 'zero zero seven'],
    ['12345678901234567890', 'one two three four five six seven eight nine zero'],
    [
      'in 1905, 1900, 2005 and 2024.',
      'in nineteen oh five, nineteen hundred, two thousand five and twenty twenty-four.',
    ],
    ['the 1990s and the 80s', 'the nineteen nineties and the eighties'],
    ['2024-03-05', 'March fifth, twenty twenty-four'],
    ['March 5, 2024', 'March fifth, twenty twenty-four'],
    ['Feb. 21st', 'February twenty-first'],
    ['10:30, 9:05, 8:00 PM', 'ten thirty, nine oh five, eight PM'],
    ['10-20', 'ten to twenty'],
    ['at -7 °', 'at minus seven degrees'],
    ['1/2 or 5/7', 'one half or five over seven'],
    ['24GB, 5 km, 1 ft, 6 ft', 'twenty-four gigabytes, five kilometers, one foot, six feet'],
    [
      'Dr. Smith vs. Mr. Lee, e.g. No. 5',
      'doctor Smith versus mister Lee, for example number five',
    ],
    ['50% & C++', 'fifty percent and C plus plus'],
    ['https://example.com/a', 'example dot com slash a'],
    ['me@example.com', 'me at example dot com'],
  ];
  for (const [text, words] of cases) {
    test(text, () => {
      const read = spellOut.read(text).replaceAll(/\s+/g, ' ').replaceAll(' ,', ',').trim();
      if (text.length > 18 && /^\d+$/.test(text)) assert.ok(read.startsWith(words));
      else assert.equal(read, words);
    });
  }
});

describe('words have the phonemes of American English', () => {
  const cases: [string, string][] = [
    ['The quick brown fox.', 'ðə kwˈɪk bɹˈaʊn fˈɑːks.'],
    ['better water', 'bˈɛɾɚ wˈɔːɾɚ'],
    ['IBM and NASA', 'ˈaɪbˈiːˈɛm ænd nˈæsə'],
    ['the US market for us', 'ðə jˈuːˈɛs mˈɑːɹkət fɔːɹ ˈʌs'],
    ['STOP IT NOW', 'stˈɑːp ɪt nˈaʊ'],
    ['OpenAI', 'ˈoʊpən ˈeɪˈaɪ'],
    ["don't, it’s", 'dˈoʊnt, ˈɪts'],
    ["Farebox's paywall", 'fˈɛɹbˌɑːksɪz pˈeɪwˌɔːl'],
    ['café', 'kəfˈeɪ'],
    ['xkcd', 'ˈɛkskˈeɪsˈiːdˈiː'],
  ];
  for (const [text, phonemes] of cases) {
    test(text, () => assert.equal(phonemesOf(text), phonemes));
  }
});

test('a text is split into sentences, and a long sentence into phrases', () => {
  const text = `Hello there! ${'The cat sat on the mat, and the dog looked at the moon. '.repeat(4)}${'apple '.repeat(100)}`;
  const pieces = pronouncer.pieces(text);
  assert.deepEqual(pieces[0], { phonemes: 'həlˈoʊ ðˈɛɹ!', endsSentence: true });
  assert.ok(pieces.every(({ phonemes }) => phonemes.length < 300));
  assert.ok(pieces.length > 6);
});

test('a text without words has no pieces', () => {
  assert.deepEqual(pronouncer.pieces('… 👋 --- ?!'), []);
});

test('letters of another script are rejected instead of left out', () => {
  for (const text of ['你好 world', 'Привет', 'γεια']) {
    assert.throws(
      () => pronouncer.pieces(text),
      (error) => error instanceof Fault && error.code === 'INVALID_REQUEST',
    );
  }
});
