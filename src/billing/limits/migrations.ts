/** The tables of limits: the current window of each bucket, and the log of rejections. */
import type { Migration } from '../../db/db.ts';

const LOG_COLUMNS = `
  id TEXT NOT NULL,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  model_id TEXT NOT NULL,
  tier TEXT NOT NULL,
  type TEXT NOT NULL,
  created_ms BIGINT NOT NULL,
  PRIMARY KEY (id, created_ms)`;

/** Joins statements of a function into one line: `;` at a line end would split the migration. */
function inOneLine(...statements: readonly string[]): string {
  return statements.map((one) => `${one.replace(/\s+/g, ' ')}; `).join('');
}

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
`,
  },
  {
    id: 'limits-0002',
    up: {
      sqlite: `
DROP TABLE IF EXISTS limits_log;
CREATE TABLE limits_log (${LOG_COLUMNS}
);
CREATE INDEX limits_log_account ON limits_log (account_id, created_ms);
CREATE INDEX limits_log_time ON limits_log (created_ms);
`,
      // Partitioned by day and dropped whole; the default partition takes rows of days without one.
      postgres: `
DROP TABLE IF EXISTS limits_log;
CREATE TABLE limits_log (${LOG_COLUMNS}
) PARTITION BY RANGE (created_ms);
CREATE TABLE limits_log_rest PARTITION OF limits_log DEFAULT;
CREATE INDEX limits_log_account ON limits_log (account_id, created_ms);
`,
    },
  },
  {
    // Capacity of a bucket that processes lease in a minute: part of its count, possibly unused.
    id: 'limits-0003',
    up: `
ALTER TABLE limits_window ADD COLUMN leased_minute BIGINT NOT NULL DEFAULT 0;
ALTER TABLE limits_window ADD COLUMN leased_requests BIGINT NOT NULL DEFAULT 0;
ALTER TABLE limits_window ADD COLUMN leased_tokens BIGINT NOT NULL DEFAULT 0;
`,
  },
  {
    // The number of in-flight requests that a process may have for a caller, and until when.
    id: 'limits-0004',
    up: `
CREATE TABLE limits_slots (
  caller TEXT NOT NULL,
  holder TEXT NOT NULL,
  slots BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL,
  PRIMARY KEY (caller, holder)
);
`,
  },
  {
    // Takes the lock of the caller in the same round trip: each statement of a volatile function
    // sees what was committed when it began, including the writes of the previous lock holder.
    // `want` is one more than are running; the process also gets one part in `parts` of the slots
    // left after that.
    id: 'limits-0005',
    up: {
      sqlite: '',
      postgres: `
CREATE FUNCTION limits_lease_slots(of_caller TEXT, by_holder TEXT, had BIGINT, most BIGINT, want BIGINT,
  parts BIGINT, now_ms BIGINT, until_ms BIGINT) RETURNS BIGINT LANGUAGE plpgsql VOLATILE AS $$
  DECLARE free BIGINT; got BIGINT; BEGIN
  ${inOneLine(
    `PERFORM pg_advisory_xact_lock(hashtextextended('slots ' || of_caller, 0))`,
    `SELECT most - COALESCE(sum(slots), 0) INTO free FROM limits_slots
      WHERE caller = of_caller AND holder <> by_holder AND expires_ms >= now_ms`,
    `got := greatest(had, least(free, want + greatest(0, (free - want) / parts)))`,
    `INSERT INTO limits_slots (caller, holder, slots, expires_ms)
      VALUES (of_caller, by_holder, got, until_ms) ON CONFLICT (caller, holder)
      DO UPDATE SET slots = excluded.slots, expires_ms = excluded.expires_ms`,
    `RETURN got`,
  )} END $$;
`,
    },
  },
  {
    // Rejections of a minute are one row with a count. Rows of earlier versions have no `last_ms`.
    id: 'limits-0006',
    up: `
ALTER TABLE limits_log ADD COLUMN hits BIGINT NOT NULL DEFAULT 1;
ALTER TABLE limits_log ADD COLUMN last_ms BIGINT;
`,
  },
];
