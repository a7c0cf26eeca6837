import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { emptyPostgresDatabase } from '../../test/databases/postgres.ts';
import { DAY_MS } from '../core/clock.ts';
import { usdToNano } from '../core/money.ts';
import { StoreUnavailable } from '../db/db.ts';
import { type LogLine, memoryLog } from '../../test/support/memory-log.ts';
import { until } from '../../test/support/until.ts';
import { TestClock } from '../../test/support/test-clock.ts';

const COST = usdToNano('0.000022');

/** Responses of this route can be larger than the stored maximum. */
const ENDLESS =
  '  - { id: endless, type: text, context: 20000000, maxCompletionTokens: 10000000, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }';

for (const dialect of ['sqlite', 'postgres'] as const) {
  describe(`Idempotency-Key on a chat (${dialect})`, () => {
    let bench: Bench;
    const lines: LogLine[] = [];
    before(async () => {
      bench = await startWithEngine({
        model: ENDLESS,
        log: memoryLog(lines),
        ...(dialect === 'sqlite' ? {} : { databaseUrl: await emptyPostgresDatabase() }),
      });
    });
    after(async () => {
      await bench.farebox.audit();
      await bench.stop();
    });

    const chat = (secret: string, key: string, extra = {}, signal?: AbortSignal) =>
      call(bench.farebox, '/chat/completions', {
        secret,
        body: chatBody(extra),
        headers: { 'idempotency-key': key },
        ...(signal === undefined ? {} : { signal }),
      });
    const spent = async (accountId: string) =>
      usdToNano('1') - (await bench.farebox.app.stores.ledger.balances(accountId)).usdNano;

    test('a replay that fails has the id of its own request', async (t) => {
      const { secret } = await bench.farebox.account('1');
      const first = await chat(secret, 'a-0');
      const { ledger } = bench.farebox.app.stores;
      t.mock.method(ledger, 'funds', () => Promise.reject(new StoreUnavailable('Unreachable')));
      const failed = await chat(secret, 'a-0');
      t.mock.restoreAll();
      lines.length = 0;
      assert.equal(failed.status, 503);
      assert.notEqual(failed.headers.get('x-request-id'), first.headers.get('x-request-id'));
    });

    test('the same key and body replay the response and charge nothing', async () => {
      const { accountId, secret } = await bench.farebox.account('1');
      const first = await chat(secret, 'a-1');
      assert.equal(first.status, 200);
      assert.equal(first.headers.get('idempotent-replayed'), null);
      const calls = bench.upstream.seen.length;
      const again = await chat(secret, 'a-1');
      assert.equal(again.status, 200);
      assert.equal(again.text, first.text);
      assert.equal(again.headers.get('idempotent-replayed'), 'true');
      for (const name of ['content-type', 'x-request-id', 'x-svc-model-id', 'x-svc-model-router']) {
        assert.equal(again.headers.get(name), first.headers.get(name), name);
      }
      assert.equal(again.headers.get('x-svc-balance-usd'), '0.999978');
      assert.equal(again.headers.get('x-ratelimit-limit-requests'), null);
      assert.equal(bench.upstream.seen.length, calls);
      assert.equal(await spent(accountId), COST);
    });

    test('another body and a malformed key get 400, and another caller has other keys', async () => {
      const { secret } = await bench.farebox.account('1');
      const stranger = await bench.farebox.account('1');
      await chat(secret, 'b-1');
      const other = await chat(secret, 'b-1', { temperature: 1 });
      assert.equal(other.status, 400);
      assert.equal(other.body.code, 'IDEMPOTENCY_KEY_REUSED');
      const free = await chat(stranger.secret, 'b-1', { temperature: 1 });
      assert.equal(free.status, 200);
      for (const key of ['with space', 'x'.repeat(256), 'dot.dot']) {
        const malformed = await chat(secret, key);
        assert.equal(malformed.status, 400);
        assert.equal(malformed.body.code, 'INVALID_IDEMPOTENCY_KEY');
      }
    });

    test('duplicates in flight wait for the first: one engine call, one charge', async () => {
      const { accountId, secret } = await bench.farebox.account('1');
      const calls = bench.upstream.seen.length;
      const answers = await Promise.all(Array.from({ length: 8 }, () => chat(secret, 'c-1')));
      assert.deepEqual(new Set(answers.map((one) => one.status)), new Set([200]));
      assert.equal(new Set(answers.map((one) => one.text)).size, 1);
      const replayed = answers.filter((one) => one.headers.get('idempotent-replayed') === 'true');
      assert.equal(replayed.length, 7);
      assert.equal(bench.upstream.seen.length, calls + 1);
      assert.equal(await spent(accountId), COST);
    });

    test('a caller that leaves while it waits for its duplicate is not a failure of the server', async () => {
      const { accountId, secret } = await bench.farebox.account('1');
      const running = Promise.withResolvers<void>();
      bench.upstream.script.push({ kind: 'answer', after: running.promise, content: 'Hi' });
      const first = chat(secret, 'c-2');
      await until(() => bench.upstream.active === 1, 'the request at the engine');
      const leaving = new AbortController();
      const second = chat(secret, 'c-2', {}, leaving.signal);
      await until(() => bench.farebox.app.server.open === 2, 'the duplicate');
      leaving.abort();
      await assert.rejects(second, { name: 'AbortError' });
      await until(() => bench.farebox.app.server.open === 1, 'the end of the duplicate');
      running.resolve();
      assert.equal((await first).status, 200);
      const failures = lines.filter(({ message }) => message === 'Request failed');
      assert.deepEqual(failures, []);
      assert.ok((await spent(accountId)) > 0n);
    });

    test('error responses are not stored: the next request runs', async () => {
      const { accountId, secret } = await bench.farebox.account('1');
      bench.upstream.script.push({ kind: 'status', status: 422, body: '{"error":"no"}' });
      const failed = await chat(secret, 'd-1');
      assert.ok(failed.status >= 400);
      const invalid = await chat(secret, 'd-2', { temperature: 9 });
      assert.equal(invalid.status, 400);
      const next = await chat(secret, 'd-1');
      assert.equal(next.status, 200);
      assert.equal(next.headers.get('idempotent-replayed'), null);
      assert.equal((await chat(secret, 'd-2')).status, 200);
      assert.equal(await spent(accountId), 2n * COST);
      const poor = await bench.farebox.account('0.01');
      assert.equal((await chat(poor.secret, 'd-3')).status, 402);
      assert.equal((await chat(poor.secret, 'd-3')).status, 402);
    });

    test('a stream is replayed as the same stream', async () => {
      const { accountId, secret } = await bench.farebox.account('1');
      bench.upstream.script.push({ kind: 'stream', chunks: 5 });
      const first = await chat(secret, 'e-1', { stream: true });
      assert.match(first.text, /data: \[DONE\]\n\n$/);
      const again = await chat(secret, 'e-1', { stream: true });
      assert.equal(again.text, first.text);
      assert.equal(again.headers.get('content-type'), 'text/event-stream; charset=utf-8');
      assert.equal(again.headers.get('idempotent-replayed'), 'true');
      assert.equal(again.headers.get('x-request-id'), first.headers.get('x-request-id'));
      assert.equal(await spent(accountId), COST);
    });

    test('the retry after a disconnected stream gets the complete stream, charged once', async () => {
      const { accountId, secret } = await bench.farebox.account('1');
      bench.upstream.script.push({ kind: 'stream', chunks: 20, everyMs: 10 });
      const leave = new AbortController();
      const response = await fetch(`${bench.farebox.url}/chat/completions`, {
        method: 'POST',
        headers: {
          authorization: `Bearer ${secret}`,
          'content-type': 'application/json',
          'idempotency-key': 'f-1',
        },
        body: JSON.stringify(chatBody({ stream: true })),
        signal: leave.signal,
      });
      await response.body?.getReader().read();
      leave.abort();
      const retry = await chat(secret, 'f-1', { stream: true });
      assert.equal(retry.status, 200);
      assert.equal(retry.headers.get('idempotent-replayed'), 'true');
      assert.match(retry.text, / w19/);
      assert.match(retry.text, /data: \[DONE\]\n\n$/);
      // 12 tokens in, 20 out.
      assert.equal(await spent(accountId), usdToNano('0.000052'));
      assert.equal(bench.upstream.abandoned, 0);
    });

    for (const stream of [false, true]) {
      test(`${stream ? 'a stream' : 'a response'} that is too large to store is charged once`, async () => {
        const { accountId, secret } = await bench.farebox.account('50');
        const calls = bench.upstream.seen.length;
        const key = `large-${stream}`;
        bench.upstream.script.push({
          kind: 'answer',
          content: `${'x'.repeat(2_000_000)} `.repeat(9),
          completionTokens: 5,
        });
        const body = { model: 'endless', max_completion_tokens: 9_000_000, stream };
        const first = await chat(secret, key, body);
        assert.equal(first.status, 200);
        assert.ok(first.text.length > 17_000_000);
        const paid = await spent(accountId);
        for (let again = 0; again < 2; again += 1) {
          const refused = await chat(secret, key, body);
          assert.equal(refused.status, 410);
          assert.equal(refused.body.code, 'IDEMPOTENT_ANSWER_NOT_KEPT');
          assert.equal(refused.headers.get('x-should-retry'), 'false');
        }
        assert.equal(bench.upstream.seen.length, calls + 1);
        assert.equal(await spent(accountId), paid);
      });
    }

    test('a stream that breaks off after text is charged once, and spends its key', async () => {
      const { accountId, secret } = await bench.farebox.account('1');
      bench.upstream.script.push({ kind: 'stream', chunks: 5, cutAfter: 3 });
      const broken = await chat(secret, 'g-1', { stream: true });
      assert.match(broken.text, /"error":/);
      // `Hello` and ` w0 w1` that had come: two tokens each.
      const partial = 2n * 1_000n + 2n * 2_000n;
      assert.equal(await spent(accountId), partial);
      const calls = bench.upstream.seen.length;
      const next = await chat(secret, 'g-1', { stream: true });
      assert.equal(next.status, 410);
      assert.match(next.text, /broke off/);
      assert.equal(bench.upstream.seen.length, calls);
      assert.equal(await spent(accountId), partial);
    });

    /** As another process does that has taken the key over from this one. */
    async function takenOver(key: string, state: 'running' | 'done', body: string) {
      const { store } = bench.farebox.app.stores;
      const find = `SELECT 1 FROM idempotency_entry WHERE entry_key = $1 AND state = 'running'`;
      await until(async () => (await store.query(find, [key])).length === 1);
      await store.query(
        `UPDATE idempotency_entry SET token = 'other:1', state = $2, status = 200, headers = $3,
         body = $4, expires_ms = expires_ms + 60000 WHERE entry_key = $1`,
        [key, state, '{"content-type":"application/json"}', Buffer.from(body)],
      );
    }

    for (const state of ['running', 'done'] as const) {
      test(`a request whose key another process has (${state}) gets 409 and is not charged`, async () => {
        const { text: other } = await chat((await bench.farebox.account('1')).secret, 'other');
        const { accountId, secret } = await bench.farebox.account('1');
        for (const stream of [false, true]) {
          const key = `h-${state}-${stream}`;
          bench.upstream.script.push(
            stream
              ? { kind: 'stream', chunks: 20, everyMs: 20 }
              : { kind: 'answer', afterMs: 300, content: 'Hi' },
          );
          const sent = chat(secret, key, { stream });
          await takenOver(key, state, other);
          const seen = await sent;
          assert.equal(await spent(accountId), 0n);
          if (stream) {
            assert.match(seen.text, /REQUEST_IN_PROGRESS|another request/i);
            assert.doesNotMatch(seen.text, /"usage":\{/);
          } else if (state === 'done') {
            assert.equal(seen.text, other);
            assert.equal(seen.headers.get('idempotent-replayed'), 'true');
          } else assert.equal(seen.body.code, 'REQUEST_IN_PROGRESS');
        }
      });
    }

    test('stored responses are counted for the owner and the operator', async () => {
      const { accountId, secret } = await bench.farebox.account('1');
      await chat(secret, 'i-1');
      const limits = await call(bench.farebox, '/api_keys/rate_limits', { secret });
      const { keptResponses } = limits.body.data.storage;
      assert.ok(keptResponses.usedBytes > 512 && keptResponses.usedBytes < 5_000);
      assert.equal(keptResponses.limitBytes, 32 * 1_048_576 + 4_400);
      const owner = await call(bench.farebox, `/admin/accounts/${accountId}`, {
        secret: await bench.farebox.key({ kind: 'ADMIN' }),
      });
      assert.deepEqual(owner.body.data.storage, { keptResponses });
    });
  });
}

test('a stored response survives a restart and expires after 24 hours', async () => {
  const dataFolder = mkdtempSync(join(tmpdir(), 'farebox-kept-'));
  const clock = new TestClock();
  const options = { dataFolder, clock };
  const chat = (bench: Bench, secret: string) =>
    call(bench.farebox, '/chat/completions', {
      secret,
      body: chatBody(),
      headers: { 'idempotency-key': 'k' },
    });
  let bench = await startWithEngine(options);
  const { secret } = await bench.farebox.account('1');
  const first = await chat(bench, secret);
  await bench.stop();
  bench = await startWithEngine(options);
  try {
    const again = await chat(bench, secret);
    assert.equal(again.text, first.text);
    assert.equal(again.headers.get('idempotent-replayed'), 'true');
    assert.equal(bench.upstream.seen.length, 0);
    clock.advance(DAY_MS);
    const later = await chat(bench, secret);
    assert.equal(later.headers.get('idempotent-replayed'), null);
    assert.notEqual(later.text, first.text);
    await bench.farebox.audit();
  } finally {
    await bench.stop();
    rmSync(dataFolder, { recursive: true, force: true });
  }
});
