/** Messages by e-mail from the view of their recipients, with a real mail server on loopback. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { MINUTE_MS } from '../../src/core/clock.ts';
import { type Bench, type CallOptions, type Called, call, startWithEngine } from '../app/call.ts';
import { type MailServer, type ReceivedMail, startMailServer } from '../support/mail-server.ts';
import { TestClock } from '../support/test-clock.ts';
import { until } from '../support/until.ts';

const JOB_MS = 40;
const LOGIN = { user: 'farebox', password: 'a password of the mail server' };
const TO = 'billing@customer.example';

describe('e-mail', () => {
  const clock = new TestClock();
  const folder = mkdtempSync(join(tmpdir(), 'farebox-email-'));
  let mailServer: MailServer;
  let bench: Bench;
  let admin: string;

  before(async () => {
    mailServer = await startMailServer(LOGIN);
    bench = await startWithEngine({
      clock,
      dataFolder: join(folder, 'data'),
      yaml: `
email:
  { host: 127.0.0.1, port: ${mailServer.port}, tls: none, user: ${LOGIN.user}, password: ${LOGIN.password}, from: noreply@api.example, operators: [ops@api.example], perAccountPerDay: 8 }
signIn: { providers: [{ id: company, label: Company, issuer: 'https://login.example', clientId: x, clientSecret: y }] }
`,
    });
    ({ secret: admin } = await bench.farebox.account('5', { kind: 'ADMIN' }));
  });
  after(async () => {
    await bench.stop();
    await mailServer.stop();
    rmSync(folder, { recursive: true, force: true });
  });

  const api = async (path: string, options: CallOptions = {}): Promise<Called> =>
    await call(bench.farebox, path, { secret: admin, ...options });

  const nextMail = async (work: () => Promise<unknown>): Promise<ReceivedMail> => {
    const before = mailServer.mails.length;
    await work();
    await until(() => mailServer.mails.length > before, 'a mail', 100);
    const mail = mailServer.mails.at(-1);
    assert.ok(mail);
    return mail;
  };

  const recipient = async (url = `mailto:${TO}`, usd = 1): Promise<Called> =>
    await api('/webhooks', {
      body: { url, events: ['balance.low'], thresholds: { balanceUsd: usd } },
    });

  test('only one plain address is accepted as a recipient', async () => {
    for (const url of [
      'mailto:',
      'mailto:a@b.example,c@d.example',
      'mailto:a@b.example%0ABcc:c@d.example',
      'mailto:a@b.example?bcc=c@d.example',
      'mailto:a@b.example\nBcc: c@d.example',
      'mailto:"a b"@c.example',
    ]) {
      assert.equal((await recipient(url)).status, 400, url);
    }
  });

  test('a test message arrives as text and HTML, with a link that unsubscribes', async () => {
    const { body: webhook } = await recipient();
    const mail = await nextMail(async () => {
      const sent = await api(`/webhooks/${webhook.id}/test`, { method: 'POST' });
      assert.equal(sent.body.status, 'delivered', sent.text);
    });
    assert.deepEqual(mail.to, [TO]);
    assert.match(mail.headers, /^Subject: Farebox: test message$/m);
    assert.match(mail.headers, /^From: Farebox <noreply@api.example>$/m);
    assert.match(mail.headers, /^Content-Type: multipart\/alternative/m);
    assert.match(mail.headers, /^List-Unsubscribe-Post: List-Unsubscribe=One-Click$/m);
    for (const secret of [webhook.secret, admin, LOGIN.password]) {
      assert.ok(!`${mail.headers}${mail.text}`.includes(secret));
    }
    const [, link = ''] = /^List-Unsubscribe: <(.+)>$/m.exec(mail.headers) ?? [];
    assert.ok(mail.text.includes(link));
    const path = link.slice(link.indexOf('/webhooks/'));
    const form = await call(bench.farebox, path);
    assert.match(form.text, /<form method="post">/);
    const isPaused = async () => (await api('/webhooks')).body.data[0].paused as boolean;
    assert.equal(await isPaused(), false, 'opening the link changes nothing');
    const wrong = await call(bench.farebox, `${path}x`, { method: 'POST' });
    assert.equal(wrong.status, 404);
    const oneClick = { 'content-type': 'application/x-www-form-urlencoded' };
    const body = 'List-Unsubscribe=One-Click';
    const stopped = await call(bench.farebox, path, { method: 'POST', body, headers: oneClick });
    assert.equal(stopped.status, 200, stopped.text);
    assert.equal(await isPaused(), true);
    await api(`/webhooks/${webhook.id}`, { method: 'DELETE' });
  });

  test('a low balance is sent once, also if the mail server was away', async () => {
    mailServer.status = 451;
    const { body: webhook } = await recipient(undefined, 100);
    const minute = async (): Promise<void> => {
      clock.advance(MINUTE_MS);
      await new Promise((resolve) => setTimeout(resolve, JOB_MS));
    };
    const deliveries = async () =>
      (await api(`/webhooks/${webhook.id}/deliveries`)).body.data as {
        status: string;
        attempts: number;
        error: string | null;
      }[];
    await until(
      async () => {
        await minute();
        return (await deliveries()).some(({ attempts }) => attempts > 0);
      },
      'a first attempt',
      300,
    );
    await until(async () => (await deliveries())[0]?.error !== null, 'its result', 300);
    assert.match(
      (await deliveries())[0]?.error ?? '',
      /^The mail server responded with status 451/,
    );
    mailServer.status = 250;
    const mail = await nextMail(async () => {
      await until(
        async () => {
          await minute();
          return (await deliveries())[0]?.status === 'delivered';
        },
        'the delivery',
        300,
      );
    });
    assert.match(mail.headers, /^Subject: Farebox: the balance is below 100 USD$/m);
    assert.match(mail.text, /The balance is 5 USD/);
    const count = mailServer.mails.length;
    for (let left = 3; left > 0; left -= 1) await minute();
    assert.equal(mailServer.mails.length, count);
    await api(`/webhooks/${webhook.id}`, { method: 'DELETE' });
  });

  test('a rejected recipient ends the message', async () => {
    mailServer.status = 550;
    const { body: webhook } = await recipient();
    const sent = await api(`/webhooks/${webhook.id}/test`, { method: 'POST' });
    mailServer.status = 250;
    assert.equal(sent.body.status, 'failed');
    assert.equal(sent.body.error, 'The mail server rejected the recipient with status 550');
    await api(`/webhooks/${webhook.id}`, { method: 'DELETE' });
  });

  test('an invitation is sent with its link, and the queue does not keep the link', async () => {
    const { store } = bench.farebox.app.stores;
    const name = 'Evil\r\nBcc: victim@elsewhere.example\r\n\r\n<b>body</b>';
    await store.query('UPDATE identity_account SET name = $1', [name]);
    let link = '';
    const mail = await nextMail(async () => {
      const invited = await api('/members/invitations', {
        body: { role: 'developer', email: 'ann@customer.example' },
      });
      assert.equal(invited.body.data.emailed, true, invited.text);
      link = invited.body.data.url;
    });
    assert.deepEqual(mail.to, ['ann@customer.example']);
    assert.ok(mail.text.includes(link));
    assert.ok(!/^Bcc/im.test(mail.headers), mail.headers);
    assert.ok(!mail.text.includes('<b>body</b></p>'), 'the name is escaped in HTML');
    const kept = async () =>
      await store.query<{ body: string; state: string }>(
        `SELECT body, state FROM webhooks_delivery WHERE event = 'member.invited'`,
      );
    await until(async () => (await kept())[0]?.state === 'delivered', 'the end', 100);
    assert.deepEqual(
      (await kept()).map(({ body }) => body),
      ['{}'],
    );
  });

  test('an account sends a limited number of messages per day', async () => {
    const { body: webhook } = await recipient();
    for (let sent = 0; sent <= 8; sent += 1) {
      clock.advance(11_000);
      await api(`/webhooks/${webhook.id}/test`, { method: 'POST' });
    }
    // The worker can claim a message before the request does; then only the list has the result.
    const last = async () =>
      (await api(`/webhooks/${webhook.id}/deliveries`)).body.data[0].error as string | null;
    await until(async () => (await last()) !== null, 'the result of the last message');
    assert.equal(await last(), 'An account gets at most 8 e-mails per day');
  });

  test('an address gets a limited number of messages per day from all accounts', async () => {
    const errors: (string | null)[] = [];
    for (const name of ['victim', 'Victim', 'victim+alias']) {
      const url = `mailto:${name}@elsewhere.example`;
      const { secret } = await bench.farebox.account('5', { kind: 'ADMIN' });
      const { body: webhook } = await api('/webhooks', {
        secret,
        body: { url, events: ['balance.low'], thresholds: { balanceUsd: 1 } },
      });
      for (let sent = 0; sent < 3; sent += 1) {
        clock.advance(11_000);
        await api(`/webhooks/${webhook.id}/test`, { method: 'POST', secret });
      }
      const list = await api(`/webhooks/${webhook.id}/deliveries`, { secret });
      errors.push(...list.body.data.map(({ error }: { error: string | null }) => error));
    }
    assert.deepEqual(
      errors.filter((error) => error !== null),
      ['An address gets at most 8 e-mails per day'],
    );
  });

  test('messages to an address with too many do not count for its account', async () => {
    const { secret } = await bench.farebox.account('5', { kind: 'ADMIN' });
    const last = async (url: string, count: number): Promise<string | null> => {
      const { body: webhook } = await api('/webhooks', {
        secret,
        body: { url, events: ['balance.low'], thresholds: { balanceUsd: 1 } },
      });
      for (let sent = 0; sent < count; sent += 1) {
        clock.advance(11_000);
        await api(`/webhooks/${webhook.id}/test`, { method: 'POST', secret });
      }
      const newest = async () =>
        (await api(`/webhooks/${webhook.id}/deliveries`, { secret })).body.data[0];
      await until(async () => (await newest()).status !== 'pending', 'the result');
      return (await newest()).error;
    };
    const full = await last('mailto:victim@elsewhere.example', 9);
    assert.equal(full, 'An address gets at most 8 e-mails per day');
    assert.equal(await last('mailto:other@elsewhere.example', 1), null);
  });

  test('the link of a message also ends the messages that wait', async () => {
    const { accountId, secret } = await bench.farebox.account('5', { kind: 'ADMIN' });
    const { body: webhook } = await api('/webhooks', {
      secret,
      body: { url: 'mailto:a@b.example', events: ['balance.low'], thresholds: { balanceUsd: 1 } },
    });
    const mail = await nextMail(() =>
      api(`/webhooks/${webhook.id}/test`, { method: 'POST', secret }),
    );
    const { store } = bench.farebox.app.stores;
    await store.query(
      `INSERT INTO webhooks_delivery (id, webhook_id, account_id, event, subject, period, body, state,
         attempts, due_ms, created_ms, ended_ms)
       VALUES ('waits', $1, $2, 'balance.low', '', 1, '{"data":{}}', 'pending', 1, $3, $3, 0)`,
      [webhook.id, accountId, clock.nowMs() + MINUTE_MS],
    );
    const [path = ''] =
      /\/webhooks\/\S+token=[\w-]+/.exec(mail.headers.replaceAll('\r\n ', '')) ?? [];
    assert.equal((await call(bench.farebox, path, { method: 'POST' })).status, 200);
    const { body } = await api(`/webhooks/${webhook.id}/deliveries`, { secret });
    const waited = body.data.find(({ id }: { id: string }) => id === 'waits');
    assert.deepEqual(
      [waited.status, waited.nextAttemptAt, waited.error],
      ['failed', null, 'The recipient has stopped the messages'],
    );
  });
});
