/** The operator's routes about accounts: effects, idempotency and authorization. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import {
  type Bench,
  type CallOptions,
  call,
  chatBody,
  startWithEngine,
} from '../../../test/app/call.ts';

describe('/admin/accounts, /admin/usage and /admin/revenue', () => {
  let bench: Bench;
  let operator: string;

  before(async () => {
    bench = await startWithEngine({ yaml: 'limits: { guard: { failures: 1000 } }' });
    operator = await bench.farebox.key({ kind: 'ADMIN' });
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
  });

  const ask = (path: string, options: CallOptions = {}) =>
    call(bench.farebox, `/admin${path}`, { secret: operator, ...options });
  const done = async (path: string, options: CallOptions = {}) => {
    const answer = await ask(path, options);
    assert.equal(answer.status, 200, answer.text);
    return answer.body;
  };
  const make = async (name: string, extra: object = {}): Promise<string> =>
    (await done('/accounts', { body: { name, ...extra } })).data.id;

  test('only an ADMIN key of the operator is authorized', async () => {
    const stranger = await bench.farebox.account('1', { kind: 'ADMIN' });
    const paths = [
      '/accounts',
      `/accounts/${stranger.accountId}`,
      `/accounts/${stranger.accountId}/keys`,
      `/accounts/${stranger.accountId}/budgets`,
      `/accounts/${stranger.accountId}/statement`,
      `/accounts/${stranger.accountId}/requests`,
      `/accounts/${stranger.accountId}/days`,
      '/usage',
      '/revenue',
      '/requests',
      '/requests/x',
      '/failures',
      '/books',
    ];
    for (const path of paths) {
      const refused = await ask(path, { secret: stranger.secret });
      assert.deepEqual([refused.status, refused.body.code], [403, 'OPERATOR_KEY_REQUIRED'], path);
      const lesser = await ask(path, { secret: bench.farebox.owner.secret });
      assert.deepEqual([lesser.status, lesser.body.code], [401, 'ADMIN_KEY_REQUIRED'], path);
      const nobody = await call(bench.farebox, `/admin${path}`);
      assert.equal(nobody.status, 402, path);
    }
    const credit = await ask(`/accounts/${stranger.accountId}/credit`, {
      secret: stranger.secret,
      body: { amountUsd: 100, reference: 'mine' },
    });
    assert.equal(credit.status, 403);
  });

  test('an account is made once for an idempotency key, and its name is its own', async () => {
    const body = { name: 'once@example.com', plan: 'pro', dailyDiem: '2.5' };
    const headers = { 'idempotency-key': 'sign-up-1' };
    const first = await ask('/accounts', { body, headers });
    assert.equal(first.status, 200, first.text);
    const again = await ask('/accounts', { body, headers });
    assert.deepEqual(again.body, first.body);
    assert.equal(again.headers.get('idempotent-replayed'), 'true');
    const other = await ask('/accounts', { body: { ...body, plan: 'paid' }, headers });
    assert.equal(other.body.code, 'IDEMPOTENCY_KEY_REUSED');
    const taken = await ask('/accounts', { body });
    assert.deepEqual([taken.status, taken.body.code], [409, 'ACCOUNT_EXISTS']);
    const { id } = first.body.data;
    const { storage, ...account } = (await done(`/accounts/${id}`)).data;
    assert.deepEqual(account, first.body.data);
    assert.equal(storage.keptResponses.usedBytes, 0);
    assert.equal(first.body.data.balance.diem, '2.5000');
    const both = await Promise.all([1, 2].map(() => ask('/accounts', { body: { name: 'race' } })));
    assert.deepEqual(new Set(both.map(({ status }) => status)), new Set([200, 409]));
    assert.equal((await ask('/accounts/acct_none')).body.code, 'ACCOUNT_NOT_FOUND');
  });

  test('accounts are found by name and id, and read on by a cursor', async () => {
    const ids: string[] = [];
    for (const name of ['find_a%1', 'find_a2', 'find_b']) ids.unshift(await make(name));
    const found = await done('/accounts?search=FIND_A');
    assert.deepEqual(
      found.data.map((one: { name: string }) => one.name),
      ['find_a2', 'find_a%1'],
    );
    assert.equal((await done('/accounts?search=%25')).data.length, 1, 'no wildcard');
    assert.equal((await done(`/accounts?search=${ids[0]?.slice(0, 12)}`)).data.length >= 1, true);
    const seen: string[] = [];
    let cursor: string | null = '';
    while (cursor !== null) {
      const query: string = cursor === '' ? '' : `&cursor=${cursor}`;
      const page = await done(`/accounts?search=find_&limit=1${query}`);
      seen.push(...page.data.map((one: { id: string }) => one.id));
      cursor = page.nextCursor;
    }
    assert.deepEqual(new Set(seen), new Set(ids));
    assert.equal(seen.length, ids.length);
  });

  test('budgets of an account are listed, made, changed and deleted', async () => {
    const id = await make('budgets@example.com');
    await done(`/accounts/${id}/credit`, { body: { amountUsd: 5, reference: 'budgets' } });
    const key = await bench.farebox.key({ accountId: id });
    const chat = () => call(bench.farebox, '/chat/completions', { secret: key, body: chatBody() });
    assert.equal((await chat()).status, 200);
    const path = `/accounts/${id}/budgets`;
    assert.deepEqual((await done(path)).data, []);
    const { data } = await done(path, { body: { period: 'WEEK', usd: 0.000001 } });
    assert.deepEqual([data.tag, data.period, data.usd], [null, 'WEEK', 0.000001]);
    assert.deepEqual((await done(path)).data, [data]);
    assert.match((await chat()).text, new RegExp(`The budget ${data.id} is reached`));
    const one = `${path}/${data.id}`;
    const changed = await done(one, { method: 'PATCH', body: { usd: 1 } });
    assert.deepEqual([changed.data.usd, changed.data.spentUsd], [1, 0.000022]);
    assert.equal((await chat()).status, 200);
    assert.equal((await done(one)).data.spentUsd, 0.000044);
    const other = await make('stranger@example.com');
    for (const options of [{}, { method: 'PATCH', body: { usd: 9 } }, { method: 'DELETE' }]) {
      const missed = await ask(`/accounts/${other}/budgets/${data.id}`, options);
      assert.equal(missed.body.code, 'BUDGET_NOT_FOUND');
    }
    assert.equal((await ask('/accounts/acct_none/budgets')).body.code, 'ACCOUNT_NOT_FOUND');
    await done(one, { method: 'DELETE' });
    assert.equal((await ask(one, { method: 'DELETE' })).body.code, 'BUDGET_NOT_FOUND');
    const body = { tag: 'user', period: 'EPOCH', usd: 1 };
    const made = await Promise.all(Array.from({ length: 52 }, () => ask(path, { body })));
    assert.equal(made.filter(({ status }) => status === 200).length, 50);
    const full = made.find(({ status }) => status !== 200);
    assert.deepEqual([full?.status, full?.body.code], [400, 'BUDGET_LIMIT_REACHED']);
  });

  test('plan, limits and access change, and a missing member stays', async () => {
    const id = await make('change@example.com', { limits: { requestsPerMinute: 7 } });
    const path = `/accounts/${id}`;
    const patch = (body: object) => done(path, { method: 'PATCH', body });
    const { data } = await patch({ plan: 'partner', limits: { tokensPerMinute: 1000 } });
    assert.deepEqual([data.plan, data.limits.requestsPerMinute], ['partner', 7]);
    const cleared = await patch({ limits: { requestsPerMinute: null }, dailyDiem: 1 });
    assert.deepEqual(cleared.data.limits, {
      requestsPerMinute: null,
      tokensPerMinute: 1000,
      rpcRequestsPerMinute: null,
      rpcCreditsPerDay: null,
    });
    assert.equal(cleared.data.balance.dailyAllocation, '1.0000');
    await done(`${path}/credit`, { body: { amountUsd: 5, reference: 'change' } });
    const made = await done(`${path}/keys`, {
      body: { apiKeyType: 'INFERENCE', description: 'd', limits: { requestsPerMinute: 2 } },
    });
    const secret = made.data.apiKey;
    const chat = () => call(bench.farebox, '/chat/completions', { secret, body: chatBody() });
    assert.equal((await chat()).headers.get('x-ratelimit-limit-requests'), '2');
    await done(`${path}/keys/${made.data.id}`, {
      method: 'PATCH',
      body: { limits: { requestsPerMinute: null }, description: 'e' },
    });
    const [key] = (await done(`${path}/keys`)).data;
    assert.deepEqual([key.description, key.limits.requestsPerMinute], ['e', null]);
    await patch({ disabled: true });
    assert.equal((await chat()).body.code, 'API_ACCESS_DISABLED');
    await patch({ disabled: false });
    assert.equal((await chat()).status, 200);
    await done(`${path}/keys/${made.data.id}`, { method: 'DELETE' });
    assert.equal((await chat()).status, 401);
    const gone = await ask(`${path}/keys/${made.data.id}`, { method: 'DELETE' });
    assert.equal(gone.body.code, 'API_KEY_NOT_FOUND');
    assert.equal((await done(`${path}/keys?revoked=true`)).data[0].revokedAt !== null, true);
    const own = `/accounts/${bench.farebox.owner.accountId}`;
    const locked = await ask(own, { method: 'PATCH', body: { disabled: true } });
    assert.equal(locked.status, 400, 'the operator locks itself out');
  });

  test('null means absent for optional members', async () => {
    const absent = { plan: null, dailyDiem: null, limits: null };
    const id = await make('nulls@example.com', absent);
    const { data: before } = await done(`/accounts/${id}`);
    assert.deepEqual([before.plan, before.balance.dailyAllocation], ['paid', '0.0000']);
    const body = { ...absent, name: null, disabled: null, prices: null };
    await done(`/accounts/${id}`, { method: 'PATCH', body });
    assert.deepEqual((await done(`/accounts/${id}`)).data, before);
    const credit = { amountUsd: 1, reference: 'nulls', note: null };
    await done(`/accounts/${id}/credit`, { body: credit });
    const key = { apiKeyType: 'INFERENCE', description: 'a', limits: null };
    await done(`/accounts/${id}/keys`, { body: key });
    const missing = await ask('/accounts', { body: { ...absent, name: null } });
    assert.deepEqual([missing.status, missing.body.issues[0].path], [400, ['name']]);
  });

  test('a reference transfers money once, and belongs to one credit or debit', async () => {
    const id = await make('money@example.com');
    const move = (direction: string, body: object) =>
      ask(`/accounts/${id}/${direction}`, { body: { reference: 'evt_1', ...body } });
    const racing = await Promise.all([1, 2, 3].map(() => move('credit', { amountUsd: '25' })));
    assert.ok(racing.every(({ body }) => body.data.balanceUsd === '25.0000'));
    assert.equal(racing.filter(({ body }) => !body.data.isRepeat).length, 1);
    const other = await move('credit', { amountUsd: 26 });
    assert.deepEqual([other.status, other.body.code], [409, 'REFERENCE_REUSED']);
    assert.match(other.body.error, /"evt_1" belongs to a credit of 25\.0000 USD/);
    const elsewhere = await ask(`/accounts/${bench.farebox.owner.accountId}/credit`, {
      body: { amountUsd: '25', reference: 'evt_1' },
    });
    assert.equal(elsewhere.status, 409);
    const back = await move('debit', { amountUsd: 5, note: 'Refunded' });
    assert.equal(back.body.data.balanceUsd, '20.0000');
    const tooMuch = await move('debit', { amountUsd: 100, reference: 'evt_2' });
    assert.deepEqual([tooMuch.status, tooMuch.body.code], [402, 'INSUFFICIENT_BALANCE']);
    assert.equal((await move('debit', { amountUsd: 1, reference: 'evt_2' })).status, 200);
    for (const amountUsd of [0, -1, '1.0000000001', 'x']) {
      assert.equal((await move('credit', { amountUsd, reference: 'bad' })).status, 400);
    }
    const statement = await done(`/accounts/${id}/statement`);
    assert.deepEqual(
      statement.data.map(({ amount, note }: { amount: { usd: number }; note: string | null }) => [
        amount.usd,
        note,
      ]),
      [
        [-1, null],
        [-5, 'Refunded'],
        [25, null],
      ],
    );
  });

  test('a repeated creation of a key shows no secret again, and makes no second key', async () => {
    const id = await make('keys@example.com');
    const options = {
      body: { apiKeyType: 'INFERENCE', description: 'first' },
      headers: { 'idempotency-key': 'key-1' },
    };
    const first = await done(`/accounts/${id}/keys`, options);
    assert.match(first.data.apiKey, /^SVC_INFERENCE_KEY_/);
    const again = await done(`/accounts/${id}/keys`, options);
    assert.deepEqual([again.data.id, again.data.apiKey], [first.data.id, null]);
    assert.equal((await done(`/accounts/${id}/keys`)).data.length, 1);
    const [row] = await bench.farebox.app.stores.store.query<{ body: Buffer }>(
      "SELECT body FROM idempotency_entry WHERE entry_key = 'key-1'",
    );
    assert.doesNotMatch(row?.body.toString() ?? '', /_KEY_/, 'a secret is stored nowhere');
  });

  test('the requests of all accounts are listed, filtered, downloaded and explained', async () => {
    const id = await make('requests@example.com');
    await done(`/accounts/${id}/credit`, { body: { amountUsd: 1, reference: 'requests' } });
    const made = await done(`/accounts/${id}/keys`, {
      body: { apiKeyType: 'INFERENCE', description: 'd' },
    });
    const chat = (body: object) =>
      call(bench.farebox, '/chat/completions', { secret: made.data.apiKey, body });
    const tagged = chatBody({ metadata: { zone: 'x' } });
    const ids: (string | null)[] = [];
    for (const body of [chatBody(), tagged, chatBody()]) {
      ids.unshift((await chat(body)).headers.get('x-request-id'));
    }
    const idsOf = async (query: string): Promise<string[]> => {
      const seen: string[] = [];
      let cursor = '';
      for (;;) {
        const page = await done(`/requests?${query}${cursor}`);
        seen.push(...page.data.map((one: { requestId: string }) => one.requestId));
        if (page.nextCursor === null) return seen;
        cursor = `&cursor=${page.nextCursor}`;
      }
    };
    assert.deepEqual((await idsOf('limit=2')).slice(0, 3), ids);
    assert.deepEqual(await idsOf(`limit=2&account=${id}`), ids);
    assert.deepEqual(await idsOf('account=requests@example.com'), ids);
    assert.deepEqual(await idsOf(`key=${made.data.id}&engine=rack1&minUsd=0.000001`), ids);
    assert.deepEqual(await idsOf('tag=zone&tagValue=x'), [ids[1]]);
    for (const none of ['minUsd=9', `account=${id}&engine=rack9`, 'status=expired', 'model=x']) {
      assert.deepEqual(await idsOf(none), [], none);
    }
    const [newest] = (await done('/requests?limit=1')).data;
    assert.deepEqual([newest.accountId, newest.accountName], [id, 'requests@example.com']);
    const csv = await ask(`/requests?account=${id}&format=csv`);
    assert.match(csv.headers.get('content-type') ?? '', /^text\/csv/);
    const lines = csv.text.trim().split('\r\n');
    assert.match(lines[0] ?? '', /^account_id,request_id,created_at/);
    assert.deepEqual(
      lines.slice(1).map((line) => line.split(',').slice(0, 2)),
      ids.map((one) => [id, one]),
    );

    const failed = await chat(chatBody({ model: 'no-such' }));
    const failedId = failed.headers.get('x-request-id');
    const [record] = (await done(`/failures?account=${id}&code=MODEL_NOT_FOUND`)).data;
    assert.deepEqual(
      [record?.['requestId'], record?.['accountName'], record?.['status'], record?.['tries']],
      [failedId, 'requests@example.com', 404, 0],
    );
    assert.deepEqual((await done('/failures?engine=rack9')).data, []);
    const explained = (await done(`/requests/${failedId}`)).data;
    assert.equal(explained.response.code, 'MODEL_NOT_FOUND');
  });

  test('the books are sums, a CSV file and a Beancount file', async () => {
    const books = await done('/books');
    const audit = await done('/audit');
    assert.equal(Number(books.owedUsd), Number(audit.owedUsd));
    const csv = await ask('/books?format=csv');
    assert.match(csv.headers.get('content-disposition') ?? '', /\.csv"$/);
    assert.equal(csv.text.trim().split('\r\n').length, books.entries + 1);
    const file = await ask('/books?format=beancount');
    assert.ok(file.text.endsWith(` balance Liabilities:Customers -${books.owedUsd} USD\n`));
    const early = await done('/books?from=2020-01-01&to=2020-01-31');
    assert.deepEqual([early.owedUsd, early.entries], ['0.000000000', 0]);
    for (const wrong of ['from=2020-01-01', 'from=2021-02-01&to=2021-01-01']) {
      assert.equal((await ask(`/books?${wrong}`)).status, 400, wrong);
    }
  });

  test('usage and revenue add up over all accounts', async () => {
    const id = await make('usage@example.com');
    await done(`/accounts/${id}/credit`, { body: { amountUsd: 1, reference: 'usage' } });
    const key = await done(`/accounts/${id}/keys`, {
      body: { apiKeyType: 'INFERENCE', description: 'd' },
    });
    const body = chatBody({ metadata: { user: 'u1' } });
    const chat = await call(bench.farebox, '/chat/completions', { secret: key.data.apiKey, body });
    assert.equal(chat.status, 200, chat.text);
    const own = await done(`/usage?by=key&account=${id}`);
    assert.deepEqual(
      own.data.map((row: { apiKeyId: string; usd: string }) => [row.apiKeyId, row.usd]),
      [[key.data.id, '0.000022']],
    );
    assert.ok(
      (await done('/usage')).data.some((row: { accountId: string }) => row.accountId === id),
    );
    const tags = await done('/usage?by=tag');
    assert.deepEqual([tags.data[0].tag, tags.data[0].value], ['user', 'u1']);
    const revenue = await done('/revenue');
    assert.equal(revenue.data[0].model, 'atlas');
    // A day may turn.
    const counts = revenue.data.map((row: { requests: number }) => row.requests);
    assert.equal(
      counts.reduce((sum: number, count: number) => sum + count, 0),
      revenue.totals.requests,
    );
    assert.ok(revenue.totals.requests >= 1);
    const csv = await ask(`/usage?by=key&account=${id}&format=csv`);
    const keyLine = `,,,${key.data.id},,,1,0,12,5,0.000022,0.0000,,,,1`;
    assert.deepEqual(csv.text.trim().split('\r\n').slice(1), [keyLine]);
    assert.match(
      (await ask('/revenue?format=csv')).text,
      /^date,model,.*\r\n\d{4}-\d\d-\d\d,atlas,/,
    );
    const requests = await done(`/accounts/${id}/requests`);
    assert.equal(requests.data[0].requestId, chat.headers.get('x-request-id'));
    const days = await done(`/accounts/${id}/days`);
    assert.equal(days.totals.requests, 1);
  });
});
