/**
 * Refunds of unused credit to the wallet that paid, as far as that credit is final: a payment that the
 * chain could still take back stays covered by the balance. A refund is debited in the ledger in the database
 * transaction that opens the row, signed once as a transfer that can happen at most once, found on
 * the chain as top-ups are. A refund that can never arrive any more is credited back, once the blocks
 * that say so are final.
 *
 * States: open -> sent(transaction) -> paid | failed. A paid one is watched until the chain cannot
 * undo it; when a reorganisation takes it away it is sent again.
 */
import { walletIdentity, walletKind } from '../core/addresses.ts';
import { assert } from '../core/assert.ts';
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, formatUsd, nano } from '../core/money.ts';
import type { Queryable } from '../db/db.ts';
import { chainReason } from './chain-log.ts';
import type { CreditMonitor } from './credit-monitor.ts';
import { nanoToUnits, unitsToNano } from './networks.ts';
import type { Evidence, Journal, RefundRail } from './rail.ts';
import type { PaymentServices } from './payment-options.ts';
import { attemptOf } from './top-up-records.ts';
import type { PageOfRows } from './top-up-table.ts';

export interface RefundState {
  readonly refundId: string;
  readonly wallet: string;
  readonly amountNano: Nano;
  readonly state: 'open' | 'sent' | 'paid' | 'failed';
  readonly transaction: string | undefined;
  readonly failure: string | undefined;
}

/** A credited payment that the chain could still take back. */
export interface OpenCredit {
  readonly paymentId: string;
  readonly transaction: string | undefined;
  readonly amountNano: Nano;
}

export interface RefundRow {
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

const RECHECK_MS = 15 * SECOND_MS;
const MONITOR_MS = MINUTE_MS;
const SWEEP_ROWS = 20;

export class Refunds {
  readonly #options: PaymentServices;
  readonly #monitor: CreditMonitor;

  constructor(options: PaymentServices, monitor: CreditMonitor) {
    this.#options = options;
    this.#monitor = monitor;
  }

  /** The credits of a wallet that are not final, as the chain has them now. Throws a Fault for no wallet. */
  async openCredits(address: string): Promise<readonly OpenCredit[]> {
    const wallet = walletOf(address);
    await this.#monitor.lookAtCreditsOf(wallet);
    return await this.#openCredits(wallet);
  }

  /**
   * Pays credit back that is final. Fractions of a token unit stay as credit. Throws a Fault when
   * nothing was debited.
   */
  async refund(address: string, amountNano: Nano): Promise<RefundState> {
    const { store, clock, ids, debitRefund, owner, leaseMs, settleWaitMs } = this.#options;
    const wallet = walletOf(address);
    await this.#monitor.lookAtCreditsOf(wallet);
    const { network, refunds } = this.#railOf(wallet);
    const units = nanoToUnits(amountNano);
    if (units <= 0n) {
      throw new Fault('INVALID_AMOUNT', { message: 'The refund must be at least one token unit' });
    }
    const refundId = `refund-${ids.uuid()}`;
    const { text, startHeight, expiresAt } = await refunds.authorize(refundId, wallet, units);
    const nowMs = clock.nowMs();
    const untilMs = nowMs + leaseMs + settleWaitMs;
    const row = [refundId, network, wallet, units, text, startHeight, expiresAt, owner, untilMs];
    await store.transaction(async (tx) => {
      const leftNano = await debitRefund(tx, { wallet, amountNano: unitsToNano(units), refundId });
      const open = await this.#openCredits(wallet, tx);
      if (leftNano < sumOf(open)) throw notFinal(wallet, open);
      await tx.query(
        `INSERT INTO payments_refund (refund_id, network, wallet, amount_units, state,
           authorization_text, start_height, expires_at, lease_owner, lease_until_ms, next_check_ms,
           created_ms, updated_ms)
         VALUES ($1, $2, $3, $4, 'open', $5, $6, $7, $8, $9, $10, $10, $10)`,
        [...row, nowMs],
      );
    });
    await this.#work(refundId, refunds, true);
    return await this.state(refundId);
  }

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
    const { store, clock, rails, owner, leaseMs } = this.#options;
    const nowMs = clock.nowMs();
    const due = await store.query<RefundRow>(
      `SELECT * FROM payments_refund WHERE state IN ('open', 'sent') AND next_check_ms <= $1
         AND (lease_owner IS NULL OR lease_until_ms < $1) ORDER BY next_check_ms LIMIT $2`,
      [nowMs, SWEEP_ROWS],
    );
    for (const { refund_id: refundId, network } of due) {
      const refunds = rails.get(network)?.refunds;
      if (refunds === undefined) continue;
      const leased = await store.query(
        `UPDATE payments_refund SET lease_owner = $2, lease_until_ms = $3
         WHERE refund_id = $1 AND state IN ('open', 'sent')
           AND (lease_owner IS NULL OR lease_until_ms < $4) RETURNING refund_id`,
        [refundId, owner, nowMs + leaseMs, nowMs],
      );
      if (leased.length === 1) await this.#work(refundId, refunds, false);
    }
  }

