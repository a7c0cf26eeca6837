/**
 * Stored responses of `POST /responses`, each with the new items of its input. A conversation is a
 * chain of parents.
 */
import type { Migration } from '../../db/db.ts';

export const RESPONSES_MIGRATIONS: readonly Migration[] = [
  {
    id: 'responses-0001',
    up: `
CREATE TABLE responses_turn (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  parent_id TEXT NOT NULL,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL,
  model_id TEXT NOT NULL,
  status TEXT NOT NULL,
  size_bytes BIGINT NOT NULL,
  cost_nano BIGINT NOT NULL,
  input_json TEXT NOT NULL,
  response_json TEXT NOT NULL
);
CREATE INDEX responses_turn_account ON responses_turn (account_id, size_bytes);
CREATE INDEX responses_turn_expiry ON responses_turn (expires_ms);
`,
  },
];
