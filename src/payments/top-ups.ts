/**
 * The top-up machine: a signed payment in, exactly one credit out, whatever dies in between.
 *
 * - The row is looked up before anything is checked: a credited payment gives its stored answer,
 *   and every payment is judged by the offer that its row was opened under.
 * - A row is opened for an authorization that the check found unused, and only a use after that
 *   credits it: what was on the chain before belongs to somebody else.
 * - What was sent is in the journal before the network sees it.
 * - Whether a payment has arrived is decided by the chain alone (`Rail.findPayment`), never by the
 *   answer to a broadcast; the credit is written in the database transaction that flips the row,
 *   once it is as deep as its amount asks. `credit-watch.ts` watches it from there.
 * - Unknown is not failed: it answers `SETTLEMENT_PENDING` and the sweep finishes it.
 */
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { chainReason } from './chain-reason.ts';
import { FIRST_WATCH_MS } from './credit-watch.ts';
import { encodeHeader } from './header-codec.ts';
import { refusePayment } from './payment.ts';
import type { SignedPayment } from './payment.ts';
import { SettlementRefused } from './rail.ts';
import type { Evidence, Paid, Position, Rail, Verdict } from './rail.ts';
import type { ReceiptSigner } from './receipts.ts';
import { RevertBackoff } from './revert-backoff.ts';
import {
  busy,
  inProgress,
  isChainTrouble,
  notSent,
  pending,
  rejected,
  settlementFailed,
  usedBefore,
} from './top-up-faults.ts';
import { attemptOf, entryOf, NO_ATTEMPT, paymentOf, receiptOf } from './top-up-records.ts';
import type { Credit, OnOpened, Step, TopUpReceipt } from './top-up-records.ts';
import type { TopUpRow, TopUpTable } from './top-up-table.ts';

export interface TopUpOptions {
  readonly rails: ReadonlyMap<string, Rail>;
  readonly table: TopUpTable;
  readonly clock: Clock;
  readonly log: Log;
  readonly credit: Credit;
  readonly receipts: ReceiptSigner | undefined;
  readonly settleWaitMs: number;
  readonly pollMs: number;
  /** An external facilitator sends transactions whose ids we do not know beforehand. */
  readonly isExternal: boolean;
  readonly onStep?: ((step: Step) => void | Promise<void>) | undefined;
}

const FIRST_CHECK_MS = 5 * SECOND_MS;
const MAX_CHECK_MS = 300 * SECOND_MS;
const SWEEP_ROWS = 20;
const STUCK_AFTER_MS = 10 * MINUTE_MS;
/** Payments that are worked on at once; a slow node would gather them without end. */
const MAX_RUNNING = 1_000;

export class TopUps {
  readonly #options: TopUpOptions;
  readonly #running = new Map<
    string,
    { readonly hash: string; readonly done: Promise<TopUpReceipt> }
  >();
  readonly #backoff: RevertBackoff;
  #isSweeping = false;

  constructor(options: TopUpOptions) {
    this.#options = options;
    this.#backoff = new RevertBackoff(options.clock);
  }

  /** Checks a payment without a row, and moves nothing. Throws what `pay` would. */
  async check(payment: SignedPayment): Promise<void> {
    const verdict = await this.#railOf(payment).verify(payment);
    if (verdict.kind !== 'valid') throw await this.#refusal(payment, verdict);
    this.#backoff.check(payment.wallet);
  }