  /** Looks whether paid refunds are still on the chain; one that is not is under way again. */
  async monitor(): Promise<void> {
    const { store, clock, rails, log } = this.#options;
    const nowMs = clock.nowMs();
    const due = await store.query<RefundRow>(
      `SELECT * FROM payments_refund WHERE is_watched = 1 AND next_check_ms <= $1
       ORDER BY next_check_ms LIMIT $2`,
      [nowMs, SWEEP_ROWS],
    );
    for (const row of due) {
      const { refund_id: refundId, network, tx_id: transaction } = row;
      await store.query('UPDATE payments_refund SET next_check_ms = $2 WHERE refund_id = $1', [
        refundId,
        nowMs + MONITOR_MS,
      ]);
      const refunds = rails.get(network)?.refunds;
      if (refunds === undefined) continue;
      const evidence = await this.#look(row, refunds);
      if (evidence === undefined) continue;
      if (evidence.kind === 'paid') {
        if (!evidence.isConfirmed) continue;
        await store.query('UPDATE payments_refund SET is_watched = 0 WHERE refund_id = $1', [
          refundId,
        ]);
        continue;
      }
      await store.query(
        `UPDATE payments_refund SET state = 'sent', is_watched = 0, next_check_ms = $2
         WHERE refund_id = $1 AND is_watched = 1`,
        [refundId, nowMs],
      );
      log.error(
        { refundId, network, transaction },
        'A refund is not on the chain any more: it is sent again',
      );
    }
  }

  /** Looks, sends what is not under way, looks again; ends the row or leaves it to the sweep. */
  async #work(refundId: string, refunds: RefundRail, wait: boolean): Promise<void> {
    const { clock, log, settleWaitMs, pollMs } = this.#options;
    const deadlineMs = clock.monotonicMs() + (wait ? settleWaitMs : 0);
    for (let isSent = false; ;) {
      const row = await this.#find(refundId);
      if (row === undefined || row.state === 'paid' || row.state === 'failed') return;
      const evidence = await this.#look(row, refunds);
      if (evidence?.kind === 'paid') return await this.#finish(row, evidence.transaction);
      if (evidence?.kind === 'final' && evidence.isConfirmed) {
        return await this.#giveUp(row, evidence.reason);
      }
      if (evidence?.kind === 'open' && evidence.attempt !== 'waiting' && !isSent) {
        isSent = true;
        try {
          await refunds.send(row.authorization_text, this.#journal);
        } catch (error) {
          // A lost reply or a refusal: the chain tells which, now or at the next sweep.
          log.warn({ reason: chainReason(error), refundId }, 'A refund gave no answer');
        }
        continue;
      }
      if (clock.monotonicMs() >= deadlineMs) return await this.#leave(refundId);
      isSent = true;
      await clock.sleep(pollMs);
    }
  }

