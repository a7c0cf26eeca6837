/**
 * The rows of refunds: open -> sent(transaction) -> paid | failed. A paid row is watched until the chain
 * cannot undo it, and is `sent` again if a reorganisation took it away. Only the owner of its lease
 * changes a row.
 */
import { assert } from '../core/assert.ts';
import { LeasedTable, NO_LEASE, type Queryable } from '../db/db.ts';
import type { PaymentServices } from './payment-options.ts';
import type { Journal, RefundAuthorization } from './rail.ts';
import { type PageOfRows, UNFINISHED } from './top-up-table.ts';

export interface RefundRow {
  readonly refund_id: string;
  readonly network: string;
  readonly wallet: string;
  readonly amount_units: bigint;
  readonly state: 'open' | 'sent' | 'paid' | 'failed';
  readonly authorization_text: string;
  readonly tx_id: string | null;
  readonly raw_tx: string | null;
  readonly start_height: bigint;
  readonly expires_at: bigint;
  readonly failure: string | null;
  readonly is_watched: bigint;
}

export interface NewRefund {
  readonly refundId: string;
  readonly network: string;
  readonly wallet: string;
  readonly units: bigint;
  readonly authorization: RefundAuthorization;
}

export class RefundTable extends LeasedTable<RefundRow> {
  constructor(options: PaymentServices) {
    super({
      ...options,
      table: 'payments_refund',
      key: 'refund_id',
      due: 'next_check_ms',
      columns: '*',
      jobOf: (row) => row as unknown as RefundRow, // the columns of the table
      open: `(${UNFINISHED} OR is_watched = 1)`,
    });
  }

  async find(refundId: string): Promise<RefundRow | undefined> {
    const sql = 'SELECT * FROM payments_refund WHERE refund_id = $1';
    return (await this.jobs(sql, [refundId]))[0];
  }

  async open(tx: Queryable, refund: NewRefund): Promise<void> {
    const { refundId, network, wallet, units, authorization } = refund;
    const { text, startHeight, expiresAt } = authorization;
    const { clock, leaseMs } = this;
    const nowMs = clock.nowMs();
    const lease = [this.owner, leaseMs];
    await tx.query(
      `INSERT INTO payments_refund (refund_id, network, wallet, amount_units, state,
         authorization_text, start_height, expires_at, lease_owner, lease_until_ms, next_check_ms,
         created_ms, updated_ms)
       VALUES ($1, $2, $3, $4, 'open', $5, $6, $7, $8, now_ms($10) + $9, now_ms($10),
         $10, $10)`,
      [refundId, network, wallet, units, text, startHeight, expiresAt, ...lease, nowMs],
    );
  }

  /** Writes the transaction of an unfinished refund before it is sent; throws without its lease. */
  readonly journal: Journal = async (refundId, transaction, raw) => {
    const set = `state = 'sent', tx_id = $3, raw_tx = $4, updated_ms = $5`;
    const values = [transaction, raw, this.clock.nowMs()];
    const isOurs = await this.step(refundId, set, UNFINISHED, values);
    assert(isOurs, 'a refund was taken over by another process before it was sent');
  };

  /** Ends a refund that is on the chain; it is watched after `pauseMs`. */
  async paid(refundId: string, transaction: string, pauseMs: number): Promise<void> {
    const set = `state = 'paid', tx_id = $3, ${NO_LEASE}, updated_ms = $4, is_watched = 1,
      next_check_ms = now_ms($4) + $5`;
    const values = [transaction, this.clock.nowMs(), pauseMs];
    await this.step(refundId, set, UNFINISHED, values);
  }

  /** Ends a refund that can never arrive; returns whether this call did. */
  async failed(tx: Queryable, refundId: string, failure: string): Promise<boolean> {
    const set = `state = 'failed', failure = $3, ${NO_LEASE}, updated_ms = $4`;
    return await this.step(refundId, set, UNFINISHED, [failure, this.clock.nowMs()], tx);
  }

  /** Ends the watch of a paid refund: it is final, or gone from the chain and due again. */
  async watched(refundId: string, state: 'paid' | 'sent'): Promise<void> {
    await this.step(refundId, `state = $3, is_watched = 0`, 'is_watched = 1', [state]);
  }
}

export async function paidRefunds(
  store: Queryable,
  page: PageOfRows,
): Promise<readonly RefundRow[]> {
  return await store.query<RefundRow>(
    `SELECT * FROM payments_refund WHERE state = 'paid' AND refund_id > $1 AND created_ms >= $2
     ORDER BY refund_id LIMIT $3`,
    [page.after, page.sinceMs, page.limit],
  );
}
