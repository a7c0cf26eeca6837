/**
 * The rows of top-ups: open -> sent(transaction) -> credited | failed. Both ends are watched until
 * the chain cannot undo what they say: a credit whose money is gone is reversed and a failed payment
 * that has arrived is revived, each back to sent.
 *
 * Invariants: one row a signed authorization (the primary key); `tx_id` is never cleared; a row is
 * changed by who holds its lease, except for the flips to and from `credited`, which are
 * conditional on the state alone, so that one of any number of processes wins them; a credited row
 * that is not watched never changes again, and a failed one only when an operator asks for it or
 * another payment takes its place.
 */
import { assert } from '../core/assert.ts';
import type { Clock } from '../core/clock.ts';
import type { Nano } from '../core/money.ts';
import { type Queryable, type Store, isUniqueViolation } from '../db/db.ts';
import { unitsToNano } from './networks.ts';
import type { SignedPayment } from './payment.ts';
import type { Paid, Position } from './rail.ts';
import { identifierTaken } from './top-up-faults.ts';

export interface TopUpRow {
  readonly payment_key: string;
  readonly payment_id: string;
  readonly network: string;
  readonly wallet: string;
  readonly amount_units: bigint;
  readonly payload: string;
  readonly payload_hash: string;
  readonly identifier: string | null;
  readonly state: 'open' | 'sent' | 'credited' | 'failed';
  readonly tx_id: string | null;
  readonly raw_tx: string | null;
  readonly start_height: bigint;
  readonly start_block: string | null;
  readonly expires_at: bigint;
  readonly failure: string | null;
  readonly settlement: string | null;
  readonly new_balance_nano: bigint | null;
  readonly attempts: bigint;
  readonly created_ms: bigint;
  /** JSON of the offer that it was made under; missing in rows of an older version. */
  readonly offer: string | null;
  readonly credited_height: bigint;
  /** 1 while the chain could still undo the credit, or show a failed payment as paid. */
  readonly is_watched: bigint;
  /** Since when a watched credit is missing on the chain. */
  readonly vanished_ms: bigint | null;
  readonly reversals: bigint;
  readonly next_check_ms: bigint;
}

export interface CreditCounts {
  readonly watched: number;
  readonly vanished: number;
  readonly reversed: number;
}

type Mined = Pick<Paid, 'transaction' | 'height'>;

/** A process that died gives its rows up after this time; one that lives renews it. */
export const LEASE_MS = 15_000;

export class TopUpTable {
  readonly #store: Store;
  readonly #clock: Clock;
  readonly #owner: string;
  readonly #leaseMs: number;

  constructor(store: Store, clock: Clock, owner: string, leaseMs: number) {
    this.#store = store;
    this.#clock = clock;
    this.#owner = owner;
    this.#leaseMs = leaseMs;
  }

  async find(key: string): Promise<TopUpRow | undefined> {
    return await this.#row('SELECT * FROM payments_topup WHERE payment_key = $1', [key]);
  }

