import assert from 'node:assert/strict';
import { createHmac } from 'node:crypto';
import { test } from 'node:test';
import { inTimeOfCaller, onEachStore } from '../../test/databases/stores.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { until } from '../../test/support/until.ts';
import { DAY_MS, MINUTE_MS, systemClock } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import { STORE_MIGRATIONS } from '../db/db.ts';
import type { Identity } from '../identity/identity.ts';
import type { Guard } from '../net/guard.ts';
import { WEBHOOKS_MIGRATIONS } from './migrations.ts';
import type { Mailer } from './email.ts';
import { deliveryWorker } from './send.ts';
import { type Webhook, newSecret } from './webhook.ts';
import { WebhookTable } from './webhook-table.ts';
import { webhooksFeature } from './webhooks.ts';

/** More than are sent at once. */
const DEAF_ACCOUNTS = 40;
const MESSAGES = 9;
const NO_CALLBACKS = { callbackSecret: undefined, mailer: undefined, serviceName: 'svc' };

onEachStore('sending webhooks', (fixture) => {
  test('addresses that never respond delay neither other accounts nor first attempts', async () => {
    const store = inTimeOfCaller(await fixture.open([...STORE_MIGRATIONS, ...WEBHOOKS_MIGRATIONS]));
    const table = new WebhookTable(store);
    const ids = seededIds(1);
    const clock = systemClock();
    async function open(accountId: string, url: string): Promise<Webhook> {
      const webhook: Webhook = {
        id: `wh_${accountId}`,
        accountId,
        url,
        secret: newSecret(ids),
        oldSecret: undefined,
        oldSecretUntilMs: undefined,
        balanceNano: undefined,
        keyPercent: undefined,
        budgetPercent: undefined,
        dailyNano: undefined,
        isLow: false,
        timesLow: 0,
        isPaused: false,
        createdMs: 1,
      };
      assert.ok(await table.insert(webhook, 10));
      return webhook;
    }
    /** Puts messages on their way; `attempts` failed before. */
    async function add({ id: webhookId, accountId }: Webhook, count: number, attempts: number) {
      for (let period = 0; period < count; period += 1) {
        const event = attempts === 0 ? 'spend.daily' : 'balance.low';
        const id = `msg_${accountId}_${event}_${period}`;
        const told = { id, webhookId, accountId, event, subject: '', period } as const;
        await table.add({ ...told, body: '{}', createdMs: 1 + period });
        if (attempts === 0) continue;
        assert.ok(await table.claimOne(id, clock.nowMs(), 0));
        const failed = { state: 'pending', endedMs: 0, status: 500, problem: 'No' } as const;
        await table.attempted(id, clock.nowMs(), { ...failed, dueMs: 1 + period });
      }
    }
    for (let at = 0; at < DEAF_ACCOUNTS; at += 1)
      await add(await open(`deaf_${at}`, 'https://deaf.example/'), 1, 1);
    const partlyDeaf = await open('deaf_first', 'https://deaf.example/');
    await add(partlyDeaf, MESSAGES, 0);
    const live = await open('live', 'https://live.example/');
    await add(live, MESSAGES, 0);

    let deaf = 0;
    const guard: Pick<Guard, 'post'> = {
      async post(url, { signal }) {
        if (url === live.url) return 204;
        deaf += 1;
        signal?.throwIfAborted();
        return await new Promise<number>((_answered, failed) => {
          signal?.addEventListener('abort', () => failed(new Error('The server ends')));
        });
      },
    };
    const worker = deliveryWorker({ table, guard, ...NO_CALLBACKS, clock, log: silentLog });
    worker.start();
    const states = async (webhook: Webhook) =>
      (await table.deliveries(webhook.id, 100, undefined)).map(({ state }) => state);
    const isDelivered = (state: string): boolean => state === 'delivered';
    const endMs = clock.monotonicMs() + 60_000;
    while (!(await states(live)).every(isDelivered) && clock.monotonicMs() < endMs)
      await clock.sleep(10);
    // An account has a few concurrent attempts, and retries have a fixed number of slots.
    assert.ok(deaf <= 4 + 32, `${deaf} wait for their addresses`);
    const before = deaf;
    const isStopped = worker.stop();
    worker.nudge();
    await isStopped;
    assert.equal(deaf, before, 'a server that ends begins no call');
    assert.deepEqual(new Set(await states(live)), new Set(['delivered']));
    assert.deepEqual(new Set(await states(partlyDeaf)), new Set(['pending']));
  });

  test('a message whose webhook is gone is not tried for ever', async () => {
    const store = inTimeOfCaller(await fixture.open([...STORE_MIGRATIONS, ...WEBHOOKS_MIGRATIONS]));
    const table = new WebhookTable(store);
    const clock = new TestClock();
    const createdMs = clock.nowMs();
    await store.query(
      `INSERT INTO webhooks_delivery (id, webhook_id, account_id, event, subject, period, body, state,
         attempts, due_ms, created_ms, ended_ms)
       VALUES ('msg_1', 'wh_gone', 'ada', 'spend.daily', '', 1, '{}', 'pending', 0, $1, $1, 0)`,
      [createdMs],
    );
    const guard = { post: () => Promise.reject(new Error('Nothing is sent')) };
    const worker = deliveryWorker({ table, guard, ...NO_CALLBACKS, clock, log: silentLog });
    worker.start();
    const isGone = async () => (await table.deliveries('wh_gone', 9, undefined)).length === 0;
    await until(isGone, 'the end of the message');
    await worker.stop();
  });

  test('an e-mail that waits for the mail server is claimed once', async () => {
    const store = inTimeOfCaller(await fixture.open([...STORE_MIGRATIONS, ...WEBHOOKS_MIGRATIONS]));
    const table = new WebhookTable(store);
    const clock = new TestClock();
    const createdMs = clock.nowMs();
    const message = {
      id: 'msg_1',
      webhookId: '',
      accountId: 'ada',
      event: 'member.invited',
    } as const;
    await table.add({
      ...message,
      subject: 'x',
      period: 0,
      body: '{}',
      createdMs,
      url: 'mailto:x@y.example',
    });
    const send = Promise.withResolvers<{ status: undefined; problem: string }>();
    let sent = 0;
    const mailer = {
      send: () => {
        sent += 1;
        return send.promise;
      },
    } as unknown as Mailer; // all that is called
    const guard = { post: () => Promise.reject(new Error('Nothing is sent')) };
    const parts = { table, guard, ...NO_CALLBACKS, mailer, clock, log: silentLog };
    const workers = [deliveryWorker(parts), deliveryWorker(parts)];
    workers[0]?.start();
    await until(() => sent === 1, 'the first attempt');
    workers[1]?.start();
    const attempts = async () =>
      (await store.query<{ attempts: bigint }>('SELECT attempts FROM webhooks_delivery'))[0]
        ?.attempts;
    for (let minute = 0; minute < 6; minute += 1) {
      clock.advance(MINUTE_MS);
      for (const worker of workers) worker.nudge();
      await new Promise((resolve) => setTimeout(resolve, 30));
    }
    assert.deepEqual([sent, await attempts()], [1, 1n]);
    send.resolve({ status: undefined, problem: 'No' });
    const ended = "SELECT id FROM webhooks_delivery WHERE problem = 'No'";
    await until(async () => (await store.query(ended)).length === 1, 'its end');
    clock.advance(MINUTE_MS);
    workers[1]?.nudge();
    await until(() => sent === 2, 'the second attempt');
    assert.equal(await attempts(), 2n);
    for (const worker of workers) await worker.stop();
  });

  test('messages of the time before the clock was set back are sent', async () => {
    const store = inTimeOfCaller(await fixture.open([...STORE_MIGRATIONS, ...WEBHOOKS_MIGRATIONS]));
    const table = new WebhookTable(store);
    const clock = new TestClock();
    const nowMs = clock.nowMs();
    const aheadMs = nowMs + 365 * DAY_MS;
    for (const [id, attempts, dueMs] of [
      ['new', 0, aheadMs],
      ['repeated', 1, aheadMs + MINUTE_MS],
      ['waiting', 5, nowMs + 1_024 * MINUTE_MS],
    ] as const) {
      await store.query(
        `INSERT INTO webhooks_delivery (id, webhook_id, account_id, event, subject, period, body, state,
           attempts, due_ms, created_ms, ended_ms)
         VALUES ($1, $1, 'ada', 'spend.daily', '', 1, '{}', 'pending', $2, $3, 1, 0)`,
        [id, attempts, dueMs],
      );
    }
    const times = { nowMs, laterMs: 2 * MINUTE_MS, limit: 9, busyAccountIds: [] };
    const claimed = [
      ...(await table.claim({ attempt: 'first', ...times })),
      ...(await table.claim({ attempt: 'repeated', ...times })),
    ];
    assert.deepEqual(
      claimed.map(({ id }) => id),
      ['new', 'repeated'],
    );
    const again = await table.claim({ attempt: 'repeated', ...times });
    assert.deepEqual(again, [], 'a claimed message waits');
  });

  if (fixture.dialect === 'postgres') {
    test('a process whose clock is ahead deletes no recent message, which would be sent again', async () => {
      const store = await fixture.open([...STORE_MIGRATIONS, ...WEBHOOKS_MIGRATIONS]);
      const table = new WebhookTable(store);
      const nowMs = Date.now();
      await store.query(
        `INSERT INTO webhooks_delivery (id, webhook_id, account_id, event, subject, period, body, state,
           attempts, due_ms, created_ms, ended_ms)
         VALUES ('sent', 'wh', 'ada', 'spend.daily', '', 1, '{}', 'delivered', 1, 0, $1, $1)`,
        [nowMs],
      );
      await table.prune(40 * DAY_MS, nowMs + 100 * DAY_MS);
      assert.equal((await table.deliveries('wh', 1, undefined)).length, 1);
    });
  }

  test('a callback has both signatures, and is repeated under the same id', async () => {
    const store = inTimeOfCaller(await fixture.open([...STORE_MIGRATIONS, ...WEBHOOKS_MIGRATIONS]));
    const clock = new TestClock();
    const posts: Parameters<Guard['post']>[] = [];
    const guard = {
      post: async (...post: Parameters<Guard['post']>) => (posts.push(post) === 1 ? 500 : 204),
      check: async () => undefined,
    };
    const { callbacks, ...feature } = webhooksFeature({
      stores: { store, identity: {} as Identity }, // nothing crosses a threshold
      guard: guard as unknown as Guard, // all that is called
      callbackSecret: 'master',
      requireCredit: async () => undefined,
      mailer: undefined,
      serviceName: 'svc',
      clock,
      ids: seededIds(1),
      log: silentLog,
    });
    assert.ok(callbacks !== undefined);
    feature.start?.();
    const url = 'https://caller.example/hook';
    const message = { accountId: 'ada', url, event: 'video.completed', subject: 'job' } as const;
    const add = () => store.transaction((tx) => callbacks.add(tx, { ...message, body: '{}' }));
    assert.deepEqual([await add(), await add()], [true, false]);
    callbacks.nudge();
    await until(() => posts.length === 1, 'the first attempt');
    const attempted = 'SELECT id FROM webhooks_delivery WHERE attempts = 1 AND status = 500';
    await until(async () => (await store.query(attempted)).length === 1, 'its end');
    await until(() => {
      // A claim before the end of the first run delays the second one.
      clock.advance(MINUTE_MS);
      callbacks.nudge();
      return posts.length === 2;
    }, 'the second attempt');
    const [[, first], [address, { headers }]] = posts as [(typeof posts)[0], (typeof posts)[0]];
    assert.equal(address, url);
    assert.equal(first.headers['webhook-id'], headers['webhook-id']);
    const seconds = headers['webhook-timestamp'];
    const secret = callbacks.secretOf('ada');
    assert.match(secret, /^[0-9a-f]{64}$/);
    assert.notEqual(secret, callbacks.secretOf('bob'));
    const key = Buffer.from(secret, 'base64');
    const mac = createHmac('sha256', key).update(`${headers['webhook-id']}.${seconds}.{}`);
    assert.equal(headers['webhook-signature'], `v1,${mac.digest('base64')}`);
    const older = createHmac('sha256', secret).update(`${seconds}.{}`).digest('hex');
    assert.equal(headers['x-svc-signature'], `t=${seconds},v1=${older}`);
    assert.equal(headers['x-svc-event-id'], 'job');
    await feature.close?.();
  });
});
