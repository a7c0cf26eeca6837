/**
 * The tables of webhooks. A row of `webhooks_delivery` is a crossing, once per period, and its message; one
 * of several processes inserts it.
 */
import type { Migration } from '../db/db.ts';

export const WEBHOOKS_MIGRATIONS: readonly Migration[] = [
  {
    id: 'webhooks-0001',
    up: `
CREATE TABLE webhooks_webhook (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  url TEXT NOT NULL,
  secret TEXT NOT NULL,
  balance_nano BIGINT,
  key_percent BIGINT,
  daily_nano BIGINT,
  is_low BIGINT NOT NULL,
  times_low BIGINT NOT NULL,
  created_ms BIGINT NOT NULL
);
CREATE INDEX webhooks_webhook_account ON webhooks_webhook (account_id, created_ms, id);
CREATE TABLE webhooks_delivery (
  id TEXT PRIMARY KEY,
  webhook_id TEXT NOT NULL,
  account_id TEXT NOT NULL,
  event TEXT NOT NULL,
  subject TEXT NOT NULL,
  period BIGINT NOT NULL,
  body TEXT NOT NULL,
  state TEXT NOT NULL,
  attempts BIGINT NOT NULL,
  due_ms BIGINT NOT NULL,
  status BIGINT,
  problem TEXT,
  created_ms BIGINT NOT NULL,
  ended_ms BIGINT NOT NULL,
  UNIQUE (webhook_id, event, subject, period)
);
CREATE INDEX webhooks_delivery_list ON webhooks_delivery (webhook_id, created_ms, id);
CREATE INDEX webhooks_delivery_due ON webhooks_delivery (due_ms) WHERE due_ms > 0;
CREATE INDEX webhooks_delivery_ended ON webhooks_delivery (ended_ms);
`,
  },
  {
    // The threshold of budgets, and the previous secret.
    id: 'webhooks-0002',
    up: `
ALTER TABLE webhooks_webhook ADD COLUMN budget_percent BIGINT;
ALTER TABLE webhooks_webhook ADD COLUMN old_secret TEXT;
ALTER TABLE webhooks_webhook ADD COLUMN old_secret_until_ms BIGINT;`,
  },
  {
    // Pausing.
    id: 'webhooks-0003',
    up: 'ALTER TABLE webhooks_webhook ADD COLUMN is_paused BIGINT NOT NULL DEFAULT 0;',
  },
  {
    // Time at which a cap without a period was last seen above its threshold.
    id: 'webhooks-0004',
    up: 'ALTER TABLE webhooks_delivery ADD COLUMN seen_ms BIGINT NOT NULL DEFAULT 0;',
  },
  {
    // For counting waiting messages.
    id: 'webhooks-0005',
    up: 'CREATE INDEX webhooks_delivery_waiting ON webhooks_delivery (webhook_id) WHERE due_ms > 0;',
  },
  {
    // The URL of a callback.
    id: 'webhooks-0006',
    up: 'ALTER TABLE webhooks_delivery ADD COLUMN url TEXT;',
  },
];
