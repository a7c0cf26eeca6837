/** The tables of the store itself: leases of work that one process does for all. */
import type { Migration } from './contract.ts';

export const STORE_MIGRATIONS: readonly Migration[] = [
  {
    id: 'store-0001',
    up: `
CREATE TABLE store_lease (
  name TEXT PRIMARY KEY,
  holder TEXT NOT NULL,
  expires_ms BIGINT NOT NULL
);
`,
  },
];
