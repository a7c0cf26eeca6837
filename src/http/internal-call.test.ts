import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { until } from '../../test/support/until.ts';
import { usdToNano } from '../core/money.ts';
import type { Caller } from '../identity/identity.ts';
import { type InternalResponse, type InternalCall, readResponse } from './internal-call.ts';

const COST = usdToNano('0.000022');
const MOST_BYTES = 1024 * 1024;
const GUARD = 'limits: { guard: { failures: 3, windowSeconds: 30, blockSeconds: 30 } }';

describe('an internal call', () => {
  let bench: Bench;
  let caller: Caller;
  before(async () => {
    bench = await startWithEngine({ yaml: GUARD });
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
  });

  const account = async (): Promise<string> => {
    const { secret, accountId } = await bench.farebox.account('1');
    caller = await bench.farebox.app.stores.identity.keys.callerOf(secret);
    return accountId;
  };
  const run = (
    body: unknown,
    further: Partial<InternalCall> & { readonly key?: string } = {},
  ): Promise<InternalResponse> => {
    const { key, ...rest } = further;
    return bench.farebox.app.server.internal.run({
      caller,
      method: 'POST',
      path: '/chat/completions',
      headers: {
        'content-type': 'application/json',
        ...(key === undefined ? {} : { 'idempotency-key': key }),
      },
      body: Buffer.from(JSON.stringify(body)),
      address: '192.0.2.1',
      countsFailures: false,
      ...rest,
    });
  };
  const statusOutside = async (secret: string): Promise<number> => {
    const { status } = await call(bench.farebox, '/chat/completions', { secret, body: chatBody() });
    return status;
  };
  const json = async (answer: InternalResponse) =>
    JSON.parse((await readResponse(answer, MOST_BYTES)).toString());
  const spent = async (accountId: string) =>
    usdToNano('1') - (await bench.farebox.app.stores.ledger.balances(accountId)).usdNano;

  test('is sold like a network request, with the same headers', async () => {
    const accountId = await account();
    const answer = await run(chatBody());
    assert.equal(answer.status, 200);
    assert.equal(answer.headers['x-svc-model-id'], 'atlas');
    assert.match(String(answer.headers['x-request-id']), /\S/);
    assert.equal((await json(answer)).object, 'chat.completion');
    assert.equal(await spent(accountId), COST);
  });

  test('replays a response under its key, and is charged once', async () => {
    const accountId = await account();
    const first = await json(await run(chatBody(), { key: 'line-1' }));
    const again = await run(chatBody(), { key: 'line-1' });
    assert.equal(again.headers['idempotent-replayed'], 'true');
    assert.deepEqual(await json(again), first);
    assert.equal(await spent(accountId), COST);
  });

  test('gets the same errors as a network request: 400, 402, 404, 413, 415', async () => {
    await account();
    assert.equal((await run({ model: 'atlas' })).status, 400);
    assert.equal((await run(chatBody({ model: 'nothing' }))).status, 404);
    assert.equal((await run({}, { path: '/no/such/path' })).status, 404);
    const text = { headers: { 'content-type': 'text/plain' } };
    assert.equal((await run({}, text)).status, 415);
    const large = await run({}, { body: Buffer.alloc(64 * 1024 * 1024, 32) });
    assert.equal(large.status, 413);
    const nobody = await run(chatBody(), { caller: undefined });
    assert.equal(nobody.status, 402);
    assert.equal((await json(nobody)).x402Version, 2);
    assert.equal((await run({}, { path: '/admin/accounts', method: 'GET' })).status, 401);
  });

  test('blocks the caller by its failures only if they count', async () => {
    const { secret } = await bench.farebox.account('1');
    caller = await bench.farebox.app.stores.identity.keys.callerOf(secret);
    for (let i = 0; i < 6; i += 1) await json(await run({}));
    assert.equal(await statusOutside(secret), 200);
    for (let i = 0; i < 6; i += 1) await json(await run({}, { countsFailures: true }));
    assert.equal(await statusOutside(secret), 429);
  });

  test('streams, and an abort is charged for the produced output', async () => {
    const accountId = await account();
    bench.upstream.script.push({ kind: 'stream', chunks: 1_000, everyMs: 5 });
    const left = new AbortController();
    const before = bench.upstream.abandoned;
    const answer = await run(chatBody({ stream: true, max_completion_tokens: 2_000 }), {
      signal: left.signal,
    });
    assert.match(String(answer.headers['content-type']), /event-stream/);
    let sizeBytes = 0;
    await assert.rejects(async () => {
      for await (const piece of answer.body as AsyncIterable<Buffer>) {
        sizeBytes += piece.length;
        if (sizeBytes > 500) left.abort();
      }
    });
    await until(async () => (await spent(accountId)) > 0n);
    // The socket is closed immediately, and the other end notices it later.
    await until(async () => bench.upstream.abandoned > before);
    assert.ok((await spent(accountId)) < usdToNano('0.004'));
    await until(async () => bench.farebox.app.server.open === 0);
  });

  test('is cut off if the body exceeds the limit of the reader', async () => {
    await account();
    bench.upstream.script.push({ kind: 'stream', chunks: 1_000, everyMs: 5 });
    const answer = await run(chatBody({ stream: true, max_completion_tokens: 2_000 }));
    await assert.rejects(readResponse(answer, 500), { name: 'ResponseTooLarge' });
    await until(async () => bench.farebox.app.server.open === 0);
  });

  test('rejects if it is aborted before the response begins, and is charged for the prompt', async () => {
    const accountId = await account();
    bench.upstream.script.push({ kind: 'hang' });
    const left = new AbortController();
    const asked = bench.upstream.seen.length;
    const rejected = assert.rejects(run(chatBody(), { signal: left.signal }));
    await until(() => bench.upstream.seen.length > asked);
    left.abort();
    await rejected;
    await until(async () => bench.farebox.app.server.open === 0);
    assert.equal(await spent(accountId), usdToNano('0.000002'));
  });

  test('is cut off when the server closes, and is charged for the produced output', async () => {
    const accountId = await account();
    bench.upstream.script.push({ kind: 'stream', chunks: 1_000, everyMs: 5 }, { kind: 'hang' });
    const streamed = await run(chatBody({ stream: true, max_completion_tokens: 2_000 }));
    const asked = bench.upstream.seen.length;
    const waiting = run(chatBody());
    const cut = Promise.all([assert.rejects(json(streamed)), assert.rejects(waiting)]);
    await until(async () => bench.upstream.seen.length > asked);
    bench.farebox.app.server.internal.close();
    await cut;
    await until(async () => bench.farebox.app.server.open === 0);
    assert.ok((await spent(accountId)) >= usdToNano('0.000004'));
  });
});
