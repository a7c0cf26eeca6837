import assert from 'node:assert/strict';
import { test } from 'node:test';
import { inTimeOfCaller, onEachStore } from '../../test/databases/stores.ts';
import { seededIds } from '../../test/support/seeded-ids.ts';
import { TestClock } from '../../test/support/test-clock.ts';
import { LEDGER_MIGRATIONS } from '../billing/ledger/ledger.ts';
import { DAY_MS } from '../core/clock.ts';
import { STORE_MIGRATIONS } from '../db/db.ts';
import type { Budget } from '../identity/identity.ts';
import { type CapPlaces, findCrossings } from './crossings.ts';
import { WEBHOOKS_MIGRATIONS } from './migrations.ts';
import { type Webhook, newSecret } from './webhook.ts';
import { WebhookTable } from './webhook-table.ts';

/** Tag values that have used their budget: more than one round delivers. */
const VALUES = 1_150;

onEachStore('crossings', (fixture) => {
  test('an account with many used caps delays no other account, and receives each event once', async () => {
    const store = inTimeOfCaller(
      await fixture.open([...STORE_MIGRATIONS, ...LEDGER_MIGRATIONS, ...WEBHOOKS_MIGRATIONS]),
    );
    const table = new WebhookTable(store);
    const ids = seededIds(1);
    const clock = new TestClock();
    const identity = {
      findKey: async () => undefined,
      budgets: async (accountId: string): Promise<Budget[]> => {
        // Only its id and tag are used.
        return [{ id: `budget_${accountId}`, accountId, tag: 'user' } as unknown as Budget];
      },
    };
    async function open(accountId: string, values: number): Promise<Webhook> {
      const webhook: Webhook = {
        id: `wh_${accountId}`,
        accountId,
        url: 'https://receiver.example/',
        secret: newSecret(ids),
        oldSecret: undefined,
        oldSecretUntilMs: undefined,
        balanceNano: undefined,
        keyPercent: undefined,
        budgetPercent: 100,
        dailyNano: undefined,
        isLow: false,
        timesLow: 0,
        isPaused: false,
        createdMs: 1,
      };
      assert.ok(await table.insert(webhook, 10));
      const ends = `budget_${accountId}:`;
      await store.transaction(async (tx) => {
        for (let at = 0; at < values; at += 1) {
          await tx.query(
            `INSERT INTO ledger_allowance (id, account_id, period, period_start_ms, usd_limit_nano,
               diem_limit_nano, usd_spent_nano, usd_held_nano, diem_spent_nano, diem_held_nano,
               budget_id, tag_value)
             VALUES ($1, $2, 'LIFETIME', 0, 5, NULL, 5, 0, 0, 0, $3, $4)`,
            [`${ends}${String(at).padStart(5, '0')}`, accountId, `budget_${accountId}`, `${at}`],
          );
        }
      });
      return webhook;
    }
    const crowded = await open('crowded', VALUES);
    const quiet = await open('quiet', 2);
    const told = async ({ id }: Webhook) => (await table.deliveries(id, 10_000, undefined)).length;
    let places: CapPlaces = new Map();
    const round = async () => {
      places = await findCrossings({ table, store, identity, clock, ids }, places);
    };

    await round();
    assert.equal(await told(quiet), 2);
    const first = await told(crowded);
    assert.ok(first >= 900 && first <= 1_100, String(first));
    await round();
    assert.equal(await told(crowded), VALUES);
    assert.equal(places.size, 0);
    // Waiting messages of an unreachable address do not accumulate.
    const slow = await open('slow', 3);
    await store.transaction((tx) =>
      tx.query(
        `WITH RECURSIVE n(at) AS (SELECT 1 UNION ALL SELECT at + 1 FROM n WHERE at < 2000)
         INSERT INTO webhooks_delivery (id, webhook_id, account_id, event, subject, period, body,
           state, attempts, due_ms, created_ms, ended_ms)
         SELECT 'waits ' || at, $1, 'slow', 'budget.limit_reached', 'waits ' || at, 1, '{}',
           'pending', 1, 1, 1, 0 FROM n`,
        [slow.id],
      ),
    );
    await round();
    assert.equal(await told(slow), 2_000);
    await store.query("DELETE FROM webhooks_delivery WHERE subject = 'waits 1'");
    await round();
    assert.equal(await told(slow), 1_999 + 3);
    await table.remove('slow', slow.id);

    // Delivered crossings of a cap without a period are stored as long as the cap exists.
    await store.query(
      "UPDATE webhooks_delivery SET state = 'delivered', due_ms = 0, ended_ms = $1",
      [clock.nowMs()],
    );
    const month = async () => {
      clock.advance(30 * DAY_MS);
      await round();
      await table.prune(40 * DAY_MS, clock.nowMs());
    };
    for (let at = 0; at < 3; at += 1) await month();
    assert.deepEqual([await told(crowded), await told(quiet)], [VALUES, 2]);
    await table.change('quiet', quiet.id, (webhook) => ({ ...webhook, isPaused: true }));
    await store.query('DELETE FROM ledger_allowance WHERE account_id = $1', ['crowded']);
    for (let at = 0; at < 3; at += 1) await month();
    assert.deepEqual([await told(crowded), await told(quiet)], [0, 2]);
    await table.change('quiet', quiet.id, (webhook) => ({ ...webhook, isPaused: false }));
    await month();
    assert.equal(await told(quiet), 2);
  });
});
