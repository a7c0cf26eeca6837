/**
 * The rows of payments and refunds that the background work finishes: unfinished ones, and decided ones
 * that are watched until the chain cannot undo the decision. One process at a time works on a row.
 */
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Store } from '../db/db.ts';
import { chainReason } from './chain-log.ts';

/** The lease of a process that ended expires after this time; a live process renews it. */
export const LEASE_MS = 15_000;
const MAX_UNFINISHED = 20;
const MAX_WATCHED = 50;
const UNFINISHED = "state IN ('open', 'sent')";

export interface LeaseParts {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly owner: string;
  readonly leaseMs: number;
}

export class LeasedRows<Row> {
  readonly #parts: LeaseParts;
  readonly #table: string;
  readonly #key: string;
  /** Keys of the rows that this process works on. */
  readonly #held = new Set<string>();

  constructor(parts: LeaseParts, table: string, key: string) {
    this.#parts = parts;
    this.#table = table;
    this.#key = key;
  }

  async find(key: string): Promise<Row | undefined> {
    return await this.row(`SELECT * FROM ${this.#table} WHERE ${this.#key} = $1`, [key]);
  }

  /** Rows that are due and that nobody works on. */
  async due(): Promise<readonly Row[]> {
    const part = (which: string, limit: number): string =>
      `SELECT * FROM (SELECT * FROM ${this.#table} WHERE ${which} AND next_check_ms <= $1
         AND (lease_owner IS NULL OR lease_until_ms < $1) ORDER BY next_check_ms LIMIT ${limit}) AS part`;
    return await this.#parts.store.query<Row>(
      `${part(UNFINISHED, MAX_UNFINISHED)} UNION ALL ${part('is_watched = 1', MAX_WATCHED)}`,
      [this.#parts.clock.nowMs()],
    );
  }

  /** Takes the lease of a row; `undefined` if another process has it, or if there is nothing to do. */
  async lease(key: string, which = UNFINISHED): Promise<Row | undefined> {
    const { clock, owner, leaseMs } = this.#parts;
    const nowMs = clock.nowMs();
    return await this.row(
      `UPDATE ${this.#table} SET lease_owner = $2, lease_until_ms = $3
       WHERE ${this.#key} = $1 AND (${which})
         AND (lease_owner = $2 OR lease_owner IS NULL OR lease_until_ms < $4)
       RETURNING *`,
      [key, owner, nowMs + leaseMs, nowMs],
    );
  }

  /** Runs `work` with the lease of a row, watched or not, unless it is taken, here or elsewhere. */
  async withLease(key: string, work: (row: Row) => Promise<void>): Promise<void> {
    if (this.#held.has(key)) return;
    await this.hold(key, async () => {
      const row = await this.lease(key, `${UNFINISHED} OR is_watched = 1`);
      if (row !== undefined) await work(row);
    });
  }

  /** Renews the lease of a row while `work` runs. */
  async hold<T>(key: string, work: () => Promise<T>): Promise<T> {
    const { clock, log, leaseMs } = this.#parts;
    this.#held.add(key);
    const stopRenewing = clock.every(leaseMs / 3, () => {
      this.#renew(key).catch((error: unknown) => {
        // Without the lease nothing is sent any more; another process takes over.
        log.warn({ reason: chainReason(error) }, 'The lease of a payment could not be renewed');
      });
    });
    try {
      return await work();
    } finally {
      stopRenewing();
      this.#held.delete(key);
    }
  }

  /** Gives a lease back and sets the time of the next look. */
  async release(key: string, nextCheckMs: number): Promise<void> {
    await this.#parts.store.query(
      `UPDATE ${this.#table} SET lease_owner = NULL, lease_until_ms = 0, next_check_ms = $2
       WHERE ${this.#key} = $1 AND lease_owner = $3`,
      [key, nextCheckMs, this.#parts.owner],
    );
  }

  /** Makes the unfinished rows of ended processes due; no other process may be alive. */
  async takeOver(): Promise<void> {
    await this.#parts.store.query(
      `UPDATE ${this.#table} SET lease_owner = NULL, lease_until_ms = 0, next_check_ms = 0
       WHERE ${UNFINISHED} AND (lease_owner IS NULL OR lease_owner <> $1)`,
      [this.#parts.owner],
    );
  }

  async row(sql: string, values: Parameters<Store['query']>[1]): Promise<Row | undefined> {
    const [row] = await this.#parts.store.query<Row>(sql, values);
    return row;
  }

  async #renew(key: string): Promise<void> {
    const { store, clock, owner, leaseMs } = this.#parts;
    await store.transaction(
      async (tx) =>
        await tx.query(
          `UPDATE ${this.#table} SET lease_until_ms = $2 WHERE ${this.#key} = $1 AND lease_owner = $3`,
          [key, clock.nowMs() + leaseMs, owner],
        ),
      { durable: false },
    );
  }
}
