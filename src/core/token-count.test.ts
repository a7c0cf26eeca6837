import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { countTokens as countCl100k } from 'gpt-tokenizer/encoding/cl100k_base';
import { countTokens as countO200k } from 'gpt-tokenizer/encoding/o200k_base';
import { decode } from 'gpt-tokenizer/encoding/cl100k_base';
import {
  tokensAbout,
  tokensAtLeast,
  tokensAtMost,
  tokensBehindIds,
  tokensByRule,
} from './token-count.ts';
import { anyCharacter } from '../../test/support/any-character.ts';

const PLAIN = { disallowedSpecial: new Set<string>() };

test('no text has more tokens than the bound, whatever it is made of', () => {
  const anyText = fc.oneof(
    fc.string({ unit: anyCharacter, maxLength: 200 }),
    fc.string({ unit: 'grapheme', maxLength: 200 }),
    fc.string({
      unit: fc.constantFrom('\u{1F9EC}', '\ufdfa', 'ꙮ', '\u0301', ' ', '\n', 'a', '\ud800'),
    }),
  );
  fc.assert(
    fc.property(anyText, (text) => {
      const bound = tokensAtMost(Buffer.byteLength(text));
      assert.ok(countO200k(text, PLAIN) <= bound);
      assert.ok(countCl100k(text, PLAIN) <= bound);
    }),
    { seed: 20261121, numRuns: 500 },
  );
});

test('the fair count is near the truth for prose, and the least is below it', () => {
  const prose = 'The quick brown fox jumps over the lazy dog and runs into the forest. '.repeat(50);
  const truth = countO200k(prose);
  const about = tokensAbout(prose.length);
  assert.ok(about >= truth * 0.8 && about <= truth * 1.5);
  assert.ok(tokensAtLeast(prose.length) <= truth);
});

test('the rule of the specification ends where its limit test does', () => {
  assert.equal(tokensByRule(27_594), 8_192); // ceil(27594 / 3.2 * 0.95)
  assert.equal(tokensByRule(27_596), 8_193);
  assert.equal(tokensByRule(0), 0);
});

test('no token of the vocabulary has more bytes than the bound behind ids allows', () => {
  let longest = 0;
  for (let id = 0; id < 100_256; id += 1) {
    longest = Math.max(longest, Buffer.byteLength(decode([id])));
  }
  assert.ok(longest <= tokensBehindIds(1), `${longest}`);
});
