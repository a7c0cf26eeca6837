/** The key that seals reasoning for its way through the hands of callers: one for all processes. */
import type { Migration } from '../../db/db.ts';

export const AGENTS_MIGRATIONS: readonly Migration[] = [
  {
    id: 'agents-0001',
    up: `
CREATE TABLE agents_key (
  name TEXT PRIMARY KEY,
  secret_hex TEXT NOT NULL
);
`,
  },
];
