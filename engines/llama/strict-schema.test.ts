import assert from 'node:assert/strict';
import { test } from 'node:test';
import { refuseUnenforceable } from './strict-schema.ts';

const STRING = { type: 'string' };
const INTEGER = { type: 'integer' };
const object = (properties: object, more: object = {}) => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
  ...more,
});

const REFUSED: readonly (readonly [schema: object, words: RegExp])[] = [
  [{ ...STRING, pattern: '^a' }, /"pattern"/],
  [{ ...INTEGER, multipleOf: 5 }, /"multipleOf"/],
  [{ type: 'array', items: INTEGER, uniqueItems: true }, /"uniqueItems"/],
  [{ type: 'array', items: INTEGER, minItems: 600 }, /"minItems" above 512/],
  [{ type: 'array', prefixItems: [INTEGER], minItems: 2 }, /bounds of the array/],
  [{ type: 'array', contains: INTEGER }, /"contains"/],
  [{ type: 'object', minProperties: 1 }, /"minProperties"/],
  [{ type: 'object', patternProperties: { '^a': INTEGER } }, /"patternProperties"/],
  [{ type: 'object', required: ['a'] }, /"required" contains "a"/],
  [{ not: STRING }, /"not"/],
  [{ minLength: 3 }, /"minLength" needs a "type"/],
  [{ ...STRING, maxLength: 2_000 }, /"maxLength" above 512/],
  [{ ...STRING, format: 'regex' }, /"format": "regex"/],
  [{ ...STRING, format: 'email', maxLength: 9 }, /a length beside "format"/],
  [{ type: 'number', minimum: 0.5, maximum: 0.9 }, /no whole number/],
  [{ ...STRING, enum: ['a', 1] }, /"type" beside "enum"/],
  [{ enum: [1, 2], minimum: 2 }, /"minimum" beside "enum"/],
  [{ $ref: '#/$defs/a', maximum: 3, $defs: { a: INTEGER } }, /"maximum" beside "\$ref"/],
  [{ oneOf: [INTEGER, { type: 'number' }] }, /may overlap/],
  [
    {
      oneOf: Array.from({ length: 30 }, (_, part) => ({
        enum: Array.from({ length: 300 }, (_value, at) => `${part} ${at}`),
      })),
    },
    /too large/,
  ],
  [{ allOf: [{ ...INTEGER, minimum: 1 }, { minimum: 2 }] }, /"minimum" is in both/],
  [
    { allOf: [object({ a: INTEGER }), { properties: { b: INTEGER }, required: ['b'] }] },
    /"additionalProperties" closes/,
  ],
  [object({ a: object({ b: { ...STRING, pattern: 'x' } }) }), /\/properties\/a\/properties\/b/],
];

const TAKEN: readonly object[] = [
  {},
  object({
    a: STRING,
    b: { ...INTEGER, minimum: 1, maximum: 10 },
    c: { type: ['string', 'null'] },
  }),
  object({ at: { ...STRING, format: 'date-time' }, to: { ...STRING, format: 'email' } }),
  { type: 'array', items: object({ a: { enum: ['x', 'y'], type: 'string' } }), maxItems: 3 },
  { anyOf: [STRING, { type: 'null' }] },
  { oneOf: [STRING, INTEGER] },
  {
    oneOf: [
      object({ kind: { const: 'a' }, x: INTEGER }),
      object({ kind: { const: 'b' }, y: INTEGER }),
    ],
  },
  {
    $ref: '#/$defs/n',
    $defs: { n: object({ next: { anyOf: [{ $ref: '#/$defs/n' }, { type: 'null' }] } }) },
  },
  {
    type: 'object',
    properties: { a: INTEGER },
    anyOf: [{ required: ['a'] }, { properties: { b: STRING }, required: ['b'] }],
  },
  {
    title: 'T',
    description: 'D',
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    ...STRING,
  },
];

test('a strict schema with an unenforced keyword is rejected with its name and path', () => {
  for (const [schema, words] of REFUSED) {
    assert.throws(() => refuseUnenforceable(schema), words, JSON.stringify(schema));
  }
});

test('a strict schema that is enforced completely is accepted', () => {
  for (const schema of TAKEN) refuseUnenforceable(schema);
});
