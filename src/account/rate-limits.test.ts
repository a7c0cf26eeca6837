import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { MINUTE_MS } from '../core/clock.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { RateLimitLogResponse, RateLimitsResponse } from './rate-limits.ts';

describe('/api_keys/rate_limits', () => {
  let bench: Bench;
  const clock = new TestClock();
  before(async () => {
    bench = await startWithEngine({
      clock,
      yaml: [
        '  - { id: tiny, type: text, tier: XS, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }',
        '  - { id: emb, type: embedding, context: 4096, price: { input: 1 }, embedding: { dimensions: 8, maxInputTokens: 4096 }, replicas: [{ engine: rack1, model: tiny }] }',
        '  - { id: pro-one, type: text, tier: XS, requires: pro, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }',
        '  - { id: small, type: text, tier: S, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }',
      ].join('\n'),
    });
  });
  after(() => bench.stop());

  const limits = async (secret: string) => {
    const answer = await call(bench.farebox, '/api_keys/rate_limits', { secret });
    assert.equal(answer.status, 200, answer.text);
    const { data } = RateLimitsResponse.parse(answer.body);
    const of = (id: string) =>
      Object.fromEntries(
        (data.rateLimits.find((row) => row.apiModelId === id)?.rateLimits ?? []).map((rate) => [
          rate.type,
          rate.amount,
        ]),
      );
    return { data, of };
  };

  test('the limits of the plan, the balances, and when the day ends', async () => {
    const { secret } = await bench.farebox.account('2', { expiresMs: Date.UTC(2027, 0, 1) });
    const { data, of } = await limits(secret);
    assert.equal(data.accessPermitted, true);
    assert.deepEqual(data.apiTier, { id: 'paid', isCharged: true });
    assert.deepEqual(data.balances, { USD: 2, DIEM: 0 });
    assert.equal(data.keyExpiration, '2027-01-01T00:00:00.000Z');
    assert.equal(data.nextEpochBegins, '2026-11-22T00:00:00.000Z');
    assert.deepEqual(of('tiny'), { RPM: 500, TPM: 1_000_000 });
    assert.deepEqual(of('emb'), { RPM: 500 });
    const poor = await bench.farebox.account('0.05');
    assert.equal((await limits(poor.secret)).data.accessPermitted, false);
  });

  test('what is shown is what admission enforces, for plans, accounts and keys', async () => {
    const { identity } = bench.farebox.app.stores;
    const { accountId, secret } = await bench.farebox.account('2');
    const account = await identity.findAccount(accountId);
    assert.ok(account);
    const chat = () =>
      call(bench.farebox, '/chat/completions', { secret, body: chatBody({ model: 'small' }) });
    const check = async (type: string, rpm: number, tpm: number) => {
      const { of } = await limits(secret);
      assert.deepEqual(of('small'), { RPM: rpm, TPM: tpm });
      const answer = await chat();
      assert.equal(answer.headers.get('x-ratelimit-limit-requests'), String(rpm));
      assert.equal(answer.headers.get('x-ratelimit-limit-tokens'), String(tpm));
      assert.equal(answer.headers.get('x-ratelimit-type'), type);
    };
    await check('user', 75, 750_000);
    await identity.updateAccount({ ...account, plan: 'partner' });
    await check('user', 150, 1_500_000);
    await identity.updateAccount({ ...account, limits: { requestsPerMinute: 3 } });
    await check('user', 3, 750_000);
    const [key] = await identity.listKeys(accountId, {}, { limit: 1, offset: 0 });
    assert.ok(key);
    await identity.updateKey({ ...key, limits: { requestsPerMinute: 2, tokensPerMinute: 9_000 } });
    await check('api_key', 2, 9_000);
  });

  test('a model for pro accounts is a 401 on the paid plan', async () => {
    const { identity } = bench.farebox.app.stores;
    const { accountId, secret } = await bench.farebox.account('2');
    const account = await identity.findAccount(accountId);
    assert.ok(account);
    const body = chatBody({ model: 'pro-one' });
    const refused = await call(bench.farebox, '/chat/completions', { secret, body });
    assert.equal(refused.status, 401);
    assert.equal(refused.body.code, 'PRO_ONLY_MODEL');
    await identity.updateAccount({ ...account, plan: 'pro' });
    assert.equal((await call(bench.farebox, '/chat/completions', { secret, body })).status, 200);
  });

  test('the log of rejected requests is under both paths, with the last 50, newest first', async () => {
    const { accountId, secret } = await bench.farebox.account('2', {
      limits: { requestsPerMinute: 1 },
    });
    const admin = await bench.farebox.key({ accountId, kind: 'ADMIN' });
    const quiet = await bench.farebox.key({ accountId });
    clock.advance(MINUTE_MS);
    const answers = [];
    for (let index = 0; index < 53; index += 1) {
      answers.push(await call(bench.farebox, '/chat/completions', { secret, body: chatBody() }));
      clock.advance(10);
    }
    assert.deepEqual(answers.filter((one) => one.status === 200).length, 1);
    const { headers, body } = answers[1]!;
    assert.equal(body.code, 'RATE_LIMIT_EXCEEDED');
    assert.match(body.error, /limit of 1 requests per minute for atlas/);
    assert.equal(headers.get('retry-after'), '60');
    assert.equal(headers.get('x-ratelimit-remaining-requests'), '0');
    assert.equal(
      headers.get('x-ratelimit-reset-requests'),
      String(Math.ceil(clock.nowMs() / MINUTE_MS) * 60),
    );
    assert.equal(headers.get('x-ratelimit-reset-tokens'), '60');
    for (const path of ['/api_keys/rate_limits/log', '/api_keys/rate_limit_logs']) {
      const log = RateLimitLogResponse.parse(
        (await call(bench.farebox, path, { secret: admin })).body,
      );
      assert.equal(log.data.length, 50);
      assert.equal(log.data[0]?.modelId, 'atlas');
      assert.equal(log.data[0]?.rateLimitType, 'RPM');
      assert.equal(log.data[0]?.rateLimitTier, 'paid');
      const times = log.data.map((hit) => hit.timestamp);
      assert.deepEqual(times, [...times].sort().reverse());
    }
    const own = await call(bench.farebox, '/api_keys/rate_limit_logs', { secret });
    assert.equal(RateLimitLogResponse.parse(own.body).data.length, 50);
    const other = await call(bench.farebox, '/api_keys/rate_limit_logs', { secret: quiet });
    assert.equal(RateLimitLogResponse.parse(other.body).data.length, 0);
  });

  test('no key is 402, a wrong one 401', async () => {
    assert.equal((await call(bench.farebox, '/api_keys/rate_limits')).status, 402);
    const wrong = await call(bench.farebox, '/api_keys/rate_limits', { secret: 'SVC_wrong' });
    assert.equal(wrong.status, 401);
  });
});
