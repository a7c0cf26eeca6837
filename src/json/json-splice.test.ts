/** The splice compared with parse, modify, stringify. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { type ParsedObject, childrenOf } from './json-scan.ts';
import { spliceObject, textWithMembers, withMembers } from './json-splice.ts';
import { anyCharacter } from '../../test/support/any-character.ts';

const keys = fc.oneof(
  fc.constantFrom('model', 'messages', 'a', 'b', 'stream', 'é"\\'),
  fc.string({ maxLength: 5 }),
);
const safeKeys = keys.filter((key) => key !== '__proto__');
const values = fc.jsonValue({ maxDepth: 3, stringUnit: anyCharacter });
const objects = fc.dictionary(safeKeys, values, { maxKeys: 6 });

function parsed(text: string): ParsedObject {
  const bytes = Buffer.from(text);
  return { bytes, body: JSON.parse(text), members: childrenOf(bytes).spans };
}

test('a splice parses to exactly the target, whatever changed', () => {
  fc.assert(
    fc.property(
      objects,
      objects,
      fc.constantFrom(0, 1, 4),
      fc.infiniteStream(fc.nat(3)),
      (source, extra, indent, picks) => {
        const doc = parsed(JSON.stringify(source, null, indent));
        const target: Record<string, unknown> = {};
        for (const [key, value] of Object.entries(doc.body)) {
          const pick = picks.next().value;
          if (pick === 0) target[key] = undefined;
          else if (pick === 1) target[key] = [1, 'x"\\', { z: null }];
          else target[key] = value;
        }
        Object.assign(target, extra);
        const result = spliceObject(doc, target);
        assert.deepEqual(JSON.parse(result.toString()), JSON.parse(JSON.stringify(target)));
      },
    ),
  );
});

test('`textWithMembers` and `withMembers` write the same members', () => {
  const names = fc.oneof(keys, fc.constantFrom('éa', 'a\\"', '\u0001', '7'));
  const documents = fc.dictionary(names, values, { minKeys: 1, maxKeys: 6 });
  const changes = fc.dictionary(
    fc.constantFrom('model', 'a', 'b', 'id'),
    fc.option(fc.constantFrom('1', '"x"', '{"y":[]}'), { nil: undefined }),
  );
  fc.assert(
    fc.property(documents, changes, fc.constantFrom(0, 1, 4), (source, changed, indent) => {
      const doc = parsed(JSON.stringify(source, null, indent));
      const texts = Object.fromEntries(
        Object.entries(changed).map(([key, value]) => [key, value && `"${key}":${value}`]),
      );
      const text = textWithMembers(doc.bytes.toString('latin1'), doc.body, texts);
      if (text === undefined) assert.ok(Object.keys(source).some((key) => !PLAIN_KEY.test(key)));
      else assert.equal(Buffer.from(text, 'latin1').toString(), withMembers(doc, texts).toString());
    }),
  );
  for (const odd of [
    '{"a":1,"id":2,"a":3}',
    '{"a":1,"a":3,"id":2}',
    '{"id":1,"id":2}',
    '{"\\u0061":1,"id":2}',
    '{"é":1,"id":2}',
    '{"a":1,"7":2}',
  ]) {
    const text = Buffer.from(odd).toString('latin1');
    assert.equal(textWithMembers(text, JSON.parse(odd), { id: '"id":0' }), undefined, odd);
  }
});

/** A key without escapes, which is not an array index and so keeps its order in a parsed object. */
const PLAIN_KEY = /^(?!\d+$)[ !#-[\]-~]*$/;

test('replaced members parse to their new values, and all others stay', () => {
  const plain = fc.constantFrom('model', 'messages', 'a', 'b', 'stream');
  const changes = fc.dictionary(plain, fc.option(values, { nil: undefined }), { maxKeys: 5 });
  fc.assert(
    fc.property(objects, changes, fc.constantFrom(0, 1, 4), (source, changed, indent) => {
      const doc = parsed(JSON.stringify(source, null, indent));
      const texts = Object.fromEntries(
        Object.entries(changed).map(([key, value]) => [
          key,
          value === undefined ? undefined : `"${key}":${JSON.stringify(value)}`,
        ]),
      );
      const result = JSON.parse(withMembers(doc, texts).toString()) as object;
      assert.deepEqual(result, JSON.parse(JSON.stringify({ ...doc.body, ...changed })));
      // Existing members stay in place; new ones follow in the given order.
      const stay = Object.keys(doc.body).filter(
        (key) => !(key in texts) || texts[key] !== undefined,
      );
      const added = Object.keys(texts).filter(
        (key) => texts[key] !== undefined && !(key in doc.body),
      );
      const isIndex = (key: string): boolean => /^\d+$/.test(key); // objects list these first
      assert.deepEqual(
        Object.keys(result).filter((key) => !isIndex(key)),
        [...stay, ...added].filter((key) => !isIndex(key)),
      );
    }),
  );
});

test('unchanged members keep their bytes beside replaced ones', () => {
  const doc = parsed('{ "id" : "up", "n":1.50 , "s":"\\u0061","user":"x"}');
  assert.equal(
    withMembers(doc, { id: '"id":"ours"', user: undefined, cost: '"cost":0' }).toString(),
    '{"id":"ours","n":1.50 , "s":"\\u0061","cost":0}',
  );
  const twice = parsed('{"a":1,"model":"x","a":2}');
  assert.equal(withMembers(twice, { model: '"model":"y"' }).toString(), '{"a":2,"model":"y"}');
  assert.equal(withMembers(parsed('{}'), { a: '"a":1' }).toString(), '{"a":1}');
});

test('elements of an array that stay the same keep their bytes', () => {
  const doc = parsed('{"messages":[ {"n": 1.0}, {"n":2e0},{"s":"\\u0061"}],"k":1}');
  const messages = doc.body['messages'] as unknown[];
  const target = { ...doc.body, messages: [{ first: true }, messages[0], messages[2]] };
  assert.equal(
    spliceObject(doc, target).toString(),
    '{"messages":[{"first":true},{"n": 1.0},{"s":"\\u0061"}],"k":1}',
  );
});

test('an unchanged document returns the same buffer', () => {
  const doc = parsed(' { "a" : 1 , "b" : [ ] } ');
  assert.equal(spliceObject(doc, { ...doc.body }), doc.bytes);
});

test('a duplicate key is written once, with the validated value', () => {
  const doc = parsed('{"model":"a","n":1,"mod\\u0065l":"b"}');
  assert.equal(spliceObject(doc, { ...doc.body }).toString(), '{"model":"b","n":1}');
});

test('the end of a value is found for every value', () => {
  fc.assert(
    fc.property(values, (value) => {
      const bytes = Buffer.from(`[ ${JSON.stringify(value)} , 1]`);
      const { spans, end } = childrenOf(bytes);
      assert.deepEqual(
        spans.map((span) => JSON.parse(bytes.toString('utf8', span.start, span.end)) as unknown),
        [JSON.parse(JSON.stringify(value)), 1],
      );
      assert.equal(end, bytes.length);
    }),
  );
});

test('the end of long strings with many backslashes is found', () => {
  for (let run = 0; run < 9; run += 1) {
    const text = JSON.stringify(
      `${'x'.repeat(40)}${'\\'.repeat(run)}"${'y'.repeat(40)}${'\\'.repeat(run)}`,
    );
    const bytes = Buffer.from(`[${text}]"`);
    assert.equal(childrenOf(bytes).spans[0]?.end, bytes.length - 2);
    assert.equal(childrenOf(bytes).end, bytes.length - 1);
  }
});

test('too many levels are rejected in a document that is not parsed yet', () => {
  const bytes = Buffer.from(`{"a":${'['.repeat(300)}${']'.repeat(300)}}`);
  assert.throws(() => childrenOf(bytes, 0, { isUnchecked: true }), { code: 'INVALID_JSON' });
  assert.equal(childrenOf(bytes).spans[0]?.end, bytes.length - 1);
});
