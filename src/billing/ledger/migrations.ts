/**
 * The tables of money. Amounts are nano-USD. A transfer moves one amount from a debited to a
 * credited account, so every posting is balanced by construction. House accounts (`house:…`) have
 * no stored balance: the audit derives it, and a shared row would be a lock contention point.
 */
import type { Migration } from '../../db/db.ts';
import { COST_MIGRATIONS } from './cost-migrations.ts';
import { REPORT_MIGRATIONS } from './report-sums.ts';

const HOLD_COLUMNS = `
  request_id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  allowance_id TEXT,
  allowance_start_ms BIGINT NOT NULL,
  usd_nano BIGINT NOT NULL,
  daily_nano BIGINT NOT NULL,
  daily_day BIGINT NOT NULL,
  epoch_id TEXT NOT NULL,
  created_ms BIGINT NOT NULL`;

const ACCOUNTS = `
CREATE TABLE ledger_account (
  id TEXT PRIMARY KEY,
  balance_nano BIGINT NOT NULL CHECK (balance_nano >= 0),
  held_nano BIGINT NOT NULL CHECK (held_nano >= 0),
  daily_allocation_nano BIGINT NOT NULL,
  daily_day BIGINT NOT NULL,
  daily_spent_nano BIGINT NOT NULL CHECK (daily_spent_nano >= 0),
  daily_held_nano BIGINT NOT NULL CHECK (daily_held_nano >= 0),
  created_ms BIGINT NOT NULL
);
CREATE TABLE ledger_allowance (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  period TEXT NOT NULL,
  period_start_ms BIGINT NOT NULL,
  usd_limit_nano BIGINT,
  diem_limit_nano BIGINT,
  usd_spent_nano BIGINT NOT NULL,
  usd_held_nano BIGINT NOT NULL,
  diem_spent_nano BIGINT NOT NULL,
  diem_held_nano BIGINT NOT NULL
);
CREATE TABLE ledger_hold (${HOLD_COLUMNS}
);
CREATE INDEX ledger_hold_epoch ON ledger_hold (epoch_id);
CREATE TABLE ledger_epoch (
  id TEXT PRIMARY KEY,
  started_ms BIGINT NOT NULL,
  heartbeat_ms BIGINT NOT NULL
);
`;

const TRANSFER_FIELDS = `
  id TEXT NOT NULL,
  part BIGINT NOT NULL,
  day BIGINT NOT NULL,
  account_id TEXT NOT NULL,
  debit_account TEXT NOT NULL,
  credit_account TEXT NOT NULL,
  amount_nano BIGINT NOT NULL CHECK (amount_nano > 0),
  balance_after_nano BIGINT NOT NULL,
  kind TEXT NOT NULL,
  request_id TEXT,
  model_id TEXT,
  note TEXT,
  created_ms BIGINT NOT NULL`;
const TRANSFER_COLUMNS = `${TRANSFER_FIELDS},
  PRIMARY KEY (id, part, day)`;

const USAGE_COLUMNS = `
  request_id TEXT NOT NULL,
  day BIGINT NOT NULL,
  created_ms BIGINT NOT NULL,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  model_id TEXT NOT NULL,
  replica TEXT,
  attempts BIGINT NOT NULL,
  prompt_tokens BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  cached_tokens BIGINT NOT NULL,
  cache_write_tokens BIGINT NOT NULL,
  reasoning_tokens BIGINT NOT NULL,
  counted_by TEXT NOT NULL,
  price_version TEXT NOT NULL,
  usd_nano BIGINT NOT NULL,
  diem_nano BIGINT NOT NULL,
  latency_ms BIGINT NOT NULL,
  first_token_ms BIGINT,
  status TEXT NOT NULL,
  extras TEXT,
  PRIMARY KEY (request_id, day)`;

