/**
 * Leases: work that one of all processes does at a time. A holder keeps its lease by taking it
 * again; one that died loses it when it expires, and anybody takes over.
 *
 * Expiry is judged by the clocks of the processes, so the work must tolerate two holders for as
 * long as clocks differ: a lease saves work, it does not guard money. A lease that ends long after one
 * taken now would end was taken before the clock was set back, and anybody takes it over.
 */
import { type Clock, MINUTE_MS } from '../core/clock.ts';
import type { Queryable, Store } from './contract.ts';

/** How far the clocks of processes may differ before a lease counts as taken by a wrong one. */
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

  /** `holder` is unique among all processes. */
  constructor(parts: { readonly store: Store; readonly clock: Clock; readonly holder: string }) {
    this.#store = parts.store;
    this.#clock = parts.clock;
    this.#holder = parts.holder;
  }

  /** Takes or keeps the lease for `durationMs`; `false` when another process holds it. */
  async take(name: string, durationMs: number): Promise<boolean> {
    const nowMs = this.#clock.nowMs();
    const parameters = [name, this.#holder, nowMs + durationMs, nowMs, CLOCKS_DIFFER_MS];
    const rows = await this.#store.transaction((tx) => tx.query(TAKE, parameters), {
      durable: false,
    });
    return rows.length > 0;
  }

  /** Gives the lease back before it expires; nothing happens when another process holds it. */
  async release(name: string): Promise<void> {
    await this.#store.query('DELETE FROM store_lease WHERE name = $1 AND holder = $2', [
      name,
      this.#holder,
    ]);
  }
}

/**
 * `true` for one caller ever, whatever the number of processes: the others wait for the end of its
 * transaction, and when that fails another one gets it.
 */
export async function claimOnce(tx: Queryable, name: string, nowMs: number): Promise<boolean> {
  const rows = await tx.query(
    `INSERT INTO store_lease (name, holder, expires_ms) VALUES ($1, 'once', $2)
     ON CONFLICT (name) DO NOTHING RETURNING name`,
    [`once:${name}`, nowMs],
  );
  return rows.length > 0;
}
