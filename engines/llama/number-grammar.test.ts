import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { numberGrammar } from './number-grammar.ts';

/** Compiles a number grammar to a regular expression by removing the quotes of its literals. */
function matcher(grammar: string): RegExp {
  const source = grammar.replaceAll(/"([^"]*)"| /g, (_, literal = '') =>
    String(literal).replaceAll('.', String.raw`\.`),
  );
  return new RegExp(`^(?:${source})$`);
}

const bounds = fc.record(
  {
    minimum: fc.integer({ min: -1_100, max: 1_100 }),
    maximum: fc.integer({ min: -1_100, max: 1_100 }),
    exclusiveMinimum: fc.integer({ min: -1_100, max: 1_100 }),
    exclusiveMaximum: fc.integer({ min: -1_100, max: 1_100 }),
  },
  { requiredKeys: [] },
);

function isWithin(value: number, given: Readonly<Record<string, number>>): boolean {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum } = given;
  return (
    value >= (minimum ?? -Infinity) &&
    value <= (maximum ?? Infinity) &&
    value > (exclusiveMinimum ?? -Infinity) &&
    value < (exclusiveMaximum ?? Infinity)
  );
}

test('the grammar of integers accepts exactly those within the bounds', () => {
  fc.assert(
    fc.property(bounds, fc.array(fc.integer({ min: -1_200, max: 1_200 })), (given, values) => {
      const grammar = numberGrammar(given, false, 15);
      const near = Object.values(given).flatMap((at) => [at - 1, at, at + 1]);
      for (const value of [...values, ...near, 0]) {
        const isWritten = grammar !== undefined && matcher(grammar).test(String(value));
        assert.equal(isWritten, isWithin(value, given), `${value} in ${JSON.stringify(given)}`);
      }
    }),
  );
});

test('the grammar of numbers accepts only those within the bounds, and all whole ones', () => {
  const halves = bounds.map((given) =>
    Object.fromEntries(Object.entries(given).map(([name, at]) => [name, at / 2])),
  );
  fc.assert(
    fc.property(halves, fc.array(fc.integer({ min: -4_000, max: 4_000 })), (given, quarters) => {
      const grammar = numberGrammar(given, true, 15);
      if (grammar === undefined) return;
      const near = Object.values(given).flatMap((at) => [at - 0.25, at, at + 0.25]);
      for (const value of [...quarters.map((quarter) => quarter / 4), ...near]) {
        const isWritten = matcher(grammar).test(String(value));
        assert.ok(!isWritten || isWithin(value, given), `${value} in ${JSON.stringify(given)}`);
        if (Number.isInteger(value) && value !== 0) {
          assert.equal(isWritten, isWithin(value, given), `${value} in ${JSON.stringify(given)}`);
        }
      }
    }),
  );
});

test('bounds of 0 and 1 can be inclusive or exclusive', () => {
  const share = matcher(numberGrammar({ minimum: 0, maximum: 1 }, true, 15) ?? '');
  for (const text of ['0', '1', '0.5', '0.999']) assert.match(text, share);
  for (const text of ['1.1', '-0.1', '2', '1.0']) assert.doesNotMatch(text, share);
  const open = { exclusiveMinimum: 0, exclusiveMaximum: 1 };
  const inner = matcher(numberGrammar(open, true, 15) ?? '');
  for (const text of ['0.5', '0.01']) assert.match(text, inner);
  for (const text of ['0', '1', '0.0', '-0.5']) assert.doesNotMatch(text, inner);
  assert.equal(numberGrammar({ minimum: 0.5, maximum: 0.9 }, true, 15), undefined);
});