  /** Settles a payment and credits it once. Throws a Fault; `SETTLEMENT_PENDING` means: send the same again. */
  async pay(payment: SignedPayment, onOpened?: OnOpened): Promise<TopUpReceipt> {
    const running = this.#running.get(payment.key);
    if (running !== undefined) {
      if (running.hash === payment.hash) return await running.done;
      throw inProgress();
    }
    if (this.#running.size >= MAX_RUNNING) throw busy();
    return await this.#track(payment, this.#pay(payment, onOpened));
  }

  /** Finishes payments that were left behind, by this process or by one that died. */
  async sweep(): Promise<void> {
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    try {
      for (const row of await this.#options.table.due(SWEEP_ROWS)) await this.#sweepRow(row);
    } finally {
      this.#isSweeping = false;
    }
  }

  /** Makes the payments of ended processes due at once, instead of when their leases are over. */
  async takeOver(): Promise<void> {
    await this.#options.table.takeOver();
  }

  /** Resolves when no payment is under way in this process. */
  async idle(): Promise<void> {
    await Promise.allSettled([...this.#running.values()].map(({ done }) => done));
  }

  async #track(payment: SignedPayment, done: Promise<TopUpReceipt>): Promise<TopUpReceipt> {
    const { table, clock, log } = this.#options;
    this.#running.set(payment.key, { hash: payment.hash, done });
    const stopRenewing = clock.every(table.renewMs, () => {
      table.renew(payment.key).catch((error: unknown) => {
        // Without the lease nothing is sent any more; another process takes over.
        log.warn({ reason: chainReason(error) }, 'the lease of a payment could not be renewed');
      });
    });
    try {
      return await done;
    } finally {
      stopRenewing();
      this.#running.delete(payment.key);
    }
  }

  async #pay(payment: SignedPayment, onOpened?: OnOpened): Promise<TopUpReceipt> {
    const row = await this.#options.table.find(payment.key);
    if (row === undefined) return await this.#begin(payment, onOpened);
    if (row.payload_hash !== payment.hash) return await this.#replace(payment, row, onOpened);
    return await this.#resume(payment, row);
  }

  /** A payment that was never seen: check it, open its row, send it. */
  async #begin(payment: SignedPayment, onOpened?: OnOpened): Promise<TopUpReceipt> {
    const position = await this.#position(payment);
    const verdict = await this.#railOf(payment).verify(payment);
    if (verdict.kind !== 'valid') {
      // Another process may have sent it meanwhile, which reads as a refusal too.
      const row = await this.#options.table.find(payment.key);
      if (row !== undefined) return await this.#pay(payment);
      throw await this.#refusal(payment, verdict);
    }
    this.#backoff.check(payment.wallet);
    const row = await this.#open(payment, position);
    if (row === undefined) return await this.#pay(payment);
    await onOpened?.();
    return await this.#settle(payment);
  }

  /** Why a payment without a row is not taken. Where the check could not tell, the chain can. */
  async #refusal(
    payment: SignedPayment,
    verdict: Exclude<Verdict, { kind: 'valid' }>,
  ): Promise<Fault> {
    const { kind, reason } = verdict;
    if (kind === 'rejected') return rejected(reason);
    let evidence: Evidence;
    try {
      evidence = await this.#railOf(payment).findPayment(payment, NO_ATTEMPT);
    } catch (error) {
      return notSent(chainReason(error));
    }
    if (evidence.kind === 'paid') return usedBefore();
    if (evidence.kind === 'final') return settlementFailed(payment, undefined, evidence.reason);
    return isChainTrouble(reason) ? notSent(reason) : rejected(reason);
  }

