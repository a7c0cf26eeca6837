/**
 * Webhooks from the view of their owner, on both databases: a crossing is delivered once, signed so
 * that the official Standard Webhooks package accepts it, and repeated across a restart until it is
 * accepted.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { type IncomingHttpHeaders, type Server, createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, mock, test } from 'node:test';
import { Webhook } from 'standardwebhooks';
import { DAY_MS, MINUTE_MS } from '../../src/core/clock.ts';
import { usdToNano } from '../../src/core/money.ts';
import { type Bench, type Called, call, chatBody, startWithEngine } from '../app/call.ts';
import { emptyPostgresDatabase } from '../databases/postgres.ts';
import { freePort } from '../support/free-port.ts';
import { TestClock } from '../support/test-clock.ts';
import { until } from '../support/until.ts';

/** Time of the minute job in this test; a slow machine needs more minutes but sends the same messages. */
const JOB_MS = 40;

interface Heard {
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** The address of a customer, with scripted responses. */
class Receiver {
  readonly heard: Heard[] = [];
  status = 204;
  /** Resolves before the response is sent. */
  ready: Promise<void> | undefined;
  #server: Server | undefined;

  async start(): Promise<string> {
    const server = createServer((request, response) => {
      let body = '';
      request.on('data', (piece) => (body += String(piece)));
      request.on('end', () => {
        this.heard.push({ headers: request.headers, body });
        void Promise.resolve(this.ready).then(() => response.writeHead(this.status).end());
      });
    });
    this.#server = server;
    await new Promise<void>((listening) => server.listen(0, '127.0.0.1', listening));
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  }

