/** The curve check agrees with the official Solana client. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { getAddressDecoder, isOffCurveAddress } from '@solana/kit';
import { isOnCurve, isSmallOrder } from './ed25519.ts';

test('`isOnCurve` agrees with the official client', () => {
  let points = 0;
  for (let seed = 0; seed < 400; seed += 1) {
    const bytes = createHash('sha256').update(`point ${seed}`).digest();
    const isPoint = !isOffCurveAddress(getAddressDecoder().decode(bytes));
    assert.equal(isOnCurve(bytes), isPoint, bytes.toString('hex'));
    if (isPoint) points += 1;
  }
  assert.ok(points > 150 && points < 250, String(points));
});

test('an encoding beyond the field is no point, and the neutral element has small order', () => {
  assert.equal(isOnCurve(Buffer.alloc(32, 0xff)), false);
  const neutral = Buffer.alloc(32);
  neutral[0] = 1;
  assert.equal(isOnCurve(neutral), true);
  assert.equal(isSmallOrder(neutral), true);
});