/** Sums of the postings and usage of dropped days, which keep the audit exact. */
const CARRY = `
CREATE TABLE ledger_carry (
  account_id TEXT PRIMARY KEY,
  credited_nano BIGINT NOT NULL,
  debited_nano BIGINT NOT NULL,
  charged_nano BIGINT NOT NULL,
  used_nano BIGINT NOT NULL,
  transfers BIGINT NOT NULL
);
CREATE TABLE ledger_kept_from (
  rows_of TEXT PRIMARY KEY,
  day BIGINT NOT NULL
);
`;

const INDEXES = `
CREATE INDEX ledger_transfer_account ON ledger_transfer (account_id, created_ms);
CREATE INDEX ledger_usage_account ON ledger_usage (account_id, created_ms);
CREATE TABLE ledger_usage_day (
  account_id TEXT NOT NULL,
  day BIGINT NOT NULL,
  key_id TEXT NOT NULL,
  model_id TEXT NOT NULL,
  requests BIGINT NOT NULL,
  prompt_tokens BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  usd_nano BIGINT NOT NULL,
  diem_nano BIGINT NOT NULL,
  PRIMARY KEY (account_id, day, key_id, model_id)
);
`;

const BUDGET_COLUMNS = `
ALTER TABLE ledger_allowance ADD COLUMN budget_id TEXT;
ALTER TABLE ledger_allowance ADD COLUMN tag_value TEXT;`;
const BUDGET_INDEX = `CREATE INDEX ledger_allowance_budget ON ledger_allowance (period, period_start_ms)
  WHERE budget_id IS NOT NULL;`;

