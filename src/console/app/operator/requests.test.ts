import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

test('a filter keeps the space at its end while it is typed', async () => {
  const part = await consolePart('operator/requests.tsx', 'Requests');
  part.respond = ({ path }) =>
    path === '/admin/engines' ? { engines: [] } : { data: [], nextCursor: null };
  await part.show({});
  await part.type('Account', 'Ada ');
  const typed = [...document.querySelectorAll('input')].map(({ value }) => value);
  assert.ok(typed.includes('Ada '), String(typed));
});
