/**
 * Watches decided payments until the chain cannot undo the decision.
 *
 * - A credit that a reorganisation took away is sent again, from the journaled bytes or as a new
 *   transaction of the same single-use authorization. If it has not come back in time, it is reversed in
 *   the ledger, in the database transaction that flips its row, and is a pending payment again.
 * - A failed payment is never sent again. If the block that refused it is gone and the chain shows it as
 *   paid, its row is revived, and `top-ups.ts` credits it.
 */
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { chainReason } from './chain-log.ts';
import type { SignedPayment } from './payment.ts';
import type { PaymentServices } from './payment-options.ts';
import type { Evidence, Paid, Rail } from './rail.ts';
import { attemptOf, entryOf, paymentOf } from './top-up-records.ts';
import { type TopUpRow, WATCHED } from './top-up-table.ts';

/** Time to the first look at a credit; each further look waits longer. */
export const FIRST_LOOK_MS = 20 * SECOND_MS;
const MAX_LOOK_MS = 5 * MINUTE_MS;
const VANISHED_CHECK_MS = 5 * SECOND_MS;
const NO_EVIDENCE_MS = MINUTE_MS;
/** Nodes lag, and what a reorganisation dropped is usually mined again within some blocks. */
const RETURN_WITHIN_MS = MINUTE_MS;

export class CreditMonitor {
  readonly #options: PaymentServices;

  constructor(options: PaymentServices) {
    this.#options = options;
  }

  /** Looks now at the credits of a wallet that are not final. */
  async lookAtCreditsOf(wallet: string): Promise<void> {
    const { table } = this.#options;
    for (const { payment_key: key } of await table.notFinal(wallet)) await this.look(key);
  }

  /** Looks at a watched row, unless another process does. */
  async look(key: string): Promise<void> {
    const { table, rails, clock, log } = this.#options;
    const work = async (row: TopUpRow): Promise<void> => {
      const rail = rails.get(row.network);
      let nextCheckMs = clock.nowMs() + NO_EVIDENCE_MS;
      try {
        if (rail !== undefined) nextCheckMs = await this.#look(rail, row);
      } catch (error) {
        const note = { network: row.network, reason: chainReason(error) };
        log.warn(note, 'The state of a watched payment on the chain is unknown');
      }
      await table.rest(key, nextCheckMs);
    };
    await table.withLease(key, this.#options, work, WATCHED);
  }

  /** Returns when to look again. */
  async #look(rail: Rail, row: TopUpRow): Promise<number> {
    const payment = paymentOf(rail, row);
    const attempt = { ...attemptOf(row), seenHeight: row.credited_height };
    const evidence = await rail.findPayment(payment, attempt, 'final');
    if (row.state === 'failed') return await this.#failed(row, evidence);
    if (evidence.kind === 'paid') return await this.#seen(row, evidence);
    const sinceMs = await this.#vanished(row, evidence);
    if (evidence.kind === 'open' && evidence.attempt !== 'waiting') {
      await this.#sendAgain(rail, payment, row);
    }
    const nowMs = this.#options.clock.nowMs();
    if (nowMs - sinceMs >= RETURN_WITHIN_MS) await this.#reverse(row);
    return nowMs + VANISHED_CHECK_MS;
  }

  async #failed(row: TopUpRow, evidence: Evidence): Promise<number> {
    const { table, clock, log } = this.#options;
    const { payment_key: key, payment_id: paymentId, network, failure } = row;
    if (evidence.kind === 'paid') {
      if (await table.revive(key)) {
        log.warn(
          { paymentId, network, transaction: evidence.transaction, failure },
          'A payment that had failed is on the chain after all: it is credited once it is deep enough',
        );
      }
      return clock.nowMs();
    }
    const isFinal = evidence.kind === 'final' && evidence.isConfirmed;
    await table.noteLook(row, { isFinal });
    return this.#nextLookMs(row);
  }

  async #seen(row: TopUpRow, paid: Paid): Promise<number> {
    const { table, log } = this.#options;
    const { transaction, height, isConfirmed: isFinal } = paid;
    await table.noteLook(row, { transaction, height, vanishedMs: null, isFinal });
    if (row.vanished_ms !== null) {
      const { payment_id: paymentId, network } = row;
      log.warn({ paymentId, network, transaction }, 'A credited payment is on the chain again');
    }
    return this.#nextLookMs(row);
  }

  /** Notes that a credit is missing on the chain; returns since when. */
  async #vanished(row: TopUpRow, evidence: Exclude<Evidence, Paid>): Promise<number> {
    const { table, clock, log, onStep } = this.#options;
    const sinceMs = row.vanished_ms === null ? clock.nowMs() : Number(row.vanished_ms);
    await table.noteLook(row, { vanishedMs: sinceMs, isFinal: false });
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

  /** Sends the journaled bytes, or, if they can never land, a new transaction. */
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
      // The next look decides by the chain.
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

  #nextLookMs({ attempts }: TopUpRow): number {
    const looks = Math.min(Number(attempts) + 1, 10);
    return this.#options.clock.nowMs() + Math.min(FIRST_LOOK_MS * 2 ** looks, MAX_LOOK_MS);
  }
}
