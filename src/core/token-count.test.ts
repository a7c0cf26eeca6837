import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { countTokens as countCl100k } from 'gpt-tokenizer/encoding/cl100k_base';
import {
  countTokens as countO200k,
  decode as decodeO200k,
} from 'gpt-tokenizer/encoding/o200k_base';
import { decode } from 'gpt-tokenizer/encoding/cl100k_base';
import {
  bytesOfTokens,
  tokensAbout,
  tokensAtLeast,
  tokensAtMost,
  tokensBehindIds,
} from './token-count.ts';
import { anyCharacter } from '../../test/support/any-character.ts';

const PLAIN = { disallowedSpecial: new Set<string>() };

test('no text has more tokens than `tokensAtMost`', () => {
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

test('`tokensAbout` is near the true count of prose, and `tokensAtLeast` is below it', () => {
  const prose = 'The quick brown fox jumps over the lazy dog and runs into the forest. '.repeat(50);
  const truth = countO200k(prose);
  const about = tokensAbout(prose.length);
  assert.ok(about >= truth * 0.8 && about <= truth * 1.5);
  assert.ok(tokensAtLeast(prose.length) <= truth);
});

test('no token of a public vocabulary has more bytes than the bounds allow', () => {
  let longest = 0;
  for (let id = 0; id < 100_256; id += 1) {
    longest = Math.max(longest, Buffer.byteLength(decode([id])));
  }
  for (let id = 0; id < 199_998; id += 1) {
    longest = Math.max(longest, Buffer.byteLength(decodeO200k([id])));
  }
  assert.ok(longest <= tokensBehindIds(1), `${longest}`);
  assert.ok(longest <= bytesOfTokens(1), `${longest}`);
});