  stop(): void {
    this.#server?.close();
    this.#server?.closeAllConnections();
  }
}

for (const dialect of ['sqlite', 'postgres'] as const) {
  describe(`webhooks on ${dialect}`, () => {
    const clock = new TestClock();
    const receiver = new Receiver();
    const folder = mkdtempSync(join(tmpdir(), 'farebox-webhooks-'));
    let database: { databaseUrl?: string } = {};
    let bench: Bench;
    let url: string;
    let admin: string;
    let accountId: string;

    const open = (): Promise<Bench> =>
      startWithEngine({
        clock,
        dataFolder: folder,
        ...database,
        yaml: 'fetch: { allow: ["127.0.0.0/8"] }',
      });
    before(async () => {
      if (dialect === 'postgres') database = { databaseUrl: await emptyPostgresDatabase() };
      url = await receiver.start();
      bench = await open();
      ({ accountId, secret: admin } = await bench.farebox.account('5', { kind: 'ADMIN' }));
    });
    after(async () => {
      receiver.stop();
      await bench.farebox.audit();
      await bench.stop();
      rmSync(folder, { recursive: true, force: true });
    });

    const ask = (path: string, options: { method?: string; body?: unknown } = {}, secret = admin) =>
      call(bench.farebox, path, { secret, ...options });
    const make = async (thresholds: Record<string, number>, events: string[]) => {
      const made = await ask('/webhooks', { body: { url, events, thresholds } });
      assert.equal(made.status, 200, made.text);
      return made.body as { id: string; secret: string };
    };
    const remove = async (id: string) =>
      assert.equal((await ask(`/webhooks/${id}`, { method: 'DELETE' })).status, 200);
    const sent = async (id: string) => (await ask(`/webhooks/${id}/deliveries`)).body.data;
    /** Lets minutes pass, each with time for its job. */
    async function minutes(count: number): Promise<void> {
      for (let at = 0; at < count; at += 1) {
        clock.advance(MINUTE_MS);
        await new Promise((resolve) => setTimeout(resolve, JOB_MS));
      }
    }
    /** Lets minutes pass until something holds. */
    const inMinutes = (holds: () => boolean | Promise<boolean>) =>
      until(async () => {
        if (await holds()) return true;
        await minutes(1);
        return false;
      });

    function checked({ headers, body }: Heard, secret: string): ReturnType<typeof JSON.parse> {
      const named = Object.fromEntries(
        ['id', 'timestamp', 'signature'].map((name) => [
          `webhook-${name}`,
          String(headers[`webhook-${name}`]),
        ]),
      );
      mock.timers.enable({ apis: ['Date'], now: clock.nowMs() });
      try {
        return new Webhook(secret).verify(body, named);
      } finally {
        mock.timers.reset();
      }
    }

    test('an invalid webhook is rejected with the reason', async () => {
      const refused = async (body: unknown, words: RegExp) => {
        const answer = await ask('/webhooks', { body });
        assert.equal(answer.status, 400, answer.text);
        assert.match(answer.text, words);
      };
      const events = ['spend.daily'];
      await refused({ url, events, thresholds: {} }, /Must be set for the event/);
      await refused(
        { url, events, thresholds: { balanceUsd: 1, dailySpendUsd: 1 } },
        /Must not be set without the event/,
      );
      await refused({ url, events: [], thresholds: {} }, /events/);
      const thresholds = { dailySpendUsd: 1 };
      await refused({ url: 'http://10.0.0.1/', events, thresholds }, /url: .*public/);
      await refused({ url: 'ftp://example.com/', events, thresholds }, /url/);
      const { secret } = await bench.farebox.account('1');
      assert.equal((await ask('/webhooks', {}, secret)).status, 401);
    });

    test('null for an optional member is the same as no member', async () => {
      const thresholds = { balanceUsd: 1, keyLimitPercent: null, dailySpendUsd: null };
      const made = await ask('/webhooks', { body: { url, events: ['balance.low'], thresholds } });
      assert.equal(made.status, 200, made.text);
      const { secret: _secret, ...item } = made.body;
      assert.deepEqual(item.events, ['balance.low']);
      const body = { url: null, events: null, thresholds: null, paused: null };
      const changed = await ask(`/webhooks/${item.id}`, { method: 'PATCH', body });
      assert.deepEqual([changed.status, changed.body], [200, item]);
      await remove(item.id);
    });

    test('a test message arrives signed, once in ten seconds, and no other account sees it', async () => {
      const { id, secret } = await make({ balanceUsd: 1 }, ['balance.low']);
      // Time goes on while a test is made.
      const nowMs = clock.nowMs.bind(clock);
      let passedMs = 0;
      const ticking = mock.method(clock, 'nowMs', () => nowMs() + (passedMs += 1));
      const tested = await ask(`/webhooks/${id}/test`, { method: 'POST' });
      ticking.mock.restore();
      assert.deepEqual([tested.status, tested.body.status], [200, 'delivered'], tested.text);
      const message = checked(receiver.heard.at(-1)!, secret);
      assert.deepEqual([message.type, message.data.webhookId], ['webhook.test', id]);
      assert.throws(() => checked(receiver.heard.at(-1)!, 'whsec_AAAA'), /signature/);
      const again = await ask(`/webhooks/${id}/test`, { method: 'POST' });
      assert.equal(again.status, 429);
      assert.ok(Number(again.headers.get('retry-after')) > 0);
      const listed = await ask('/webhooks');
      assert.doesNotMatch(listed.text, /whsec_/);
      // One account takes one of the places that tests have.
      const { id: second } = await make({ balanceUsd: 1 }, ['balance.low']);
      clock.advance(MINUTE_MS);
      const { promise, resolve } = Promise.withResolvers<void>();
      receiver.ready = promise;
      const both = [id, second].map((one) => ask(`/webhooks/${one}/test`, { method: 'POST' }));
      assert.equal((await Promise.race(both)).status, 429);
      resolve();
      receiver.ready = undefined;
      const statuses = (await Promise.all(both)).map(({ status }) => status);
      assert.deepEqual(new Set(statuses), new Set([200, 429]));
      await remove(second);
      const other = (await bench.farebox.account('1', { kind: 'ADMIN' })).secret;
      assert.deepEqual((await ask('/webhooks', {}, other)).body.data, []);
      for (const [path, method] of [
        ['/deliveries', 'GET'],
        ['/test', 'POST'],
        ['', 'DELETE'],
        ['/secret/rotate', 'POST'],
      ]) {
        assert.equal((await ask(`/webhooks/${id}${path}`, { method: method! }, other)).status, 404);
      }
      await remove(id);
      assert.equal((await ask(`/webhooks/${id}/deliveries`)).status, 404);
    });

    test('examples/webhooks/receive.ts accepts only signed messages', async () => {
      const port = await freePort();
      const address = `http://127.0.0.1:${port}/`;
      const body = { url: address, events: ['spend.daily'], thresholds: { dailySpendUsd: 100 } };
      const { id, secret } = (await ask('/webhooks', { body })).body;
      const file = join(import.meta.dirname, '../../examples/webhooks/receive.ts');
      const env = { ...process.env, WEBHOOK_SECRET: secret, PORT: String(port) };
      const child = spawn(process.execPath, [file], { env, stdio: ['ignore', 'pipe', 'inherit'] });
      let said = '';
      child.stdout.on('data', (piece) => (said += String(piece)));
      try {
        await until(() => said.includes('Listening'));
        assert.equal((await fetch(address, { method: 'POST', body: '{}' })).status, 401);
        // The package checks the time of the message, and the clock of this server does not
        // advance.
        const tested = await ask(`/webhooks/${id}/test`, { method: 'POST' });
        assert.deepEqual([tested.body.status, tested.body.responseStatus], ['failed', 401]);
        const message = '{"type":"webhook.test"}';
        const sentAt = new Date();
        const headers = {
          'webhook-id': 'msg_1',
          'webhook-timestamp': String(Math.floor(sentAt.getTime() / 1_000)),
          'webhook-signature': new Webhook(secret).sign('msg_1', sentAt, message),
        };
        const fresh = await fetch(address, { method: 'POST', headers, body: message });
        assert.equal(fresh.status, 204);
        await until(() => said.includes(message));
      } finally {
        child.kill();
        await remove(id);
      }
    });

    test('concurrent requests cannot create more than ten webhooks of an account', async () => {
      const body = { url, events: ['spend.daily'], thresholds: { dailySpendUsd: 1 } };
      const made = await Promise.all(Array.from({ length: 12 }, () => ask('/webhooks', { body })));
      assert.equal(made.filter(({ status }) => status === 200).length, 10);
      const refusal = made.find(({ status }) => status === 400);
      assert.equal(refusal?.body.code, 'WEBHOOK_LIMIT_REACHED');
      for (const one of (await ask('/webhooks')).body.data) await remove(one.id);
    });

    test('a low balance is delivered when it falls below the threshold, and again after a top-up', async () => {
      const { app } = bench.farebox;
      const move = (usd: string, direction: 'credit' | 'debit', reference: string) =>
        app.stores.ledger.moveOnce({
          direction,
          accountId,
          amountNano: usdToNano(usd),
          note: undefined,
          reference,
        });
      const { id, secret } = await make({ balanceUsd: 4 }, ['balance.low']);
      await minutes(2);
      assert.deepEqual(await sent(id), []);
      receiver.heard.length = 0;
      await move('2', 'debit', 'down');
      await inMinutes(() => receiver.heard.length > 0);
      const { type, data } = checked(receiver.heard[0]!, secret);
      assert.equal(type, 'balance.low');
      assert.deepEqual([data.accountId, data.balanceUsd, data.thresholdUsd], [accountId, 3, 4]);
      await minutes(3);
      assert.equal((await sent(id)).length, 1, 'once');
      await move('2', 'credit', 'up');
      const { store } = app.stores;
      const isLow = async (): Promise<boolean> => {
        const sql = 'SELECT is_low FROM webhooks_webhook WHERE id = $1';
        const [row] = await store.query<{ is_low: bigint }>(sql, [id]);
        return row?.is_low === 1n;
      };
      await inMinutes(async () => !(await isLow()));
      await move('2', 'debit', 'down again');
      await inMinutes(async () => (await sent(id)).length === 2);
      const page = await ask(`/webhooks/${id}/deliveries?limit=1`);
      const { nextCursor } = page.body;
      const rest = await ask(`/webhooks/${id}/deliveries?limit=1&cursor=${nextCursor}`);
      assert.equal(rest.body.nextCursor, null);
      assert.notEqual(rest.body.data[0].id, page.body.data[0].id);
      await remove(id);
    });

    test('the cap of a key and the spending of a day are delivered once, and repeated until accepted', async () => {
      const made = await ask('/api_keys', {
        body: { apiKeyType: 'INFERENCE', description: 'ci', consumptionLimit: { usd: 0.001 } },
      });
      const { id: keyId, apiKey } = made.body.data;
      const { id, secret } = await make({ keyLimitPercent: 2, dailySpendUsd: 0.00002 }, [
        'key.limit_reached',
        'spend.daily',
      ]);
      receiver.status = 500;
      receiver.heard.length = 0;
      const chat = await ask('/chat/completions', { body: chatBody() }, apiKey);
      assert.equal(chat.status, 200, chat.text);
      await inMinutes(async () => {
        const all: { error: string | null }[] = await sent(id);
        return all.length === 2 && all.every(({ error }) => error !== null);
      });
      const failing = await sent(id);
      assert.deepEqual(
        [failing[0].status, failing[0].responseStatus, failing[0].error],
        ['pending', 500, 'The URL responded with status 500'],
      );
      // Another process goes on with what this one left.
      await bench.stop();
      bench = await open();
      receiver.status = 204;
      receiver.heard.length = 0;
      await inMinutes(() => receiver.heard.length === 2);
      const told = receiver.heard.map((one) => checked(one, secret));
      const key = told.find(({ type }) => type === 'key.limit_reached');
      assert.deepEqual(
        [key.data.apiKeyId, key.data.description, key.data.limitPeriod, key.data.usedPercent],
        [keyId, 'ci', 'EPOCH', 2],
      );
      const day = told.find(({ type }) => type === 'spend.daily');
      assert.deepEqual([day.data.date, day.data.spentUsd], ['2026-11-21', 0.000022]);
      const ids = new Set(receiver.heard.map(({ headers }) => headers['webhook-id']));
      let all: { id: string; status: string }[] = [];
      await inMinutes(async () => {
        all = await sent(id);
        return all.every(({ status }) => status === 'delivered');
      });
      assert.deepEqual(new Set(all.map((one) => one.id)), ids, 'the same id in every attempt');
      assert.ok(all.every(({ status }) => status === 'delivered'));
      await ask(`/api_keys?id=${keyId}`, { method: 'DELETE' });
      await remove(id);
    });

    test('after a rotation both secrets sign for a day', async () => {
      const { id, secret: before } = await make({ balanceUsd: 0.01 }, ['balance.low']);
      const rotated = await ask(`/webhooks/${id}/secret/rotate`, { method: 'POST' });
      assert.equal(rotated.status, 200, rotated.text);
      assert.equal(rotated.headers.get('cache-control'), 'no-store');
      const { secret, previousSecretUntil } = rotated.body;
      assert.equal(Date.parse(previousSecretUntil) - clock.nowMs(), DAY_MS);
      const test = async () => {
        clock.advance(10_000);
        assert.equal((await ask(`/webhooks/${id}/test`, { method: 'POST' })).status, 200);
        return receiver.heard.at(-1)!;
      };
      const both = await test();
      assert.equal(String(both.headers['webhook-signature']).split(' ').length, 2);
      for (const one of [before, secret]) assert.equal(checked(both, one).type, 'webhook.test');
      // A day is thousands of heartbeats to a shared database.
      if (dialect === 'postgres') return await remove(id);
      clock.advance(DAY_MS);
      const later = await test();
      assert.equal(checked(later, secret).type, 'webhook.test');
      assert.throws(() => checked(later, before), /signature/);
      await remove(id);
    });

    test('a changed webhook delivers its new thresholds', async () => {
      const { id } = await make({ dailySpendUsd: 1_000, balanceUsd: 0.01 }, [
        'spend.daily',
        'balance.low',
      ]);
      const patch = (body: object) => ask(`/webhooks/${id}`, { method: 'PATCH', body });
      const refused = async (body: object, words: RegExp) => {
        const answer = await patch(body);
        assert.deepEqual([answer.status, words.test(answer.text)], [400, true], answer.text);
      };
      await refused(
        { thresholds: { dailySpendUsd: null, balanceUsd: null } },
        /Must keep one threshold/,
      );
      await refused(
        { events: ['spend.daily'] },
        /Must not be set without the event \\"balance.low\\"/,
      );
      await refused({ url: 'http://10.0.0.1/' }, /url: .*public/);
      const moved = await patch({ url: `${url}/moved`, thresholds: { dailySpendUsd: null } });
      assert.deepEqual(
        [moved.body.url, moved.body.events, moved.body.thresholds.balanceUsd],
        [`${url}/moved`, ['balance.low'], 0.01],
      );
      const same = await patch({ ...moved.body, url });
      assert.deepEqual(same.body, { ...moved.body, url });
      await minutes(2);
      assert.deepEqual(await sent(id), []);
      const told = async (usd: number, count: number) => {
        await patch({ thresholds: { balanceUsd: usd } });
        await inMinutes(async () => (await sent(id)).length === count);
        await minutes(2);
        const all = await sent(id);
        assert.equal(all.length, count);
        assert.equal(all[0].payload.data.thresholdUsd, usd);
      };
      await told(50, 1);
      const paused = await patch({ paused: true, thresholds: { balanceUsd: 60 } });
      assert.equal(paused.body.paused, true);
      await minutes(2);
      assert.equal((await sent(id)).length, 1);
      assert.equal((await patch({ paused: false })).body.paused, false);
      await told(60, 2);
      await remove(id);
      assert.equal((await patch({ thresholds: { balanceUsd: 1 } })).status, 404);
    });

    test('a budget is delivered per tag value, and a cap again after it was raised', async () => {
      const made = await ask('/api_keys', {
        body: {
          apiKeyType: 'INFERENCE',
          description: 'ever',
          consumptionLimit: { usd: 0.001 },
          limitPeriod: 'LIFETIME',
        },
      });
      const { id: keyId, apiKey } = made.body.data;
      const budget = await ask('/budgets', { body: { tag: 'user', period: 'MONTH', usd: 0.001 } });
      const all = await ask('/budgets', { body: { period: 'LIFETIME', usd: 1_000 } });
      const { id } = await make({ budgetPercent: 2, keyLimitPercent: 2 }, [
        'budget.limit_reached',
        'key.limit_reached',
      ]);
      receiver.heard.length = 0;
      const chat = async (user: string) => {
        const body = chatBody({ metadata: { user } });
        const answer = await ask('/chat/completions', { body }, apiKey);
        assert.equal(answer.status, 200, answer.text);
      };
      const hears = async (count: number) => {
        await inMinutes(() => receiver.heard.length >= count);
        await minutes(2);
        assert.equal(receiver.heard.length, count);
        return receiver.heard.map(({ body }): Called['body'] => JSON.parse(body));
      };
      for (const user of ['anna', 'bert']) await chat(user);
      const first = await hears(3);
      const values = first.flatMap(({ type, data }) =>
        type === 'budget.limit_reached' ? [[data.budgetId, data.tag, data.value, data.usd]] : [],
      );
      const { id: budgetId } = budget.body.data;
      const expected = ['anna', 'bert'].map((user) => [budgetId, 'user', user, 0.001]);
      assert.deepEqual(new Set(values), new Set(expected));
      // Raised: what is spent is less than two percent of it, and then again as much.
      const raise = { id: keyId, consumptionLimit: { usd: 0.003 } };
      await ask('/api_keys', { method: 'PATCH', body: raise });
      await hears(3);
      await chat('anna');
      const again = (await hears(4)).at(-1);
      assert.deepEqual(
        [again.type, again.data.apiKeyId, again.data.limitPeriod],
        ['key.limit_reached', keyId, 'LIFETIME'],
      );
      // A deleted budget is silent.
      await ask(`/budgets/${budgetId}`, { method: 'DELETE' });
      await ask(`/webhooks/${id}`, { method: 'PATCH', body: { thresholds: { budgetPercent: 1 } } });
      await hears(4);
      await ask(`/budgets/${all.body.data.id}`, { method: 'DELETE' });
      await remove(id);
    });

    test('an address that responds 410 gets no more deliveries', async () => {
      receiver.status = 410;
      const { id } = await make({ balanceUsd: 1_000 }, ['balance.low']);
      await inMinutes(async () => (await sent(id))[0]?.status === 'failed');
      await remove(id);
    });

    // Hours are thousands of heartbeats to a shared database; what is proven knows no database.
    if (dialect === 'postgres') return;
    test('an address that always fails gets no more deliveries after a day', async () => {
      receiver.status = 503;
      const { id: deaf } = await make({ balanceUsd: 1_000 }, ['balance.low']);
      await inMinutes(async () => {
        const [one] = await sent(deaf);
        // Never back: what is due already is sent in the next minute.
        const dueMs = Date.parse(one?.nextAttemptAt ?? '') - clock.nowMs();
        if (dueMs > 0) clock.advance(dueMs);
        return one?.status === 'failed';
      });
      assert.equal((await sent(deaf))[0].attempts, 7);
    });
  });
}
