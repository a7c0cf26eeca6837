/** Payments in the operator's own shop, which signs its webhooks by the official package. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { after, before, beforeEach, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { Webhook } from 'standardwebhooks';
import { call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { until } from '../support/until.ts';
import { usdToNano } from '../../src/core/money.ts';

const SECRET = `whsec_${Buffer.from('a secret of the shop').toString('base64')}`;

describe('payments in the shop of the operator', () => {
  let farebox: TestApp;
  let accountId: string;
  let secret: string;
  let count = 0;

  before(async () => {
    farebox = await startTestApp({
      yaml: `payments: { shop: { checkoutUrl: "https://shop.example/pay", webhookSecret: ${SECRET} } }`,
    });
  });
  after(async () => {
    await farebox.audit();
    await farebox.stop();
  });
  beforeEach(async () => {
    ({ accountId, secret } = await farebox.account('1'));
  });

  interface Options {
    readonly id?: string;
    readonly at?: Date;
    readonly by?: string;
  }

  async function report(type: string, data: object, options: Options = {}) {
    count += 1;
    const { id = `msg_${count}`, at = new Date(), by = SECRET } = options;
    const body = JSON.stringify({ type, data });
    const headers = {
      'webhook-id': id,
      'webhook-timestamp': String(Math.floor(at.getTime() / 1_000)),
      'webhook-signature': new Webhook(by).sign(id, at, body),
    };
    return await call(farebox, '/payments/shop', { body, headers });
  }

  async function balanceBecomes(usd: string): Promise<void> {
    const { ledger } = farebox.app.stores;
    const balance = async () => (await ledger.balances(accountId)).usdNano;
    await until(async () => (await balance()) === usdToNano(usd), `a balance of ${usd} USD`);
  }

  test('a checkout is a signed page of the shop, and its payment is credited once', async () => {
    const body = { amountUsd: 25 };
    const started = await call(farebox, '/billing/checkout', { secret, body });
    assert.equal(started.status, 200);
    const { id, url, provider } = started.body;
    assert.equal(provider, 'shop');
    const [, query = '', signature] =
      /^https:\/\/shop\.example\/pay\?(.+)&signature=(.+)$/.exec(url) ?? [];
    const key = Buffer.from(SECRET.replace('whsec_', ''), 'base64');
    assert.equal(signature, createHmac('sha256', key).update(query).digest('hex'));
    const given = new URLSearchParams(query);
    assert.deepEqual([given.get('payment'), given.get('amount_usd')], [id, '25.00']);
    const receiptUrl = 'https://shop.example/receipts/1';
    for (let times = 0; times < 3; times += 1) {
      const sent = await report('payment.paid', { payment: id, paidUsd: '25.00', receiptUrl });
      assert.equal(sent.status, 200);
    }
    await balanceBecomes('26');
    const state = await call(farebox, `/billing/checkout/${id}`, { secret });
    assert.deepEqual([state.body.status, state.body.receiptUrl], ['paid', receiptUrl]);
  });

  test('a payment that the shop has started is credited to the named account, in any order of reports', async () => {
    const payment = `order-${accountId}`;
    const first = await report('payment.returned', { payment, returnedUsd: '4' });
    assert.equal(first.status, 404, 'the shop repeats it');
    await report('payment.paid', { payment, account: accountId, paidUsd: '10.50' });
    await balanceBecomes('11.5');
    await report('payment.returned', { payment, returnedUsd: '4' });
    await balanceBecomes('7.5');
    await report('payment.returned', { payment, returnedUsd: '10.50' });
    await report('payment.returned', { payment, returnedUsd: '4' });
    await balanceBecomes('1');
  });

  test('the example reports a payment once', async () => {
    const file = new URL('../../examples/operator/shop-report.ts', import.meta.url).pathname;
    const env = childEnvironment({ FAREBOX_URL: farebox.url, SHOP_WEBHOOK_SECRET: SECRET });
    for (let times = 0; times < 2; times += 1) {
      const args = [file, `example-${accountId}`, accountId, '2.25'];
      const { stdout } = await promisify(execFile)(process.execPath, args, { env });
      assert.match(stdout, /^200 /);
    }
    await balanceBecomes('3.25');
  });

  test('reports that are not signed, too old, unknown or too large change nothing', async () => {
    const data = { payment: 'order-1', account: accountId, paidUsd: '10' };
    const other = `whsec_${Buffer.from('another secret of 16').toString('base64')}`;
    assert.equal((await report('payment.paid', data, { by: other })).status, 400);
    const old = { at: new Date(Date.now() - 3_600_000) };
    assert.equal((await report('payment.paid', data, old)).status, 400);
    assert.equal((await call(farebox, '/payments/shop', { body: data })).status, 400);
    const unknown = await report('payment.paid', { ...data, account: 'acct_none' });
    assert.equal(unknown.status, 404);
    assert.equal((await report('payment.paid', { ...data, paidUsd: '1000.01' })).status, 400);
    assert.equal((await report('payment.paid', { ...data, paidUsd: '1e3' })).status, 400);
    assert.equal((await report('payment.made', data)).status, 400);
    const rows = await farebox.app.stores.store.query(
      'SELECT id FROM payments_card WHERE account_id = $1',
      [accountId],
    );
    assert.deepEqual(rows, []);
  });
});
