import assert from 'node:assert/strict';
import { test } from 'node:test';
import { replaceGlobals } from '../../../test/support/replace-globals.ts';

const page = {
  document: { documentElement: { dataset: {} }, querySelector: () => null },
  location: { origin: 'http://localhost' },
};
replaceGlobals({ ...page, fetch });
const { call, callOnce, onSignedOut, useCsrfToken } = await import('./api.ts');

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

test('a request keeps its idempotency key until the server has accepted or rejected it', async () => {
  const keys: (string | null)[] = [];
  for (const status of [429, 502, 409, 429, 401, 200, 400, 200]) {
    globalThis.fetch = async (_url, options) => {
      keys.push(new Headers(options?.headers).get('idempotency-key'));
      return Response.json({}, { status });
    };
    await callOnce('/batches', { input_file_id: 'f' }).catch(() => undefined);
  }
  const [rejected, lost] = keys;
  assert.notEqual(rejected, lost);
  // The server still runs the lost request, then rejects repetitions before it looks for their key.
  assert.deepEqual(keys.slice(1, 6), [lost, lost, lost, lost, lost]);
  assert.equal(new Set(keys).size, 4);
});
