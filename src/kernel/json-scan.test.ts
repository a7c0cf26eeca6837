import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { appendMembers, findLastMember, replaceSpan } from './json-scan.ts';

/** Strings that look like what the scan seeks, beside ordinary ones. */
const tricky = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 12 }),
  fc.constantFrom(
    'usage',
    '"usage":{"prompt_tokens":1}',
    '\\"usage\\":{}',
    '\\',
    '\\\\',
    '"',
    'x"usage',
    '}',
    '{',
    ',"usage":{',
    '}}',
  ),
);
/**
 * Keys without backslashes: V8 (14.x) can read the key "\\"" as "\\" when an object with the other
 * key was parsed before, so JSON.parse is no judge of those.
 */
const trickyKey = tricky.filter((key) => !key.includes('\\'));
const value = fc.letrec((tie) => ({
  any: fc.oneof(
    { maxDepth: 4 },
    tricky,
    fc.integer(),
    fc.double({ noNaN: true, noDefaultInfinity: true }),
    fc.constantFrom(null, true, false),
    fc.array(tie('any'), { maxLength: 3 }),
    fc.dictionary(fc.oneof(trickyKey, fc.constant('usage')), tie('any'), { maxKeys: 4 }),
  ),
})).any;
const document = fc.dictionary(fc.oneof(trickyKey, fc.constantFrom('usage', 'id')), value, {
  maxKeys: 6,
  noNullPrototype: true,
});
const indent = fc.constantFrom(0, 1, '\t', '\r\n ');
const space = fc.constantFrom('', ' ', '\n', '\r\n\t ');

function bytesOf(json: unknown, by: number | string, before: string, after: string): Buffer {
  const text =
    typeof by === 'string'
      ? JSON.stringify(json, null, 1).replaceAll('\n', () => (by === '\t' ? '\n\t' : '\r\n'))
      : JSON.stringify(json, null, by);
  return Buffer.from(before + text + after);
}

test('findLastMember() finds what JSON.parse finds, and nothing else', () => {
  fc.assert(
    fc.property(document, indent, space, space, (json, by, before, after) => {
      const bytes = bytesOf(json, by, before, after);
      const parsed: Record<string, unknown> = JSON.parse(bytes.toString('utf8'));
      const span = findLastMember(bytes, 'usage');
      if (span === null) assert.equal(Object.hasOwn(parsed, 'usage'), false);
      else {
        const text = bytes.toString('utf8', span.start, span.end);
        assert.deepEqual(JSON.parse(text), parsed['usage']);
      }
    }),
    { numRuns: 3_000 },
  );
});

test('findLastMember() never reports a wrong place in broken documents', () => {
  fc.assert(
    fc.property(document, fc.nat(200), (json, cut) => {
      const whole = Buffer.from(JSON.stringify(json));
      const part = whole.subarray(0, Math.min(cut, whole.length - 1));
      const span = findLastMember(part, 'usage');
      if (span !== null) JSON.parse(part.toString('utf8', span.start, span.end));
    }),
    { numRuns: 1_000 },
  );
});

test('of equal keys the last one counts', () => {
  const bytes = Buffer.from('{"usage":{"a":1},"b":[{"usage":2}],"usage": {"a":3} ,"c":"}"}');
  const span = findLastMember(bytes, 'usage')!;
  assert.equal(bytes.toString('utf8', span.start, span.end), '{"a":3}');
});

test('a nested member is not a top-level one', () => {
  assert.equal(findLastMember(Buffer.from('{"x":{"usage":{"a":1}}}'), 'usage'), null);
  assert.equal(findLastMember(Buffer.from('{"x":[{"usage":{"a":1}}]}'), 'usage'), null);
});

test('appendMembers() adds exactly the members', () => {
  fc.assert(
    fc.property(document, indent, space, space, (json, by, before, after) => {
      const bytes = bytesOf(json, by, before, after);
      const result = appendMembers(bytes, '"cost":{"usd":0.5,"note":"ü"}');
      const expected: Record<string, unknown> = JSON.parse(bytes.toString('utf8'));
      expected['cost'] = { usd: 0.5, note: 'ü' };
      assert.deepEqual(JSON.parse(result.toString('utf8')), expected);
    }),
    { numRuns: 1_000 },
  );
});

test('appendMembers() refuses what is no object', () => {
  for (const text of ['', '[]', '1', '}', ' }', '"x"']) {
    assert.throws(() => appendMembers(Buffer.from(text), '"a":1'), RangeError, text);
  }
});

test('replaceSpan() replaces the bytes of a span', () => {
  const bytes = Buffer.from('{"model":"a","x":1}');
  const span = findLastMember(bytes, 'model')!;
  assert.equal(replaceSpan(bytes, span, '"größer"').toString(), '{"model":"größer","x":1}');
});
