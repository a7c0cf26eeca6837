/** The table of idempotency: one row for each key of a caller, running or answered. */
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
];
