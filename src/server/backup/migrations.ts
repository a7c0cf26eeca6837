/** The table of attempts to make a backup, by schedule or by command. */
import type { Migration } from '../../db/db.ts';

export const BACKUP_MIGRATIONS: readonly Migration[] = [
  {
    id: 'backup-0001',
    up: `
CREATE TABLE backup_run (
  id TEXT PRIMARY KEY,
  started_ms BIGINT NOT NULL,
  ended_ms BIGINT NOT NULL DEFAULT 0,
  location TEXT NOT NULL DEFAULT '',
  bytes BIGINT NOT NULL DEFAULT 0,
  problem TEXT NOT NULL DEFAULT ''
);
CREATE INDEX backup_run_started ON backup_run (started_ms);
`,
  },
  {
    // The destination; empty for runs of earlier versions.
    id: 'backup-0002',
    up: "ALTER TABLE backup_run ADD COLUMN place TEXT NOT NULL DEFAULT '';",
  },
];
