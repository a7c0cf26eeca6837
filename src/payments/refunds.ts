/**
 * Refunds of unused credit to the wallet that paid: debited in the ledger in the database
 * transaction that opens the row, signed once as a transfer that can happen at most once, found on
 * the chain as top-ups are. A refund that can never arrive any more is credited back.
 *
 * States: open -> sent(transaction) -> paid | failed. A paid one is watched until the chain cannot
 * undo it; when a reorganisation takes it away it is sent again.
 */
import { type Clock, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import type { Nano } from '../core/money.ts';
import { chainReason } from './chain-reason.ts';
import type { Queryable, Store } from '../db/db.ts';
import { nanoToUnits, unitsToNano } from './networks.ts';
import { walletIdentity, walletKind } from '../core/addresses.ts';
import type { Attempt, Evidence, Rail, RefundRail } from './rail.ts';

/** What the ledger is told about a refund; it posts inside `tx` and gives the new balance. */
export interface RefundEntry {
  readonly wallet: string;
  readonly amountNano: Nano;
  readonly refundId: string;
}

/** Throws a Fault (`INSUFFICIENT_BALANCE`) when the credit does not cover it. */
export type RefundPosting = (tx: Queryable, entry: RefundEntry) => Promise<Nano>;

export interface RefundOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly owner: string;
  readonly rails: ReadonlyMap<string, Rail>;
  readonly debit: RefundPosting;
  /** Takes the debit back after a refund that can never arrive. */
  readonly restore: RefundPosting;
  readonly settleWaitMs: number;
  readonly pollMs: number;
  readonly leaseMs: number;
}

export interface RefundState {
  readonly refundId: string;
  readonly wallet: string;
  readonly amountNano: Nano;
  readonly state: 'open' | 'sent' | 'paid' | 'failed';
  readonly transaction: string | undefined;
  readonly failure: string | undefined;
}

interface RefundRow {
  readonly refund_id: string;
  readonly network: string;
  readonly wallet: string;
  readonly amount_units: bigint;
  readonly state: RefundState['state'];
  readonly authorization_text: string;
  readonly tx_id: string | null;
  readonly raw_tx: string | null;
  readonly start_height: bigint;
  readonly expires_at: bigint;
  readonly failure: string | null;
}

/** A refund that has arrived, as the chain can be asked about it. */
export interface PaidRefund {
  readonly refundId: string;
  readonly network: string;
  readonly amountNano: Nano;
  readonly text: string;
  readonly attempt: Attempt;
}

/** Paid refunds that were ordered at `sinceMs` or later, in order of their id. */
export async function paidRefunds(
  store: Queryable,
  page: { readonly sinceMs: number; readonly after: string; readonly limit: number },
): Promise<readonly PaidRefund[]> {
  const rows = await store.query<RefundRow>(
    `SELECT * FROM payments_refund WHERE state = 'paid' AND refund_id > $1 AND created_ms >= $2
     ORDER BY refund_id LIMIT $3`,
    [page.after, page.sinceMs, page.limit],
  );
  return rows.map((row) => ({
    refundId: row.refund_id,
    network: row.network,
    amountNano: unitsToNano(row.amount_units),
    text: row.authorization_text,
    attempt: attemptOfRefund(row),
  }));
}

function attemptOfRefund(row: RefundRow): Attempt {
  return {
    transaction: row.tx_id ?? undefined,
    raw: row.raw_tx ?? undefined,
    startHeight: row.start_height,
    startBlock: undefined,
    expiresAt: row.expires_at,
  };
}

const RECHECK_MS = 15 * SECOND_MS;
const WATCH_MS = MINUTE_MS;
const SWEEP_ROWS = 20;

export class Refunds {
  readonly #options: RefundOptions;

  constructor(options: RefundOptions) {
    this.#options = options;
  }

