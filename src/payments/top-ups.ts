/**
 * Turns a signed payment into exactly one credit, whichever process ends in between.
 *
 * - `payment-headers.ts` has checked the signature. The row is read before the payment is verified on the
 *   chain: a credited payment returns its stored result, and every payment is verified under the offer that
 *   its row was opened with.
 * - A row is opened for an unused authorization, and only a later use credits it: an earlier use belongs
 *   to another ledger or shop.
 * - A transaction is written to the row before it is sent.
 * - The chain alone decides whether a payment has arrived (`Rail.findPayment`), never the response to a
 *   broadcast. The credit is one database transaction with the change of the row, once the payment is as
 *   deep as its amount requires. `credit-monitor.ts` watches it from then on.
 * - Unknown is not failed: the caller receives `SETTLEMENT_PENDING`, and the background sweep finishes it.
 * - A payment fails once the blocks that reject it are as deep as a credit has to be;
 *   `credit-monitor.ts` watches failures too, until these blocks are final.
 */
import { assert } from '../core/assert.ts';
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { chainReason } from './chain-log.ts';
import { FIRST_RECHECK_MS } from './credit-monitor.ts';
import { encodeHeader } from './header-codec.ts';
import { type SignedPayment, invalidPayment } from './payment.ts';
import { FAILED_ON_CHAIN, REVERTED, SettlementRefused } from './rail.ts';
import type { Evidence, Paid, Position, Rail, Rebroadcast, Verdict } from './rail.ts';
import { RevertBackoff } from './revert-backoff.ts';
import { SentTokens } from './sent-tokens.ts';
import { OFFER_RECEIPT } from './extensions/signing.ts';
import type { PaymentServices } from './payment-options.ts';
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
import {
  attemptOf,
  entryOf,
  NO_ATTEMPT,
  paymentOf,
  receiptOf,
  underItsOffer,
} from './top-up-records.ts';
import type { OnOpened, TopUpReceipt } from './top-up-records.ts';
import { MAX_REVERTED_CHECK_MS, type TopUpRow } from './top-up-table.ts';

/**
 * Start of the work on a leased row: a new payment is sent; an unfinished one is searched on the chain
 * and sent if it is not there; one that failed after sending is only searched.
 */
type Start = 'send' | 'search-and-send' | 'search';

/** A row after its transaction was sent, or was found under way. */
interface Sent {
  readonly row: TopUpRow;
  readonly isUnderWay: boolean;
  /** Set if nothing was sent, because the chain would reject it. */
  readonly refusal: string | undefined;
  /** A block has the sent transaction without effect. */
  readonly isReverted: boolean;
}

const UNSENT = { isUnderWay: false, refusal: undefined, isReverted: false };

const FIRST_CHECK_MS = 5 * SECOND_MS;
const MAX_CHECK_MS = 300 * SECOND_MS;
const STUCK_AFTER_MINUTES = 10;
const MAX_RUNNING = 1_000;

export class TopUps {
  readonly #options: PaymentServices;
  readonly #running = new Map<
    string,
    { readonly hash: string; readonly done: Promise<TopUpReceipt> }
  >();
  readonly #backoff: RevertBackoff;
  readonly #sentTokens: SentTokens;

  constructor(options: PaymentServices) {
    this.#options = options;
    this.#backoff = new RevertBackoff(options.clock);
    this.#sentTokens = new SentTokens(options);
  }

  /** Verifies a payment without a row. Throws the same Faults as `pay`. */
  async check(payment: SignedPayment): Promise<void> {
    const verdict = await this.#railOf(payment).verify(payment);
    if (verdict.kind !== 'valid') throw await this.#refusal(payment, verdict);
    this.#backoff.check(payment.wallet);
  }

