/** The steps of `migrations.ts` about costs of the operator. */
import type { Migration } from '../../db/db.ts';

const COST_COLUMNS = `ALTER TABLE ledger_usage ADD COLUMN cost_nano BIGINT;
ALTER TABLE ledger_usage ADD COLUMN cost_lines TEXT;`;
const DAY_SUMS = `account_id, day, key_id, model_id, requests, errors, prompt_tokens, completion_tokens,
  usd_nano, diem_nano, refunded_usd_nano, refunded_diem_nano`;

export const COST_MIGRATIONS: readonly Migration[] = [
  {
    // The cost at the prices of the supplier, and daily sums by engine; the engine of older sums is
    // not known. In SQLite the rows of a day are beside each other, so that reports of all accounts
    // read them in order.
    id: 'ledger-0023',
    up: {
      sqlite: `${COST_COLUMNS}
CREATE TABLE ledger_usage_day_next (
  account_id TEXT NOT NULL,
  day BIGINT NOT NULL,
  key_id TEXT NOT NULL,
  model_id TEXT NOT NULL,
  engine TEXT NOT NULL,
  requests BIGINT NOT NULL,
  errors BIGINT NOT NULL DEFAULT 0,
  prompt_tokens BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  usd_nano BIGINT NOT NULL,
  diem_nano BIGINT NOT NULL,
  refunded_usd_nano BIGINT NOT NULL DEFAULT 0,
  refunded_diem_nano BIGINT NOT NULL DEFAULT 0,
  cost_nano BIGINT,
  PRIMARY KEY (day, model_id, engine, account_id, key_id)
) WITHOUT ROWID;
INSERT INTO ledger_usage_day_next (${DAY_SUMS}, engine) SELECT ${DAY_SUMS}, '' FROM ledger_usage_day;
DROP TABLE ledger_usage_day;
ALTER TABLE ledger_usage_day_next RENAME TO ledger_usage_day;
CREATE INDEX ledger_usage_day_account ON ledger_usage_day (account_id, day);`,
      postgres: `${COST_COLUMNS}
ALTER TABLE ledger_usage_day ADD COLUMN engine TEXT NOT NULL DEFAULT '';
ALTER TABLE ledger_usage_day ADD COLUMN cost_nano BIGINT;
ALTER TABLE ledger_usage_day DROP CONSTRAINT ledger_usage_day_pkey;
ALTER TABLE ledger_usage_day ADD PRIMARY KEY (account_id, day, key_id, model_id, engine);`,
    },
  },
];
