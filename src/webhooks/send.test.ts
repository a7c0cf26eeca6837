import assert from 'node:assert/strict';
import { test } from 'node:test';
import { onEachStore } from '../../test/databases/stores.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { systemClock } from '../core/clock.ts';
import { silentLog } from '../core/log.ts';
import { STORE_MIGRATIONS } from '../db/db.ts';
import { WEBHOOKS_MIGRATIONS } from './migrations.ts';
import { sendDue } from './send.ts';
import { type Webhook, newSecret } from './webhook.ts';
import { WebhookTable } from './webhook-table.ts';

/** More than are sent at once. */
const DEAF_ACCOUNTS = 40;
const MESSAGES = 9;

onEachStore('sending webhooks', (fixture) => {
  test('addresses that never answer hold up neither other accounts nor first attempts', async () => {
    const store = await fixture.open([...STORE_MIGRATIONS, ...WEBHOOKS_MIGRATIONS]);
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
        await table.attempted(id, { ...failed, dueMs: 1 + period });
      }
    }
    for (let at = 0; at < DEAF_ACCOUNTS; at += 1)
      await add(await open(`deaf_${at}`, 'https://deaf.example/'), 1, 1);
    const partlyDeaf = await open('deaf_first', 'https://deaf.example/');
    await add(partlyDeaf, MESSAGES, 0);
    const live = await open('live', 'https://live.example/');
    await add(live, MESSAGES, 0);

    const aborter = new AbortController();
    let deaf = 0;
    const guard = {
      async post(url: string) {
        if (url === live.url) return 204;
        deaf += 1;
        aborter.signal.throwIfAborted();
        return await new Promise<number>((_answered, failed) => {
          aborter.signal.addEventListener('abort', () => failed(new Error('The server ends')));
        });
      },
    };
    const round = sendDue(
      { table, guard, clock, log: silentLog },
      ({ accountId, webhookId }) => table.find(accountId, webhookId),
      aborter.signal,
    );
    const states = async (webhook: Webhook) =>
      (await table.deliveries(webhook.id, 100, undefined)).map(({ state }) => state);
    const isDelivered = (state: string): boolean => state === 'delivered';
    const endMs = clock.monotonicMs() + 60_000;
    while (!(await states(live)).every(isDelivered) && clock.monotonicMs() < endMs)
      await clock.sleep(10);
    // Of an account some at once, and of repeated ones as many as there are places.
    assert.ok(deaf <= 4 + 32, `${deaf} wait for their addresses`);
    aborter.abort();
    await round;
    assert.deepEqual(new Set(await states(live)), new Set(['delivered']));
    assert.deepEqual(new Set(await states(partlyDeaf)), new Set(['pending']));
  });

  test('a message whose webhook is gone is not tried for ever', async () => {
    const store = await fixture.open([...STORE_MIGRATIONS, ...WEBHOOKS_MIGRATIONS]);
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
    const find = () => Promise.resolve(undefined);
    await sendDue({ table, guard, clock, log: silentLog }, find, new AbortController().signal);
    assert.deepEqual(await table.deliveries('wh_gone', 9, undefined), []);
  });
});
