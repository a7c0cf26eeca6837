/** The lists that a console shows: requests, days, money; over HTTP, each for its own account only. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { type Bench, call, chatBody, startWithEngine } from '../../test/app/call.ts';
import { DAY_MS } from '../core/clock.ts';
import { usdToNano } from '../core/money.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { ACTIVITY_CSV_HEAD, ActivityResponse, DaysResponse } from './activity-schema.ts';
import { BalanceResponse } from './billing.ts';
import { StatementResponse, TopUpsResponse } from './statement.ts';
import { ReceiptResponse } from './usage-schema.ts';

// 12 tokens in at 1 USD, 5 out at 2 USD per million.
const COST = 0.000022;

describe('activity, days and the statement', () => {
  const clock = new TestClock();
  let bench: Bench;
  let mine: { accountId: string; secret: string };
  let admin: string;
  let other: { accountId: string; secret: string };
  const ids: string[] = [];

  before(async () => {
    bench = await startWithEngine({ clock });
    const { farebox } = bench;
    mine = await farebox.account('5');
    admin = await farebox.key({ accountId: mine.accountId, kind: 'ADMIN' });
    other = await farebox.account('5', { kind: 'ADMIN' });
    for (const secret of [mine.secret, admin, mine.secret]) {
      clock.advance(1_000);
      ids.unshift(await chat(secret));
    }
    clock.advance(DAY_MS);
    ids.unshift(await chat(mine.secret));
    await chat(other.secret);
  });
  after(async () => {
    await bench.farebox.audit();
    await bench.stop();
  });

  async function chat(secret: string): Promise<string> {
    const answer = await call(bench.farebox, '/chat/completions', { secret, body: chatBody() });
    assert.equal(answer.status, 200, answer.text);
    return answer.headers.get('x-request-id') ?? '';
  }
  const get = (path: string, secret = admin) => call(bench.farebox, path, { secret });
  const activity = async (query = '', secret = admin) =>
    ActivityResponse.parse((await get(`/usage/requests${query}`, secret)).body);
  const idsOf = ({ data }: ActivityResponse): string[] => data.map(({ requestId }) => requestId);

  test('requests are listed newest first, page by page, by every filter', async () => {
    assert.deepEqual(idsOf(await activity()), ids);
    const first = await activity('?limit=3');
    assert.deepEqual(idsOf(first), ids.slice(0, 3));
    const rest = await activity(`?limit=3&cursor=${first.nextCursor}`);
    assert.deepEqual([idsOf(rest), rest.nextCursor], [ids.slice(3), null]);
    const key = first.data.find(({ requestId }) => requestId === ids[2])?.apiKeyId;
    assert.deepEqual(idsOf(await activity(`?key=${key}`)), [ids[2]]);
    assert.deepEqual(idsOf(await activity('?model=atlas&kind=chat&status=completed')), ids);
    assert.deepEqual(idsOf(await activity('?kind=video')), []);
    assert.deepEqual(idsOf(await activity('?from=2026-11-22')), [ids[0]]);
    assert.deepEqual(idsOf(await activity(`?requestId=chatcmpl-${ids[1]}`)), [ids[1]]);
    assert.deepEqual(idsOf(await activity(`?requestId=${ids[1]}&status=failed`)), []);
  });

  test('a key sees itself, an account never another', async () => {
    const own = await activity('', mine.secret);
    assert.equal(own.data.length, 3);
    const key = (await activity()).data.find(({ requestId }) => requestId === ids[2])?.apiKeyId;
    assert.deepEqual(idsOf(await activity(`?key=${key}`, mine.secret)), idsOf(own));
    assert.equal((await activity('', other.secret)).data.length, 1);
    assert.deepEqual(idsOf(await activity(`?requestId=${ids[0]}`, other.secret)), []);
    const page = await activity('?limit=1');
    const stolen = await activity(`?limit=10&cursor=${page.nextCursor}`, other.secret);
    assert.ok(stolen.data.every(({ requestId }) => !ids.includes(requestId)));
    const days = DaysResponse.parse((await get('/usage/days', other.secret)).body);
    assert.equal(days.totals.requests, 1);
    const statement = await get('/billing/statement', other.secret);
    assert.doesNotMatch(statement.text, new RegExp(mine.accountId));
    assert.equal((await get('/billing/statement', mine.secret)).status, 401, 'for ADMIN keys');
  });

  test('an invalid cursor is rejected', async () => {
    for (const cursor of ['x', Buffer.from('[1]').toString('base64url'), 'bnVsbA']) {
      const answer = await get(`/usage/requests?cursor=${cursor}`);
      assert.equal(answer.status, 400);
      assert.deepEqual(answer.body.issues[0].path, ['cursor']);
    }
  });

  test('a download has every row of the range', async () => {
    const answer = await get('/usage/requests?format=csv&from=2026-11-21&to=2026-11-21&limit=1');
    assert.match(answer.headers.get('content-type') ?? '', /^text\/csv/);
    assert.equal(
      answer.headers.get('content-disposition'),
      'attachment; filename="requests-2026-11-21-2026-11-21.csv"',
    );
    const [head, ...lines] = answer.text.trimEnd().split('\r\n');
    assert.equal(head, ACTIVITY_CSV_HEAD);
    assert.deepEqual(
      lines.map((line) => line.split(',')[0]),
      ids.slice(1),
    );
    assert.match(
      lines[0] ?? '',
      /,chat,atlas,completed,rack1,1,12,5,0,0,0,engine,.*,0\.000022000,/,
    );
  });

  test('a download of one request has this request only', async () => {
    const lines = async (query: string) =>
      (await get(`/usage/requests?format=csv&${query}`)).text.trimEnd().split('\r\n');
    const [head, ...rows] = await lines(`requestId=chatcmpl-${ids[1]}`);
    assert.equal(head, ACTIVITY_CSV_HEAD);
    assert.deepEqual(
      rows.map((row) => row.split(',')[0]),
      [ids[1]],
    );
    assert.deepEqual(await lines(`requestId=${ids[1]}&status=failed`), [ACTIVITY_CSV_HEAD]);
  });

  test('a receipt names its reservation and its prices', async () => {
    const receipt = ReceiptResponse.parse((await get(`/usage/${ids[0]}`)).body);
    assert.deepEqual(receipt.unitPrices, { input: '1', output: '2' });
    assert.ok((receipt.reserved ?? 0) > COST, 'the worst case was set aside');
  });

  test('days are sums over all keys', async () => {
    const days = DaysResponse.parse((await get('/usage/days')).body);
    assert.deepEqual(
      days.data.map(({ date, model, requests }) => [date, model, requests]),
      [
        ['2026-11-22', 'atlas', 1],
        ['2026-11-21', 'atlas', 3],
      ],
    );
    assert.deepEqual([days.totals.requests, days.totals.errors], [4, 0]);
    assert.equal(days.totals.cost.usd, 4 * COST);
  });

  test('the statement has charges by day beside what came in', async () => {
    const { app } = bench.farebox;
    await app.stores.store.transaction((tx) =>
      app.stores.ledger.creditIn(tx, {
        accountId: mine.accountId,
        amountNano: usdToNano('2'),
        from: 'house:operator-credit',
        kind: 'CREDIT',
        id: 'credit-thanks',
        note: 'Thanks',
      }),
    );
    const all = StatementResponse.parse((await get('/billing/statement')).body);
    assert.deepEqual(
      all.data.map(({ type, date, amount, note }) => [type, date, amount.usd, note]),
      [
        ['CHARGES', '2026-11-22', -COST, null],
        ['CREDIT', '2026-11-22', 2, 'Thanks'],
        ['CHARGES', '2026-11-21', -3 * COST, null],
        ['CREDIT', '2026-11-21', 5, null],
      ],
    );
    const paged: unknown[] = [];
    let cursor: string | null = '';
    while (cursor !== null) {
      const query: string = cursor === '' ? '' : `&cursor=${cursor}`;
      const page = StatementResponse.parse((await get(`/billing/statement?limit=1${query}`)).body);
      paged.push(...page.data);
      cursor = page.nextCursor;
    }
    assert.deepEqual(paged, all.data);
    const day = StatementResponse.parse((await get('/billing/statement?to=2026-11-21')).body);
    assert.equal(day.data.length, 2);
  });

  test('the balance has the amounts that are held and available', async () => {
    const { ledger } = bench.farebox.app.stores;
    const { accountId, secret } = await bench.farebox.account('1');
    const amount = usdToNano('0.4');
    const hold = await ledger.holds.place({
      requestId: 'held',
      accountId,
      minNano: amount,
      maxNano: amount,
      floorNano: usdToNano('0'),
    });
    assert.ok(hold.ok);
    const balance = BalanceResponse.parse((await get('/billing/balance', secret)).body);
    assert.deepEqual(
      [balance.balances.usd, balance.held.usd, balance.available.usd],
      [1, 0.4, 0.6],
    );
    ledger.holds.release(hold.hold);
    assert.equal((await get('/billing/balance', secret)).body.available.usd, 1);
  });

  test('an account without a wallet has no top-ups', async () => {
    assert.deepEqual(TopUpsResponse.parse((await get('/billing/top-ups')).body).data, []);
  });
});
