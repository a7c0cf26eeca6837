/** The tables of accounts and API keys. Of a key's secret only the SHA-256 is stored. */
import type { Migration } from '../db/db.ts';

export const IDENTITY_MIGRATIONS: readonly Migration[] = [
  {
    id: 'identity-0001',
    up: `
CREATE TABLE identity_account (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  plan TEXT NOT NULL,
  disabled BIGINT NOT NULL,
  limits TEXT,
  created_ms BIGINT NOT NULL
);
CREATE TABLE identity_key (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  secret_sha256 TEXT NOT NULL UNIQUE,
  last6 TEXT NOT NULL,
  description TEXT NOT NULL,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT,
  revoked_ms BIGINT,
  last_used_ms BIGINT,
  limit_period TEXT NOT NULL,
  usd_limit_nano BIGINT,
  diem_limit_nano BIGINT,
  model_privacy TEXT NOT NULL,
  models TEXT,
  limits TEXT
);
CREATE INDEX identity_key_account ON identity_key (account_id, created_ms);
`,
  },
];
