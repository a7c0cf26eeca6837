import assert from 'node:assert/strict';
import { test } from 'node:test';
import { exactDecimals, percentText, usdAxis, usdDecimals, usdText } from './format.ts';

/** The amounts of a column as the console shows them. */
function column(values: readonly (number | string)[]): string[] {
  const decimals = usdDecimals(values);
  return values.map((value) => usdText(value, decimals));
}

const COLUMNS = [
  [
    [0, 1234.5],
    ['$0.00', '$1,234.50'],
  ],
  [
    [0.04, '12'],
    ['$0.04', '$12.00'],
  ],
  [
    ['0.0375', -3],
    ['$0.038', '\u2212$3.000'],
  ],
  [
    [0.0000137, 2.5],
    ['$0.000014', '$2.500000'],
  ],
  [
    [0.000000001, 1],
    ['<$0.000001', '$1.000000'],
  ],
  [
    [-0.000000001, 0],
    ['>\u2212$0.000001', '$0.000000'],
  ],
] as const;

test('a column shows each amount with the decimals of its smallest amount, at most six', () => {
  for (const [values, texts] of COLUMNS) assert.deepEqual(column(values), texts);
});

test('an amount alone is exact, also if it has more digits than a floating-point number', () => {
  assert.equal(usdText('12345678901.123456789'), '$12,345,678,901.123456789');
  assert.equal(usdText(2), '$2.00');
  assert.equal(usdText('0.000000001'), '$0.000000001');
  assert.equal(exactDecimals(['1.5', 0.0375, null]), 4);
});

test('the labels of an axis have one format', () => {
  assert.deepEqual(usdAxis([0, 0.5, 1]), ['$0.00', '$0.50', '$1.00']);
  assert.deepEqual(usdAxis([0, 0.005, 0.01]), ['$0.000', '$0.005', '$0.010']);
  assert.deepEqual(usdAxis([0, 20_000]), ['$0', '$20K']);
});

test('a share is not rounded to none or to all', () => {
  assert.equal(percentText(0, 5), '0 %');
  assert.equal(percentText(1, 1_000), '<1 %');
  assert.equal(percentText(999, 1_000), '>99 %');
  assert.equal(percentText(5, 5), '100 %');
  assert.equal(percentText(0, 0), '–');
});
