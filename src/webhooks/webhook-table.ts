/**
 * The only access to `webhooks_webhook` and `webhooks_delivery`. A crossing is queued once: the key of a
 * delivery is the subject and the period of the crossing, and a balance changes its state by a conditional
 * UPDATE in the transaction of its delivery. `due_ms` is in the time of the database (`now_ms`), so that a
 * process with a wrong clock delays no delivery.
 */
import { MINUTE_MS } from '../core/clock.ts';
import { type Queryable, type Store, oneAtATime, placesFrom } from '../db/db.ts';
import {
  DELIVERY_COLUMNS,
  type Delivery,
  type NewDelivery,
  WEBHOOK_COLUMNS,
  type Webhook,
  deliveryOf,
  webhookOf,
} from './webhook.ts';

/** Concurrent deliveries of one account, so that its slow addresses do not delay others. */
const DUE_PER_ACCOUNT = 4;
const LIFETIME_PERIOD = 0;
/** Pause of a message that has failed several times. */
const LONGEST_PAUSE_MS = 1_024 * MINUTE_MS;
/** A later time was written before the clock was set back. `$1`: now. */
const IS_DUE = `due_ms > 0 AND (due_ms <= now_ms($1) OR due_ms > now_ms($1) + ${LONGEST_PAUSE_MS})`;

export interface Attempted {
  readonly state: Delivery['state'];
  readonly dueMs: number;
  readonly endedMs: number;
  readonly status: number | undefined;
  readonly problem: string | undefined;
}

export interface Claim {
  readonly attempt: 'first' | 'repeated';
  readonly nowMs: number;
  /** A claimed delivery is due again after this time. */
  readonly laterMs: number;
  readonly limit: number;
  /** Accounts with running deliveries. */
  readonly busyAccountIds: readonly string[];
}

export interface DeliveryPlace {
  readonly createdMs: number;
  readonly id: string;
}

export class WebhookTable {
  readonly #store: Store;

  constructor(store: Store) {
    this.#store = store;
  }

