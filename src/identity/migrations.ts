/** The tables of accounts, keys, sessions, sign-in links and members. Secrets are stored as SHA-256. */
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
  {
    // Marks the account whose ADMIN keys manage the service; before, the first account of the first
    // start.
    id: 'identity-0002',
    up: `
ALTER TABLE identity_account ADD COLUMN is_operator BIGINT NOT NULL DEFAULT 0;
UPDATE identity_account SET is_operator = 1 WHERE id = (
  SELECT id FROM identity_account WHERE plan = 'staff' AND id NOT LIKE 'wallet:%'
  ORDER BY created_ms, id LIMIT 1);
CREATE TABLE identity_session (
  id TEXT PRIMARY KEY,
  secret_sha256 TEXT NOT NULL UNIQUE,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  wallet TEXT NOT NULL,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL,
  last_used_ms BIGINT NOT NULL,
  user_agent TEXT NOT NULL,
  address TEXT NOT NULL
);
CREATE INDEX identity_session_owner ON identity_session (account_id, key_id, created_ms);
CREATE INDEX identity_session_end ON identity_session (expires_ms);
CREATE TABLE identity_sign_in_link (
  secret_sha256 TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  expires_ms BIGINT NOT NULL
);
`,
  },
  {
    // For lists of many accounts, and for lookup by name.
    id: 'identity-0003',
    up: `
CREATE INDEX identity_account_created ON identity_account (created_ms, id);
CREATE INDEX identity_account_name ON identity_account (name);
`,
  },
  {
    // Child keys, and budgets.
    id: 'identity-0004',
    up: `
ALTER TABLE identity_key ADD COLUMN parent_id TEXT;
CREATE TABLE identity_budget (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  tag TEXT,
  value TEXT,
  period TEXT NOT NULL,
  usd_nano BIGINT NOT NULL,
  created_ms BIGINT NOT NULL
);
CREATE INDEX identity_budget_account ON identity_budget (account_id, created_ms);
`,
  },
  {
    // An account can have many revoked or expired keys; active ones are few.
    id: 'identity-0005',
    up: `
CREATE INDEX identity_key_listed ON identity_key (account_id, revoked_ms, created_ms, id, expires_ms);
CREATE INDEX identity_key_parent ON identity_key (account_id, parent_id, revoked_ms, created_ms)
  WHERE parent_id IS NOT NULL;
`,
  },
  {
    // Members of accounts, who sign in through a provider.
    id: 'identity-0006',
    up: `
CREATE TABLE identity_member (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL UNIQUE,
  issuer TEXT NOT NULL,
  subject TEXT NOT NULL,
  email TEXT NOT NULL,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  source TEXT NOT NULL,
  is_role_set BIGINT NOT NULL,
  created_ms BIGINT NOT NULL,
  last_sign_in_ms BIGINT NOT NULL
);
CREATE UNIQUE INDEX identity_member_person ON identity_member (issuer, subject, account_id);
CREATE INDEX identity_member_account ON identity_member (account_id, created_ms, id);
CREATE TABLE identity_invitation (
  id TEXT PRIMARY KEY,
  secret_sha256 TEXT NOT NULL UNIQUE,
  account_id TEXT NOT NULL,
  role TEXT NOT NULL,
  email TEXT NOT NULL,
  created_by TEXT NOT NULL,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL
);
CREATE INDEX identity_invitation_account ON identity_invitation (account_id, created_ms);
CREATE INDEX identity_invitation_end ON identity_invitation (expires_ms);
ALTER TABLE identity_session ADD COLUMN provider TEXT NOT NULL DEFAULT '';
ALTER TABLE identity_session ADD COLUMN id_token TEXT NOT NULL DEFAULT '';
`,
  },
  {
    // Own prices of an account as JSON; null for those of its plan.
    id: 'identity-0007',
    up: `
ALTER TABLE identity_account ADD COLUMN prices TEXT;
CREATE INDEX identity_account_priced ON identity_account (id) WHERE prices IS NOT NULL;
`,
  },
];
