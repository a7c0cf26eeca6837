import assert from 'node:assert/strict';
import { test } from 'node:test';
import { call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { CommitUncertain, type FileStore, ReadTooLong } from '../db/db.ts';
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

test('a request whose charge is uncertain gets no error response, which would cost nothing', async () => {
  const bench = await startWithEngine();
  const { secret } = await bench.farebox.account('5');
  const store = bench.farebox.app.stores.store as FileStore; // without a URL of a database
  const [write, uncertain] = [store.write.bind(store), new CommitUncertain('Not flushed')];
  store.write = (work) => write({ ...work, done: () => work.failed(uncertain) });
  const sent = { secret, body: chatBody() };
  await assert.rejects(call(bench.farebox, '/chat/completions', sent), /fetch failed/);
  store.write = write;
  await bench.stop();
});
