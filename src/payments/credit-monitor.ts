/**
 * Watches decided payments until the chain cannot undo the decision.
 *
 * - A credited payment that a reorganisation removed is sent again, from the stored bytes or as a new
 *   transaction of the same single-use authorization. If it is not on the chain again in time, the ledger
 *   reverses the credit in the database transaction that makes the payment pending again.
 * - A failed payment is never sent again. If the block that rejected it is gone and the chain shows it as
 *   paid, its row is revived, and `top-ups.ts` credits it.
 */
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { chainReason } from './chain-log.ts';
import type { SignedPayment } from './payment.ts';
import type { PaymentServices } from './payment-options.ts';
import type { Evidence, Paid, Rail } from './rail.ts';
import { attemptOf, entryOf, paymentOf } from './top-up-records.ts';
import { type TopUpRow, WATCHED } from './top-up-table.ts';

/** Time to the first check of a credit; each further check waits longer. */
export const FIRST_RECHECK_MS = 20 * SECOND_MS;
const MAX_RECHECK_MS = 5 * MINUTE_MS;
const VANISHED_CHECK_MS = 5 * SECOND_MS;
const NO_EVIDENCE_MS = MINUTE_MS;
/** Nodes lag, and a transaction that a reorganisation dropped is usually mined again within some blocks. */
const RETURN_WITHIN_MS = MINUTE_MS;

export class CreditMonitor {
  readonly #options: PaymentServices;

  constructor(options: PaymentServices) {
    this.#options = options;
  }

  async checkCreditsOf(wallet: string): Promise<void> {
    const { table } = this.#options;
    for (const { payment_key: key } of await table.notFinal(wallet)) await this.check(key);
  }

  async check(key: string): Promise<void> {
    const { table, rails, log } = this.#options;
    const work = async (row: TopUpRow): Promise<void> => {
      const rail = rails.get(row.network);
      let pauseMs = NO_EVIDENCE_MS;
      try {
        if (rail !== undefined) pauseMs = await this.#check(rail, row);
      } catch (error) {
        const note = { network: row.network, reason: chainReason(error) };
        log.warn(note, 'The state of a watched payment on the chain is unknown');
      }
      await table.rest(key, pauseMs);
    };
    await table.withLease(key, work, WATCHED);
  }

  /** Returns the pause before the next check. */
  async #check(rail: Rail, row: TopUpRow): Promise<number> {
    const payment = paymentOf(rail, row);
    const attempt = { ...attemptOf(row), seenHeight: row.credited_height };
    const evidence = await rail.findPayment(payment, attempt, 'final');
    if (row.state === 'failed') return await this.#checkFailed(row, evidence);
    if (evidence.kind === 'paid') return await this.#recordSeen(row, evidence);
    const missingMs = await this.#recordVanished(row, evidence);
    if (evidence.kind === 'open' && evidence.attempt !== 'waiting') {
      await this.#sendAgain(rail, payment, row);
    }
    if (missingMs >= RETURN_WITHIN_MS) await this.#reverse(row);
    return VANISHED_CHECK_MS;
  }

  async #checkFailed(row: TopUpRow, evidence: Evidence): Promise<number> {
    const { table, log } = this.#options;
    const { payment_key: key, payment_id: paymentId, network, failure } = row;
    if (evidence.kind === 'paid') {
      if (await table.revive(key)) {
        log.warn(
          { paymentId, network, transaction: evidence.transaction, failure },
          'A failed payment is on the chain: it is credited once its block is deep enough',
        );
      }
      return 0;
    }
    const isFinal = evidence.kind === 'final' && evidence.isConfirmed;
    await table.recordCheck(row, { isFinal });
    return nextCheckInMs(row);
  }

  async #recordSeen(row: TopUpRow, paid: Paid): Promise<number> {
    const { table, log } = this.#options;
    const { transaction, height, isConfirmed: isFinal } = paid;
    await table.recordCheck(row, { transaction, height, isFinal });
    if (row.vanished_ms !== null) {
      const { payment_id: paymentId, network } = row;
      log.warn({ paymentId, network, transaction }, 'A credited payment is on the chain again');
    }
    return nextCheckInMs(row);
  }

  /** Records that a credit is missing on the chain; returns for how long, in ms. */
  async #recordVanished(row: TopUpRow, evidence: Exclude<Evidence, Paid>): Promise<number> {
    const { table, log, onStep } = this.#options;
    const missingMs = await table.recordVanished(row);
    if (row.vanished_ms === null) {
      const { payment_id: paymentId, network, tx_id: transaction } = row;
      const reason = evidence.kind === 'final' ? evidence.reason : 'reorganised';
      log.error(
        { paymentId, network, transaction, reason },
        'A credited payment is no longer on the chain: it is sent again, or its credit is reversed',
      );
    }
    await onStep?.('vanished');
    return missingMs;
  }

  /** Sends the stored bytes, or, if the chain can never accept them, a new transaction. */
  async #sendAgain(rail: Rail, payment: SignedPayment, row: TopUpRow): Promise<void> {
    const { table, log, onStep } = this.#options;
    try {
      const isSent = row.raw_tx !== null && (await rail.rebroadcast(row.raw_tx)) === 'sent';
      if (!isSent && (await rail.verify(payment)).kind === 'valid') {
        await rail.settle(payment, async (key, transaction, raw) => {
          await table.journal(key, transaction, raw);
        });
      }
    } catch (error) {
      // The next check reads the chain.
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
        ? 'A credit was reversed after it was spent: the account cannot spend until it has paid the debt'
        : 'A credit was reversed: its payment is no longer on the chain',
    );
    await onStep?.('reversed');
  }
}

function nextCheckInMs({ attempts }: TopUpRow): number {
  const checks = Math.min(Number(attempts) + 1, 10);
  return Math.min(FIRST_RECHECK_MS * 2 ** checks, MAX_RECHECK_MS);
}
