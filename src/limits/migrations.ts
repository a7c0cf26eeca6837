/** The tables of limits: the running window of each bucket, and the log of refusals. */
import type { Migration } from '../store/store.ts';

export const LIMITS_MIGRATIONS: readonly Migration[] = [
  {
    id: 'limits-0001',
    up: `
CREATE TABLE limits_window (
  bucket TEXT PRIMARY KEY,
  minute BIGINT NOT NULL,
  requests BIGINT NOT NULL,
  tokens BIGINT NOT NULL,
  request_limit BIGINT NOT NULL,
  token_limit BIGINT NOT NULL
);
CREATE TABLE limits_log (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  model_id TEXT NOT NULL,
  tier TEXT NOT NULL,
  type TEXT NOT NULL,
  created_ms BIGINT NOT NULL
);
CREATE INDEX limits_log_account ON limits_log (account_id, created_ms);
`,
  },
];