  /**
   * Inserts an `open` row with our lease, or puts the payment in the place of one under the same
   * authorization that has failed and is not watched any more. `undefined` when there is another row. Throws a Fault when the wallet has
   * used the identifier for another payment.
   */
  async open(payment: SignedPayment, position: Position): Promise<TopUpRow | undefined> {
    const nowMs = this.#clock.nowMs();
    try {
      return await this.#row(
        `INSERT INTO payments_topup (payment_key, payment_id, network, wallet, amount_units, payload,
           payload_hash, identifier, state, start_height, expires_at, lease_owner, lease_until_ms,
           next_check_ms, attempts, created_ms, updated_ms, start_block, offer)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'open', $9, $10, $11, $12, $13, 0, $13, $13, $14, $15)
         ON CONFLICT (payment_key) DO UPDATE SET state = 'open', amount_units = $5, payload = $6,
           payload_hash = $7, start_height = $9, expires_at = $10, lease_owner = $11,
           lease_until_ms = $12, attempts = 0, updated_ms = $13, start_block = $14, offer = $15,
           failure = NULL
         WHERE payments_topup.state = 'failed' AND payments_topup.is_watched = 0
           AND payments_topup.payload_hash <> $7 RETURNING *`,
        [
          payment.key,
          payment.id,
          payment.network,
          payment.wallet,
          payment.amountUnits,
          JSON.stringify(payment.inner),
          payment.hash,
          payment.identifier ?? null,
          position.startHeight,
          position.expiresAt,
          this.#owner,
          nowMs + this.#leaseMs,
          nowMs,
          position.startBlock ?? null,
          JSON.stringify(payment.offer),
        ],
      );
    } catch (error) {
      // The other unique index: the wallet used this identifier for another payment.
      throw isUniqueViolation(error) ? identifierTaken() : error;
    }
  }

  /** Takes the lease of an unfinished row; `undefined` when another process holds it or it is finished. */
  async lease(key: string): Promise<TopUpRow | undefined> {
    const nowMs = this.#clock.nowMs();
    return await this.#row(
      `UPDATE payments_topup SET lease_owner = $2, lease_until_ms = $3
       WHERE payment_key = $1 AND state IN ('open', 'sent')
         AND (lease_owner = $2 OR lease_owner IS NULL OR lease_until_ms < $4)
       RETURNING *`,
      [key, this.#owner, nowMs + this.#leaseMs, nowMs],
    );
  }

  /** Makes the payments of ended processes due at once; the caller knows that no other one is alive. */
  async takeOver(): Promise<void> {
    await this.#store.query(
      `UPDATE payments_topup SET lease_owner = NULL, lease_until_ms = 0, next_check_ms = 0
       WHERE state IN ('open', 'sent') AND (lease_owner IS NULL OR lease_owner <> $1)`,
      [this.#owner],
    );
  }

  /** Keeps the lease of a row that is being worked on. */
  async renew(key: string): Promise<void> {
    await this.#store.transaction(
      async (tx) =>
        await tx.query(
          `UPDATE payments_topup SET lease_until_ms = $2
           WHERE payment_key = $1 AND lease_owner = $3 AND state IN ('open', 'sent')`,
          [key, this.#clock.nowMs() + this.#leaseMs, this.#owner],
        ),
      { durable: false },
    );
  }

  get renewMs(): number {
    return this.#leaseMs / 3;
  }

  /** Journals a transaction before it is sent. Throws when the row is not ours any more. */
  async journal(key: string, transaction: string | null, raw: string | null): Promise<TopUpRow> {
    const nowMs = this.#clock.nowMs();
    const row = await this.#row(
      `UPDATE payments_topup SET state = 'sent', tx_id = COALESCE($2, tx_id),
         raw_tx = COALESCE($3, raw_tx), failure = NULL, lease_until_ms = $4, updated_ms = $5
       WHERE payment_key = $1 AND state IN ('open', 'sent') AND lease_owner = $6 AND lease_until_ms > $5
       RETURNING *`,
      [key, transaction, raw, nowMs + this.#leaseMs, nowMs, this.#owner],
    );
    assert(row !== undefined, 'a payment was taken over by another process before it was sent');
    return row;
  }

  /** Gives the lease back and says when to look again; `failure` is kept for the caller's next try. */
  async release(key: string, nextCheckMs: number, failure: string | null): Promise<void> {
    await this.#store.query(
      `UPDATE payments_topup SET lease_owner = NULL, lease_until_ms = 0, next_check_ms = $2,
         attempts = attempts + 1, failure = $3, updated_ms = $4
       WHERE payment_key = $1 AND lease_owner = $5 AND state IN ('open', 'sent')`,
      [key, nextCheckMs, failure, this.#clock.nowMs(), this.#owner],
    );
  }

  /** Forgets an open row: nothing of it was ever sent. */
  async drop(key: string): Promise<void> {
    await this.#store.query(
      `DELETE FROM payments_topup WHERE payment_key = $1 AND state = 'open' AND lease_owner = $2`,
      [key, this.#owner],
    );
  }

  /** Ends a row, which is watched from `nextCheckMs` on; the identifier becomes free for another payment. */
  async fail(key: string, failure: string, nextCheckMs: number): Promise<void> {
    await this.#store.query(
      `UPDATE payments_topup SET state = 'failed', failure = $2, identifier = NULL,
         lease_owner = NULL, lease_until_ms = 0, updated_ms = $3, attempts = 0, is_watched = 1,
         next_check_ms = $4
       WHERE payment_key = $1 AND state IN ('open', 'sent')`,
      [key, failure, this.#clock.nowMs(), nextCheckMs],
    );
  }

  /** A watched failure stands; `isFinal` ends the watch. */
  async stillFailed(key: string, isFinal: boolean, nextCheckMs: number): Promise<void> {
    await this.#store.query(
      `UPDATE payments_topup SET is_watched = $2, next_check_ms = $3
       WHERE payment_key = $1 AND is_watched = 1 AND state = 'failed'`,
      [key, isFinal ? 0 : 1, nextCheckMs],
    );
  }

  /**
   * Makes a failed row one that is looked for and, because it keeps its failure, never sent again by
   * itself: its payer was told that it has failed. `false` when it is not failed any more.
   */
  async revive(key: string): Promise<boolean> {
    const nowMs = this.#clock.nowMs();
    const row = await this.#row(
      `UPDATE payments_topup SET state = 'sent', is_watched = 0, attempts = 0, next_check_ms = $2,
         updated_ms = $2
       WHERE payment_key = $1 AND state = 'failed' RETURNING *`,
      [key, nowMs],
    );
    return row !== undefined;
  }

  /**
   * Flips a row to `credited` and runs `post` in the same database transaction. `false` when the row
   * was credited before; whoever comes second reads the stored answer. `nextCheckMs`: when to look
   * whether the credit is still on the chain.
   */
  async credit(
    key: string,
    credited: Mined & { readonly settlement: string; readonly nextCheckMs: number },
    post: (tx: Queryable, row: TopUpRow) => Promise<Nano>,
  ): Promise<boolean> {
    const { transaction, height, settlement, nextCheckMs } = credited;
    return await this.#store.transaction(async (tx) => {
      const [row] = await tx.query<TopUpRow>(
        `UPDATE payments_topup SET state = 'credited', tx_id = $2, settlement = $3, failure = NULL,
           lease_owner = NULL, lease_until_ms = 0, updated_ms = $4, attempts = 0, is_watched = 1,
           vanished_ms = NULL, credited_height = $5, next_check_ms = $6
         WHERE payment_key = $1 AND state <> 'credited' RETURNING *`,
        [key, transaction, settlement, this.#clock.nowMs(), height, nextCheckMs],
      );
      if (row === undefined) return false;
      await tx.query('UPDATE payments_topup SET new_balance_nano = $2 WHERE payment_key = $1', [
        key,
        await post(tx, row),
      ]);
      return true;
    });
  }

  /** Credits and failures that the chain could still undo and that are due for a look. */
  async watched(limit: number): Promise<readonly TopUpRow[]> {
    return await this.#store.query<TopUpRow>(
      `SELECT * FROM payments_topup WHERE is_watched = 1 AND next_check_ms <= $1
       ORDER BY next_check_ms LIMIT $2`,
      [this.#clock.nowMs(), limit],
    );
  }

  /**
   * Takes a watched row until `untilMs`, for one of any number of processes; a process that
   * dies leaves it to the next look. `undefined` when another one was faster.
   */
  async claimWatched(row: TopUpRow, untilMs: number): Promise<TopUpRow | undefined> {
    return await this.#row(
      `UPDATE payments_topup SET next_check_ms = $3, attempts = attempts + 1
       WHERE payment_key = $1 AND is_watched = 1 AND next_check_ms = $2 RETURNING *`,
      [row.payment_key, row.next_check_ms, untilMs],
    );
  }

  /** A watched credit is where it was, or in another transaction; `isFinal` ends the watch. */
  async seen(
    key: string,
    seen: Mined & { readonly isFinal: boolean; readonly nextCheckMs: number },
  ): Promise<void> {
    const { transaction, height, isFinal, nextCheckMs } = seen;
    await this.#store.query(
      `UPDATE payments_topup SET tx_id = $2, credited_height = $3, is_watched = $4,
         vanished_ms = NULL, next_check_ms = $5, updated_ms = $6
       WHERE payment_key = $1 AND is_watched = 1 AND state = 'credited'`,
      [key, transaction, height, isFinal ? 0 : 1, nextCheckMs, this.#clock.nowMs()],
    );
  }

  /** A watched credit is not on the chain: since when. */
  async vanished(key: string, sinceMs: number, nextCheckMs: number): Promise<void> {
    await this.#store.query(
      `UPDATE payments_topup SET vanished_ms = $2, next_check_ms = $3, updated_ms = $4
       WHERE payment_key = $1 AND is_watched = 1 AND state = 'credited'`,
      [key, sinceMs, nextCheckMs, this.#clock.nowMs()],
    );
  }

  /** Journals the new transaction of a credit that vanished, before it is sent. */
  async journalVanished(key: string, transaction: string, raw: string): Promise<void> {
    const row = await this.#row(
      `UPDATE payments_topup SET tx_id = $2, raw_tx = $3, updated_ms = $4
       WHERE payment_key = $1 AND state = 'credited' AND is_watched = 1
         AND vanished_ms IS NOT NULL RETURNING *`,
      [key, transaction, raw, this.#clock.nowMs()],
    );
    assert(row !== undefined, 'a credit came back before its payment was sent again');
  }

  /**
   * Flips a credited row back to `sent` and runs `post` in the same database transaction: the payment
   * is pursued, and fails when the chain says so. `undefined` when another process reversed it, or saw
   * it come back.
   */
  async reverse(
    key: string,
    post: (tx: Queryable, row: TopUpRow) => Promise<Nano>,
  ): Promise<Nano | undefined> {
    return await this.#store.transaction(async (tx) => {
      const nowMs = this.#clock.nowMs();
      const [row] = await tx.query<TopUpRow>(
        `UPDATE payments_topup SET state = 'sent', is_watched = 0, vanished_ms = NULL, attempts = 0,
           next_check_ms = $2, updated_ms = $2
         WHERE payment_key = $1 AND state = 'credited' AND is_watched = 1
           AND vanished_ms IS NOT NULL RETURNING *`,
        [key, nowMs],
      );
      if (row === undefined) return undefined;
      const missing = await post(tx, row);
      await tx.query('UPDATE payments_topup SET reversals = reversals + 1 WHERE payment_key = $1', [
        key,
      ]);
      return missing;
    });
  }

  /** Credits of a wallet that the chain could still undo. */
  async notFinal(wallet: string, tx: Queryable = this.#store): Promise<readonly TopUpRow[]> {
    return await tx.query<TopUpRow>(
      `SELECT * FROM payments_topup WHERE is_watched = 1 AND state = 'credited' AND wallet = $1
       ORDER BY created_ms, payment_id`,
      [wallet],
    );
  }

  async counts(): Promise<CreditCounts> {
    const [row] = await this.#store.query<Record<keyof CreditCounts, bigint>>(
      `SELECT (SELECT count(*) FROM payments_topup WHERE is_watched = 1 AND state = 'credited') AS watched,
        (SELECT count(*) FROM payments_topup WHERE is_watched = 1 AND vanished_ms IS NOT NULL) AS vanished,
        (SELECT COALESCE(sum(reversals), 0) FROM payments_topup WHERE reversals > 0) AS reversed`,
    );
    const { watched = 0n, vanished = 0n, reversed = 0n } = row ?? {};
    return { watched: Number(watched), vanished: Number(vanished), reversed: Number(reversed) };
  }

  /** Unfinished rows that nobody works on and that are due. */
  async due(limit: number): Promise<readonly TopUpRow[]> {
    return await this.#store.query<TopUpRow>(
      `SELECT * FROM payments_topup WHERE state IN ('open', 'sent') AND next_check_ms <= $1
         AND (lease_owner IS NULL OR lease_until_ms < $1)
       ORDER BY next_check_ms LIMIT $2`,
      [this.#clock.nowMs(), limit],
    );
  }

  async #row(sql: string, values: Parameters<Store['query']>[1]): Promise<TopUpRow | undefined> {
    const [row] = await this.#store.query<TopUpRow>(sql, values);
    return row;
  }
}

