import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { DAY_MS } from '../core/clock.ts';
import { usdToNano } from '../core/money.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { BalanceResponse, TransactionsResponse } from './billing.ts';
import { CreditsResponse, KeyStateResponse } from './credits.ts';
import { ReceiptResponse, UsageResponse, UsageTagsResponse } from './usage-schema.ts';

// 12 tokens in at 1 USD, 5 out at 2 USD per million.
const COST = 0.000022;

describe('/usage and /billing', () => {
  let bench: Bench;
  let owner: { accountId: string; secret: string };
  let admin: string;
  let second: string;
  let requestId: string;
  const clock = new TestClock();

  before(async () => {
    bench = await startWithEngine({ clock });
    owner = await bench.farebox.account('5');
    const { accountId } = owner;
    admin = await bench.farebox.key({ accountId, kind: 'ADMIN' });
    second = await bench.farebox.key({ accountId });
    clock.advance(1_000);
    await chat(owner.secret);
    clock.advance(DAY_MS);
    const answer = await chat(owner.secret);
    requestId = answer.headers.get('x-request-id') ?? '';
    assert.equal(answer.body.id, `chatcmpl-${requestId}`);
    await chat(second);
    await chat(second);
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
  });

  const chat = async (secret: string) => {
    const answer = await call(bench.farebox, '/chat/completions', { secret, body: chatBody() });
    assert.equal(answer.status, 200, answer.text);
    return answer;
  };
  const get = (path: string, secret = admin, headers = {}) =>
    call(bench.farebox, path, { secret, headers });

  test('usage is a row for each day, model and key, with totals and pages', async () => {
    const answer = await get('/usage');
    const usage = UsageResponse.parse(answer.body);
    assert.equal(usage.to, '2026-11-22');
    assert.equal(usage.from, '2026-10-24');
    assert.deepEqual(usage.totals, {
      requests: 4,
      errors: 0,
      promptTokens: 48,
      completionTokens: 20,
      cost: { usd: 0.000088, diem: 0 },
    });
    const rows = usage.data.map((row) => `${row.date} ${row.model} ${row.requests}`);
    const expected = ['2026-11-21 atlas 1', '2026-11-22 atlas 1', '2026-11-22 atlas 2'];
    assert.deepEqual(new Set(rows), new Set(expected));
    assert.equal(answer.headers.get('x-pagination-total'), '3');
    const paged = await get('/usage?limit=2&page=2');
    assert.equal(UsageResponse.parse(paged.body).data.length, 1);
    assert.equal(paged.headers.get('x-pagination-total-pages'), '2');
    const today = UsageResponse.parse((await get('/usage?from=2026-11-22')).body);
    assert.equal(today.totals.requests, 3);
    const other = UsageResponse.parse((await get('/usage?model=other')).body);
    assert.deepEqual([other.totals.requests, other.data], [0, []]);
    const one = usage.data.find((row) => row.requests === 2);
    const ofKey = UsageResponse.parse((await get(`/usage?key=${one?.apiKeyId}`)).body);
    assert.equal(ofKey.totals.requests, 2);
  });

  test('a key that is no ADMIN key sees itself only, another account nothing', async () => {
    assert.equal(UsageResponse.parse((await get('/usage', second)).body).totals.requests, 2);
    const asked = UsageResponse.parse((await get('/usage', admin)).body).data.map(
      (row) => row.apiKeyId,
    );
    for (const key of asked) {
      const seen = UsageResponse.parse((await get(`/usage?key=${key}`, second)).body);
      assert.equal(seen.totals.requests, 2);
    }
    const stranger = await bench.farebox.account('1', { kind: 'ADMIN' });
    assert.equal(
      UsageResponse.parse((await get('/usage', stranger.secret)).body).totals.requests,
      0,
    );
    for (const secret of [second, stranger.secret]) {
      const refused = await get(`/usage/${requestId}`, secret);
      assert.equal(refused.status, 400);
      assert.equal(refused.body.code, 'REQUEST_ID_NOT_FOUND');
    }
    assert.equal((await call(bench.farebox, '/usage')).status, 402);
    assert.equal((await get('/usage', 'SVC_INFERENCE_KEY_wrong')).status, 401);
  });

  test('CSV is a download, by `format` or by `Accept`', async () => {
    const byFormat = await get('/usage?format=csv');
    assert.equal(byFormat.headers.get('content-type'), 'text/csv; charset=utf-8');
    assert.equal(
      byFormat.headers.get('content-disposition'),
      'attachment; filename="usage-2026-10-24-2026-11-22.csv"',
    );
    const lines = byFormat.text.trimEnd().split('\r\n');
    assert.equal(
      lines[0],
      'date,model,api_key_id,requests,prompt_tokens,completion_tokens,usd,diem',
    );
    assert.equal(lines.length, 4);
    assert.match(
      lines[3] ?? '',
      /^2026-11-21,atlas,key_[0-9a-f]+,1,12,5,0\.000022000,0\.000000000$/,
    );
    const byAccept = await get('/usage', admin, { accept: 'text/csv' });
    assert.equal(byAccept.text, byFormat.text);
    const json = await get('/usage?format=json', admin, { accept: 'text/csv' });
    assert.equal(UsageResponse.parse(json.body).data.length, 3);
    assert.equal(json.headers.get('content-disposition'), null);
  });

  test('a wrong range is a 400 that names the parameter', async () => {
    for (const query of [
      'from=2026-11-23&to=2026-11-22',
      'from=2025-01-01',
      'from=yesterday',
      'from=2026-02-31',
    ]) {
      const wrong = await get(`/usage?${query}`);
      assert.equal(wrong.status, 400, query);
      assert.equal(wrong.body.issues[0].path[0], 'from');
    }
    assert.equal((await get('/usage?limit=1001')).status, 400);
  });

  test('a receipt says what was used, counted by whom, and what it cost', async () => {
    for (const prefix of ['', 'chatcmpl-', 'cmpl-', 'msg_', 'resp_']) {
      const id = prefix + requestId;
      const receipt = ReceiptResponse.parse((await get(`/usage/${id}`, owner.secret)).body);
      assert.equal(receipt.requestId, requestId);
      assert.equal(receipt.model, 'atlas');
      assert.equal(receipt.kind, 'chat');
      assert.equal(receipt.router, 'rack1');
      assert.equal(receipt.status, 'completed');
      assert.deepEqual(receipt.cost, { usd: COST, diem: 0 });
      assert.deepEqual(receipt.tokens, {
        prompt: 12,
        completion: 5,
        cached: 0,
        cacheWrite: 0,
        reasoning: 0,
        countedBy: 'engine',
      });
      assert.ok(receipt.priceVersion.length > 0);
    }
    assert.equal((await get('/usage/nothing')).status, 400);
  });

  test('metadata is on the receipt, filters usage, and is summed up by tag', async () => {
    const tagger = await bench.farebox.account('1');
    const { secret } = tagger;
    const ask = async (metadata: unknown) => {
      const answer = await call(bench.farebox, '/chat/completions', {
        secret,
        body: chatBody({ metadata }),
      });
      assert.equal(answer.status, 200, answer.text);
      return answer.headers.get('x-request-id') ?? '';
    };
    const id = await ask({ user: 'anna', project: '=x' });
    await ask({ user: 'anna' });
    await ask({ user: 'bert' });
    await chat(secret);
    const receipt = ReceiptResponse.parse((await get(`/usage/${id}`, secret)).body);
    assert.deepEqual(receipt.metadata, { user: 'anna', project: '=x' });
    const tags = await get('/usage/tags', secret);
    const rows = UsageTagsResponse.parse(tags.body).data;
    assert.deepEqual(
      rows.map(({ tag, value, requests, cost }) => [tag, value, requests, cost.usd]),
      [
        ['project', '=x', 1, COST],
        ['user', 'anna', 2, 2 * COST],
        ['user', 'bert', 1, COST],
      ],
    );
    assert.equal(tags.headers.get('x-pagination-total'), '3');
    const page = await get('/usage/tags?tag=user&limit=1&page=2', secret);
    assert.deepEqual(
      UsageTagsResponse.parse(page.body).data.map((row) => row.value),
      ['bert'],
    );
    assert.equal(page.headers.get('x-pagination-total-pages'), '2');
    const anna = UsageResponse.parse((await get('/usage?tag=user&tagValue=anna', secret)).body);
    assert.deepEqual(anna.totals.requests, 2);
    assert.deepEqual(
      anna.data.map((row) => row.tagValue),
      ['anna'],
    );
    const csv = await get('/usage?tag=project&format=csv', secret);
    assert.match(csv.text, /,diem,tag_value\r\n2026-11-22,atlas,key_[0-9a-f]+,1,12,5,.*,'=x\r\n$/);
    const sums = await get('/usage/tags?format=csv&tag=user', secret);
    assert.equal(
      sums.text,
      'tag,value,requests,prompt_tokens,completion_tokens,usd,diem\r\n' +
        'user,anna,2,24,10,0.000044000,0.000000000\r\n' +
        'user,bert,1,12,5,0.000022000,0.000000000\r\n',
    );
    const wrong = await get('/usage?tagValue=anna', secret);
    assert.deepEqual([wrong.status, wrong.body.issues[0].path], [400, ['tag']]);
    // The engine refuses what it does not store.
    assert.doesNotMatch(bench.upstream.seen.at(-2)?.body ?? 'metadata', /metadata/);
  });

  test('the balance has both currencies and whether the credit is enough', async () => {
    const { accountId } = owner;
    await bench.farebox.app.stores.ledger.setDailyAllocation(accountId, usdToNano('2'));
    const answer = BalanceResponse.parse((await get('/billing/balance')).body);
    assert.deepEqual(answer, {
      canConsume: true,
      consumptionCurrency: 'DIEM',
      balances: { diem: 2, usd: 5 - 4 * COST },
      diemEpochAllocation: 2,
      held: { diem: 0, usd: 0 },
      available: { diem: 2, usd: 4.999912 },
    });
    await bench.farebox.app.stores.ledger.setDailyAllocation(accountId, usdToNano('0'));
    const poor = await bench.farebox.account('0.01');
    const low = BalanceResponse.parse((await get('/billing/balance', poor.secret)).body);
    assert.deepEqual([low.canConsume, low.consumptionCurrency], [false, 'USD']);
  });

  test('tools that poll for credit read it in their shapes', async () => {
    const { data } = CreditsResponse.parse((await get('/credits')).body);
    assert.deepEqual(data, { total_credits: 5, total_usage: 0.000088 });
    const settings = { usdLimitNano: usdToNano('0.5'), limitPeriod: 'MONTH' } as const;
    const capped = await bench.farebox.account('1', settings);
    await chat(capped.secret);
    const state = KeyStateResponse.parse((await get('/key', capped.secret)).body).data;
    assert.deepEqual(state, {
      label: `...${capped.secret.slice(-6)}`,
      limit: 0.5,
      limit_remaining: 0.499978,
      limit_reset: 'monthly',
      usage: 0.000022,
      is_free_tier: false,
      is_provisioning_key: false,
      expires_at: null,
    });
    const open = KeyStateResponse.parse((await get('/key')).body).data;
    assert.deepEqual(
      [open.limit, open.limit_remaining, open.is_provisioning_key],
      [null, null, true],
    );
  });

  test('transactions are newest first, in pages, for ADMIN keys', async () => {
    const answer = await get('/billing/transactions?limit=2');
    const first = TransactionsResponse.parse(answer.body);
    assert.deepEqual(
      first.data.map((row) => [row.type, row.amount, row.currency]),
      [
        ['CHARGE', -COST, 'USD'],
        ['CHARGE', -COST, 'USD'],
      ],
    );
    assert.deepEqual(first.pagination, { limit: 2, page: 1, total: 5, hasMore: true });
    assert.equal(answer.headers.get('x-pagination-total-pages'), '3');
    const last = TransactionsResponse.parse(
      (await get('/billing/transactions?limit=2&page=3')).body,
    );
    assert.deepEqual(
      last.data.map((row) => [row.type, row.amount, row.balanceAfter]),
      [['CREDIT', 5, 5]],
    );
    assert.equal(last.pagination.hasMore, false);
    const refused = await get('/billing/transactions', owner.secret);
    assert.equal(refused.status, 401);
    assert.equal(refused.body.code, 'ADMIN_KEY_REQUIRED');
    assert.equal((await get('/billing/transactions?limit=101')).status, 400);
  });
});
