/**
 * Every row of the specification's tables "Common response headers" and "Rate-limit headers"
 * against a running server: sent when the table says so, and not otherwise.
 */
import assert from 'node:assert/strict';
import { type IncomingHttpHeaders, get } from 'node:http';
import { after, before, describe, test } from 'node:test';
import { chatJson } from '../support/test-upstream.ts';
import { usdToNano } from '../../src/core/money.ts';
import {
  type Bench,
  type CallOptions,
  type Called,
  call,
  chatBody,
  startWithEngine,
} from '../app/call.ts';

interface Row {
  readonly header: string;
  /** A response with the header, and a pattern for its value. */
  readonly sent: () => Promise<Called>;
  readonly value: RegExp;
  /** A response without the header. Missing if the table says "always". */
  readonly absent?: () => Promise<Called>;
}

const MODELS = [
  '  - { id: old, type: text, name: "Old Ünit", context: 65536, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }], deprecation: { date: "2099-01-31T00:00:00.000Z", replacement: atlas } }',
  '  - { id: twice, type: text, context: 65536, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }, { engine: rack1, model: large }] }',
  '  - { id: gone-away, type: text, offline: true, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }',
].join('\n');

describe('response headers', () => {
  let bench: Bench;
  let plain: Bench;
  let secret: string;
  let rich: string;
  let penniless: string;
  let admin: string;

  before(async () => {
    bench = await startWithEngine({
      model: MODELS,
      yaml: 'service: { name: acme, timestampHeader: true }',
    });
    plain = await startWithEngine({ yaml: 'service: { name: acme, timestampHeader: false }' });
    secret = (await bench.farebox.account('5')).secret;
    const withDaily = await bench.farebox.account('5');
    rich = withDaily.secret;
    await bench.farebox.app.stores.ledger.setDailyAllocation(withDaily.accountId, usdToNano('3'));
    const { id: accountId } = await bench.farebox.app.stores.identity.createAccount('poor', 'paid');
    penniless = await bench.farebox.key({ accountId });
    admin = await bench.farebox.key({ kind: 'ADMIN' });
  });
  after(async () => {
    await bench.stop();
    await plain.stop();
  });

  const ask = (path: string, options: CallOptions = {}) => call(bench.farebox, path, options);
  const chat = (extra = {}, options: CallOptions = {}) =>
    ask('/chat/completions', { secret, body: chatBody(extra), ...options });
  const models = (headers = {}) => ask('/models', { headers });
  const refusal = () => ask('/chat/completions', { secret, body: { model: 'atlas' } });
  const flagged = (flag: string) => async () => {
    const headers = { [`x-acme-${flag}`]: 'true' };
    bench.upstream.script.push({
      kind: 'status',
      status: 200,
      headers,
      body: chatJson('tiny', true),
    });
    return chat();
  };
  const flag = (name: string): Row => ({
    header: `x-acme-${name}`,
    sent: flagged(name),
    value: /^true$/,
    absent: chat,
  });
  const always = (header: string, value: RegExp): Row[] =>
    [chat, models, refusal, () => ask('/nowhere')].map((sent) => ({ header, sent, value }));

  const rows: Row[] = [
    ...always('content-type', /^application\/json/),
    ...always('date', / GMT$/),
    ...always('cf-ray', /^[0-9a-f]{32}$/),
    ...always('x-request-id', /^[0-9a-f]{32}$/),
    ...always('x-acme-version', /^\d{8}\.\d{6}$/),
    ...always('x-acme-timestamp', /^\d{4}-\d{2}-\d{2}T.*Z$/),
    {
      header: 'x-acme-timestamp',
      sent: chat,
      value: /Z$/,
      absent: () => call(plain.farebox, '/models'),
    },
    { header: 'cf-ray', sent: () => models({ 'cf-ray': '9f1c-OSL' }), value: /^9f1c-OSL$/ },
    { header: 'cf-ray', sent: () => models({ 'cf-ray': 'no spaces' }), value: /^[0-9a-f]{32}$/ },
    ...(['gzip', 'br'] as const).map((encoding): Row => {
      return {
        header: 'content-encoding',
        sent: () => {
          bench.upstream.script.push({ kind: 'json', sizeBytes: 5_000 });
          return chat({}, { headers: { 'accept-encoding': encoding } });
        },
        value: new RegExp(`^${encoding}$`),
        absent: () => {
          bench.upstream.script.push({ kind: 'json', sizeBytes: 5_000 });
          return chat({}, { headers: { 'accept-encoding': 'identity' } });
        },
      };
    }),
    {
      header: 'content-disposition',
      sent: () => ask('/usage?format=csv', { secret }),
      value: /^attachment; filename="usage-.*\.csv"$/,
      absent: () => ask('/usage', { secret }),
    },
    { header: 'x-acme-host-name', sent: refusal, value: /./, absent: chat },
    { header: 'x-acme-host-name', sent: () => ask('/nowhere'), value: /./, absent: models },
    { header: 'x-acme-model-id', sent: chat, value: /^atlas$/, absent: models },
    { header: 'x-acme-model-id', sent: () => chat({ model: 'gpt-4o' }), value: /^atlas$/ },
    { header: 'x-acme-model-name', sent: chat, value: /^Atlas$/, absent: models },
    { header: 'x-acme-model-name', sent: () => chat({ model: 'old' }), value: /^Old \?nit$/ },
    { header: 'x-acme-model-router', sent: chat, value: /^rack1$/, absent: refusal },
    {
      header: 'x-acme-model-deprecation-warning',
      sent: () => chat({ model: 'old' }),
      value: /"old" is deprecated and stops on 2099-01-31; use "atlas" instead/,
      absent: chat,
    },
    {
      header: 'x-acme-model-deprecation-date',
      sent: () => chat({ model: 'old' }),
      value: /^2099-01-31T00:00:00.000Z$/,
      absent: chat,
    },
    ...(
      [
        ['limit', /^1$/],
        ['page', /^1$/],
        ['total', /^\d+$/],
        ['total-pages', /^\d+$/],
      ] as const
    ).map(([name, value]): Row => ({
      header: `x-pagination-${name}`,
      sent: () => ask('/api_keys?limit=1', { secret: admin }),
      value,
      absent: () => ask('/api_keys/rate_limits', { secret }),
    })),
    {
      header: 'x-acme-balance-usd',
      sent: () => chat({}, { secret: rich }),
      value: /^5\.000000$/,
      absent: models,
    },
    {
      header: 'x-acme-balance-usd',
      sent: () => ask('/api_keys/rate_limits', { secret: penniless }),
      value: /^0\.000000$/,
    },
    {
      header: 'x-acme-balance-usd',
      sent: () => ask('/billing/balance', { secret: rich }),
      value: /^5\.000000$/,
      absent: models,
    },
    {
      header: 'x-acme-balance-usd',
      sent: () => ask('/chat/completions', { secret: rich, body: {} }),
      value: /^5\.000000$/,
    },
    {
      header: 'x-acme-balance-diem',
      sent: () => ask('/billing/balance', { secret: rich }),
      value: /^2\.999\d{3}$/,
      absent: models,
    },
    {
      header: 'x-acme-balance-diem',
      sent: chat,
      value: /^0\.000000$/,
    },
    flag('is-blurred'),
    flag('is-content-violation'),
    flag('is-adult-model-content-violation'),
    flag('contains-minor'),
    flag('control-instance'),
    ...['middleface-version', 'mobile-version'].map((name): Row => ({
      header: `x-acme-${name}`,
      sent: () => models({ [`x-acme-${name}`]: '1.2.3' }),
      value: /^1\.2\.3$/,
      absent: () => models({ [`x-acme-${name}`]: 'a b<c>' }),
    })),
    {
      header: 'x-acme-request-timestamp-ms',
      sent: () => models({ 'x-acme-request-timestamp-ms': '1750000000000' }),
      value: /^1750000000000$/,
      absent: () => models({ 'x-acme-request-timestamp-ms': 'soon' }),
    },
    {
      header: 'x-retry-count',
      sent: () => {
        bench.upstream.script.push({ kind: 'status', status: 500 });
        return chat({ model: 'twice' });
      },
      value: /^1$/,
      absent: chat,
    },
    ...(
      [
        ['limit-requests', /^\d+$/],
        ['remaining-requests', /^\d+$/],
        ['reset-requests', /^\d{10}$/],
        ['limit-tokens', /^\d+$/],
        ['remaining-tokens', /^\d+$/],
        ['reset-tokens', /^\d{1,2}$/],
        ['type', /^user$/],
      ] as const
    ).flatMap(([name, value]): Row[] => [
      { header: `x-ratelimit-${name}`, sent: chat, value, absent: models },
      {
        header: `x-ratelimit-${name}`,
        sent: () => chat({ stream: true }),
        value,
      },
      { header: `x-ratelimit-${name}`, sent: () => chat({}, { secret: penniless }), value },
    ]),
    {
      header: 'x-should-retry',
      sent: () => chat({}, { secret: penniless }),
      value: /^false$/,
      absent: () => chat({ model: 'gone-away' }),
    },
  ];

  test('every documented header is sent', async () => {
    for (const row of rows) {
      const answer = await row.sent();
      assert.match(
        answer.headers.get(row.header) ?? '',
        row.value,
        `${row.header}: ${answer.text}`,
      );
      if (row.absent === undefined) continue;
      const other = await row.absent();
      assert.equal(other.headers.get(row.header), null, row.header);
    }
  });

  test('headers of features that Farebox lacks are never sent', async () => {
    for (const answer of [await chat(), await models(), await refusal()]) {
      assert.equal(answer.headers.get('x-auth-refreshed'), null);
      assert.equal(answer.headers.get('x-balance-remaining'), null);
      assert.ok(![...answer.headers.keys()].some((name) => name.startsWith('x-svc-')));
    }
  });

  test('responses have reason phrases, and the OpenAI error format on request', async () => {
    for (const [answer, phrase] of [
      [await refusal(), 'Bad Request'],
      [await chat({}, { secret: 'wrong' }), 'Unauthorized'],
      [await chat({}, { secret: penniless }), 'Payment Required'],
      [await chat({ model: 'no-such' }), 'Not Found'],
      [await ask('/models', { method: 'DELETE' }), 'Method Not Allowed'],
    ] as const) {
      assert.equal(answer.reason, phrase);
      assert.equal(typeof answer.body.error, 'string');
      assert.equal(typeof answer.body.code, 'string');
    }
    const headers = { 'x-acme-error-format': 'openai' };
    const openAi = await chat({}, { secret: penniless, headers });
    assert.equal(openAi.body.error.type, 'insufficient_quota');
    assert.equal(openAi.body.error.code, 'insufficient_balance');
    assert.ok(openAi.body.error.message.includes('INSUFFICIENT_BALANCE'));
    const discovery = await ask('/chat/completions', { body: chatBody(), headers });
    assert.equal(discovery.status, 402);
    assert.equal(discovery.body.x402Version, 2);
    assert.equal(typeof discovery.body.error.message, 'string');
  });

  test('an unknown `Expect` header does not fail the request', async () => {
    const { status, headers } = await new Promise<{
      status: number | undefined;
      headers: IncomingHttpHeaders;
    }>((resolve, reject) => {
      get(`${bench.farebox.url}/models`, { headers: { expect: 'a miracle' } }, (answer) => {
        answer.resume();
        resolve({ status: answer.statusCode, headers: answer.headers });
      }).once('error', reject);
    });
    assert.equal(status, 200);
    assert.equal(headers['x-request-id']?.length, 32);
  });

  test('`x-api-key` authenticates, and `Authorization: Bearer` takes precedence', async () => {
    const body = chatBody();
    const withKey = (headers: Record<string, string>) =>
      ask('/chat/completions', { body, headers });
    const served = await withKey({ 'x-api-key': secret });
    assert.equal(served.status, 200, served.text);
    const unknown = await withKey({ 'x-api-key': 'nobody' });
    assert.equal(unknown.status, 401);
    assert.equal(unknown.body.code, 'AUTHENTICATION_FAILED');
    const both = await withKey({ 'x-api-key': 'nobody', authorization: `Bearer ${secret}` });
    assert.equal(both.status, 200);
    const empty = await withKey({ 'x-api-key': '' });
    assert.equal(empty.status, 401);
  });

  test('a preflight allows the headers of the server and of SDKs', async () => {
    const answer = await ask('/chat/completions', {
      method: 'OPTIONS',
      headers: {
        origin: 'https://app.example',
        'access-control-request-method': 'POST',
        'access-control-request-headers': 'authorization,x-stainless-lang, X-Stainless-OS',
      },
    });
    assert.equal(answer.status, 204);
    assert.equal(answer.headers.get('access-control-allow-origin'), '*');
    assert.equal(answer.headers.get('access-control-allow-methods'), 'POST, OPTIONS');
    const allowed = (answer.headers.get('access-control-allow-headers') ?? '').split(', ');
    for (const name of [
      'authorization',
      'x-api-key',
      'anthropic-version',
      'anthropic-beta',
      'idempotency-key',
      'x-acme-error-format',
      'x-acme-request-timestamp-ms',
      'x-stainless-lang',
      'x-stainless-os',
    ]) {
      assert.ok(allowed.includes(name), name);
    }
    assert.ok(!allowed.some((name) => name.includes('svc')));
    const exposed = await models({ origin: 'https://app.example' });
    assert.match(exposed.headers.get('access-control-expose-headers') ?? '', /x-acme-balance-usd/);
  });

  test('a rejected sign-in does not prevent the API key in the same request', async () => {
    const stray = { 'sign-in-with-x': 'e30=' };
    const known = await call(plain.farebox, '/chat/completions', {
      body: chatBody(),
      secret: plain.farebox.owner.secret,
      headers: stray,
    });
    assert.equal(known.status, 200);
    // With neither good, the sign-in says why: no payments are set up here.
    const unknown = await call(plain.farebox, '/chat/completions', {
      body: chatBody(),
      secret: 'ACME_INFERENCE_KEY_unknown',
      headers: stray,
    });
    assert.deepEqual([unknown.status, unknown.body.code], [503, 'X402_NOT_CONFIGURED']);
  });

  test('the model id of an engine may use any script', async () => {
    const id = 'модель\n日本';
    plain.farebox.app.catalog.setDiscovered([
      { id, origin: 'discovered', type: 'text', replicas: [{ engine: 'rack1', model: id }] },
    ]);
    for (const stream of [false, true]) {
      if (stream) plain.upstream.script.push({ kind: 'stream', chunks: 2, usage: true });
      const answer = await call(plain.farebox, '/chat/completions', {
        body: chatBody({ model: id, stream }),
        secret: plain.farebox.owner.secret,
      });
      assert.equal(answer.status, 200, answer.text);
      assert.equal(answer.headers.get('x-acme-model-id'), '?????????');
      assert.equal(answer.headers.get('x-acme-model-name'), '?????????');
    }
  });
});
