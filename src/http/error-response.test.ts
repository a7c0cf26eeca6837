import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ReadTooLong } from '../db/db.ts';
import { errorResponse } from './error-response.ts';

test('a query above its time limit is a 400 that advises against a retry', () => {
  const { status, body, headers } = errorResponse(new ReadTooLong(10_000), false);
  assert.equal(status, 400);
  assert.deepEqual(body, {
    error:
      'The query takes longer than its limit of 10 seconds; request less data, such as fewer days',
    code: 'INVALID_REQUEST',
    details: undefined,
  });
  assert.equal(headers['x-should-retry'], 'false');
});
