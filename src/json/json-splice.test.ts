/** The splice against parse, modify, stringify. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { childrenOf } from './json-scan.ts';
import { spliceObject, type ParsedObject } from './json-splice.ts';

const keys = fc.oneof(
  fc.constantFrom('model', 'messages', 'a', 'b', 'stream', 'é"\\'),
  fc.string({ maxLength: 5 }),
);
const safeKeys = keys.filter((key) => key !== '__proto__');
const values = fc.jsonValue({ maxDepth: 3, stringUnit: 'binary' });
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

test('elements of an array that stay the same keep their bytes', () => {
  const doc = parsed('{"messages":[ {"n": 1.0}, {"n":2e0},{"s":"\\u0061"}],"k":1}');
  const messages = doc.body['messages'] as unknown[];
  const target = { ...doc.body, messages: [{ first: true }, messages[0], messages[2]] };
  assert.equal(
    spliceObject(doc, target).toString(),
    '{"messages":[{"first":true},{"n": 1.0},{"s":"\\u0061"}],"k":1}',
  );
});

test('nothing changed gives the very bytes back', () => {
  const doc = parsed(' { "a" : 1 , "b" : [ ] } ');
  assert.equal(spliceObject(doc, { ...doc.body }), doc.bytes);
});

test('a key that is there twice is written once, with the value that was validated', () => {
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

test('long strings with runs of backslashes end where they end', () => {
  for (let run = 0; run < 9; run += 1) {
    const text = JSON.stringify(
      `${'x'.repeat(40)}${'\\'.repeat(run)}"${'y'.repeat(40)}${'\\'.repeat(run)}`,
    );
    const bytes = Buffer.from(`[${text}]"`);
    assert.equal(childrenOf(bytes).spans[0]?.end, bytes.length - 2);
    assert.equal(childrenOf(bytes).end, bytes.length - 1);
  }
});

test('too many levels are refused', () => {
  const bytes = Buffer.from(`{"a":${'['.repeat(300)}${']'.repeat(300)}}`);
  assert.throws(() => childrenOf(bytes), { code: 'INVALID_JSON' });
});
