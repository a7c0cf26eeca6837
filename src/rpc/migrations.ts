/**
 * Tables of the rolling credit cap. `rpc_credit_window` has one row per caller with the sum of the
 * window and the credits of the current minute; `rpc_credit` contains the closed minutes. `rpc_head`
 * has the newest block that callers see of each network.
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
  {
    id: 'rpc-0002',
    up: `
      CREATE TABLE rpc_head (
        network TEXT PRIMARY KEY,
        number BIGINT NOT NULL,
        previous BIGINT NOT NULL,
        effective BIGINT NOT NULL,
        confirmed BIGINT NOT NULL
      );
    `,
  },
];
