/** Formats in which nodes return the id of a call. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { whoseId } from './call-ids.ts';

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
  for (const other of ['1234567890101', '1', '0', '""', '"x"', '-1234567890100', 'true', '[]'])
    assert.equal(whose(other), 'other', other);
  assert.equal(whose('null'), 'none');
  assert.equal(whoseId(Buffer.from(''), { idStart: -1, idEnd: -1 }, 1), 'none');
});