  /** Settles a payment and credits it once. Throws a Fault; after `SETTLEMENT_PENDING` the same header is sent again. */
  async pay(payment: SignedPayment, onOpened?: OnOpened): Promise<TopUpReceipt> {
    const running = this.#running.get(payment.key);
    if (running !== undefined) {
      if (running.hash === payment.hash) return await running.done;
      throw inProgress();
    }
    if (this.#running.size >= MAX_RUNNING) throw busy();
    return await this.#track(payment, this.#pay(payment, onOpened));
  }

  /**
   * Searches a failed payment on the chain again and credits it once it is found, for an operator after
   * an audit. Throws the Fault that a caller would receive if it is not there or not deep enough.
   */
  async recover(paymentKey: string): Promise<TopUpReceipt> {
    const { table, rails } = this.#options;
    await table.revive(paymentKey);
    const row = await this.#lease(paymentKey);
    const current = row ?? (await table.find(paymentKey));
    if (current?.state === 'credited') return receiptOf(current);
    const rail = rails.get(current?.network ?? '');
    if (row === undefined || rail === undefined) throw inProgress();
    const payment = paymentOf(rail, row);
    return await this.#track(payment, this.#work(payment, row, 'search', true));
  }

  async idle(): Promise<void> {
    await Promise.allSettled([...this.#running.values()].map(({ done }) => done));
  }

  async #track(payment: SignedPayment, done: Promise<TopUpReceipt>): Promise<TopUpReceipt> {
    this.#running.set(payment.key, { hash: payment.hash, done });
    try {
      return await this.#options.table.hold(payment.key, () => done);
    } finally {
      this.#running.delete(payment.key);
      this.#sentTokens.remove(payment);
    }
  }

  async #pay(payment: SignedPayment, onOpened?: OnOpened): Promise<TopUpReceipt> {
    const row = await this.#options.table.find(payment.key);
    if (row?.payload_hash === payment.hash) return await this.#resume(payment, row);
    // The same authorization with other content: only one of them can ever be executed.
    if (row?.state === 'credited') {
      throw invalidPayment('The authorization was already used by another payment');
    }
    // The transaction of a failed row that is watched may still be mined.
    if (row !== undefined && (row.state !== 'failed' || row.is_watched === 1n)) throw inProgress();
    return await this.#open(payment, row, onOpened);
  }

  async #open(
    payment: SignedPayment,
    failed: TopUpRow | undefined,
    onOpened?: OnOpened,
  ): Promise<TopUpReceipt> {
    const { table, onStep } = this.#options;
    const rail = this.#railOf(payment);
    let position: Position;
    try {
      // Read before the verification, so that any later use is later than this position.
      position = await rail.position(payment);
    } catch (error) {
      throw notSent(chainReason(error));
    }
    const verdict = await rail.verify(payment);
    if (verdict.kind !== 'valid') {
      // The verification also fails if another process has sent the payment meanwhile.
      const isOpenElsewhere = failed === undefined && (await table.find(payment.key)) !== undefined;
      if (isOpenElsewhere) return await this.#pay(payment);
      throw await this.#refusal(payment, verdict);
    }
    this.#backoff.check(payment.wallet);
    const row = await table.open(payment, position);
    if (row === undefined) return await this.#pay(payment);
    await onStep?.('opened');
    await onOpened?.();
    return await this.#work(payment, row, 'send');
  }

