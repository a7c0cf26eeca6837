import assert from 'node:assert/strict';
import { test } from 'node:test';
import { replaceGlobals } from '../../../test/support/replace-globals.ts';

const page = {
  document: { documentElement: { dataset: {} }, querySelector: () => null },
  location: { origin: 'http://localhost' },
};
replaceGlobals({ ...page, fetch });
const { call, onSignedOut, useCsrfToken } = await import('./api.ts');

test('only a failed authentication ends the session', async () => {
  let ends = 0;
  onSignedOut(() => (ends += 1));
  useCsrfToken('token');
  const codes = ['PRO_ONLY_MODEL', 'ADMIN_KEY_REQUIRED', 'AUTHENTICATION_FAILED'];
  for (const code of codes) {
    globalThis.fetch = async () => Response.json({ error: 'Not allowed', code }, { status: 401 });
    await assert.rejects(call('/chat/completions'), { status: 401, code });
  }
  assert.equal(ends, 1);
});
