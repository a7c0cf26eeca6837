/** The incremental checker compared with `JSON.parse`, for any split into chunks. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { JsonChecker } from './json-checker.ts';
import { DEPTH_EXCEEDED } from './json-skip.ts';

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false; // whether it parses
  }
}

/** Whether the text is one JSON object, pushed in chunks of these sizes in turn. */
function isAccepted(text: string, sizes: readonly number[]): boolean {
  const bytes = Buffer.from(text);
  const checker = new JsonChecker(100);
  for (let at = 0, turn = 0; at < bytes.length; turn += 1) {
    const chunk = bytes.subarray(at, at + (sizes[turn % sizes.length] ?? 1));
    if (!checker.accepts(chunk)) return false;
    at += chunk.length;
  }
  return checker.isDone;
}

test('a document is accepted exactly when JSON.parse accepts it, in any chunks', () => {
  const mutation = fc.record({
    at: fc.nat(),
    byte: fc.constantFrom(...Array.from('{}[],:"\\0123eE.+-ntfu \u0001é')),
  });
  const document = fc.record({ a: fc.jsonValue(), 'b\\"\u0001é': fc.array(fc.jsonValue()) });
  const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 4 });
  fc.assert(
    fc.property(
      document,
      fc.array(mutation, { maxLength: 3 }),
      sizes,
      (value, mutations, parts) => {
        let text = JSON.stringify(value);
        for (const { at, byte } of mutations) {
          const position = 1 + (at % (text.length - 1));
          text = text.slice(0, position) + byte + text.slice(position + 1);
        }
        assert.equal(isAccepted(text, parts), parses(text), text);
        assert.equal(isAccepted(text, [text.length * 4]), parses(text), text);
      },
    ),
    { numRuns: 5_000 },
  );
});

test('every escape and number is accepted at any split, and no truncated document', () => {
  const text = String.raw` {"a\"\\":[-0.5e+10,1E5,true,false,null,"\u00e9\\\"\n\\"],"\\\\":{},"b":[]} `;
  assert.ok(parses(text));
  for (let size = 1; size <= text.length; size += 1) assert.ok(isAccepted(text, [size]), `${size}`);
  const last = text.lastIndexOf('}');
  for (let size = 0; size <= last; size += 1)
    for (const chunk of [1, 3, 100]) assert.equal(isAccepted(text.slice(0, size), [chunk]), false);
});

test('every byte is checked in a long string', () => {
  const whole = 'x'.repeat(3_000);
  for (const byte of ['"', '\\', '\n', '\0', 'é', '\x7f', ' ', '!', '#', '[', ']']) {
    for (let at = 1_500; at < 1_508; at += 1) {
      const text = `{"a":"${whole.slice(0, at)}${byte}${whole.slice(at)}"}`;
      assert.equal(isAccepted(text, [4_096]), parses(text), `${byte} at ${at}`);
      assert.equal(isAccepted(text, [1_401]), parses(text), `${byte} at ${at}`);
    }
  }
});

test('depth is limited', () => {
  assert.equal(new JsonChecker(3).push(Buffer.from('[[[]]]')), 6);
  assert.equal(new JsonChecker(3).push(Buffer.from('[[[[')), DEPTH_EXCEEDED);
});
