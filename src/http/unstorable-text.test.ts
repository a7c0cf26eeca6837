/** A NUL from a caller is a bad request on PostgreSQL, which stores none, and no fault of ours. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { call, startWithEngine } from '../../test/app/call.ts';
import { emptyPostgresDatabase } from '../../test/databases/postgres.ts';

const NUL = '\0';

test('a NUL in a path, a query or a body is a 400', async () => {
  const bench = await startWithEngine({ databaseUrl: await emptyPostgresDatabase() });
  const { secret } = await bench.farebox.account('5', { kind: 'ADMIN' });
  const asked = [
    { path: '/responses/%00' },
    { path: '/usage?tag=%00' },
    { path: '/console/sessions/%00', method: 'DELETE' },
    { path: '/api_keys', body: { apiKeyType: 'INFERENCE', description: `a${NUL}b` } },
    {
      path: '/responses',
      body: { model: 'atlas', input: 'Hello', previous_response_id: `resp_${NUL}` },
    },
  ];
  for (const { path, ...options } of asked) {
    const answer = await call(bench.farebox, path, { secret, ...options });
    assert.equal(answer.status, 400, `${path}: ${answer.text}`);
    assert.match(answer.text, /NUL/, path);
  }
  await bench.stop();
});
