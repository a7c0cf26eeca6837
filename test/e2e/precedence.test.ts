/**
 * If a request has two errors, the earlier stage responds. Each row of
 * `docs/reference/precedence.md` is tested with all later errors as well.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { usdToNano } from '../../src/core/money.ts';
import { type Bench, type CallOptions, call, chatBody, startWithEngine } from '../app/call.ts';
import { sameMinute } from '../support/still-clock.ts';

const MODELS = [
  '  - { id: pro-one, type: text, requires: pro, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }',
  '  - { id: away, type: text, requires: pro, offline: true, context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }',
  '  - { id: local, type: text, regionRestrictions: [FR], context: 4096, price: { input: 1, output: 2 }, replicas: [{ engine: rack1, model: tiny }] }',
].join('\n');

/** Not JSON by name, and no JSON either. */
const WRONG_TYPE = { 'content-type': 'text/plain' };
const WRONG_KEY = { 'idempotency-key': 'not a key' };
/** A field that is wrong, and a model that does not exist. */
const WRONG_FIELD = chatBody({ temperature: 9, model: 'no-such' });
const IMAGE = [
  {
    role: 'user',
    content: [{ type: 'image_url', image_url: { url: 'https://example.com/a.png' } }],
  },
];

describe('precedence of errors', () => {
  let bench: Bench;
  let narrow: string;
  let full: string;
  let good: string;
  let poor: string;
  let capped: string;
  const nobody = undefined;

  before(async () => {
    bench = await startWithEngine({
      clock: sameMinute(),
      model: MODELS,
      yaml: 'limits: { guard: { failures: 1000 } }\nhttp: { trustProxy: true, countryHeader: CF-IPCountry }',
    });
    const { farebox } = bench;
    const { accountId } = await farebox.account('1');
    narrow = await farebox.key({ accountId, models: ['something-else'] });
    good = await farebox.key({ accountId });
    const { identity } = farebox.app.stores;
    const { id: poorAccount } = await identity.createAccount('poor', 'paid');
    full = await farebox.key({ accountId: poorAccount, limits: { requestsPerMinute: 1 } });
    poor = await farebox.key({ accountId: poorAccount, usdLimitNano: usdToNano('0') });
    capped = await farebox.key({ accountId, usdLimitNano: usdToNano('0') });
  });
  after(() => bench.stop());

  const chat = (secret: string | undefined, body: unknown, headers = {}) =>
    ask('/chat/completions', { ...(secret === undefined ? {} : { secret }), body, headers });
  const ask = async (path: string, options: CallOptions) => {
    const answer = await call(bench.farebox, path, options);
    return [answer.status, answer.status === 200 ? 'OK' : (answer.body.code ?? 'DISCOVERY')];
  };

  const rows: readonly (readonly [string, () => Promise<unknown>, number, string])[] = [
    ['path', () => ask('/nowhere', { secret: 'wrong', body: '{' }), 404, 'NOT_FOUND'],
    [
      'method',
      () => ask('/chat/completions', { method: 'PUT', secret: 'wrong', body: '{' }),
      405,
      'METHOD_NOT_ALLOWED',
    ],
    ['no credentials', () => chat(nobody, '{', WRONG_TYPE), 402, 'DISCOVERY'],
    ['credentials', () => chat('wrong', '{', WRONG_TYPE), 401, 'AUTHENTICATION_FAILED'],
    [
      'kind of key',
      () => ask('/api_keys', { secret: good, body: '{', headers: WRONG_TYPE }),
      401,
      'ADMIN_KEY_REQUIRED',
    ],
    [
      'content type',
      () => chat(good, '{', { ...WRONG_TYPE, ...WRONG_KEY }),
      415,
      'INVALID_CONTENT_TYPE',
    ],
    ['idempotency key', () => chat(good, '{', WRONG_KEY), 400, 'INVALID_IDEMPOTENCY_KEY'],
    ['JSON', () => chat(good, '{'), 400, 'INVALID_JSON'],
    ['fields', () => chat(narrow, WRONG_FIELD), 400, 'INVALID_REQUEST'],
    ['model', () => chat(narrow, chatBody({ model: 'no-such' })), 404, 'MODEL_NOT_FOUND'],
    ['offline', () => chat(narrow, chatBody({ model: 'away' })), 503, 'MODEL_OFFLINE'],
    ['plan', () => chat(narrow, chatBody({ model: 'pro-one' })), 401, 'PRO_ONLY_MODEL'],
    ['key and model', () => chat(narrow, chatBody({ messages: IMAGE })), 403, 'MODEL_NOT_ALLOWED'],
    [
      'country',
      () => chat(full, chatBody({ model: 'local', messages: IMAGE }), { 'cf-ipcountry': 'fr' }),
      403,
      'REGION_NOT_ALLOWED',
    ],
    ['abilities', () => chat(full, chatBody({ messages: IMAGE })), 400, 'INVALID_REQUEST'],
    ['balance', () => chat(poor, chatBody()), 402, 'INSUFFICIENT_BALANCE'],
    ['cap', () => chat(capped, chatBody()), 402, 'API_KEY_USD_SPEND_LIMIT_EXCEEDED'],
  ];

  for (const [stage, run, status, code] of rows) {
    test(`${stage}: ${status} ${code}`, async () => {
      assert.deepEqual(await run(), [status, code]);
    });
  }

  test('rate limit before balance: 429 RATE_LIMIT_EXCEEDED', async () => {
    assert.deepEqual(await chat(full, chatBody()), [402, 'INSUFFICIENT_BALANCE']);
    assert.deepEqual(await chat(full, chatBody()), [429, 'RATE_LIMIT_EXCEEDED']);
  });

  test('the guard responds before everything that a known path needs: 429 FAILED_REQUESTS', async () => {
    const blocked = await startWithEngine({ yaml: 'limits: { guard: { failures: 1 } }' });
    try {
      const wrong = { secret: 'wrong', body: '{', headers: WRONG_TYPE };
      for (let index = 0; index < 2; index += 1) {
        assert.equal((await call(blocked.farebox, '/chat/completions', wrong)).status, 401);
      }
      assert.equal((await call(blocked.farebox, '/nowhere', wrong)).status, 404);
      const answer = await call(blocked.farebox, '/chat/completions', wrong);
      assert.deepEqual([answer.status, answer.body.code], [429, 'FAILED_REQUESTS']);
    } finally {
      await blocked.stop();
    }
  });

  test('the page has every row of this table, in this order', () => {
    const page = readFileSync(
      join(import.meta.dirname, '../../docs/reference/precedence.md'),
      'utf8',
    );
    const codes = [...page.matchAll(/^\|[^|]*\|[^|]*\|[^|`]*`([A-Z_0-9]+)`/gm)].map(
      ([, code]) => code,
    );
    const tried = rows.map(([, , , code]) => (code === 'DISCOVERY' ? 'PAYMENT_REQUIRED' : code));
    let at = -1;
    for (const code of tried) {
      at = codes.indexOf(code, at + 1);
      assert.ok(at >= 0, `${code} is missing or out of order in precedence.md`);
    }
    assert.ok(codes.indexOf('RATE_LIMIT_EXCEEDED') < codes.indexOf('INSUFFICIENT_BALANCE'));
  });
});
