import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { DAY_MS, MINUTE_MS } from '../core/clock.ts';

// A chat costs 12 tokens at 1 USD and 5 at 2 USD per million; at most 100 are requested.
const COST = 0.000022;

/** A free model beside the one that is paid. */
const SECOND =
  '  - { id: second, aliases: [spare], type: text, context: 8192, maxCompletionTokens: 64, price: { input: 0, output: 0 }, replicas: [{ engine: rack1, model: tiny }] }';

describe('budgets and child keys', () => {
  let bench: Bench;
  const clock = new TestClock();
  before(async () => {
    bench = await startWithEngine({
      clock,
      yaml: 'limits: { guard: { failures: 10000 } }',
      model: SECOND,
    });
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
  });

  const owner = async () => {
    clock.advance(MINUTE_MS);
    const { accountId, secret } = await bench.farebox.account('5');
    const admin = await bench.farebox.key({ accountId, kind: 'ADMIN' });
    const manage = (method: string, path: string, body?: unknown, by = admin) =>
      call(bench.farebox, path, { method, secret: by, ...(body === undefined ? {} : { body }) });
    const chat = (by = secret, metadata?: Record<string, string>) =>
      call(bench.farebox, '/chat/completions', {
        secret: by,
        body: chatBody({ max_completion_tokens: 5, ...(metadata && { metadata }) }),
      });
    return { accountId, secret, admin, manage, chat };
  };
  const used = ({ status, body }: Awaited<ReturnType<typeof call>>) => [status, body.code];

  /** Chats until one is refused; how many were served. */
  const untilRefused = async (ask: () => ReturnType<typeof call>) => {
    for (let served = 0; ; served += 1) {
      const answer = await ask();
      if (answer.status !== 200) return { served, answer };
      assert.ok(served < 40, 'nothing bounds it');
    }
  };

  test('each end user has a budget a day without a key of its own', async () => {
    const { manage, chat, secret } = await owner();
    const anna = () => chat(secret, { user: 'anna' });
    assert.equal((await anna()).status, 200);
    const made = await manage('POST', '/budgets', { tag: 'user', period: 'EPOCH', usd: 0.0004 });
    assert.equal(made.status, 200, made.text);
    const { id, spentUsd } = made.body.data;
    assert.equal(spentUsd, null);
    // Begins with what was spent, before the first request counts against it too.
    const before = (await manage('GET', `/budgets/${id}?value=anna`)).body.data;
    assert.equal(before.spentUsd, COST);
    const { served, answer } = await untilRefused(anna);
    assert.deepEqual(used(answer), [402, 'API_KEY_USD_SPEND_LIMIT_EXCEEDED']);
    const spent = ((served + 1) * COST).toFixed(6);
    assert.match(answer.text, new RegExp(`budget ${id} is reached: ${spent} of 0.000400 USD`));
    assert.match(answer.text, /resets at 2026-11-22T00:00:00.000Z/);
    assert.equal((await chat(secret, { user: 'bert' })).status, 200);
    assert.equal((await chat(secret)).status, 200);
    const { data } = (await manage('GET', `/budgets/${id}?value=anna`)).body;
    assert.deepEqual([data.value, data.spentUsd.toFixed(6)], ['anna', spent]);
    await manage('PATCH', `/budgets/${id}`, { usd: 1 });
    assert.equal((await anna()).status, 200);
    await manage('PATCH', `/budgets/${id}`, { usd: 0.0004 });
    assert.equal((await anna()).status, 402);
    clock.advance(DAY_MS);
    assert.equal((await untilRefused(anna)).served, served + 1);
    assert.equal((await manage('DELETE', `/budgets/${id}`)).status, 200);
    assert.equal((await anna()).status, 200);
    assert.deepEqual(used(await manage('GET', `/budgets/${id}`)), [400, 'BUDGET_NOT_FOUND']);
    const wanted = { tag: 'user', value: 'anna', period: 'LIFETIME', usd: 1 };
    const ofAnna = (await manage('POST', '/budgets', wanted)).body.data;
    const named = await manage('GET', `/budgets/${ofAnna.id}?value=bert`);
    assert.deepEqual(named.body.data, ofAnna, 'it counts one value');
    // No request can be tagged so: 33 characters, but 66 bytes.
    const long = { tag: 'é'.repeat(33), period: 'EPOCH', usd: 1 };
    assert.equal((await manage('POST', '/budgets', long)).status, 400);
  });

  test('a tag with the name of a member of all objects has a budget like any other', async () => {
    const { manage, chat, secret } = await owner();
    const wanted = { tag: 'constructor', period: 'EPOCH', usd: 0.00002 };
    assert.equal((await manage('POST', '/budgets', wanted)).status, 200);
    assert.equal((await chat(secret, { user: 'anna' })).status, 200);
    assert.equal((await chat(secret, Object.fromEntries([['constructor', 'anna']]))).status, 402);
    // A chat leaves this member out, so that its budget would count nothing.
    const refused = await manage('POST', '/budgets', { ...wanted, tag: '__proto__' });
    assert.equal(refused.status, 400, refused.text);
  });

  test('a header tags what is sold, beside the body and where there is none', async () => {
    const { manage, secret } = await owner();
    const ask = async (metadata: string, body = chatBody({ max_completion_tokens: 5 })) =>
      call(bench.farebox, '/chat/completions', {
        secret,
        body,
        headers: { 'x-svc-metadata': metadata },
      });
    const tags = async (tag: string) =>
      (await manage('GET', `/usage/tags?tag=${tag}`)).body.data.map(
        (one: { value: string }) => one.value,
      );
    const both = chatBody({ max_completion_tokens: 5, metadata: { user: 'bert' } });
    assert.equal((await ask('{"user":"anna","run":"Z\\u00fcrich"}')).status, 200);
    assert.equal((await ask('{"user":"anna","run":"2"}', both)).status, 200);
    assert.deepEqual(new Set(await tags('user')), new Set(['anna', 'bert']));
    assert.deepEqual(new Set(await tags('run')), new Set(['Z\u00fcrich', '2']));
    for (const wrong of ['anna', '["anna"]', '{"user":', JSON.stringify({ n: 'x'.repeat(513) })]) {
      const refused = await ask(wrong);
      assert.deepEqual([refused.status, /x-svc-metadata/.test(refused.text)], [400, true]);
    }
    await manage('POST', '/budgets', { tag: 'user', value: 'anna', period: 'EPOCH', usd: 0.00002 });
    assert.deepEqual(used(await ask('{"user":"anna"}')), [402, 'API_KEY_USD_SPEND_LIMIT_EXCEEDED']);
    assert.equal((await ask('{"user":"carl"}')).status, 200);
  });

  test('requests at the same moment do not pass a budget', async () => {
    const { manage, chat } = await owner();
    const made = await manage('POST', '/budgets', { period: 'MONTH', usd: 0.0006 });
    assert.equal(made.status, 200, made.text);
    const answers = await Promise.all(Array.from({ length: 40 }, () => chat()));
    const atOnce = answers.filter(({ status }) => status === 200).length;
    const { served } = await untilRefused(() => chat());
    const { body } = await manage('GET', '/budgets');
    const { spentUsd } = body.data[0];
    assert.equal(spentUsd.toFixed(6), ((atOnce + served) * COST).toFixed(6));
    assert.ok(atOnce > 0 && spentUsd <= 0.0006, `${atOnce} ${spentUsd}`);
  });

  test('a child may use models of its parent by their aliases, and by default all of them', async () => {
    const { accountId, manage } = await owner();
    // One model was removed after the key was created.
    const parent = await bench.farebox.key({ accountId, models: ['second', 'removed'] });
    const models = async (wanted?: readonly string[]) => {
      const body = { description: 'helper', ...(wanted && { models: wanted }) };
      const made = await manage('POST', '/key/children', body, parent);
      return made.body.data?.models ?? made.text;
    };
    assert.deepEqual(await models(['spare']), ['second']);
    assert.deepEqual(await models(), ['second', 'removed']);
    assert.match(String(await models(['chat'])), /Model not found|may not use/);
  });

  test('a child counts in the cap of its parent, and ends with it', async () => {
    const { manage, chat } = await owner();
    const parent = await manage('POST', '/api_keys', {
      apiKeyType: 'INFERENCE',
      description: 'agent',
      consumptionLimit: { usd: 0.0004 },
      limitPeriod: 'WEEK',
      expiresAt: '2027-01-31',
    });
    const above = parent.body.data.apiKey;
    const later = { description: 'x', expiresAt: '2027-02-01' };
    assert.equal((await manage('POST', '/key/children', later, above)).status, 400);
    const made = await manage('POST', '/key/children', { description: 'helper' }, above);
    assert.equal(made.status, 200, made.text);
    const { apiKey: child, id } = made.body.data;
    assert.equal(made.body.data.expiresAt, '2027-01-31T00:00:00.000Z');
    assert.equal((await chat(child)).status, 200);
    assert.equal((await chat(above)).status, 200);
    const { answer } = await untilRefused(() => chat(child));
    assert.deepEqual(used(answer), [402, 'API_KEY_USD_SPEND_LIMIT_EXCEEDED']);
    assert.match(answer.text, new RegExp(`API key ${parent.body.data.id}, which made this one`));
    assert.equal((await chat(above)).status, 402);
    const list = await manage('GET', '/key/children', undefined, above);
    assert.deepEqual(
      list.body.data.map((key: { id: string; parentId: string }) => [key.id, key.parentId]),
      [[id, parent.body.data.id]],
    );
    const grandchild = await manage('POST', '/key/children', { description: 'tool' }, child);
    const tool = grandchild.body.data.apiKey;
    assert.equal((await manage('POST', '/key/children', { description: 'no' }, tool)).status, 400);
    assert.equal((await chat(tool)).status, 402);
    assert.equal((await manage('DELETE', `/key/children?id=${id}`, undefined, tool)).status, 400);
    await manage('PATCH', '/api_keys', { id: parent.body.data.id, consumptionLimit: null });
    assert.equal((await chat(tool)).status, 200);
    await manage('DELETE', `/api_keys?id=${parent.body.data.id}`);
    for (const secret of [above, child, tool]) assert.equal((await chat(secret)).status, 401);
    // Keys that are revoked by a parent do not count as active keys of the account.
    const left = (await manage('GET', '/api_keys')).body.data;
    assert.deepEqual(
      left.filter((key: { parentId: string | null }) => key.parentId !== null),
      [],
    );
  });

  test('a child may no more than its parent, also when that is bounded later', async () => {
    const { manage, chat, accountId } = await owner();
    const parent = await manage('POST', '/api_keys', {
      apiKeyType: 'INFERENCE',
      description: 'agent',
    });
    const { id, apiKey: above } = parent.body.data;
    const made = await manage('POST', '/key/children', { description: 'helper' }, above);
    const child = made.body.data.apiKey;
    assert.equal((await chat(child)).status, 200);
    await manage('PATCH', '/api_keys', { id, models: ['second'] });
    const [ofParent, ofChild] = [await chat(above), await chat(child)];
    assert.notEqual(ofParent.status, 200);
    assert.deepEqual(used(ofChild), used(ofParent));
    await manage('PATCH', '/api_keys', { id, models: null });
    const operator = await bench.farebox.key({ kind: 'ADMIN' });
    const limit = async (keyId: string, requestsPerMinute: number) => {
      clock.advance(MINUTE_MS);
      const path = `/admin/accounts/${accountId}/keys/${keyId}`;
      const body = { limits: { requestsPerMinute } };
      const changed = await manage('PATCH', path, body, operator);
      assert.equal(changed.status, 200, changed.text);
    };
    const expiries = async (secret: string) => {
      const limits = await manage('GET', '/api_keys/rate_limits', undefined, secret);
      const state = await manage('GET', '/key', undefined, secret);
      return [limits.body.data.keyExpiration, state.body.data.expires_at];
    };
    assert.deepEqual(await expiries(child), [null, null]);
    await manage('PATCH', '/api_keys', { id, expiresAt: '2027-01-31' });
    const end = '2027-01-31T00:00:00.000Z';
    assert.deepEqual(await expiries(child), [end, end]);
    await manage('PATCH', '/api_keys', { id, expiresAt: null });
    const ofParents = { consumptionLimit: { usd: 0.001 }, limitPeriod: 'MONTH' };
    await manage('PATCH', '/api_keys', { id, ...ofParents });
    const { data: state } = (await manage('GET', '/key', undefined, child)).body;
    assert.deepEqual([state.limit, state.limit_reset], [0.001, 'monthly']);
    assert.ok(state.limit_remaining < 0.001, String(state.limit_remaining));
    await manage('PATCH', '/api_keys', { id, consumptionLimit: null });
    // The keys below share what the key above has.
    await limit(id, 3);
    const second = (await manage('POST', '/key/children', { description: 'no' }, above)).body;
    assert.match(second.details.description._errors[0], /with its own rate limits/);
    const statuses = async (...secrets: string[]) => {
      const answers: number[] = [];
      for (const secret of secrets) answers.push((await chat(secret)).status);
      return answers;
    };
    assert.deepEqual(await statuses(above, child, child, child, above), [200, 200, 200, 429, 429]);
    const told = (await manage('GET', '/api_keys/rate_limits', undefined, child)).body.data;
    const ofChat = told.rateLimits.find(
      (one: { apiModelId: string }) => one.apiModelId === 'atlas',
    );
    assert.deepEqual(
      ofChat.rateLimits.find((one: { type: string }) => one.type === 'RPM').amount,
      3,
    );
    // One with limits of its own counts for itself, and has no more than the key above.
    await limit(made.body.data.id, 2);
    assert.deepEqual(await statuses(child, child, child, above), [200, 200, 429, 200]);
    await limit(made.body.data.id, 50);
    assert.deepEqual(await statuses(child, child, child, child), [200, 200, 200, 429]);
  });

  test('a free model makes no row for a value, and a deleted budget none either', async () => {
    const { manage, secret } = await owner();
    const { id } = (await manage('POST', '/budgets', { tag: 'user', period: 'EPOCH', usd: 1 })).body
      .data;
    const free = await call(bench.farebox, '/chat/completions', {
      secret,
      body: chatBody({ model: 'second', metadata: { user: 'carl' } }),
    });
    assert.equal(free.status, 200, free.text);
    const sql = 'SELECT id FROM ledger_allowance WHERE substr(id, 1, length($1)) = $1';
    assert.deepEqual(await bench.farebox.app.stores.store.query(sql, [id]), []);
  });
});
