/** Rate-limit and balance headers on every response to an authenticated caller, including error responses. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, type Called, call, chatBody, startWithEngine } from '../app/call.ts';
import { TestClock } from '../support/test-clock.ts';

const MODELS = [
  '  - { id: off, type: text, context: 8192, offline: true, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }',
  '  - { id: vectors, type: embedding, embedding: { dimensions: 3, maxInputTokens: 100 }, price: { input: 1 }, replicas: [{ engine: rack1, model: tiny }] }',
].join('\n');

describe('limit headers', () => {
  let bench: Bench;
  let secret: string;
  let admin: string;
  const clock = new TestClock();

  before(async () => {
    bench = await startWithEngine({
      clock,
      model: MODELS,
      yaml: 'limits: { unsoldPerMinute: 40, guard: { failures: 100000 } }\nrpc: { requestsPerMinute: 3 }',
    });
    const account = await bench.farebox.account('5');
    ({ secret } = account);
    admin = await bench.farebox.key({ accountId: account.accountId, kind: 'ADMIN' });
  });
  after(() => bench.stop());

  const ask = (path: string, options: Parameters<typeof call>[2] = {}) =>
    call(bench.farebox, path, { secret, ...options });
  const header = (answer: Called, name: string) => answer.headers.get(name);
  const requests = (answer: Called) => {
    const limit = header(answer, 'x-ratelimit-limit-requests');
    const left = Number(header(answer, 'x-ratelimit-remaining-requests'));
    const reset = Number(header(answer, 'x-ratelimit-reset-requests'));
    assert.equal(header(answer, 'x-ratelimit-type'), 'user');
    assert.equal(reset * 1_000, Math.floor(clock.nowMs() / 60_000 + 1) * 60_000);
    return [Number(limit), left];
  };

  test('unpriced routes share one limit', async () => {
    clock.advance(60_000);
    const paths = ['/api_keys/rate_limits', '/usage', '/models', '/models/traits'];
    for (const [at, path] of paths.entries()) {
      const answer = await ask(path);
      assert.equal(answer.status, 200);
      assert.deepEqual(requests(answer), [40, 39 - at], path);
    }
    for (const path of ['/billing/balance', '/api_keys', '/billing/transactions']) {
      assert.equal(requests(await ask(path, { secret: admin }))[0], 40, path);
    }
    const refused = await ask('/usage?limit=x');
    assert.deepEqual([refused.status, requests(refused)], [400, [40, 32]]);
    // Anonymous requests have no own limit.
    assert.equal(header(await call(bench.farebox, '/models'), 'x-ratelimit-type'), null);
    const answers = await Promise.all(Array.from({ length: 33 }, () => ask('/models')));
    const full = answers.filter(({ status }) => status === 429);
    assert.equal(full.length, 1);
    const [one] = full;
    assert.ok(one);
    assert.deepEqual([one.body.code, requests(one)], ['RATE_LIMIT_EXCEEDED', [40, 0]]);
    assert.ok(Number(header(one, 'retry-after')) > 0);
  });

  test('an error response for a known model has its name and its limits', async () => {
    clock.advance(60_000);
    const cases: readonly (readonly [
      what: string,
      answer: Called,
      status: number,
      model: string,
    ])[] = [
      ['a wrong field', await chat({ max_completion_tokens: 100_000 }), 400, 'atlas'],
      ['offline', await chat({ model: 'off' }), 503, 'off'],
      [
        'embeddings',
        await ask('/embeddings', { body: { model: 'vectors', input: 'a', dimensions: 9 } }),
        400,
        'vectors',
      ],
    ];
    for (const [what, answer, status, model] of cases) {
      assert.equal(answer.status, status, `${what} ${answer.text}`);
      assert.equal(header(answer, 'x-svc-model-id'), model, what);
      assert.ok((requests(answer)[1] ?? 0) > 0, what);
      assert.ok(header(answer, 'x-svc-balance-usd'), what);
    }
    clock.advance(60_000);
    const left = requests(await chat())[1] ?? 0;
    assert.deepEqual(requests(await chat({ max_completion_tokens: 100_000 }))[1], left);
  });

  test('error responses for an unknown model, path or method have balance and limit headers', async () => {
    clock.advance(60_000);
    for (const [answer, status] of [
      [await chat({ model: 'nobody' }), 404],
      [await ask('/nowhere'), 404],
      [await ask('/models', { method: 'DELETE' }), 405],
      [await ask('/chat/completions', { body: '{' }), 400],
    ] as const) {
      assert.equal(answer.status, status);
      assert.ok(header(answer, 'x-svc-balance-usd'), `${status}`);
      assert.deepEqual(requests(answer), [40, 40]);
    }
  });

  test('JSON-RPC responses have the limit, and a 429 has all limit headers', async () => {
    clock.advance(60_000);
    const rpc = (method: string) =>
      ask('/crypto/rpc/ethereum-mainnet', { body: { jsonrpc: '2.0', id: 1, method, params: [] } });
    const unsupported = await rpc('eth_sign');
    assert.deepEqual([unsupported.status, requests(unsupported)], [400, [3, 3]]);
    for (const left of [2, 1, 0]) {
      const answer = await rpc('eth_blockNumber');
      // No node responds (503), but the request counts against the limit.
      assert.deepEqual([answer.status, requests(answer)], [503, [3, left]]);
    }
    const refused = await rpc('eth_blockNumber');
    assert.deepEqual([refused.status, requests(refused)], [429, [3, 0]]);
    assert.equal(header(refused, 'x-ratelimit-limit'), '3');
    const log = await ask('/api_keys/rate_limit_logs');
    assert.equal(log.body.data[0].modelId, 'endpoint:api/v1/crypto/rpc');
  });

  test('`GET /api_keys/rate_limits` lists all limits with their usage', async () => {
    clock.advance(60_000);
    await chat();
    const { rateLimits } = (await ask('/api_keys/rate_limits')).body.data;
    const of = (id: string) =>
      rateLimits.find((row: { apiModelId: string }) => row.apiModelId === id)?.rateLimits;
    assert.deepEqual(of('atlas')[0], {
      type: 'RPM',
      unit: 'requests',
      amount: 50,
      used: 1,
      left: 49,
    });
    assert.equal(of('atlas')[1].used, 17);
    // The balance of RPC: three requests found no node, which costs nothing.
    assert.deepEqual(of('endpoint:api/v1/crypto/rpc'), [
      { type: 'RPM', unit: 'requests', amount: 3, used: 0, left: 3 },
      { type: 'RPD', unit: 'credits', amount: 10_000_000, used: 0, left: 10_000_000 },
    ]);
    assert.equal(of('endpoint:api/v1/video/retrieve')[0].amount, 120);
    assert.equal(of('endpoint:api/v1/api_keys')[0].amount, 20);
    assert.deepEqual(of('endpoint:api/v1/*')[0], {
      type: 'RPM',
      unit: 'requests',
      amount: 40,
      used: 1,
      left: 39,
    });
  });

  const chat = (more: object = {}) => ask('/chat/completions', { body: chatBody({ ...more }) });
});