/** Rows from `sinceMs` on whose keys come after `after`, in order of the keys. */
export interface PageOfRows {
  readonly sinceMs: number;
  readonly after: string;
  readonly limit: number;
}

export async function pageOfTopUps(
  store: Queryable,
  page: PageOfRows,
): Promise<readonly TopUpRow[]> {
  return await store.query<TopUpRow>(
    `SELECT * FROM payments_topup WHERE payment_key > $1 AND created_ms >= $2
     ORDER BY payment_key LIMIT $3`,
    [page.after, page.sinceMs, page.limit],
  );
}

export async function countTopUps(store: Queryable, sinceMs: number): Promise<number> {
  const [row] = await store.query<{ total: bigint }>(
    'SELECT count(*) AS total FROM payments_topup WHERE created_ms >= $1',
    [sinceMs],
  );
  return Number(row?.total ?? 0n);
}

/** The transactions of all payments on a network, whatever came of them. */
export async function topUpTransactions(
  store: Queryable,
  network: string,
): Promise<ReadonlySet<string>> {
  const rows = await store.query<{ tx_id: string }>(
    'SELECT tx_id FROM payments_topup WHERE network = $1 AND tx_id IS NOT NULL',
    [network],
  );
  return new Set(rows.map((row) => row.tx_id));
}

/** Sum of the credited payments on networks with this prefix. */
export async function creditedTotal(tx: Queryable, networkPrefix: string): Promise<Nano> {
  const [row] = await tx.query<{ units: bigint }>(
    `SELECT COALESCE(sum(amount_units), 0) AS units FROM payments_topup
     WHERE state = 'credited' AND network LIKE $1`,
    [`${networkPrefix}%`],
  );
  return unitsToNano(row?.units ?? 0n);
}
