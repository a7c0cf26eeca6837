/**
 * Tables of the rolling credit cap. `rpc_credit_window` holds one row for each caller: the sum of
 * the window and what the current minute added; `rpc_credit` holds the closed minutes.
 */
import type { Migration } from '../db/db.ts';

export const RPC_MIGRATIONS: readonly Migration[] = [
  {
    id: 'rpc-0001',
    up: `
      CREATE TABLE rpc_credit_window (
        caller TEXT PRIMARY KEY,
        minute BIGINT NOT NULL,
        current BIGINT NOT NULL,
        total BIGINT NOT NULL
      );
      CREATE TABLE rpc_credit (
        caller TEXT NOT NULL,
        minute BIGINT NOT NULL,
        credits BIGINT NOT NULL,
        PRIMARY KEY (caller, minute)
      );
    `,
  },
];
