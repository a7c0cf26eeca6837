/**
 * Tables of files and batches. The bytes of a file are pieces in the database, so that every process
 * can read them, and a line of a result is stored in the transaction of its charge.
 *
 * A piece belongs to a content: an upload, which is split by size, or the result of a batch, with one
 * piece per line. `part` is the result file of the line.
 */
import type { Migration } from '../db/db.ts';

export const BATCHES_MIGRATIONS: readonly Migration[] = [
  {
    id: 'batches-0001',
    up: `
CREATE TABLE batches_file (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  content_id TEXT NOT NULL,
  part BIGINT NOT NULL,
  name TEXT NOT NULL,
  purpose TEXT NOT NULL,
  state TEXT NOT NULL,
  size_bytes BIGINT NOT NULL,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL
);
CREATE INDEX batches_file_account ON batches_file (account_id, created_ms, id);
CREATE INDEX batches_file_expiry ON batches_file (expires_ms);
CREATE TABLE batches_piece (
  content_id TEXT NOT NULL,
  seq BIGINT NOT NULL,
  part BIGINT NOT NULL,
  size_bytes BIGINT NOT NULL,
  body BYTEA NOT NULL,
  PRIMARY KEY (content_id, seq)
);
CREATE INDEX batches_piece_part ON batches_piece (content_id, part, seq, size_bytes);
CREATE TABLE batches_batch (
  id TEXT PRIMARY KEY,
  account_id TEXT NOT NULL,
  key_id TEXT NOT NULL,
  cap_id TEXT NOT NULL,
  country TEXT,
  endpoint TEXT NOT NULL,
  input_file_id TEXT NOT NULL,
  output_file_id TEXT NOT NULL,
  error_file_id TEXT NOT NULL,
  state TEXT NOT NULL,
  metadata TEXT NOT NULL,
  problems TEXT NOT NULL,
  keep_ms BIGINT NOT NULL,
  total BIGINT NOT NULL,
  completed BIGINT NOT NULL,
  failed BIGINT NOT NULL,
  result_bytes BIGINT NOT NULL,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL,
  in_progress_ms BIGINT NOT NULL,
  finalizing_ms BIGINT NOT NULL,
  cancelling_ms BIGINT NOT NULL,
  ended_ms BIGINT NOT NULL,
  due_ms BIGINT NOT NULL,
  lease_owner TEXT NOT NULL,
  lease_until_ms BIGINT NOT NULL
);
CREATE INDEX batches_batch_due ON batches_batch (state, due_ms);
CREATE INDEX batches_batch_account ON batches_batch (account_id, created_ms, id);
CREATE INDEX batches_batch_input ON batches_batch (input_file_id);
CREATE INDEX batches_batch_ended ON batches_batch (ended_ms);
`,
  },
  {
    // Cost of a line; NULL in older batches.
    id: 'batches-0002',
    up: `
ALTER TABLE batches_piece ADD COLUMN usd_nano BIGINT NOT NULL DEFAULT 0;
ALTER TABLE batches_piece ADD COLUMN diem_nano BIGINT NOT NULL DEFAULT 0;
ALTER TABLE batches_piece ADD COLUMN prompt_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE batches_piece ADD COLUMN completion_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE batches_piece ADD COLUMN cached_tokens BIGINT NOT NULL DEFAULT 0;
ALTER TABLE batches_piece ADD COLUMN reasoning_tokens BIGINT NOT NULL DEFAULT 0;
DROP INDEX batches_piece_part;
CREATE INDEX batches_piece_part ON batches_piece (content_id, part, seq, size_bytes, usd_nano,
  diem_nano, prompt_tokens, completion_tokens, cached_tokens, reasoning_tokens);
ALTER TABLE batches_batch ADD COLUMN usd_nano BIGINT;
ALTER TABLE batches_batch ADD COLUMN diem_nano BIGINT;
ALTER TABLE batches_batch ADD COLUMN prompt_tokens BIGINT;
ALTER TABLE batches_batch ADD COLUMN completion_tokens BIGINT;
ALTER TABLE batches_batch ADD COLUMN cached_tokens BIGINT;
ALTER TABLE batches_batch ADD COLUMN reasoning_tokens BIGINT;
`,
  },
  {
    // Each upload adds up the sizes of all files, which an index makes fast.
    id: 'batches-0003',
    up: `
DROP INDEX batches_file_expiry;
CREATE INDEX batches_file_expiry ON batches_file (expires_ms, size_bytes);
`,
  },
];