  /** Returns the Fault of a payment without a row. If the verdict is unclear, the chain decides. */
  async #refusal(
    payment: SignedPayment,
    { kind, reason }: Exclude<Verdict, { kind: 'valid' }>,
  ): Promise<Fault> {
    if (kind === 'rejected') return rejected(reason);
    let evidence: Evidence;
    try {
      evidence = await this.#railOf(payment).findPayment(payment, NO_ATTEMPT, 'credit');
    } catch (error) {
      return notSent(chainReason(error));
    }
    if (evidence.kind === 'paid') return usedBefore();
    if (evidence.kind === 'final') return settlementFailed(payment, null, evidence.reason);
    return isChainTrouble(reason) ? notSent(reason) : rejected(reason);
  }

  /** Returns the result of a payment with a row: stored, after finishing it, or from another process. */
  async #resume(payment: SignedPayment, found: TopUpRow): Promise<TopUpReceipt> {
    const { table, clock, settleWaitMs, pollMs } = this.#options;
    const deadlineMs = clock.monotonicMs() + settleWaitMs;
    let row: TopUpRow | undefined = found;
    for (;;) {
      if (row.state === 'credited') return receiptOf(row);
      if (row.state === 'failed') {
        throw settlementFailed(payment, row.tx_id, row.failure ?? 'failed');
      }
      const leased = await this.#lease(payment.key);
      if (leased !== undefined) {
        // The row, not this request, decides the amount.
        return await this.#work(underItsOffer(payment, leased), leased, 'search-and-send');
      }
      if (clock.monotonicMs() >= deadlineMs) throw pending(payment, row.tx_id);
      await clock.sleep(pollMs);
      row = await table.find(payment.key);
      if (row?.payload_hash !== payment.hash) return await this.#pay(payment);
    }
  }

  /**
   * Works on a leased row: searches the chain, sends the payment once if it is not there, searches again.
   * Ends with a credit, a failure or "pending". Waits until the block of a payment is deep enough, except
   * in a sweep, where that would delay other rows.
   */
  async #work(
    payment: SignedPayment,
    leased: TopUpRow,
    start: Start,
    isSweep = false,
  ): Promise<TopUpReceipt> {
    const { clock, settleWaitMs, pollMs } = this.#options;
    let state: Sent = { ...UNSENT, row: leased };
    let isSent = start === 'search';
    let startMs = clock.monotonicMs();
    let evidence: Evidence | undefined =
      start === 'send' ? { kind: 'open', attempt: 'none' } : await this.#find(payment, leased);
    for (;;) {
      const { row, refusal, isReverted } = state;
      if (evidence?.kind === 'paid' || evidence?.kind === 'final') this.#sentTokens.remove(payment);
      if (evidence?.kind === 'paid' && evidence.isConfirmed) {
        return await this.#credit(payment, evidence);
      }
      if (evidence?.kind === 'final' && evidence.isConfirmed) {
        throw await this.#fail(payment, row, evidence.reason);
      }
      if (evidence?.kind === 'open') {
        if (!isSent) {
          isSent = true;
          state = await this.#send(payment, row, start === 'send' ? 'new' : evidence.attempt);
          startMs = clock.monotonicMs();
          evidence = await this.#find(payment, state.row);
          continue;
        }
        if (refusal !== undefined) throw await this.#refuse(payment, row, refusal);
        if (evidence.attempt === 'reverted' || isReverted) throw await this.#reverted(payment, row);
      }
      const isDecided = evidence?.kind === 'paid' || evidence?.kind === 'final';
      const waits = state.isUnderWay || (isDecided && !isSweep);
      if (clock.monotonicMs() - startMs >= (waits ? settleWaitMs : 0)) {
        throw await this.#leave(payment, row, isDecided);
      }
      await clock.sleep(pollMs);
      evidence = await this.#find(payment, row);
    }
  }

  /** Sends the payment of a row unless it is under way; the result is read from the chain. */
  async #send(
    payment: SignedPayment,
    leased: TopUpRow,
    attempt: 'new' | Extract<Evidence, { kind: 'open' }>['attempt'],
  ): Promise<Sent> {
    const { table, log, onStep, settings } = this.#options;
    const rail = this.#railOf(payment);
    let row = leased;
    if (attempt !== 'new') {
      const raw = row.state === 'sent' && attempt !== 'reverted' ? row.raw_tx : null;
      if (raw !== null) {
        const fate = attempt === 'waiting' ? 'sent' : await this.#rebroadcast(rail, raw);
        if (fate === 'sent') return { ...UNSENT, row, isUnderWay: true };
        // A replacement with a raised fee: the evidence has the id of the first transaction only. It is read
        // again, because a third party can have made the payment meanwhile.
        if (fate === 'reverted' && row.failure !== REVERTED)
          return { ...UNSENT, row, isReverted: true };
      }
      // A new transaction is safe, because the authorization can be used once.
      const verdict = await rail.verify(payment);
      // An external facilitator may have sent it under an id that is not known.
      const isUnknown = row.state === 'sent' && row.raw_tx === null;
      if (verdict.kind === 'rejected' && !isUnknown) {
        throw await this.#refuse(payment, row, verdict.reason);
      }
      if (verdict.kind !== 'valid') return { ...UNSENT, row };
      const waiting = this.#backoff.refusal(payment.wallet);
      if (waiting !== undefined) {
        await this.#release(row, row.failure);
        throw waiting;
      }
    }
    if (!(await this.#sentTokens.add(payment, () => rail.balanceOf(payment)))) {
      throw await this.#leave(payment, row, false);
    }
    const journal = async (transaction: string | null, raw: string | null): Promise<void> => {
      row = await table.journal(payment.key, transaction, raw);
      await onStep?.('journaled');
    };
    try {
      // An external facilitator sends it under an id that is not known before.
      if (settings.facilitator.url !== undefined) await journal(null, null);
      await rail.settle(payment, async (_key, transaction, raw) => await journal(transaction, raw));
    } catch (error) {
      if (error instanceof SettlementRefused) {
        return { ...UNSENT, row, refusal: error.message };
      }
      // A lost response, a rejection or a timeout: the chain shows which.
      const note = { reason: chainReason(error), paymentId: payment.id };
      log.warn(note, 'A settlement got no response');
    }
    await onStep?.('settled');
    return { ...UNSENT, row };
  }

  /** A broadcast without a response counts as sent. */
  async #rebroadcast(rail: Rail, raw: string): Promise<Rebroadcast> {
    try {
      return await rail.rebroadcast(raw);
    } catch (error) {
      const note = { reason: chainReason(error) };
      this.#options.log.warn(note, 'A transaction could not be sent again');
      return 'sent';
    }
  }

  async #find(payment: SignedPayment, row: TopUpRow): Promise<Evidence | undefined> {
    try {
      return await this.#railOf(payment).findPayment(payment, attemptOf(row), 'credit');
    } catch (error) {
      const note = { reason: chainReason(error), paymentId: payment.id };
      this.#options.log.warn(note, 'The state of a payment on the chain is unknown');
      return undefined;
    }
  }

  /** Ends an attempt that the chain rejects; returns the Fault to throw. */
  async #refuse(payment: SignedPayment, row: TopUpRow, reason: string): Promise<Fault> {
    if (row.state === 'sent') {
      await this.#release(row, reason);
      return settlementFailed(payment, row.tx_id, reason);
    }
    await this.#options.table.drop(payment.key);
    return rejected(reason);
  }

  async #reverted(payment: SignedPayment, row: TopUpRow): Promise<Fault> {
    if (row.failure !== REVERTED) this.#backoff.reverted(payment.wallet);
    await this.#release(row, REVERTED);
    return settlementFailed(payment, row.tx_id, REVERTED);
  }

  /** Leaves an unfinished row to the sweep; returns the Fault to throw. */
  async #leave(payment: SignedPayment, row: TopUpRow, isDecided: boolean): Promise<Fault> {
    await this.#release(row, row.failure);
    if (row.state === 'sent' || isDecided) return pending(payment, row.tx_id);
    return notSent('the transaction was not sent');
  }

  async #fail(payment: SignedPayment, row: TopUpRow, reason: string): Promise<Fault> {
    if (reason === FAILED_ON_CHAIN) this.#backoff.reverted(payment.wallet);
    const { table, log } = this.#options;
    await table.fail(payment.key, reason, FIRST_RECHECK_MS);
    log.info({ paymentId: payment.id, reason }, 'A payment has failed');
    return settlementFailed(payment, row.tx_id, reason);
  }

  async #credit(payment: SignedPayment, paid: Paid): Promise<TopUpReceipt> {
    const { table, credit, log, onStep, signing } = this.#options;
    const { transaction, height } = paid;
    const { network, wallet: payer, id: paymentId } = payment;
    this.#backoff.paid(payer);
    const receipt = await signing?.settled({
      network,
      payer,
      transaction,
      path: payment.offer.path,
    });
    const settlement = encodeHeader({
      success: true,
      transaction,
      network,
      payer,
      amount: payment.amountUnits.toString(),
      ...(receipt === undefined ? {} : { extensions: { [OFFER_RECEIPT]: { info: { receipt } } } }),
    });
    const isNew = await table.credit(
      payment.key,
      { transaction, height, settlement, pauseMs: FIRST_RECHECK_MS },
      async (tx, row) => await credit(tx, entryOf(row, transaction, 'credit')),
    );
    if (isNew) {
      log.info({ paymentId, network, transaction }, 'A top-up was credited');
      await onStep?.('credited');
    }
    const row = await table.find(payment.key);
    if (row?.state !== 'credited') throw new Error('a credited payment has lost its row');
    return receiptOf(row);
  }

  /** Finishes a payment that was left unfinished by this or another process. Never rejects with a Fault. */
  async finish({ payment_key: key, network }: TopUpRow): Promise<void> {
    const { rails, log } = this.#options;
    if (this.#running.has(key)) return;
    const row = await this.#lease(key);
    if (row === undefined) return;
    this.#warnStuck(row);
    const rail = rails.get(network);
    // The network is not configured any more.
    if (rail === undefined) return await this.#release(row, row.failure);
    try {
      const payment = paymentOf(rail, row);
      // An open row was verified and never sent. A payment that failed after sending is only searched.
      const isJournaled = row.raw_tx !== null && row.failure === null;
      const start = row.state === 'open' || isJournaled ? 'search-and-send' : 'search';
      await this.#track(payment, this.#work(payment, row, start, true));
    } catch (error) {
      // The row records a Fault of a pending or failed payment.
      const note = { reason: chainReason(error), paymentId: row.payment_id };
      if (error instanceof Fault) log.debug(note, 'A payment is still not credited');
      else log.error(note, 'A payment could not be finished');
      await this.#release(row, row.failure);
    }
  }

  /** A transaction that is neither mined nor dropped needs the operator: fees, gas key, node. */
  #warnStuck(row: TopUpRow): void {
    const minutes = Math.floor((this.#options.clock.nowMs() - Number(row.created_ms)) / MINUTE_MS);
    if (minutes < STUCK_AFTER_MINUTES || row.failure === REVERTED) return;
    const { payment_id: paymentId, network, tx_id: transaction } = row;
    this.#options.log.warn(
      { paymentId, network, transaction, minutes },
      'A payment is not settled after a long time: check the node and the gas key',
    );
  }

  /** Releases the row; each further attempt waits longer. */
  async #release(row: TopUpRow, failure: string | null): Promise<void> {
    const pauseMs = Math.min(
      FIRST_CHECK_MS * 2 ** Math.min(Number(row.attempts), 10),
      failure === REVERTED ? MAX_REVERTED_CHECK_MS : MAX_CHECK_MS,
    );
    await this.#options.table.postpone(row.payment_key, pauseMs, failure);
  }

  /** Leases an unfinished row; `undefined` if it is decided or another process works on it. */
  async #lease(key: string): Promise<TopUpRow | undefined> {
    return await this.#options.table.take(key);
  }

  #railOf(payment: SignedPayment): Rail {
    const rail = this.#options.rails.get(payment.network);
    assert(rail !== undefined, 'a payment is read by its rail');
    return rail;
  }
}