  /** Pays credit back. Fractions of a token unit stay as credit. Throws a Fault when nothing was debited. */
  async refund(address: string, amountNano: Nano): Promise<RefundState> {
    const { store, clock, ids, debit, owner, leaseMs } = this.#options;
    if (walletKind(address) === undefined) {
      throw new Fault('INVALID_REQUEST', {
        message: 'The wallet must be an EVM or a Solana address',
      });
    }
    const wallet = walletIdentity(address);
    const { rail, refunds } = this.#railOf(wallet);
    const units = nanoToUnits(amountNano);
    if (units <= 0n)
      throw new Fault('INVALID_AMOUNT', { message: 'The refund must be at least one token unit' });
    const refundId = `refund-${ids.uuid()}`;
    const signed = await refunds.authorize(refundId, wallet, units);
    const nowMs = clock.nowMs();
    await store.transaction(async (tx) => {
      await debit(tx, { wallet, amountNano: unitsToNano(units), refundId });
      await tx.query(
        `INSERT INTO payments_refund (refund_id, network, wallet, amount_units, state,
           authorization_text, start_height, expires_at, lease_owner, lease_until_ms, next_check_ms,
           created_ms, updated_ms)
         VALUES ($1, $2, $3, $4, 'open', $5, $6, $7, $8, $9, $10, $10, $10)`,
        [
          refundId,
          rail.network,
          wallet,
          units,
          signed.text,
          signed.startHeight,
          signed.expiresAt,
          owner,
          nowMs + leaseMs + this.#options.settleWaitMs,
          nowMs,
        ],
      );
    });
    await this.#work(refundId, refunds, true);
    return await this.state(refundId);
  }

  /** Throws a Fault for an unknown refund. */
  async state(refundId: string): Promise<RefundState> {
    const row = await this.#find(refundId);
    if (row === undefined) throw new Fault('REQUEST_ID_NOT_FOUND', { message: 'No such refund' });
    return {
      refundId,
      wallet: row.wallet,
      amountNano: unitsToNano(row.amount_units),
      state: row.state,
      transaction: row.tx_id ?? undefined,
      failure: row.failure ?? undefined,
    };
  }

  /** Finishes refunds that were left behind. */
  async sweep(): Promise<void> {
    const { store, clock, owner, leaseMs } = this.#options;
    const nowMs = clock.nowMs();
    const due = await store.query<RefundRow>(
      `SELECT * FROM payments_refund WHERE state IN ('open', 'sent') AND next_check_ms <= $1
         AND (lease_owner IS NULL OR lease_until_ms < $1) ORDER BY next_check_ms LIMIT $2`,
      [nowMs, SWEEP_ROWS],
    );
    for (const row of due) {
      const refunds = this.#options.rails.get(row.network)?.refunds;
      if (refunds === undefined) continue;
      const leased = await store.query(
        `UPDATE payments_refund SET lease_owner = $2, lease_until_ms = $3
         WHERE refund_id = $1 AND state IN ('open', 'sent')
           AND (lease_owner IS NULL OR lease_until_ms < $4) RETURNING refund_id`,
        [row.refund_id, owner, nowMs + leaseMs, nowMs],
      );
      if (leased.length === 1) await this.#work(row.refund_id, refunds, false);
    }
  }

  /** Looks whether paid refunds are still on the chain; one that is not is under way again. */
  async watch(): Promise<void> {
    const { store, clock, rails, log } = this.#options;
    const nowMs = clock.nowMs();
    const due = await store.query<RefundRow>(
      `SELECT * FROM payments_refund WHERE is_watched = 1 AND next_check_ms <= $1
       ORDER BY next_check_ms LIMIT $2`,
      [nowMs, SWEEP_ROWS],
    );
    for (const row of due) {
      await store.query('UPDATE payments_refund SET next_check_ms = $2 WHERE refund_id = $1', [
        row.refund_id,
        nowMs + WATCH_MS,
      ]);
      const rail = rails.get(row.network);
      if (rail?.refunds === undefined) continue;
      // Before the evidence: what is then found at or below the final height stays there.
      const heights = await rail.heights().catch(() => undefined); // asked again in a minute
      const evidence = await this.#look(row, rail.refunds);
      if (heights === undefined || evidence === undefined) continue;
      if (evidence.kind === 'paid') {
        if (evidence.height > heights.final) continue;
        await store.query('UPDATE payments_refund SET is_watched = 0 WHERE refund_id = $1', [
          row.refund_id,
        ]);
        continue;
      }
      await store.query(
        `UPDATE payments_refund SET state = 'sent', is_watched = 0, next_check_ms = $2
         WHERE refund_id = $1 AND is_watched = 1`,
        [row.refund_id, nowMs],
      );
      log.error(
        { refundId: row.refund_id, network: row.network, transaction: row.tx_id },
        'a refund is not on the chain any more: it is sent again',
      );
    }
  }

