/** The unchanged examples for operators against a real server. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { call } from '../app/call.ts';
import { type TestApp, startTestApp } from '../app/test-app.ts';
import { childEnvironment } from '../support/child-environment.ts';
import { endWithUs } from '../support/end-with-us.ts';

const SECRET = 'whsec_test';

describe('examples/operator/stripe-webhook.ts', () => {
  let farebox: TestApp;
  let child: ChildProcess;
  let url: string;
  let accountId: string;
  let operator: string;

  before(async () => {
    farebox = await startTestApp();
    operator = await farebox.key({ kind: 'ADMIN' });
    const made = await call(farebox, '/admin/accounts', {
      secret: operator,
      body: { name: 'card@example.com' },
    });
    accountId = made.body.data.id;
    const file = new URL('../../examples/operator/stripe-webhook.ts', import.meta.url).pathname;
    child = endWithUs(
      spawn(process.execPath, [file], {
        env: childEnvironment({
          STRIPE_WEBHOOK_SECRET: SECRET,
          FAREBOX_ADMIN_KEY: operator,
          FAREBOX_URL: farebox.url,
          PORT: '0',
        }),
        stdio: ['ignore', 'pipe', 'ignore'],
      }),
    );
    let said = '';
    while (!/port: (\d+)/.test(said)) {
      const [piece] = await once(child.stdout ?? child, 'data');
      said += String(piece);
    }
    url = `http://127.0.0.1:${/port: (\d+)/.exec(said)?.[1]}`;
  });
  after(async () => {
    child.kill();
    await farebox.audit();
    await farebox.stop();
  });

  function event(id: string, changes: object = {}): string {
    const object = {
      payment_status: 'paid',
      client_reference_id: accountId,
      currency: 'usd',
      amount_total: 2505,
      ...changes,
    };
    return JSON.stringify({ id, type: 'checkout.session.completed', data: { object } });
  }

  /** A webhook request of Stripe, signed at the given time. */
  async function send(body: string, atMs = Date.now(), secret = SECRET): Promise<number> {
    const time = Math.floor(atMs / 1_000);
    const mac = createHmac('sha256', secret).update(`${time}.${body}`).digest('hex');
    const headers = { 'stripe-signature': `t=${time},v1=${'0'.repeat(64)},v1=${mac}` };
    return (await fetch(url, { method: 'POST', body, headers })).status;
  }

  async function balance(): Promise<string> {
    const answer = await call(farebox, `/admin/accounts/${accountId}`, { secret: operator });
    return answer.body.data.balance.usd;
  }

  test('a paid checkout is credited once, however often its event is sent', async () => {
    assert.equal(await send(event('evt_0', { payment_status: 'unpaid' })), 200);
    assert.equal(await balance(), '0.0000');
    const sent = await Promise.all([1, 2, 3].map(() => send(event('evt_1'))));
    assert.deepEqual(sent, [200, 200, 200]);
    assert.equal(await balance(), '25.0500');
    assert.equal(await send(event('evt_2', { amount_total: 5 })), 200);
    assert.equal(await balance(), '25.1000');
  });

  test('an event without a valid signature of Stripe credits nothing', async () => {
    const before = await balance();
    assert.equal(await send(event('evt_3'), Date.now(), 'whsec_other'), 400);
    assert.equal(await send(event('evt_3'), Date.now() - 3_600_000), 400, 'a replay');
    const bare = await fetch(url, { method: 'POST', body: event('evt_3') });
    assert.equal(bare.status, 400);
    assert.equal(await send(event('evt_3', { client_reference_id: 'acct_none' })), 500);
    assert.equal(await send(event('evt_3', { currency: 'eur' })), 500);
    assert.equal(await balance(), before);
  });
});
