/**
 * Watches credited payments until the chain cannot undo them. One that a reorganisation took away
 * is sent again, from the kept bytes or as a new transaction of the same single-use authorization;
 * one that has not come back in time is reversed in the ledger, in the database transaction that
 * flips its row. What is reversed and can still be paid is a pending payment again.
 */
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { chainReason } from './chain-reason.ts';
import type { SignedPayment } from './payment.ts';
import type { Evidence, Heights, Paid, Rail } from './rail.ts';
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

  /** Looks at the credits that are due. */
  async sweep(): Promise<void> {
    const { table, rails, clock } = this.#options;
    const heights = new Map<string, Heights | undefined>();
    for (const due of await table.watched(SWEEP_ROWS)) {
      const row = await table.claimWatched(due, clock.nowMs() + CLAIM_MS);
      const rail = rails.get(due.network);
      if (row === undefined || rail === undefined) continue;
      // Before the evidence: what is then found at or below the final height stays there.
      if (!heights.has(rail.network)) {
        const answer = rail.heights().catch((error: unknown) => this.#noAnswer(rail, error));
        heights.set(rail.network, await answer);
      }
      const known = heights.get(rail.network);
      if (known !== undefined) await this.#look(rail, row, known);
    }
  }

  async #look(rail: Rail, row: TopUpRow, heights: Heights): Promise<void> {
    // A node that is behind knows nothing of this block yet.
    if (heights.latest < row.credited_height) return;
    let payment: SignedPayment;
    let evidence: Evidence;
    try {
      payment = paymentOf(rail, row);
      evidence = await rail.findPayment(payment, attemptOf(row));
    } catch (error) {
      this.#noAnswer(rail, error);
      return;
    }
    if (evidence.kind === 'paid') return await this.#seen(row, evidence, heights);
    const sinceMs = await this.#missing(row, evidence);
    if (evidence.kind === 'open' && evidence.attempt !== 'waiting') {
      await this.#sendAgain(rail, payment, row);
    }
    if (this.#options.clock.nowMs() - sinceMs < RETURN_WITHIN_MS) return;
    await this.#reverse(row, evidence.kind === 'final' ? evidence.reason : null);
  }

  async #seen(row: TopUpRow, paid: Paid, heights: Heights): Promise<void> {
    const { table, clock, log } = this.#options;
    const { transaction, height } = paid;
    const looks = Math.min(Number(row.attempts), 10);
    const nextCheckMs = clock.nowMs() + Math.min(FIRST_LOOK_MS * 2 ** looks, MAX_LOOK_MS);
    const isFinal = height <= heights.final;
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

  async #reverse(row: TopUpRow, failure: string | null): Promise<void> {
    const { table, reverse, log, onStep } = this.#options;
    const missing = await table.reverse(row.payment_key, failure, async (tx, current) => {
      return await reverse(tx, entryOf(current, current.tx_id ?? '', 'reversal'));
    });
    if (missing === undefined) return;
    const { payment_id: paymentId, network, wallet, tx_id: transaction } = row;
    log.error(
      { paymentId, network, wallet, transaction, failure, owedNano: missing.toString() },
      missing > 0n
        ? 'A credit was reversed and its account owes what was spent of it: it spends nothing until that is paid'
        : 'A credit was reversed: its payment is not on the chain any more',
    );
    await onStep?.('reversed');
  }

  #noAnswer({ network }: Rail, error: unknown): undefined {
    const note = { network, reason: chainReason(error) };
    this.#options.log.warn(note, 'The chain could not be asked about credited payments');
  }
}
