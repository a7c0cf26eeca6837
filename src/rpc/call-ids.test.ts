/** Own call ids: their format, their uniqueness, and the formats in which nodes return them. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CallIds, MAX_BATCH_ITEMS, OWN_ID_DIGITS, whoseId, writeOwnId } from './call-ids.ts';

test('the ids of two exchanges never overlap', () => {
  for (const fraction of [0, 0.123, 0.999_999_999_999]) {
    const ids = new CallIds(fraction);
    let before = ids.take();
    for (let exchange = 0; exchange < 1_000; exchange += 1) {
      const first = ids.take();
      assert.equal(first, before + MAX_BATCH_ITEMS);
      assert.equal(String(first + MAX_BATCH_ITEMS - 1).length, OWN_ID_DIGITS);
      before = first;
    }
  }
});

test('an id is written as its digits', () => {
  for (const offset of [0, 7, 10, 99]) {
    const bytes = Buffer.alloc(OWN_ID_DIGITS + 4, '.');
    assert.equal(writeOwnId(bytes, 2, '1234567890100', offset), OWN_ID_DIGITS + 2);
    assert.equal(bytes.toString(), `..${1_234_567_890_100 + offset}..`);
  }
});

test('`whoseId` recognises an own id in any format, and rejects other ids', () => {
  const whose = (text: string): string =>
    whoseId(Buffer.from(text), { idStart: 0, idEnd: text.length }, 1_234_567_890_100);
  for (const own of [
    '1234567890100',
    '"1234567890100"',
    '1234567890100.0',
    '1.2345678901e12',
    '"\\u0031234567890100"',
  ])
    assert.equal(whose(own), 'own', own);
  for (const other of [
    '1234567890101',
    '1',
    '0',
    '""',
    '"x"',
    '-1234567890100',
    'true',
    '[]',
    '{}',
  ])
    assert.equal(whose(other), 'other', other);
  assert.equal(whose('null'), 'none');
  assert.equal(whoseId(Buffer.from(''), { idStart: -1, idEnd: -1 }, 1), 'none');
});
