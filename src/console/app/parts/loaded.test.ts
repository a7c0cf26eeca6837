import assert from 'node:assert/strict';
import { test } from 'node:test';
import { consolePart } from '../../../../test/support/console-part.ts';

test('a page that needs an ADMIN key leads to the sign-in', async () => {
  const part = await consolePart('parts/loaded.tsx', 'Failure');
  const error = {
    status: 401,
    code: 'ADMIN_KEY_REQUIRED',
    message: 'This route needs an ADMIN key',
  };
  await part.show({ error });
  part.respond = () => ({ signOutUrl: null });
  await part.press('Sign in with an ADMIN key');
  assert.deepEqual(
    part.sent.map(({ method, path }) => `${method} ${path}`),
    ['DELETE /console/session'],
  );
  await part.show({ error: { ...error, code: 'PRO_ONLY_MODEL' } });
  await assert.rejects(part.press('Sign in with an ADMIN key'), /no button/);
});
