/**
 * The rows of top-ups: open -> sent(transaction) -> credited | failed. Both ends are watched until the
 * chain cannot undo them: a credit whose money is gone is reversed, and a failed payment that has
 * arrived is revived; each is `sent` again.
 *
 * Invariants: one row per signed authorization (the primary key); a payment keeps its `tx_id`; only the
 * owner of its lease changes a row, except for the changes to and from `credited`, which are conditional
 * on the state, so that one of any number of processes makes them; a credited row that is not watched
 * never changes again, and a failed one only by an operator's recovery or by another payment under the
 * same authorization.
 */
import { assert } from '../core/assert.ts';
import { HOUR_MS } from '../core/clock.ts';
import type { Nano } from '../core/money.ts';
import {
  LONGEST_PAUSE_MS,
  type LeaseOptions,
  LeasedTable,
  NO_LEASE,
  type Parameter,
  type Queryable,
  isUniqueViolation,
} from '../db/db.ts';
import { unitsToNano } from './networks.ts';
import type { SignedPayment } from './payment.ts';
import { type Paid, type Position, REVERTED } from './rail.ts';
import { identifierTaken } from './top-up-faults.ts';

/** Condition for payments and refunds that are not decided. */
export const UNFINISHED = `state IN ('open', 'sent')`;
/** Condition for decided ones that the chain could still undo. */
export const WATCHED = 'is_watched = 1';

/**
 * Payers can make any number of payments revert, without an end, and each check calls the nodes. A repeated
 * header checks its payment at once.
 */
export const MAX_REVERTED_CHECK_MS = HOUR_MS;

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
  /** JSON of the offer that was paid; null in rows of an older version. */
  readonly offer: string | null;
  readonly credited_height: bigint;
  /** 1 while the chain could still undo the credit, or the failure. */
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

/** Observations of a watched row on the chain; a missing member keeps its value. */
interface CheckResult {
  readonly transaction?: string;
  readonly height?: bigint;
  /** Ends the watch. */
  readonly isFinal: boolean;
}

export class TopUpTable extends LeasedTable<TopUpRow> {
  constructor(options: LeaseOptions) {
    super({
      ...options,
      table: 'payments_topup',
      key: 'payment_key',
      due: 'next_check_ms',
      columns: '*',
      jobOf: (row) => row as unknown as TopUpRow, // the columns of the table
      longestPause: `CASE failure WHEN '${REVERTED}' THEN ${MAX_REVERTED_CHECK_MS}
        ELSE ${LONGEST_PAUSE_MS} END`,
      open: UNFINISHED,
    });
  }

  async find(key: string): Promise<TopUpRow | undefined> {
    return await this.#row('SELECT * FROM payments_topup WHERE payment_key = $1', [key]);
  }

  /** Also makes postponed payments due: the restart may have fixed what they wait for. */
  override async freeAll(): Promise<void> {
    await super.freeAll();
    await this.store.query(`UPDATE payments_topup SET next_check_ms = 0 WHERE ${UNFINISHED}`);
  }

