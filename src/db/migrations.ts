/** The table of the store itself: who does work that is done once for all processes. */
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