  /** Where the chain is before a payment is checked: a use from here on comes after us. */
  async #position(payment: SignedPayment): Promise<Position> {
    try {
      return await this.#railOf(payment).position(payment);
    } catch (error) {
      throw notSent(chainReason(error));
    }
  }

  /** Opens the row with our lease; `undefined` when another process was faster. */
  async #open(payment: SignedPayment, position: Position): Promise<'opened' | undefined> {
    const opened = await this.#options.table.open(payment, position);
    if (opened === 'identifier-taken') {
      throw refusePayment(
        'PAYMENT_IN_PROGRESS',
        'The payment identifier was used with another payment, use a new one',
        { canRetry: false, reason: 'payment_identifier_conflict' },
      );
    }
    if (opened === 'exists') return undefined;
    await this.#options.onStep?.('opened');
    return 'opened';
  }

  /** The same authorization with other content: only one of them can ever be executed. */
  async #replace(
    payment: SignedPayment,
    row: TopUpRow,
    onOpened?: OnOpened,
  ): Promise<TopUpReceipt> {
    if (row.state === 'credited') {
      throw refusePayment(
        'INVALID_PAYMENT',
        'The authorization was already used by another payment',
      );
    }
    if (row.state !== 'failed') throw inProgress();
    const position = await this.#position(payment);
    const verdict = await this.#railOf(payment).verify(payment);
    if (verdict.kind !== 'valid') throw await this.#refusal(payment, verdict);
    if (!(await this.#options.table.reopen(payment, position))) return await this.#pay(payment);
    await onOpened?.();
    return await this.#settle(payment);
  }

  /** A payment that has a row: its stored answer, or the rest of its way. */
  async #resume(payment: SignedPayment, row: TopUpRow): Promise<TopUpReceipt> {
    if (row.state === 'credited') return receiptOf(row);
    if (row.state === 'failed') throw settlementFailed(payment, row.tx_id, row.failure ?? 'failed');
    const leased = await this.#options.table.lease(payment.key);
    if (leased === undefined) return await this.#waitForOther(payment);
    return await this.#continue(payment, leased);
  }

  /** Another process works on the payment: its result appears in the row. */
  async #waitForOther(payment: SignedPayment): Promise<TopUpReceipt> {
    const { table, clock, settleWaitMs, pollMs } = this.#options;
    const deadlineMs = clock.monotonicMs() + settleWaitMs;
    for (;;) {
      const row = await table.find(payment.key);
      if (row === undefined || row.state === 'failed') return await this.#pay(payment);
      if (row.state === 'credited') return receiptOf(row);
      if (clock.monotonicMs() >= deadlineMs) throw pending(payment, row.tx_id);
      await clock.sleep(pollMs);
      const leased = await table.lease(payment.key);
      if (leased !== undefined) return await this.#continue(payment, leased);
    }
  }

  /** We hold the lease of an unfinished row: look at the chain first, send only what is not there. */
  async #continue(payment: SignedPayment, row: TopUpRow | undefined): Promise<TopUpReceipt> {
    const rail = this.#railOf(payment);
    const evidence = await this.#look(payment, row);
    if (evidence === undefined) throw await this.#leave(payment, row);
    if (evidence.kind === 'paid') {
      if (evidence.isConfirmed) return await this.#credit(payment, evidence);
      return await this.#conclude(payment, true);
    }
    if (evidence.kind === 'final') throw await this.#fail(payment, row, evidence.reason);
    if (row?.state === 'sent' && evidence.attempt !== 'reverted' && row.raw_tx !== null) {
      const isAlive = evidence.attempt === 'waiting' || (await this.#rebroadcast(rail, row.raw_tx));
      if (isAlive) return await this.#conclude(payment, true);
    }
    // Nothing is under way: a new transaction of the same single-use authorization is safe.
    const verdict = await rail.verify(payment);
    if (verdict.kind === 'rejected') throw await this.#refuse(payment, row, verdict.reason);
    if (verdict.kind === 'unclear') return await this.#conclude(payment, false);
    const waiting = this.#backoff.refusal(payment.wallet);
    if (waiting === undefined) return await this.#settle(payment);
    await this.#options.table.release(payment.key, this.#nextCheckMs(row), row?.failure ?? null);
    throw waiting;
  }

  /** The chain would refuse the transaction: because somebody else has sent it, or for good reason. */
  async #unsendable(payment: SignedPayment, reason: string): Promise<TopUpReceipt> {
    const row = await this.#options.table.find(payment.key);
    const evidence = await this.#look(payment, row);
    if (evidence === undefined) throw await this.#leave(payment, row);
    if (evidence.kind === 'open') throw await this.#refuse(payment, row, reason);
    return await this.#conclude(payment, true);
  }

  /** Ends a try that the chain refuses, and gives the Fault to throw. */
  async #refuse(payment: SignedPayment, row: TopUpRow | undefined, reason: string): Promise<Fault> {
    const { table } = this.#options;
    if (row?.state === 'sent') {
      await table.release(payment.key, this.#nextCheckMs(row), reason);
      return settlementFailed(payment, row.tx_id, reason);
    }
    await table.drop(payment.key);
    return rejected(reason);
  }

  /** `false` when the bytes can never land. An unanswered broadcast counts as alive. */
  async #rebroadcast(rail: Rail, raw: string): Promise<boolean> {
    try {
      return (await rail.rebroadcast(raw)) === 'sent';
    } catch (error) {
      this.#options.log.warn(
        { reason: chainReason(error) },
        'a transaction could not be sent again',
      );
      return true;
    }
  }

  /** Sends the payment. What came of it is asked of the chain, whatever was answered. */
  async #settle(payment: SignedPayment): Promise<TopUpReceipt> {
    const { table, log, isExternal, onStep } = this.#options;
    try {
      if (isExternal) {
        // Handed over: from here on it may be on the chain under an id that we do not know.
        await table.journal(payment.key, null, null);
        await onStep?.('journaled');
      }
      await this.#railOf(payment).settle(payment, async (key, transaction, raw) => {
        await table.journal(key, transaction, raw);
        await onStep?.('journaled');
      });
    } catch (error) {
      if (error instanceof SettlementRefused) return await this.#unsendable(payment, error.message);
      // A lost reply, a refusal, a time limit: the chain tells which.
      log.warn(
        { reason: chainReason(error), paymentId: payment.id },
        'a settlement gave no answer',
      );
    }
    await onStep?.('settled');
    return await this.#conclude(payment, false);
  }

  /**
   * Asks the chain and ends with a credit, a refusal or "pending": after a while when `wait`, or
   * when the payment has arrived and only its depth is missing.
   */
  async #conclude(payment: SignedPayment, wait: boolean): Promise<TopUpReceipt> {
    const { table, clock, settleWaitMs, pollMs } = this.#options;
    const startMs = clock.monotonicMs();
    for (;;) {
      const row = await table.find(payment.key);
      if (row?.state === 'credited') return receiptOf(row);
      const evidence = await this.#look(payment, row);
      const hasArrived = evidence?.kind === 'paid';
      if (hasArrived && evidence.isConfirmed) return await this.#credit(payment, evidence);
      if (evidence?.kind === 'final') throw await this.#fail(payment, row, evidence.reason);
      if (evidence?.kind === 'open' && evidence.attempt === 'reverted') {
        const reason = 'transaction_reverted';
        if (row?.failure !== reason) this.#backoff.reverted(payment.wallet);
        await table.release(payment.key, this.#nextCheckMs(row), reason);
        throw settlementFailed(payment, row?.tx_id, reason);
      }
      const waitMs = wait || hasArrived ? settleWaitMs : 0;
      if (clock.monotonicMs() - startMs >= waitMs)
        throw await this.#leave(payment, row, hasArrived);
      await clock.sleep(pollMs);
    }
  }

  /** What the chain shows; `undefined` when it cannot be asked. */
  async #look(payment: SignedPayment, row: TopUpRow | undefined): Promise<Evidence | undefined> {
    try {
      return await this.#railOf(payment).findPayment(payment, attemptOf(row));
    } catch (error) {
      this.#options.log.warn(
        { reason: chainReason(error), paymentId: payment.id },
        'the chain could not be asked about a payment',
      );
      return undefined;
    }
  }

  /** Leaves an unfinished row to the sweep and gives the Fault to throw. */
  async #leave(
    payment: SignedPayment,
    row: TopUpRow | undefined,
    hasArrived = false,
  ): Promise<Fault> {
    await this.#options.table.release(payment.key, this.#nextCheckMs(row), row?.failure ?? null);
    if (row?.state === 'sent' || hasArrived) return pending(payment, row?.tx_id ?? null);
    return notSent('the transaction was not sent');
  }

  async #fail(payment: SignedPayment, row: TopUpRow | undefined, reason: string): Promise<Fault> {
    await this.#options.table.fail(payment.key, reason);
    this.#options.log.info({ paymentId: payment.id, reason }, 'a payment has failed for good');
    return settlementFailed(payment, row?.tx_id, reason);
  }

  async #credit(payment: SignedPayment, paid: Paid): Promise<TopUpReceipt> {
    const { table, credit, receipts, clock, log, onStep } = this.#options;
    const { transaction, height } = paid;
    this.#backoff.paid(payment.wallet);
    const receipt = receipts?.sign(payment.network, payment.wallet, transaction);
    const settlement = encodeHeader({
      success: true,
      transaction,
      network: payment.network,
      payer: payment.wallet,
      amount: payment.amountUnits.toString(),
      ...(receipt === undefined ? {} : { extensions: receipt }),
    });
    const balance = await table.credit(
      payment.key,
      { transaction, height, settlement, nextCheckMs: clock.nowMs() + FIRST_WATCH_MS },
      async (tx, row) => await credit(tx, entryOf(row, transaction, 'credit')),
    );
    if (balance !== undefined) {
      log.info(
        { paymentId: payment.id, network: payment.network, transaction },
        'a top-up was credited',
      );
      await onStep?.('credited');
    }
    const row = await table.find(payment.key);
    if (row?.state !== 'credited') throw new Error('a credited payment has lost its row');
    return receiptOf(row);
  }

  async #sweepRow(row: TopUpRow): Promise<void> {
    if (this.#running.has(row.payment_key)) return;
    const rail = this.#options.rails.get(row.network);
    const leased = await this.#options.table.lease(row.payment_key);
    if (leased === undefined) return;
    this.#noteStuck(leased);
    if (rail === undefined) {
      // Its network is not configured any more; others must not wait behind it.
      await this.#options.table.release(row.payment_key, this.#nextCheckMs(row), row.failure);
      return;
    }
    try {
      const payment = await paymentOf(rail, leased);
      await this.#track(payment, this.#sweepLeased(payment, leased));
    } catch (error) {
      // Pending and failed payments end in a Fault here too, and their row says so.
      const { log, table } = this.#options;
      const note = { reason: chainReason(error), paymentId: row.payment_id };
      if (error instanceof Fault) log.debug(note, 'a swept payment is not credited');
      else log.error(note, 'a payment could not be swept');
      await table.release(row.payment_key, this.#nextCheckMs(row), row.failure);
    }
  }

  /**
   * An open row was checked and never sent, because the chain was away or the process died: it is
   * sent now, while it is valid. One that failed after sending is only watched.
   */
  async #sweepLeased(payment: SignedPayment, row: TopUpRow): Promise<TopUpReceipt> {
    const evidence = await this.#look(payment, row);
    // Others do not wait until this one is deep enough.
    if (evidence?.kind === 'paid' && !evidence.isConfirmed) {
      throw await this.#leave(payment, row, true);
    }
    const isJournaled = row.state === 'sent' && row.raw_tx !== null && row.failure === null;
    if (row.state === 'open' || isJournaled) return await this.#continue(payment, row);
    return await this.#conclude(payment, false);
  }

  /** A transaction that is neither mined nor dropped for long needs a person: fees, gas key, node. */
  #noteStuck(row: TopUpRow): void {
    const ageMs = this.#options.clock.nowMs() - Number(row.created_ms);
    if (ageMs < STUCK_AFTER_MS) return;
    const { payment_id: paymentId, network, tx_id: transaction } = row;
    const minutes = Math.floor(ageMs / MINUTE_MS);
    this.#options.log.warn(
      { paymentId, network, transaction, minutes },
      'a payment is not settled for long: check the node and the gas key',
    );
  }

  #nextCheckMs(row: TopUpRow | undefined): number {
    const attempts = Math.min(Number(row?.attempts ?? 0n), 10);
    return this.#options.clock.nowMs() + Math.min(FIRST_CHECK_MS * 2 ** attempts, MAX_CHECK_MS);
  }

  #railOf(payment: SignedPayment): Rail {
    const rail = this.#options.rails.get(payment.network);
    if (rail === undefined) {
      throw refusePayment(
        'X402_NOT_CONFIGURED',
        'Wallet payments on this network are not configured here',
      );
    }
    return rail;
  }
}
