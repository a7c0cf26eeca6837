import assert from 'node:assert/strict';
import { test } from 'node:test';

import fc from 'fast-check';

import { backoffMs, retryAfterMs } from './retry.ts';

const NOW = Date.UTC(2026, 10, 21, 12);

test('a delay is between 0 and its bound, which doubles up to the cap', () => {
  fc.assert(
    fc.property(
      fc.integer({ min: 1, max: 2_000 }),
      fc.double({ min: 0, max: 1, maxExcluded: true, noNaN: true }),
      (retry, fraction) => {
        const pauseMs = backoffMs(retry, fraction);
        assert.ok(pauseMs >= 0);
        assert.ok(pauseMs <= Math.min(2_000, 100 * 2 ** (retry - 1)));
      },
    ),
  );
  assert.deepEqual(
    [1, 2, 3, 9].map((retry) => backoffMs(retry, 0.5)),
    [50, 100, 200, 1_000],
  );
});

test('Retry-After is read as seconds or as an HTTP date', () => {
  assert.equal(retryAfterMs('7', NOW), 7_000);
  assert.equal(retryAfterMs(' 0 ', NOW), 0);
  assert.equal(retryAfterMs('0.25', NOW), 250);
  assert.equal(retryAfterMs('Sat, 21 Nov 2026 12:00:30 GMT', NOW), 30_000);
  assert.equal(retryAfterMs('Sat, 21 Nov 2026 11:00:00 GMT', NOW), 0);
});

test('other Retry-After values are ignored', () => {
  for (const value of [undefined, '', '-5', 'soon', '5 minutes', '1e9', 'NaN', '2026']) {
    const pause = retryAfterMs(value, NOW);
    assert.equal(pause, value === '2026' ? 2_026_000 : null, String(value));
  }
});

test('a huge Retry-After stays a finite number', () => {
  assert.ok(Number.isSafeInteger(retryAfterMs('9'.repeat(400), NOW)));
});
