import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { SECOND_MS } from '../core/clock.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import {
  ApiKeyResponse,
  ApiKeyList,
  CreatedKeyResponse,
  UpdatedKeyResponse,
} from './api-key-schema.ts';

describe('/api_keys', () => {
  let bench: Bench;
  let admin: string;
  const clock = new TestClock();
  before(async () => {
    bench = await startWithEngine({ clock, yaml: 'limits: { guard: { failures: 10000 } }' });
    admin = await bench.farebox.key({ kind: 'ADMIN' });
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
  });

  const manage = (method: string, path: string, body?: unknown, secret = admin) =>
    call(bench.farebox, path, { method, secret, ...(body === undefined ? {} : { body }) });
  const make = async (settings: Record<string, unknown> = {}) => {
    clock.advance(60 * SECOND_MS);
    const made = await manage('POST', '/api_keys', {
      apiKeyType: 'INFERENCE',
      description: 'ci',
      ...settings,
    });
    assert.equal(made.status, 200, made.text);
    const { data } = CreatedKeyResponse.parse(made.body);
    return { ...data, headers: made.headers };
  };
  const chat = (secret: string, extra = {}) =>
    call(bench.farebox, '/chat/completions', { secret, body: chatBody(extra) });
  const get = async (id: string) =>
    ApiKeyResponse.parse((await manage('GET', `/api_keys/${id}`)).body).data;

  test('a made key works, and its secret is shown nowhere else', async () => {
    const made = await make({ expiresAt: '' });
    assert.match(made.apiKey, /^SVC_INFERENCE_KEY_[A-Za-z0-9_-]{43}$/);
    assert.deepEqual(made.consumptionLimit, { usd: null, diem: null, vcu: null });
    assert.equal(made.expiresAt, null);
    assert.equal(made.headers.get('cache-control'), 'no-store');
    assert.equal((await chat(made.apiKey)).status, 200);
    const list = await manage('GET', '/api_keys');
    assert.ok(!list.text.includes(made.apiKey));
    const item = ApiKeyList.parse(list.body).data.find((one) => one.id === made.id);
    assert.equal(item?.last6Chars, made.apiKey.slice(-6));
    assert.equal(item.apiKeyType, 'INFERENCE');
    assert.equal(item.limitPeriod, 'EPOCH');
    assert.equal(item.modelPrivacy, 'ALL');
    assert.notEqual(item.lastUsedAt, null);
    // 12 tokens in at 1 USD, 5 out at 2 USD per million.
    assert.equal(item.usage.trailingSevenDays.usd, '0.000022');
    assert.equal(item.currentPeriodUsage.usd, '0.000022');
    assert.equal(item.usage.trailingSevenDays.diem, '0.0000');
  });

  test('pages have their headers', async () => {
    await make();
    const all = await manage('GET', '/api_keys');
    const total = ApiKeyList.parse(all.body).data.length;
    assert.equal(all.headers.get('x-pagination-limit'), '500');
    assert.equal(all.headers.get('x-pagination-total'), String(total));
    const second = await manage('GET', '/api_keys?limit=1&page=2');
    assert.equal(second.headers.get('x-pagination-page'), '2');
    assert.equal(second.headers.get('x-pagination-total-pages'), String(total));
    assert.equal(ApiKeyList.parse(second.body).data[0]?.id, ApiKeyList.parse(all.body).data[1]?.id);
    assert.equal((await manage('GET', '/api_keys?limit=0')).status, 400);
    assert.equal((await manage('GET', '/api_keys?limit=501')).status, 400);
    assert.equal((await manage('GET', '/api_keys?page=x')).status, 400);
  });

  test('a capped key is refused with a 402 that names the cap, and raising it keeps the count', async () => {
    const made = await make({ consumptionLimit: { usd: 0.01 } });
    assert.equal((await chat(made.apiKey)).status, 200);
    const lowered = await manage('PATCH', '/api_keys', {
      id: made.id,
      consumptionLimit: { usd: 0.000022 },
    });
    assert.equal(UpdatedKeyResponse.parse(lowered.body).data.currentPeriodUsage.usd, '0.000022');
    const refused = await chat(made.apiKey);
    assert.equal(refused.status, 402);
    assert.equal(refused.body['code'], 'API_KEY_USD_SPEND_LIMIT_EXCEEDED');
    assert.deepEqual(refused.body['limit'], {
      currency: 'USD',
      amount: '0.000022',
      spent: '0.000022',
      resetsAt: '2026-11-22T00:00:00.000Z',
    });
    assert.equal(refused.headers.get('x-should-retry'), 'false');
    await manage('PATCH', '/api_keys', { id: made.id, consumptionLimit: { usd: 1 } });
    assert.equal((await chat(made.apiKey)).status, 200);
    assert.equal((await get(made.id)).currentPeriodUsage.usd, '0.000044');
    const free = await manage('PATCH', '/api_keys', { id: made.id, consumptionLimit: null });
    assert.equal(UpdatedKeyResponse.parse(free.body).data.consumptionLimits.usd, null);
    assert.equal((await chat(made.apiKey)).status, 200);
    await manage('PATCH', '/api_keys', { id: made.id, consumptionLimit: { usd: 0.00006 } });
    assert.equal((await chat(made.apiKey)).status, 402);
  });

  test('a cap added to a key that has spent counts what it spent', async () => {
    const made = await make();
    assert.equal((await chat(made.apiKey)).status, 200);
    await manage('PATCH', '/api_keys', {
      id: made.id,
      consumptionLimit: { usd: 0.00002 },
      limitPeriod: 'LIFETIME',
    });
    const refused = await chat(made.apiKey);
    assert.equal(refused.status, 402);
    assert.equal(refused.body['limit']['resetsAt'], null);
  });

  test('a key is limited to its models and to private ones', async () => {
    const made = await make({ models: ['gpt-4o'] });
    assert.deepEqual(made.models, ['atlas']);
    assert.equal((await chat(made.apiKey)).status, 200);
    const strange = await manage('POST', '/api_keys', {
      apiKeyType: 'INFERENCE',
      description: 'x',
      models: ['no-such-model'],
    });
    assert.equal(strange.status, 400);
    assert.match(strange.text, /no-such-model/);
    assert.deepEqual(strange.body['issues'][0]?.['path'], ['models']);
    const other = await bench.farebox.key({ models: ['another'] });
    const refused = await chat(other);
    assert.equal(refused.status, 403);
    assert.equal(refused.body['code'], 'MODEL_NOT_ALLOWED');
    const open = await manage('PATCH', '/api_keys', { id: made.id, models: null });
    assert.equal(UpdatedKeyResponse.parse(open.body).data.models, null);
  });

  test('an expired key is refused, and expiry takes its three forms', async () => {
    const made = await make({ expiresAt: '2026-11-23' });
    assert.equal(made.expiresAt, '2026-11-23T00:00:00.000Z');
    const exact = await make({ expiresAt: '2027-01-31T12:00:00Z' });
    assert.equal(exact.expiresAt, '2027-01-31T12:00:00.000Z');
    for (const expiresAt of ['2020-01-01', '2027-02-31', 'tomorrow', '2027-01-31T12:00:00+02:00']) {
      const wrong = await manage('POST', '/api_keys', {
        apiKeyType: 'INFERENCE',
        description: 'x',
        expiresAt,
      });
      assert.equal(wrong.status, 400, expiresAt);
      assert.equal(wrong.body['details']['expiresAt']['_errors'].length, 1);
    }
    const soon = new Date(clock.nowMs() + SECOND_MS).toISOString();
    await manage('PATCH', '/api_keys', { id: made.id, expiresAt: soon });
    assert.equal((await chat(made.apiKey)).status, 200);
    clock.advance(SECOND_MS);
    const refused = await chat(made.apiKey);
    assert.equal(refused.status, 401);
    assert.equal(refused.body['code'], 'AUTHENTICATION_FAILED_INACTIVE_KEY');
    const forever = await manage('PATCH', '/api_keys', { id: made.id, expiresAt: null });
    assert.equal(UpdatedKeyResponse.parse(forever.body).data.expiresAt, null);
    assert.equal((await chat(made.apiKey)).status, 200);
  });

  test('a revoked key is refused at once and is unknown from then on', async () => {
    const made = await make();
    assert.equal((await chat(made.apiKey)).status, 200);
    const gone = await manage('DELETE', `/api_keys?id=${made.id}`);
    assert.deepEqual(gone.body, { success: true });
    assert.equal((await chat(made.apiKey)).status, 401);
    for (const again of [
      await manage('DELETE', `/api_keys?id=${made.id}`),
      await manage('GET', `/api_keys/${made.id}`),
      await manage('PATCH', '/api_keys', { id: made.id, description: 'x' }),
    ]) {
      assert.equal(again.status, 400);
      assert.equal(again.body['code'], 'API_KEY_NOT_FOUND');
    }
    assert.equal((await manage('DELETE', '/api_keys')).status, 400);
  });

  test('management needs an ADMIN key of the same account', async () => {
    const inference = await make();
    for (const [method, path, body] of [
      ['GET', '/api_keys'],
      ['POST', '/api_keys', { apiKeyType: 'ADMIN', description: 'x' }],
      ['PATCH', '/api_keys', { id: inference.id }],
      ['DELETE', `/api_keys?id=${inference.id}`],
      ['GET', `/api_keys/${inference.id}`],
    ] as const) {
      const refused = await manage(method, path, body, inference.apiKey);
      assert.equal(refused.status, 401, `${method} ${path}`);
      assert.equal(refused.body['code'], 'ADMIN_KEY_REQUIRED');
      const nobody = await call(bench.farebox, path, { method, ...(body ? { body } : {}) });
      assert.equal(nobody.status, 402);
    }
    const stranger = await bench.farebox.account('1', { kind: 'ADMIN' });
    assert.equal(
      (await manage('GET', `/api_keys/${inference.id}`, undefined, stranger.secret)).status,
      400,
    );
    assert.equal(
      (await manage('DELETE', `/api_keys?id=${inference.id}`, undefined, stranger.secret)).status,
      400,
    );
    const stolen = await manage(
      'PATCH',
      '/api_keys',
      { id: inference.id, description: 'x' },
      stranger.secret,
    );
    assert.equal(stolen.status, 400);
    assert.equal((await chat(inference.apiKey)).status, 200);
  });

  test('null for an optional member of a change is the same as no member', async () => {
    const made = await make({ limitPeriod: 'MONTH', modelPrivacy: 'PRIVATE_TEXT' });
    const before = await get(made.id);
    const changed = await manage('PATCH', '/api_keys', {
      id: made.id,
      description: null,
      limitPeriod: null,
      modelPrivacy: null,
    });
    assert.equal(changed.status, 200, changed.text);
    assert.deepEqual(UpdatedKeyResponse.parse(changed.body).data, before);
  });

  test('a wrong body is a 400 with details, no body a 400, another type a 415', async () => {
    const wrong = await manage('POST', '/api_keys', {
      apiKeyType: 'ROOT',
      description: 'x'.repeat(65),
      consumptionLimit: { usd: -1 },
    });
    assert.equal(wrong.status, 400);
    assert.equal(wrong.body['code'], 'INVALID_REQUEST');
    assert.deepEqual(Object.keys(wrong.body['details']).sort(), [
      '_errors',
      'apiKeyType',
      'consumptionLimit',
      'description',
    ]);
    assert.equal(wrong.body['issues'].length, 3);
    assert.equal((await manage('POST', '/api_keys', '{"a"')).status, 400);
    const type = await call(bench.farebox, '/api_keys', {
      secret: admin,
      body: '{}',
      headers: { 'content-type': 'text/plain' },
    });
    assert.equal(type.status, 415);
  });

  test('of 21 keys made in a minute at once exactly one is refused', async () => {
    clock.advance(60 * SECOND_MS);
    const { secret } = await bench.farebox.account('1', { kind: 'ADMIN' });
    const body = { apiKeyType: 'INFERENCE', description: 'load' };
    const made = await Promise.all(
      Array.from({ length: 21 }, () => manage('POST', '/api_keys', body, secret)),
    );
    const refused = made.filter((one) => one.status === 429);
    assert.equal(refused.length, 1);
    assert.equal(refused[0]?.body['code'], 'RATE_LIMIT_EXCEEDED');
    assert.equal(refused[0].headers.get('x-ratelimit-limit-requests'), '20');
    assert.equal(refused[0].headers.get('x-ratelimit-remaining-requests'), '0');
    assert.ok(Number(refused[0].headers.get('retry-after')) >= 1);
    assert.equal(
      (await manage('GET', '/api_keys', undefined, secret)).headers.get('x-pagination-total'),
      '21',
    );
    clock.advance(60 * SECOND_MS);
    assert.equal((await manage('POST', '/api_keys', body, secret)).status, 200);
  });
});

test('concurrent requests cannot create more than the maximum number of active keys', async () => {
  const keysPerAccount = 3;
  const bench = await startWithEngine({ yaml: `limits: { keysPerAccount: ${keysPerAccount} }` });
  try {
    const { secret } = await bench.farebox.account('1', { kind: 'ADMIN' });
    const body = { apiKeyType: 'INFERENCE', description: 'load' };
    const made = await Promise.all(
      Array.from({ length: keysPerAccount }, () =>
        call(bench.farebox, '/api_keys', { secret, body }),
      ),
    );
    const refused = made.filter((one) => one.status === 400);
    assert.equal(refused.length, 1);
    assert.equal(refused[0]?.body['code'], 'API_KEY_LIMIT_REACHED');
    const [kept] = made.filter((one) => one.status === 200);
    const id = String(kept?.body['data']['id']);
    await call(bench.farebox, `/api_keys?id=${id}`, { method: 'DELETE', secret });
    assert.equal((await call(bench.farebox, '/api_keys', { secret, body })).status, 200);
  } finally {
    await bench.stop();
  }
});