  /** Inserts a webhook unless its account already has `limit`; returns whether it did. */
  async insert(webhook: Webhook, limit: number): Promise<boolean> {
    return await this.#store.transaction(async (tx) => {
      await oneAtATime(tx, this.#store.dialect, `webhooks_webhook ${webhook.accountId}`);
      const rows = await tx.query(
        `INSERT INTO webhooks_webhook (id, account_id, url, secret, balance_nano, key_percent,
           budget_percent, daily_nano, is_low, times_low, is_paused, created_ms)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, 0, 0, 0, $9
         WHERE $10 > (SELECT count(*) FROM webhooks_webhook WHERE account_id = $2) RETURNING id`,
        [
          webhook.id,
          webhook.accountId,
          webhook.url,
          webhook.secret,
          webhook.balanceNano ?? null,
          webhook.keyPercent ?? null,
          webhook.budgetPercent ?? null,
          webhook.dailyNano ?? null,
          webhook.createdMs,
          limit,
        ],
      );
      return rows.length === 1;
    });
  }

  async count(accountId: string): Promise<number> {
    const [row] = await this.#store.query<{ total: bigint }>(
      'SELECT count(*) AS total FROM webhooks_webhook WHERE account_id = $1',
      [accountId],
    );
    return Number(row?.total ?? 0n);
  }

  async list(accountId: string, tx: Queryable = this.#store): Promise<Webhook[]> {
    const rows = await tx.query(
      `SELECT ${WEBHOOK_COLUMNS} FROM webhooks_webhook WHERE account_id = $1
       ORDER BY created_ms DESC, id DESC`,
      [accountId],
    );
    return rows.map(webhookOf);
  }

  async find(accountId: string, id: string): Promise<Webhook | undefined> {
    const webhook = await this.byId(id);
    return webhook?.accountId === accountId ? webhook : undefined;
  }

  async byId(id: string): Promise<Webhook | undefined> {
    const sql = `SELECT ${WEBHOOK_COLUMNS} FROM webhooks_webhook WHERE id = $1`;
    return (await this.#store.query(sql, [id])).map(webhookOf)[0];
  }

  /** Changes a webhook under a row lock; returns `undefined` if it does not exist. */
  async change(
    accountId: string,
    id: string,
    change: (webhook: Webhook) => Webhook,
  ): Promise<Webhook | undefined> {
    return await this.#store.transaction(async (tx) => {
      const [row] = await tx.query(
        `UPDATE webhooks_webhook SET url = url WHERE account_id = $1 AND id = $2
         RETURNING ${WEBHOOK_COLUMNS}`,
        [accountId, id],
      );
      if (row === undefined) return undefined;
      const after = change(webhookOf(row));
      await tx.query(
        `UPDATE webhooks_webhook SET url = $2, secret = $3, old_secret = $4,
         old_secret_until_ms = $5, balance_nano = $6, key_percent = $7, budget_percent = $8,
         daily_nano = $9, is_low = $10, is_paused = $11 WHERE id = $1`,
        [
          id,
          after.url,
          after.secret,
          after.oldSecret ?? null,
          after.oldSecretUntilMs ?? null,
          after.balanceNano ?? null,
          after.keyPercent ?? null,
          after.budgetPercent ?? null,
          after.dailyNano ?? null,
          after.isLow ? 1 : 0,
          after.isPaused ? 1 : 0,
        ],
      );
      return after;
    });
  }

  /** Deletes a webhook and its deliveries; returns `false` if it does not exist. */
  async remove(accountId: string, id: string): Promise<boolean> {
    return await this.#store.transaction(async (tx) => {
      const rows = await tx.query(
        'DELETE FROM webhooks_webhook WHERE account_id = $1 AND id = $2 RETURNING id',
        [accountId, id],
      );
      if (rows.length === 0) return false;
      await tx.query('DELETE FROM webhooks_delivery WHERE webhook_id = $1', [id]);
      return true;
    });
  }

  /** Webhooks of all accounts that are not paused, by id, after `afterId`. */
  async page(afterId: string, limit: number): Promise<Webhook[]> {
    const rows = await this.#store.query(
      `SELECT ${WEBHOOK_COLUMNS} FROM webhooks_webhook WHERE id > $1 AND is_paused = 0
       ORDER BY id LIMIT $2`,
      [afterId, limit],
    );
    return rows.map(webhookOf);
  }

  /** The webhooks with at least `least` waiting messages. */
  async withQueue(webhooks: readonly Webhook[], least: number): Promise<ReadonlySet<string>> {
    if (webhooks.length === 0) return new Set();
    const rows = await this.#store.query<{ webhook_id: string }>(
      `SELECT webhook_id FROM webhooks_delivery
       WHERE due_ms > 0 AND webhook_id IN (${placesFrom(2, webhooks)})
       GROUP BY webhook_id HAVING count(*) >= $1`,
      [least, ...webhooks.map(({ id }) => id)],
    );
    return new Set(rows.map((row) => row.webhook_id));
  }

  /** Queues a message for a balance below the threshold, unless another process has. */
  async fell(webhook: Webhook, delivery: NewDelivery): Promise<void> {
    await this.#store.transaction(async (tx) => {
      const rows = await tx.query(
        `UPDATE webhooks_webhook SET is_low = 1, times_low = times_low + 1
         WHERE id = $1 AND is_low = 0 AND times_low = $2 RETURNING id`,
        [webhook.id, webhook.timesLow],
      );
      if (rows.length === 1) await this.add(delivery, tx);
    });
  }

  /** Records that the balance is above the threshold again. */
  async rose(id: string): Promise<void> {
    await this.#store.query('UPDATE webhooks_webhook SET is_low = 0 WHERE id = $1 AND is_low = 1', [
      id,
    ]);
  }

  /** Queues a delivery once for each crossing; returns whether it was new. */
  async add(delivery: NewDelivery, tx: Queryable = this.#store): Promise<boolean> {
    const { id, webhookId, accountId, event, subject, period, body, createdMs, url } = delivery;
    const rows = await tx.query(
      `INSERT INTO webhooks_delivery (id, webhook_id, account_id, event, subject, period, body, state,
         attempts, due_ms, created_ms, ended_ms, url)
       SELECT $1, $2, $3, $4, $5, $6, $7, 'pending', 0, now_ms($8), $8, 0, $9
       WHERE $2 = '' OR EXISTS (SELECT 1 FROM webhooks_webhook WHERE id = $2)
       ON CONFLICT (webhook_id, event, subject, period) DO NOTHING RETURNING id`,
      [id, webhookId, accountId, event, subject, period, body, createdMs, url ?? null],
    );
    return rows.length === 1;
  }

  /**
   * The keys (`crossingKey`) of crossings of one webhook and event that were queued before. Updates
   * `seen_ms` of those without a period if it is older than `seenMs`.
   */
  async queued(
    crossings: readonly Crossing[],
    nowMs: number,
    seenMs: number,
  ): Promise<ReadonlySet<string>> {
    const [first] = crossings;
    if (first === undefined) return new Set();
    const periods = [...new Set(crossings.map(({ period }) => period))];
    const subjects = [...new Set(crossings.map(({ subject }) => subject))];
    const rows = await this.#store.query<{
      id: string;
      subject: string;
      period: bigint;
      seen_ms: bigint;
    }>(
      `SELECT id, subject, period, seen_ms FROM webhooks_delivery WHERE webhook_id = $1 AND event = $2
       AND period IN (${placesFrom(3, periods)})
       AND subject IN (${placesFrom(3 + periods.length, subjects)})`,
      [first.webhookId, first.event, ...periods, ...subjects],
    );
    const stale = rows.filter(
      ({ period, seen_ms }) => Number(period) === LIFETIME_PERIOD && Number(seen_ms) < seenMs,
    );
    if (stale.length > 0) {
      await this.#store.query(
        `UPDATE webhooks_delivery SET seen_ms = $1 WHERE id IN (${placesFrom(2, stale)})`,
        [nowMs, ...stale.map(({ id }) => id)],
      );
    }
    return new Set(
      rows.map(({ subject, period }) => crossingKey({ subject, period: Number(period) })),
    );
  }

  /** Claims deliveries that are due. Each is due again later, so that it is repeated after a crash. */
  async claim({ attempt, nowMs, laterMs, limit, busyAccountIds }: Claim): Promise<Delivery[]> {
    if (limit <= 0) return [];
    const isTurn = `attempts ${attempt === 'first' ? '= 0' : '> 0'}`;
    const isFree =
      busyAccountIds.length === 0 ? '' : `AND account_id NOT IN (${placesFrom(5, busyAccountIds)})`;
    const rows = await this.#store.query(
      `UPDATE webhooks_delivery SET attempts = attempts + 1, due_ms = now_ms($1) + $2
       WHERE ${IS_DUE} AND id IN (
         SELECT id FROM (
           SELECT id, due_ms, row_number() OVER (PARTITION BY account_id ORDER BY due_ms, id) AS place
           FROM webhooks_delivery
           WHERE ${IS_DUE} AND ${isTurn} ${isFree}) AS due
         WHERE place <= $3 ORDER BY place, due_ms LIMIT $4)
       RETURNING ${DELIVERY_COLUMNS}`,
      [nowMs, laterMs, DUE_PER_ACCOUNT, limit, ...busyAccountIds],
    );
    return rows.map(deliveryOf);
  }

  /** Delays the repetition of an attempt that still runs. */
  async extend(id: string, nowMs: number, laterMs: number): Promise<void> {
    await this.#store.query(
      `UPDATE webhooks_delivery SET due_ms = now_ms($2) + $3
       WHERE id = $1 AND due_ms > 0 AND due_ms < now_ms($2) + $3`,
      [id, nowMs, laterMs],
    );
  }

  /** Claims one delivery; returns `undefined` if another process has it. */
  async claimOne(id: string, nowMs: number, laterMs: number): Promise<Delivery | undefined> {
    const rows = await this.#store.query(
      `UPDATE webhooks_delivery SET attempts = attempts + 1, due_ms = now_ms($2) + $3
       WHERE id = $1 AND due_ms > 0 AND due_ms <= now_ms($2) RETURNING ${DELIVERY_COLUMNS}`,
      [id, nowMs, laterMs],
    );
    return rows.map(deliveryOf)[0];
  }

  /** `nowMs` is in the same time as the times of the attempt. */
  async attempted(
    id: string,
    nowMs: number,
    { state, dueMs, endedMs, status, problem }: Attempted,
  ): Promise<void> {
    await this.#store.query(
      // The body of an invitation contains its link, which is not kept after the message.
      `UPDATE webhooks_delivery SET state = $2, ended_ms = $4, status = $5, problem = $6,
         due_ms = CASE WHEN CAST($3 AS BIGINT) = 0 THEN 0 ELSE now_ms($7) - $7 + $3 END,
         body = CASE WHEN event = 'member.invited' AND $2 <> 'pending' THEN '{}' ELSE body END
       WHERE id = $1 AND state = 'pending'`,
      [id, state, dueMs, endedMs, status ?? null, problem ?? null, nowMs],
    );
  }

  /** Ends the waiting messages of a webhook. */
  async endWaiting(webhookId: string, nowMs: number, problem: string): Promise<void> {
    await this.#store.query(
      `UPDATE webhooks_delivery SET state = 'failed', due_ms = 0, ended_ms = $2, problem = $3
       WHERE webhook_id = $1 AND state = 'pending'`,
      [webhookId, nowMs, problem],
    );
  }

  /** Deletes a delivery whose webhook was deleted. */
  async forget(id: string): Promise<void> {
    await this.#store.query('DELETE FROM webhooks_delivery WHERE id = $1', [id]);
  }

  /** The deliveries of a webhook, newest first, after a place. */
  async deliveries(
    webhookId: string,
    limit: number,
    after: DeliveryPlace | undefined,
  ): Promise<Delivery[]> {
    const beyond = after === undefined ? '' : 'AND (created_ms, id) < ($3, $4)';
    const rows = await this.#store.query(
      `SELECT ${DELIVERY_COLUMNS} FROM webhooks_delivery WHERE webhook_id = $1 ${beyond}
       ORDER BY created_ms DESC, id DESC LIMIT $2`,
      [webhookId, limit, ...(after === undefined ? [] : [after.createdMs, after.id])],
    );
    return rows.map(deliveryOf);
  }

  /**
   * Deletes deliveries that ended `keptMs` ago; those without a period only if their cap was not seen
   * above the threshold since, and not while the webhook is paused.
   */
  async prune(keptMs: number, nowMs: number): Promise<void> {
    await this.#store.query(
      `DELETE FROM webhooks_delivery WHERE ended_ms > 0 AND ended_ms < now_ms($1) - $2 AND (period <> $3 OR
         (seen_ms < now_ms($1) - $2 AND webhook_id NOT IN (SELECT id FROM webhooks_webhook WHERE is_paused = 1)))`,
      [nowMs, keptMs, LIFETIME_PERIOD],
    );
  }
}

type Crossing = Pick<NewDelivery, 'webhookId' | 'event' | 'subject' | 'period'>;

export function crossingKey({ subject, period }: Pick<Crossing, 'subject' | 'period'>): string {
  return `${subject} ${period}`;
}
