/**
 * The table of server secrets, shared by all processes: the keys of sealed reasoning and of cache
 * scopes.
 */
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
