/** The tables of idempotency: one row per caller and key, and the storage sums per account. */
import type { Migration } from '../../db/db.ts';

export const IDEMPOTENCY_MIGRATIONS: readonly Migration[] = [
  {
    id: 'idempotency-0001',
    up: `
CREATE TABLE idempotency_entry (
  caller TEXT NOT NULL,
  entry_key TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  token TEXT NOT NULL,
  state TEXT NOT NULL,
  expires_ms BIGINT NOT NULL,
  status BIGINT,
  headers TEXT,
  body BYTEA,
  PRIMARY KEY (caller, entry_key)
);
CREATE INDEX idempotency_entry_expiry ON idempotency_entry (expires_ms);
`,
  },
  {
    // An entry of an earlier version has no account: it is not counted, and expires within a day.
    id: 'idempotency-0002',
    up: `
ALTER TABLE idempotency_entry ADD COLUMN account_id TEXT NOT NULL DEFAULT '';
ALTER TABLE idempotency_entry ADD COLUMN kept_bytes BIGINT NOT NULL DEFAULT 0;
ALTER TABLE idempotency_entry ADD COLUMN paid_nano BIGINT NOT NULL DEFAULT 0;
CREATE INDEX idempotency_entry_account ON idempotency_entry (account_id, expires_ms);
CREATE TABLE idempotency_hour (
  account_id TEXT NOT NULL,
  hour BIGINT NOT NULL,
  kept_bytes BIGINT NOT NULL,
  paid_nano BIGINT NOT NULL,
  PRIMARY KEY (account_id, hour)
);
CREATE INDEX idempotency_hour_hour ON idempotency_hour (hour);
`,
  },
];