  /**
   * Inserts an `open` row with our lease, in place of a row under the same authorization that has
   * failed permanently. Returns `undefined` if there is another row. Throws a Fault if the wallet
   * has used the identifier for another payment.
   */
  async open(payment: SignedPayment, position: Position): Promise<TopUpRow | undefined> {
    const { clock, leaseMs } = this;
    const nowMs = clock.nowMs();
    try {
      return await this.#row(
        `INSERT INTO payments_topup (payment_key, payment_id, network, wallet, amount_units, payload,
           payload_hash, identifier, state, start_height, expires_at, lease_owner, lease_until_ms,
           next_check_ms, attempts, created_ms, updated_ms, start_block, offer)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 'open', $9, $10, $11, now_ms($13) + $12, now_ms($13),
           0, $13, $13, $14, $15)
         ON CONFLICT (payment_key) DO UPDATE SET state = 'open', amount_units = $5, payload = $6,
           payload_hash = $7, identifier = $8, start_height = $9, expires_at = $10, lease_owner = $11,
           lease_until_ms = now_ms($13) + $12, attempts = 0, created_ms = $13, updated_ms = $13,
           start_block = $14, offer = $15, failure = NULL, tx_id = NULL, raw_tx = NULL
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
          this.owner,
          leaseMs,
          nowMs,
          position.startBlock ?? null,
          JSON.stringify(payment.offer),
        ],
      );
    } catch (error) {
      // The unique index of wallet and identifier.
      throw isUniqueViolation(error) ? identifierTaken() : error;
    }
  }

  /**
   * Writes a transaction before it is sent, of an unfinished payment or of a credit that vanished. Throws
   * if another process has the lease, or if the credit is on the chain again.
   */
  async journal(key: string, transaction: string | null, raw: string | null): Promise<TopUpRow> {
    const { clock, leaseMs } = this;
    const nowMs = clock.nowMs();
    const row = await this.#row(
      `UPDATE payments_topup SET state = CASE WHEN state = 'credited' THEN state ELSE 'sent' END,
         tx_id = COALESCE($2, tx_id), raw_tx = COALESCE($3, raw_tx), failure = NULL,
         lease_until_ms = now_ms($5) + $4, updated_ms = $5
       WHERE payment_key = $1 AND lease_owner = $6 AND lease_until_ms > now_ms($5) AND (state IN ('open', 'sent')
         OR state = 'credited' AND is_watched = 1 AND vanished_ms IS NOT NULL)
       RETURNING *`,
      [key, transaction, raw, leaseMs, nowMs, this.owner],
    );
    assert(row !== undefined, 'a payment was taken over by another process before it was sent');
    return row;
  }

  /** Releases an unfinished row for `pauseMs`, with the reason why it is not finished. */
  async postpone(key: string, pauseMs: number, failure: string | null): Promise<void> {
    const set = `${NO_LEASE}, next_check_ms = now_ms($5) + $3, attempts = attempts + 1,
      failure = $4, updated_ms = $5`;
    await this.step(key, set, UNFINISHED, [pauseMs, failure, this.clock.nowMs()]);
  }

  /** Deletes an open row of which nothing was sent. */
  async drop(key: string): Promise<void> {
    await this.store.query(
      `DELETE FROM payments_topup WHERE payment_key = $1 AND state = 'open' AND lease_owner = $2`,
      [key, this.owner],
    );
  }

  /** Ends a row, which is watched after `pauseMs`; frees the identifier for another payment. */
  async fail(key: string, failure: string, pauseMs: number): Promise<void> {
    const set = `state = 'failed', failure = $3, identifier = NULL, ${NO_LEASE}, updated_ms = $4,
      attempts = 0, is_watched = 1, next_check_ms = now_ms($4) + $5`;
    await this.step(key, set, UNFINISHED, [failure, this.clock.nowMs(), pauseMs]);
  }

  /**
   * Makes a failed row `sent`. It keeps its failure, so it is searched on the chain and never sent again:
   * the response to its payer was a failure. Returns `false` if it is not failed any more.
   */
  async revive(key: string): Promise<boolean> {
    const row = await this.#row(
      `UPDATE payments_topup SET state = 'sent', is_watched = 0, attempts = 0,
         next_check_ms = now_ms($2), updated_ms = $2, ${NO_LEASE}
       WHERE payment_key = $1 AND state = 'failed' RETURNING *`,
      [key, this.clock.nowMs()],
    );
    return row !== undefined;
  }

  /**
   * Makes a row `credited` and runs `post` in the same database transaction. Returns `false` if the row
   * was credited before. The credit is watched after `pauseMs`.
   */
  async credit(
    key: string,
    credited: Mined & { readonly settlement: string; readonly pauseMs: number },
    post: (tx: Queryable, row: TopUpRow) => Promise<Nano>,
  ): Promise<boolean> {
    const { transaction, height, settlement, pauseMs } = credited;
    return await this.store.transaction(async (tx) => {
      const [row] = await tx.query<TopUpRow>(
        `UPDATE payments_topup SET state = 'credited', tx_id = $2, settlement = $3, failure = NULL,
           ${NO_LEASE}, updated_ms = $4, attempts = 0, is_watched = 1,
           vanished_ms = NULL, credited_height = $5, next_check_ms = now_ms($4) + $6
         WHERE payment_key = $1 AND state <> 'credited' RETURNING *`,
        [key, transaction, settlement, this.clock.nowMs(), height, pauseMs],
      );
      if (row === undefined) return false;
      await tx.query('UPDATE payments_topup SET new_balance_nano = $2 WHERE payment_key = $1', [
        key,
        await post(tx, row),
      ]);
      return true;
    });
  }

  /** Writes what the chain shows about a row that is still watched, except for a credit that is missing. */
  async recordCheck(row: TopUpRow, result: CheckResult): Promise<void> {
    const { transaction = row.tx_id, height = row.credited_height, isFinal } = result;
    await this.store.query(
      `UPDATE payments_topup SET tx_id = $3, credited_height = $4, vanished_ms = NULL, is_watched = $5,
         attempts = attempts + 1,
         updated_ms = CASE WHEN state = 'credited' THEN CAST($6 AS BIGINT) ELSE updated_ms END
       WHERE payment_key = $1 AND is_watched = 1 AND state = $2`,
      [row.payment_key, row.state, transaction, height, isFinal ? 0 : 1, this.clock.nowMs()],
    );
  }

  /**
   * Records that a watched credit is missing on the chain. Returns for how long it has been, in ms, by the
   * database clock; the time begins again when that clock is set back.
   */
  async recordVanished({ payment_key: key }: TopUpRow): Promise<number> {
    const [row] = await this.store.query<{ missing_ms: bigint }>(
      `UPDATE payments_topup SET attempts = attempts + 1, updated_ms = $2,
         vanished_ms = CASE WHEN vanished_ms <= now_ms($2) THEN vanished_ms ELSE now_ms($2) END
       WHERE payment_key = $1 AND is_watched = 1 AND state = 'credited'
       RETURNING now_ms($2) - vanished_ms AS missing_ms`,
      [key, this.clock.nowMs()],
    );
    return Number(row?.missing_ms ?? 0n);
  }

  /**
   * Makes a vanished credit `sent` again and runs `post` in the same database transaction. Returns
   * `undefined` if another process reversed it, or found it on the chain again.
   */
  async reverse(
    key: string,
    post: (tx: Queryable, row: TopUpRow) => Promise<Nano>,
  ): Promise<Nano | undefined> {
    return await this.store.transaction(async (tx) => {
      const [row] = await tx.query<TopUpRow>(
        `UPDATE payments_topup SET state = 'sent', is_watched = 0, vanished_ms = NULL, attempts = 0,
           next_check_ms = now_ms($2), updated_ms = $2, ${NO_LEASE}
         WHERE payment_key = $1 AND state = 'credited' AND is_watched = 1
           AND vanished_ms IS NOT NULL RETURNING *`,
        [key, this.clock.nowMs()],
      );
      if (row === undefined) return undefined;
      const missing = await post(tx, row);
      await tx.query('UPDATE payments_topup SET reversals = reversals + 1 WHERE payment_key = $1', [
        key,
      ]);
      return missing;
    });
  }

  async notFinal(wallet: string, tx: Queryable = this.store): Promise<readonly TopUpRow[]> {
    return await tx.query<TopUpRow>(
      `SELECT * FROM payments_topup WHERE is_watched = 1 AND state = 'credited' AND wallet = $1
       ORDER BY created_ms, payment_id`,
      [wallet],
    );
  }

  /** The network of the latest credited payment of a wallet. */
  async latestNetwork(wallet: string): Promise<string | undefined> {
    const [row] = await this.store.query<{ network: string }>(
      `SELECT network FROM payments_topup WHERE wallet = $1 AND state = 'credited'
       ORDER BY created_ms DESC, payment_key DESC LIMIT 1`,
      [wallet],
    );
    return row?.network;
  }

  async counts(): Promise<CreditCounts> {
    const [row] = await this.store.query<Record<keyof CreditCounts, bigint>>(
      `SELECT (SELECT count(*) FROM payments_topup WHERE is_watched = 1 AND state = 'credited') AS watched,
        (SELECT count(*) FROM payments_topup WHERE is_watched = 1 AND vanished_ms IS NOT NULL) AS vanished,
        (SELECT COALESCE(sum(reversals), 0) FROM payments_topup WHERE reversals > 0) AS reversed`,
    );
    const { watched = 0n, vanished = 0n, reversed = 0n } = row ?? {};
    return { watched: Number(watched), vanished: Number(vanished), reversed: Number(reversed) };
  }

  async #row(sql: string, values: readonly Parameter[]): Promise<TopUpRow | undefined> {
    return (await this.jobs(sql, values))[0];
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

/** Sums of the credited payments by network. */
export async function creditedTotals(tx: Queryable): Promise<ReadonlyMap<string, Nano>> {
  const rows = await tx.query<{ network: string; units: bigint }>(
    `SELECT network, sum(amount_units) AS units FROM payments_topup
     WHERE state = 'credited' GROUP BY network`,
  );
  return new Map(rows.map(({ network, units }) => [network, unitsToNano(units)]));
}