export const LEDGER_MIGRATIONS: readonly Migration[] = [
  { id: 'ledger-0001', up: ACCOUNTS },
  {
    id: 'ledger-0002',
    up: {
      sqlite: `
CREATE TABLE ledger_transfer (${TRANSFER_COLUMNS}
) WITHOUT ROWID;
CREATE TABLE ledger_usage (${USAGE_COLUMNS}
);
${INDEXES}`,
      // Partitioned by day and dropped whole; the default partition takes rows of days without one.
      postgres: `
CREATE TABLE ledger_transfer (${TRANSFER_COLUMNS}
) PARTITION BY RANGE (day);
CREATE TABLE ledger_transfer_rest PARTITION OF ledger_transfer DEFAULT;
CREATE TABLE ledger_usage (${USAGE_COLUMNS}
) PARTITION BY RANGE (day);
CREATE TABLE ledger_usage_rest PARTITION OF ledger_usage DEFAULT;
${INDEXES}`,
    },
  },
  { id: 'ledger-0003', up: CARRY },
  {
    // Each request writes and deletes a hold; SQLite has too few of them to need an index.
    id: 'ledger-0004',
    up: {
      sqlite: `
CREATE TABLE ledger_hold_next (${HOLD_COLUMNS}
) WITHOUT ROWID;
INSERT INTO ledger_hold_next SELECT * FROM ledger_hold;
DROP TABLE ledger_hold;
ALTER TABLE ledger_hold_next RENAME TO ledger_hold;
`,
      postgres: '',
    },
  },
  {
    // Daily credit for a single day; without a day it recurs every day.
    id: 'ledger-0005',
    up: 'ALTER TABLE ledger_account ADD COLUMN daily_allocation_day BIGINT',
  },
  {
    // The debt of an account after a reversal; debts are rare, so the index is small.
    id: 'ledger-0006',
    up: `
ALTER TABLE ledger_account ADD COLUMN debt_nano BIGINT NOT NULL DEFAULT 0 CHECK (debt_nano >= 0);
CREATE INDEX ledger_account_debt ON ledger_account (id) WHERE debt_nano > 0;`,
  },
  {
    // With SQLite, holds of requests are in memory: release the rows of an older version.
    id: 'ledger-0007',
    up: {
      sqlite: `
UPDATE ledger_account SET
  held_nano = held_nano - (SELECT COALESCE(sum(usd_nano), 0) FROM ledger_hold
    WHERE account_id = ledger_account.id AND epoch_id <> 'durable'),
  daily_held_nano = daily_held_nano - (SELECT COALESCE(sum(daily_nano), 0) FROM ledger_hold
    WHERE account_id = ledger_account.id AND epoch_id <> 'durable'
      AND daily_day = ledger_account.daily_day);
UPDATE ledger_allowance SET
  usd_held_nano = usd_held_nano - (SELECT COALESCE(sum(usd_nano), 0) FROM ledger_hold
    WHERE allowance_id = ledger_allowance.id AND epoch_id <> 'durable'
      AND allowance_start_ms = ledger_allowance.period_start_ms),
  diem_held_nano = diem_held_nano - (SELECT COALESCE(sum(daily_nano), 0) FROM ledger_hold
    WHERE allowance_id = ledger_allowance.id AND epoch_id <> 'durable'
      AND allowance_start_ms = ledger_allowance.period_start_ms);
DELETE FROM ledger_hold WHERE epoch_id <> 'durable';
DELETE FROM ledger_epoch;
`,
      postgres: '',
    },
  },
  {
    // Tags of requests, and the sums by tag; dropped together with the receipts.
    id: 'ledger-0008',
    up: `
ALTER TABLE ledger_usage ADD COLUMN metadata TEXT;
CREATE TABLE ledger_usage_tag (
  account_id TEXT NOT NULL,
  name TEXT NOT NULL,
  day BIGINT NOT NULL,
  value TEXT NOT NULL,
  key_id TEXT NOT NULL,
  model_id TEXT NOT NULL,
  requests BIGINT NOT NULL,
  prompt_tokens BIGINT NOT NULL,
  completion_tokens BIGINT NOT NULL,
  usd_nano BIGINT NOT NULL,
  diem_nano BIGINT NOT NULL,
  PRIMARY KEY (account_id, name, day, value, key_id, model_id)
);
CREATE INDEX ledger_usage_tag_day ON ledger_usage_tag (day);`,
  },
  {
    // Columns for overviews of a request and of a day, the prices of receipts, and an index for the
    // few movements of an account that are not charges.
    id: 'ledger-0009',
    up: `
ALTER TABLE ledger_usage ADD COLUMN reserved_nano BIGINT;
ALTER TABLE ledger_usage_day ADD COLUMN errors BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledger_usage_tag ADD COLUMN errors BIGINT NOT NULL DEFAULT 0;
CREATE INDEX ledger_usage_day_day ON ledger_usage_day (day);
CREATE INDEX ledger_transfer_movement ON ledger_transfer (account_id, created_ms)
  WHERE kind <> 'CHARGE';
CREATE TABLE ledger_price (
  version TEXT PRIMARY KEY,
  prices TEXT NOT NULL
);`,
  },
  {
    // A lease is a row of `ledger_hold` (`lease:…`) that covers many requests of a process; few
    // accounts have one at a time.
    id: 'ledger-0010',
    up: {
      sqlite: '',
      postgres: `CREATE INDEX ledger_hold_lease ON ledger_hold (account_id) WHERE request_id LIKE 'lease:%'`,
    },
  },
  {
    // The references of operators' movements, kept forever: the postings themselves are dropped
    // after years.
    id: 'ledger-0011',
    up: `
CREATE TABLE ledger_reference (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  amount_nano BIGINT NOT NULL,
  balance_after_nano BIGINT NOT NULL,
  created_ms BIGINT NOT NULL
);
INSERT INTO ledger_reference SELECT id, account_id, amount_nano, balance_after_nano, created_ms
  FROM ledger_transfer WHERE kind = 'CREDIT' AND (id LIKE 'credit-%' OR id LIKE 'debit-%')
  ON CONFLICT (id) DO NOTHING;`,
  },
  {
    // Further caps that a hold counts against: a JSON list of ids of `ledger_allowance`.
    id: 'ledger-0012',
    up: 'ALTER TABLE ledger_hold ADD COLUMN budget_ids TEXT',
  },
  {
    // An account can have a cap for each of its end users; reads of one account must not scan
    // others.
    id: 'ledger-0013',
    up: 'CREATE INDEX ledger_allowance_account ON ledger_allowance (account_id, id)',
  },
  {
    // Sums of the spending of past days, by account and by key.
    id: 'ledger-0014',
    up: `
CREATE TABLE ledger_spent (
  account_id TEXT PRIMARY KEY,
  day BIGINT NOT NULL,
  usd_nano BIGINT NOT NULL,
  diem_nano BIGINT NOT NULL
);
CREATE TABLE ledger_spent_key (
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  usd_nano BIGINT NOT NULL,
  diem_nano BIGINT NOT NULL,
  PRIMARY KEY (account_id, key_id)
);`,
  },
  {
    // The budget of a cap, and its tag value. Caps whose period has ended are dropped.
    id: 'ledger-0015',
    up: {
      sqlite: `${BUDGET_COLUMNS}
UPDATE ledger_allowance SET budget_id = substr(id, 1, instr(id || ':', ':') - 1)
  WHERE id LIKE 'budget_%';
${BUDGET_INDEX}`,
      postgres: `${BUDGET_COLUMNS}
UPDATE ledger_allowance SET budget_id = split_part(id, ':', 1) WHERE id LIKE 'budget_%';
${BUDGET_INDEX}`,
    },
  },
  {
    // Charged jobs that have not ended, with a JSON list of the caps in which their charge counts.
    id: 'ledger-0016',
    up: `
CREATE TABLE ledger_job (
  request_id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  created_ms BIGINT NOT NULL,
  metadata TEXT,
  cap_ids TEXT NOT NULL
);
CREATE INDEX ledger_job_account ON ledger_job (account_id, created_ms);`,
  },
  {
    // Refunds by key; the daily sums still contain the refunded charges.
    id: 'ledger-0017',
    up: `
CREATE TABLE ledger_refund (
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  usd_nano BIGINT NOT NULL,
  diem_nano BIGINT NOT NULL,
  PRIMARY KEY (account_id, key_id)
);
INSERT INTO ledger_refund (account_id, key_id, usd_nano, diem_nano)
SELECT t.account_id, COALESCE(u.key_id, ''),
  CAST(sum(CASE WHEN t.credit_account = t.account_id THEN t.amount_nano ELSE 0 END) AS BIGINT),
  CAST(sum(CASE WHEN t.credit_account = t.account_id THEN 0 ELSE t.amount_nano END) AS BIGINT)
FROM ledger_transfer t LEFT JOIN ledger_usage u ON u.request_id = t.request_id
WHERE t.kind = 'REFUND' AND t.debit_account = 'house:revenue' GROUP BY 1, 2;`,
  },
  {
    // In SQLite, a posting is a charge if the same transaction wrote a receipt for it. Only
    // postings that are unique or looked up by id are indexed: indexing every charge took a fifth
    // of the cost of a settle.
    id: 'ledger-0018',
    up: {
      sqlite: `
CREATE TABLE ledger_transfer_next (${TRANSFER_FIELDS}
);
INSERT INTO ledger_transfer_next SELECT * FROM ledger_transfer;
DROP TABLE ledger_transfer;
ALTER TABLE ledger_transfer_next RENAME TO ledger_transfer;
CREATE INDEX ledger_transfer_account ON ledger_transfer (account_id, created_ms);
CREATE INDEX ledger_transfer_movement ON ledger_transfer (account_id, created_ms)
  WHERE kind <> 'CHARGE';
CREATE UNIQUE INDEX ledger_transfer_id ON ledger_transfer (id, part, day)
  WHERE part = 1 OR kind <> 'CHARGE';
`,
      postgres: '',
    },
  },
  {
    // The parameters of a settle as processes send them to PostgreSQL; further parameters use
    // another type.
    id: 'ledger-0019',
    up: {
      sqlite: '',
      postgres: `CREATE TYPE ledger_settle AS (seq BIGINT, lease_id TEXT, allowance_id TEXT,
  budget_ids TEXT, is_last BOOLEAN, is_late BOOLEAN, request_id TEXT, day BIGINT, created_ms BIGINT,
  account_id TEXT, key_id TEXT, kind TEXT, model_id TEXT, replica TEXT, attempts BIGINT,
  prompt_tokens BIGINT, completion_tokens BIGINT, cached_tokens BIGINT, cache_write_tokens BIGINT,
  reasoning_tokens BIGINT, counted_by TEXT, price_version TEXT, usd BIGINT, diem BIGINT,
  latency_ms BIGINT, first_token_ms BIGINT, status TEXT, extras TEXT, metadata TEXT, reserved BIGINT)`,
    },
  },
  {
    // Like `ledger-0018`, for PostgreSQL: request ids are random, so each charge wrote another page
    // of an index that no query reads. The remaining lookups scan the postings.
    id: 'ledger-0020',
    up: {
      sqlite: '',
      postgres: `ALTER TABLE ledger_transfer DROP CONSTRAINT ledger_transfer_pkey;
CREATE UNIQUE INDEX ledger_transfer_id ON ledger_transfer (id, part, day)
  WHERE part = 1 OR kind <> 'CHARGE';`,
    },
  },
  {
    // Adds the refunded amounts to the sums of each day; reports subtract them. The update covers
    // refunds before this version, but not in the sums by tag: receipts store their tags as text.
    id: 'ledger-0021',
    up: `
ALTER TABLE ledger_usage_day ADD COLUMN refunded_usd_nano BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledger_usage_day ADD COLUMN refunded_diem_nano BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledger_usage_tag ADD COLUMN refunded_usd_nano BIGINT NOT NULL DEFAULT 0;
ALTER TABLE ledger_usage_tag ADD COLUMN refunded_diem_nano BIGINT NOT NULL DEFAULT 0;
UPDATE ledger_usage_day SET refunded_usd_nano = r.usd, refunded_diem_nano = r.diem
FROM (SELECT u.account_id, u.day, u.key_id, u.model_id,
    CAST(sum(CASE WHEN t.credit_account = t.account_id THEN t.amount_nano ELSE 0 END) AS BIGINT) AS usd,
    CAST(sum(CASE WHEN t.credit_account = t.account_id THEN 0 ELSE t.amount_nano END) AS BIGINT) AS diem
  FROM ledger_transfer t
  JOIN ledger_usage u ON u.request_id = t.request_id AND u.account_id = t.account_id
  WHERE t.kind = 'REFUND' AND t.debit_account = 'house:revenue'
  GROUP BY u.account_id, u.day, u.key_id, u.model_id) r
WHERE ledger_usage_day.account_id = r.account_id AND ledger_usage_day.day = r.day
  AND ledger_usage_day.key_id = r.key_id AND ledger_usage_day.model_id = r.model_id;`,
  },
  {
    // For lists of all accounts: days of a model, and receipts with a rare status. The partial
    // index costs a completed request nothing.
    id: 'ledger-0022',
    up: `
DROP INDEX ledger_usage_day_day;
CREATE INDEX ledger_usage_day_day ON ledger_usage_day (day, model_id);
CREATE INDEX ledger_usage_rare ON ledger_usage (request_id) WHERE status <> 'completed';`,
  },
  ...COST_MIGRATIONS,
  ...REPORT_MIGRATIONS,
  {
    // Receipts with a rare status, by status: of all accounts, and of one account.
    id: 'ledger-0026',
    up: `
DROP INDEX ledger_usage_rare;
CREATE INDEX ledger_usage_rare ON ledger_usage (status, request_id) WHERE status <> 'completed';
CREATE INDEX ledger_usage_rare_account ON ledger_usage (account_id, status, created_ms)
  WHERE status <> 'completed';`,
  },
];
