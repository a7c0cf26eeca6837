/** Rules for single keywords, validated by the native grammar parser. */
import assert from 'node:assert/strict';
import { isIPv4, isIPv6 } from 'node:net';
import { after, before, suite, test } from 'node:test';

import OpenAI from 'openai';

import { Fault } from '../../src/core/faults.ts';
import { grammarForSchema, OPEN_LIMITS, SHORT_LIMITS } from './json-schema-grammar.ts';
import { startTestLlama, type TestLlama } from '../../test/support/test-llama.ts';

const ALTERNATIVES = /more than 1000 alternatives are open at one position/;

suite('JSON schema grammars', () => {
  let llama: TestLlama;
  let client: OpenAI;

  before(async () => {
    llama = await startTestLlama();
    client = new OpenAI({ baseURL: llama.url, apiKey: llama.apiKey, maxRetries: 0 });
  });

  after(async () => {
    await llama.stop();
  });

  async function produce(schema: object, seed: number): Promise<unknown> {
    const answer = await client.chat.completions.create({
      model: 'farebox-demo',
      messages: [{ role: 'user', content: 'Report' }],
      response_format: {
        type: 'json_schema',
        json_schema: { name: 'report', schema: schema as Record<string, unknown> },
      },
      temperature: 1,
      seed,
    });
    assert.equal(answer.choices[0]!.finish_reason, 'stop');
    return JSON.parse(answer.choices[0]!.message.content!) as unknown;
  }

  suite('accepted values of a schema', () => {
    const cases: [string, object, (value: never) => boolean][] = [
      ['const', { const: 'x"y\\z' }, (value) => value === 'x"y\\z'],
      ['enum', { enum: ['a', 7, null] }, (value) => ['a', 7, null].includes(value)],
      [
        'type list',
        { type: ['integer', 'null'] },
        (value) => value === null || Number.isInteger(value),
      ],
      [
        'required and optional members in order',
        {
          type: 'object',
          properties: { a: { type: 'boolean' }, b: { type: 'integer' }, c: { type: 'null' } },
          required: ['b'],
          additionalProperties: false,
        },
        (value) => 'b' in (value as object),
      ],
      [
        'optional members only',
        { type: 'object', properties: { a: { type: 'boolean' }, b: { type: 'boolean' } } },
        (value) => Object.keys(value).every((key) => ['a', 'b'].includes(key)),
      ],
      [
        'array bounds',
        { type: 'array', items: { type: 'integer' }, minItems: 2, maxItems: 4 },
        (value) => (value as number[]).length >= 2 && (value as number[]).length <= 4,
      ],
      [
        'prefixItems',
        { type: 'array', prefixItems: [{ const: 1 }, { type: 'boolean' }] },
        (value) => (value as unknown[]).length === 2 && value[0] === 1,
      ],
      [
        'string length',
        { type: 'string', minLength: 3, maxLength: 5 },
        (value) => (value as string).length >= 3 && (value as string).length <= 5,
      ],
      ['dates', { type: 'string', format: 'date' }, (value) => /^\d{4}-\d\d-\d\d$/.test(value)],
      ['minimum 0', { type: 'integer', minimum: 0 }, (value) => (value as number) >= 0],
      [
        'references, also to itself',
        {
          $ref: '#/$defs/node',
          $defs: {
            node: {
              type: 'object',
              properties: {
                ok: { type: 'boolean' },
                next: { anyOf: [{ type: 'null' }, { $ref: '#/$defs/node' }] },
              },
              required: ['ok', 'next'],
            },
          },
        },
        (value) => 'ok' in (value as object),
      ],
      [
        'allOf',
        {
          allOf: [
            { type: 'object', properties: { a: { const: 1 } }, required: ['a'] },
            { properties: { b: { const: 2 } }, required: ['b'] },
          ],
        },
        (value) => JSON.stringify(value) === '{"a":1,"b":2}',
      ],
      [
        'anyOf beside oneOf',
        {
          type: 'object',
          anyOf: [{ properties: { a: { const: 1 } }, required: ['a'] }],
          oneOf: [
            { properties: { kind: { const: 'x' } }, required: ['kind'] },
            { properties: { kind: { const: 'y' } }, required: ['kind'] },
          ],
        },
        ({ a, kind }: { a: number; kind: string }) => a === 1 && ['x', 'y'].includes(kind),
      ],
      [
        'free members of one type',
        { type: 'object', additionalProperties: { type: 'boolean' } },
        (value) => Object.values(value).every((item) => typeof item === 'boolean'),
      ],
      [
        'bounds of numbers',
        {
          type: 'object',
          properties: {
            year: { type: 'integer', minimum: 1990, maximum: 2031 },
            share: { type: 'number', minimum: 0, maximum: 1 },
            below: { type: 'integer', exclusiveMaximum: 0, minimum: -12 },
          },
          required: ['year', 'share', 'below'],
        },
        ({ year, share, below }: { year: number; share: number; below: number }) =>
          year >= 1990 && year <= 2031 && share >= 0 && share <= 1 && below < 0 && below >= -12,
      ],
      [
        'formats',
        {
          type: 'array',
          prefixItems: ['ipv4', 'ipv6', 'email', 'hostname', 'uri', 'duration', 'date-time'].map(
            (format) => ({ type: 'string', format }),
          ),
        },
        ([four, six, , , uri, , time]: string[]) =>
          isIPv4(four ?? '') &&
          isIPv6(six ?? '') &&
          URL.canParse(uri ?? '') &&
          new Date(time ?? '').toISOString().slice(0, 19) === time?.slice(0, 19),
      ],
      ['anything', {}, () => true],
    ];
    for (const [name, schema, holds] of cases) {
      test(name, async () => {
        for (const seed of [1, 2, 3]) {
          const value = await produce(schema, seed);
          assert.ok(holds(value as never), JSON.stringify(value));
        }
      });
    }

    test('a schema that cannot be enforced is rejected with the reason', async () => {
      for (const $ref of ['#/nowhere', '#/constructor', '#/%']) {
        await assert.rejects(produce({ $ref }, 1), OpenAI.BadRequestError, $ref);
      }
      await assert.rejects(
        produce({ $ref: 'https://example.com/schema' }, 1),
        /not inside the schema/,
      );
    });

    test('a strict schema is enforced completely or rejected before generation', async () => {
      const strict = (schema: Record<string, unknown>) =>
        client.chat.completions.create({
          model: 'farebox-demo',
          messages: [{ role: 'user', content: 'Report' }],
          response_format: {
            type: 'json_schema',
            json_schema: { name: 'report', strict: true, schema },
          },
          max_tokens: 64,
        });
      await assert.rejects(strict({ type: 'string', pattern: '^a+$' }), (error) => {
        assert.ok(error instanceof OpenAI.BadRequestError);
        assert.match(error.message, /"pattern" is not enforced/);
        return true;
      });
      const answer = await strict({ type: 'integer', minimum: 7, maximum: 9 });
      // White space may surround a value.
      const value: unknown = JSON.parse(answer.choices[0]?.message.content ?? '');
      assert.ok([7, 8, 9].includes(Number(value)), String(value));
    });

    test('unbounded nesting is limited', () => {
      let deep: object = { type: 'string' };
      for (let depth = 0; depth < 100; depth += 1) deep = { type: 'array', items: deep };
      assert.throws(() => grammarForSchema(deep, OPEN_LIMITS), Fault);
    });

    test('a small schema with very many paths to few rules is rejected', () => {
      const choice = (at: number, mark: number) => ({
        allOf: [{ $ref: `#/$defs/s${at + 1}` }],
        title: `${mark}`,
      });
      const levels = 30;
      const $defs = Object.fromEntries(
        Array.from({ length: levels }, (_, at) => [
          `s${at}`,
          { anyOf: [choice(at, 1), choice(at, 2)] },
        ]),
      );
      const ways = { $ref: '#/$defs/s0', $defs: { ...$defs, [`s${levels}`]: { type: 'string' } } };
      assert.throws(() => grammarForSchema(ways, OPEN_LIMITS), ALTERNATIVES);
      let same: object = { type: 'string' };
      for (let depth = 0; depth < 30; depth += 1) {
        same = { type: Array.from({ length: 20 }, () => 'object'), properties: { a: same } };
      }
      assert.ok(grammarForSchema(same, OPEN_LIMITS).length < 10_000);
      const wide = { type: 'array', prefixItems: Array.from({ length: 20_001 }, () => ({})) };
      assert.throws(() => grammarForSchema(wide, OPEN_LIMITS), /too large/);
    });

    test('only alternatives at the same position are limited', () => {
      const takes = (schema: object) => grammarForSchema(schema, OPEN_LIMITS);
      const names = (count: number) => Array.from({ length: count }, (_, at) => `n${at}`);
      assert.ok(takes({ enum: names(1_000) }));
      assert.throws(() => takes({ enum: names(1_001) }), ALTERNATIVES);
      const flags = Object.fromEntries(names(1_500).map((name) => [name, { type: 'boolean' }]));
      const object = { type: 'object', properties: flags };
      assert.ok(takes({ ...object, required: names(1_500) }));
      assert.throws(() => takes({ ...object, required: ['n0'] }), ALTERNATIVES);
      // Alternatives that start alike multiply with nested ones; distinct alternatives do not.
      const rows = (minItems: number) => ({
        type: 'array',
        minItems,
        items: { enum: names(200) },
      });
      assert.ok(takes({ anyOf: [1, 2, 3].map(rows) }));
      assert.throws(() => takes({ anyOf: [1, 2, 3, 4, 5, 6].map(rows) }), ALTERNATIVES);
      const kinds = [1, 2, 3, 4, 5, 6].map((kind) => ({
        type: 'object',
        properties: { kind: { const: kind }, rows: rows(1) },
        required: ['kind', 'rows'],
      }));
      assert.ok(takes({ anyOf: kinds }));
    });

    test('a recursive schema is allowed unless each level doubles the open alternatives', () => {
      const takes = (x: object, more: object = {}) =>
        grammarForSchema({ $ref: '#/$defs/x', $defs: { x, ...more } }, OPEN_LIMITS);
      const self = { $ref: '#/$defs/x' };
      const list = (items: object, minItems: number) => ({ type: 'array', items, minItems });
      assert.throws(() => takes({ anyOf: [list(self, 1), list(self, 2)] }), ALTERNATIVES);
      // The recursion passes through a second, already visited reference.
      const through = { y: { type: 'object', properties: { x: self }, required: ['x'] } };
      const other = { $ref: '#/$defs/y' };
      const hidden = {
        type: 'object',
        properties: { first: other, second: { anyOf: [list(other, 1), list(other, 2)] } },
        required: ['first', 'second'],
      };
      assert.throws(() => takes(hidden, through), ALTERNATIVES);

      assert.ok(takes({ anyOf: [{ type: 'string' }, { type: 'null' }, list(self, 0)] }));
      const node = { type: 'object', properties: { next: { anyOf: [self, { type: 'null' }] } } };
      assert.ok(takes(node));
      const kind = (name: string, properties: object) => ({
        type: 'object',
        properties: { id: { type: 'string' }, kind: { const: name }, ...properties },
        required: ['id', 'kind', ...Object.keys(properties)],
      });
      const sum = kind('sum', { left: self, right: self });
      const product = kind('product', { factors: list(self, 2) });
      assert.ok(takes({ anyOf: [sum, product, kind('number', { value: { type: 'number' } })] }));
    });

    test('lengths are expanded, and their sum is limited', () => {
      const texts = (count: number) => ({
        type: 'object',
        properties: Object.fromEntries(
          Array.from({ length: count }, (_, at) => [
            `p${at}`,
            { type: 'string', minLength: at, maxLength: 512 },
          ]),
        ),
        required: Array.from({ length: count }, (_, at) => `p${at}`),
      });
      assert.ok(grammarForSchema(texts(128), OPEN_LIMITS));
      assert.throws(() => grammarForSchema(texts(129), OPEN_LIMITS), /lengths sum up to more/);
      const alike = Array.from({ length: 1_000 }, () => ({ type: 'string', maxLength: 500 }));
      assert.ok(grammarForSchema({ type: 'array', prefixItems: alike }, OPEN_LIMITS));
    });

    test('string lengths are limited for the demo model only', () => {
      assert.match(grammarForSchema({ type: 'string' }, OPEN_LIMITS), /char\*/);
      assert.match(grammarForSchema({ type: 'string' }, SHORT_LIMITS), /char\{0,48\}/);
    });
  });
});