  /** Looks, sends what is not under way, looks again; ends the row or leaves it to the sweep. */
  async #work(refundId: string, refunds: RefundRail, wait: boolean): Promise<void> {
    const { clock, log, settleWaitMs, pollMs } = this.#options;
    const deadlineMs = clock.monotonicMs() + (wait ? settleWaitMs : 0);
    for (let round = 0; ; round += 1) {
      const row = await this.#find(refundId);
      if (row === undefined || row.state === 'paid' || row.state === 'failed') return;
      const evidence = await this.#look(row, refunds);
      if (evidence?.kind === 'paid') return await this.#finish(row, evidence.transaction);
      if (evidence?.kind === 'final') return await this.#giveUp(row, evidence.reason);
      if (evidence?.kind === 'open' && evidence.attempt !== 'waiting' && round === 0) {
        try {
          await refunds.send(row.authorization_text, async (id, transaction, raw) => {
            await this.#journal(id, transaction, raw);
          });
        } catch (error) {
          // A lost reply or a refusal: the chain tells which, now or at the next sweep.
          log.warn({ reason: chainReason(error), refundId }, 'a refund gave no answer');
        }
        continue;
      }
      if (clock.monotonicMs() >= deadlineMs) return await this.#leave(refundId);
      await clock.sleep(pollMs);
    }
  }

  async #look(row: RefundRow, refunds: RefundRail): Promise<Evidence | undefined> {
    try {
      return await refunds.find(row.authorization_text, attemptOfRefund(row));
    } catch (error) {
      // Not knowing is no answer: the sweep asks again.
      this.#options.log.warn(
        { reason: chainReason(error) },
        'the chain could not be asked about a refund',
      );
      return undefined;
    }
  }

  async #journal(refundId: string, transaction: string, raw: string): Promise<void> {
    const { store, clock, owner } = this.#options;
    const rows = await store.query(
      `UPDATE payments_refund SET state = 'sent', tx_id = $2, raw_tx = $3, updated_ms = $4
       WHERE refund_id = $1 AND state IN ('open', 'sent') AND lease_owner = $5 RETURNING refund_id`,
      [refundId, transaction, raw, clock.nowMs(), owner],
    );
    if (rows.length !== 1) throw new Error('the refund was taken over by another process');
  }

  async #finish(row: RefundRow, transaction: string): Promise<void> {
    const nowMs = this.#options.clock.nowMs();
    await this.#options.store.query(
      `UPDATE payments_refund SET state = 'paid', tx_id = $2, lease_owner = NULL, updated_ms = $3,
         is_watched = 1, next_check_ms = $4
       WHERE refund_id = $1 AND state IN ('open', 'sent')`,
      [row.refund_id, transaction, nowMs, nowMs + WATCH_MS],
    );
    this.#options.log.info({ refundId: row.refund_id, transaction }, 'a refund has arrived');
  }

  async #giveUp(row: RefundRow, reason: string): Promise<void> {
    const { store, clock, restore, log } = this.#options;
    await store.transaction(async (tx) => {
      const rows = await tx.query(
        `UPDATE payments_refund SET state = 'failed', failure = $2, lease_owner = NULL, updated_ms = $3
         WHERE refund_id = $1 AND state IN ('open', 'sent') RETURNING refund_id`,
        [row.refund_id, reason, clock.nowMs()],
      );
      if (rows.length === 0) return;
      const { wallet, refund_id: refundId } = row;
      await restore(tx, { wallet, refundId, amountNano: unitsToNano(row.amount_units) });
    });
    log.warn({ refundId: row.refund_id, reason }, 'a refund has failed and was credited back');
  }

  async #leave(refundId: string): Promise<void> {
    const { store, clock, owner } = this.#options;
    await store.query(
      `UPDATE payments_refund SET lease_owner = NULL, lease_until_ms = 0, next_check_ms = $2
       WHERE refund_id = $1 AND lease_owner = $3`,
      [refundId, clock.nowMs() + RECHECK_MS, owner],
    );
  }

  async #find(refundId: string): Promise<RefundRow | undefined> {
    const rows = await this.#options.store.query<RefundRow>(
      'SELECT * FROM payments_refund WHERE refund_id = $1',
      [refundId],
    );
    return rows[0];
  }

  #railOf(wallet: string): { rail: Rail; refunds: RefundRail } {
    const family = wallet.startsWith('0x') ? 'eip155:' : 'solana:';
    for (const rail of this.#options.rails.values()) {
      if (rail.network.startsWith(family) && rail.refunds !== undefined) {
        return { rail, refunds: rail.refunds };
      }
    }
    throw new Fault('X402_NOT_CONFIGURED', {
      message:
        'Refunds to this kind of wallet need a refund key and a gas key in the configuration',
    });
  }
}
