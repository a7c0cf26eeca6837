/**
 * Watches payments until the chain cannot undo what was decided about them.
 *
 * - A credited one that a reorganisation took away is sent again, from the kept bytes or as a new
 *   transaction of the same single-use authorization; one that has not come back in time is reversed in
 *   the ledger, in the database transaction that flips its row, and is a pending payment again.
 * - A failed one is never sent again by itself. When the block that refused it is gone and the chain
 *   shows it as paid, its row is revived, and `top-ups.ts` credits it.
 */
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { chainReason } from './chain-log.ts';
import type { SignedPayment } from './payment.ts';
import type { Evidence, Paid, Rail } from './rail.ts';
import type { PaymentServices } from './payment-options.ts';
import { attemptOf, entryOf, paymentOf } from './top-up-records.ts';
import type { TopUpRow } from './top-up-table.ts';

/** A new credit is looked at again after so long, then ever more rarely. */
export const FIRST_LOOK_MS = 20 * SECOND_MS;
const MAX_LOOK_MS = 5 * MINUTE_MS;
/** A credit that is missing is looked for in every sweep. */
const VANISHED_CHECK_MS = 5 * SECOND_MS;
/** Nodes lag, and what a reorganisation dropped is as a rule mined again within some blocks. */
const RETURN_WITHIN_MS = MINUTE_MS;
/** A process that dies over a row leaves it for so long. */
const CLAIM_MS = MINUTE_MS;
const SWEEP_ROWS = 50;

export class CreditMonitor {
  readonly #options: PaymentServices;

  constructor(options: PaymentServices) {
    this.#options = options;
  }

  /** Looks at the payments that are due. */
  async sweep(): Promise<void> {
    await this.#lookAt(await this.#options.table.watched(SWEEP_ROWS));
  }

  /** Looks now at the credits of a wallet that are not final. */
  async lookAtCreditsOf(wallet: string): Promise<void> {
    await this.#lookAt(await this.#options.table.notFinal(wallet));
  }

  async #lookAt(rows: readonly TopUpRow[]): Promise<void> {
    const { table, rails, clock } = this.#options;
    for (const due of rows) {
      const row = await table.claimWatched(due, clock.nowMs() + CLAIM_MS);
      const rail = rails.get(due.network);
      if (row !== undefined && rail !== undefined) await this.#look(rail, row);
    }
  }

  async #look(rail: Rail, row: TopUpRow): Promise<void> {
    let payment: SignedPayment;
    let evidence: Evidence;
    try {
      payment = paymentOf(rail, row);
      const attempt = { ...attemptOf(row), seenHeight: row.credited_height };
      evidence = await rail.findPayment(payment, attempt, 'final');
    } catch (error) {
      this.#noAnswer(rail, error);
      return;
    }
    if (row.state === 'failed') return await this.#failed(row, evidence);
    if (evidence.kind === 'paid') return await this.#seen(row, evidence);
    const sinceMs = await this.#missing(row, evidence);
    if (evidence.kind === 'open' && evidence.attempt !== 'waiting') {
      await this.#sendAgain(rail, payment, row);
    }
    if (this.#options.clock.nowMs() - sinceMs < RETURN_WITHIN_MS) return;
    await this.#reverse(row);
  }

  /** When the row is looked at next: ever more rarely. */
  #nextCheckMs(row: TopUpRow): number {
    const looks = Math.min(Number(row.attempts), 10);
    return this.#options.clock.nowMs() + Math.min(FIRST_LOOK_MS * 2 ** looks, MAX_LOOK_MS);
  }

  async #failed(row: TopUpRow, evidence: Evidence): Promise<void> {
    const { table, log } = this.#options;
    const { payment_key: key, payment_id: paymentId, network, failure } = row;
    if (evidence.kind !== 'paid') {
      const isFinal = evidence.kind === 'final' && evidence.isConfirmed;
      return await table.stillFailed(key, isFinal, this.#nextCheckMs(row));
    }
    if (!(await table.revive(key))) return;
    log.warn(
      { paymentId, network, transaction: evidence.transaction, failure },
      'A payment that had failed is on the chain after all: it is credited once it is deep enough',
    );
  }

  async #seen(row: TopUpRow, paid: Paid): Promise<void> {
    const { table, log } = this.#options;
    const { transaction, height, isConfirmed: isFinal } = paid;
    const nextCheckMs = this.#nextCheckMs(row);
    await table.seen(row.payment_key, { transaction, height, isFinal, nextCheckMs });
    if (row.vanished_ms === null) return;
    const { payment_id: paymentId, network } = row;
    log.warn({ paymentId, network, transaction }, 'A credited payment is on the chain again');
  }

  /** Notes that a credit is missing; since when. */
  async #missing(row: TopUpRow, evidence: Exclude<Evidence, Paid>): Promise<number> {
    const { table, clock, log, onStep } = this.#options;
    const nowMs = clock.nowMs();
    const sinceMs = row.vanished_ms === null ? nowMs : Number(row.vanished_ms);
    await table.vanished(row.payment_key, sinceMs, nowMs + VANISHED_CHECK_MS);
    if (row.vanished_ms === null) {
      const { payment_id: paymentId, network, tx_id: transaction } = row;
      const reason = evidence.kind === 'final' ? evidence.reason : 'reorganised';
      log.error(
        { paymentId, network, transaction, reason },
        'A credited payment is not on the chain any more: it is sent again, or its credit is reversed',
      );
    }
    await onStep?.('vanished');
    return sinceMs;
  }

  /** The kept bytes first; when they are dead, a new transaction of the same authorization. */
  async #sendAgain(rail: Rail, payment: SignedPayment, row: TopUpRow): Promise<void> {
    const { table, log, onStep } = this.#options;
    try {
      const isSent = row.raw_tx !== null && (await rail.rebroadcast(row.raw_tx)) === 'sent';
      if (!isSent && (await rail.verify(payment)).kind === 'valid') {
        await rail.settle(payment, async (key, transaction, raw) => {
          await table.journalVanished(key, transaction, raw);
        });
      }
    } catch (error) {
      // The next look asks the chain what came of it.
      const note = { reason: chainReason(error), paymentId: row.payment_id };
      log.warn(note, 'A payment that vanished could not be sent again');
    }
    await onStep?.('resent');
  }

  async #reverse(row: TopUpRow): Promise<void> {
    const { table, reverse, log, onStep } = this.#options;
    const missing = await table.reverse(row.payment_key, async (tx, current) => {
      return await reverse(tx, entryOf(current, current.tx_id ?? '', 'reversal'));
    });
    if (missing === undefined) return;
    const { payment_id: paymentId, network, wallet, tx_id: transaction } = row;
    log.error(
      { paymentId, network, wallet, transaction, owedNano: missing.toString() },
      missing > 0n
        ? 'A credit was reversed and its account owes what was spent of it: it spends nothing until that is paid'
        : 'A credit was reversed: its payment is not on the chain any more',
    );
    await onStep?.('reversed');
  }

  #noAnswer({ network }: Rail, error: unknown): void {
    const note = { network, reason: chainReason(error) };
    this.#options.log.warn(note, 'The chain could not be asked about a watched payment');
  }
}