  async #look(row: RefundRow, refunds: RefundRail): Promise<Evidence | undefined> {
    try {
      return await refunds.find(row.authorization_text, attemptOf(row));
    } catch (error) {
      // Not knowing is no answer: the sweep asks again.
      const note = { reason: chainReason(error) };
      this.#options.log.warn(note, 'The chain could not be asked about a refund');
      return undefined;
    }
  }

  readonly #journal: Journal = async (refundId, transaction, raw) => {
    const { store, clock, owner } = this.#options;
    const rows = await store.query(
      `UPDATE payments_refund SET state = 'sent', tx_id = $2, raw_tx = $3, updated_ms = $4
       WHERE refund_id = $1 AND state IN ('open', 'sent') AND lease_owner = $5 RETURNING refund_id`,
      [refundId, transaction, raw, clock.nowMs(), owner],
    );
    assert(rows.length === 1, 'a refund was taken over by another process before it was sent');
  };

  async #finish({ refund_id: refundId }: RefundRow, transaction: string): Promise<void> {
    const { store, clock, log } = this.#options;
    const nowMs = clock.nowMs();
    await store.query(
      `UPDATE payments_refund SET state = 'paid', tx_id = $2, lease_owner = NULL, updated_ms = $3,
         is_watched = 1, next_check_ms = $4
       WHERE refund_id = $1 AND state IN ('open', 'sent')`,
      [refundId, transaction, nowMs, nowMs + MONITOR_MS],
    );
    log.info({ refundId, transaction }, 'A refund has arrived');
  }

  async #giveUp(row: RefundRow, reason: string): Promise<void> {
    const { store, clock, restoreRefund, log } = this.#options;
    const { refund_id: refundId, wallet } = row;
    await store.transaction(async (tx) => {
      const rows = await tx.query(
        `UPDATE payments_refund SET state = 'failed', failure = $2, lease_owner = NULL, updated_ms = $3
         WHERE refund_id = $1 AND state IN ('open', 'sent') RETURNING refund_id`,
        [refundId, reason, clock.nowMs()],
      );
      if (rows.length === 0) return;
      await restoreRefund(tx, { wallet, refundId, amountNano: unitsToNano(row.amount_units) });
    });
    log.warn({ refundId, reason }, 'A refund has failed and was credited back');
  }

  async #leave(refundId: string): Promise<void> {
    const { store, clock, owner } = this.#options;
    await store.query(
      `UPDATE payments_refund SET lease_owner = NULL, lease_until_ms = 0, next_check_ms = $2
       WHERE refund_id = $1 AND lease_owner = $3`,
      [refundId, clock.nowMs() + RECHECK_MS, owner],
    );
  }

  async #openCredits(wallet: string, tx?: Queryable): Promise<readonly OpenCredit[]> {
    const rows = await this.#options.table.notFinal(wallet, tx);
    return rows.map((row) => ({
      paymentId: row.payment_id,
      transaction: row.tx_id ?? undefined,
      amountNano: unitsToNano(row.amount_units),
    }));
  }

  async #find(refundId: string): Promise<RefundRow | undefined> {
    const [row] = await this.#options.store.query<RefundRow>(
      'SELECT * FROM payments_refund WHERE refund_id = $1',
      [refundId],
    );
    return row;
  }

  #railOf(wallet: string): { network: string; refunds: RefundRail } {
    const family = wallet.startsWith('0x') ? 'eip155:' : 'solana:';
    for (const { network, refunds } of this.#options.rails.values()) {
      if (network.startsWith(family) && refunds !== undefined) return { network, refunds };
    }
    throw new Fault('X402_NOT_CONFIGURED', {
      message:
        'Refunds to this kind of wallet need a refund key and a gas key in the configuration',
    });
  }
}

/** The identity of an address. Throws a Fault. */
function walletOf(address: string): string {
  if (walletKind(address) !== undefined) return walletIdentity(address);
  throw new Fault('INVALID_REQUEST', { message: 'The wallet must be an EVM or a Solana address' });
}

export function sumOf(open: readonly OpenCredit[]): Nano {
  return nano(open.reduce((sum, { amountNano }) => sum + amountNano, 0n));
}

function notFinal(wallet: string, open: readonly OpenCredit[]): Fault {
  const named = open.map(
    ({ paymentId, amountNano }) => `${paymentId} (${formatUsd(amountNano, 6)} USD)`,
  );
  return new Fault('INSUFFICIENT_BALANCE', {
    message: `The wallet ${wallet} has less final credit than that: the chain could still take back ${named.join(', ')}. Refund these when they are final, or a smaller amount now`,
  });
}
