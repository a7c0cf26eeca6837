/**
 * Leases for work that one process does at a time. A holder renews its lease by taking it again;
 * after the holder has died, the lease expires and any process takes it.
 *
 * Expiry uses the clocks of the processes, so the work must tolerate two holders for as long as
 * clocks differ: a lease saves work, it does not protect money. A lease that expires much later than
 * a new one would was taken before the clock was set back, and can be taken over.
 */
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import type { Dialect, Migration, Queryable, Store } from './contract.ts';

const CLOCKS_DIFFER_MS = MINUTE_MS;

const TAKE = `INSERT INTO store_lease (name, holder, expires_ms) VALUES ($1, $2, $3)
  ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, expires_ms = excluded.expires_ms
  WHERE store_lease.holder = excluded.holder OR store_lease.expires_ms <= $4
    OR store_lease.expires_ms > excluded.expires_ms + $5
  RETURNING holder`;

export class Leases {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #holder: string;

  constructor(parts: { readonly store: Store; readonly clock: Clock; readonly holder: string }) {
    this.#store = parts.store;
    this.#clock = parts.clock;
    this.#holder = parts.holder;
  }

  /** Takes or renews the lease for `durationMs`; returns `false` if another process holds it. */
  async take(name: string, durationMs: number): Promise<boolean> {
    const nowMs = this.#clock.nowMs();
    const parameters = [name, this.#holder, nowMs + durationMs, nowMs, CLOCKS_DIFFER_MS];
    const rows = await this.#store.transaction((tx) => tx.query(TAKE, parameters), {
      durable: false,
    });
    return rows.length > 0;
  }

  async release(name: string): Promise<void> {
    await this.#store.query('DELETE FROM store_lease WHERE name = $1 AND holder = $2', [
      name,
      this.#holder,
    ]);
  }
}

/** Returns `true` for one caller ever, unless its transaction fails; others wait for that. */
export async function claimOnce(tx: Queryable, name: string, nowMs: number): Promise<boolean> {
  const rows = await tx.query(
    `INSERT INTO store_lease (name, holder, expires_ms) VALUES ($1, 'once', $2)
     ON CONFLICT (name) DO NOTHING RETURNING name`,
    [`once:${name}`, nowMs],
  );
  return rows.length > 0;
}

/** Allows one transaction of that name at a time; SQLite has a single writer anyway. */
export async function oneAtATime(tx: Queryable, dialect: Dialect, name: string): Promise<void> {
  if (dialect === 'postgres') await tx.query('SELECT pg_advisory_xact_lock(hashtext($1))', [name]);
}

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
