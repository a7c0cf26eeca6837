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
 *   once it is as deep as its amount asks. `credit-monitor.ts` watches it from there.
 * - Unknown is not failed: it answers `SETTLEMENT_PENDING` and the sweep finishes it.
 * - A payment fails once the blocks that refuse it are as deep as a credit has to be;
 *   `credit-monitor.ts` watches a failed one too, until these blocks are final.
 */
import { assert } from '../core/assert.ts';
import { MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { chainReason } from './chain-log.ts';
import { FIRST_LOOK_MS } from './credit-monitor.ts';
import { encodeHeader } from './header-codec.ts';
import { type SignedPayment, invalidPayment } from './payment.ts';
import { FAILED_ON_CHAIN, SettlementRefused } from './rail.ts';
import type { Evidence, Paid, Position, Rail, Verdict } from './rail.ts';
import { RevertBackoff } from './revert-backoff.ts';
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
import type { TopUpRow } from './top-up-table.ts';

/**
 * Where the work on a leased row begins: a new one is sent, one that was left behind is looked for
 * and sent if need be, one that failed after sending is looked for only.
 */
type Begin = 'send' | 'look-and-send' | 'look';

/** A row after its transaction was sent, or was found under way. */
interface Sent {
  readonly row: TopUpRow;
  readonly isUnderWay: boolean;
  /** Nothing was sent, because the chain would refuse it. */
  readonly refusal: string | undefined;
}

const FIRST_CHECK_MS = 5 * SECOND_MS;
const MAX_CHECK_MS = 300 * SECOND_MS;
const SWEEP_ROWS = 20;
const STUCK_AFTER_MS = 10 * MINUTE_MS;
/** Payments that are worked on at once; a slow node would gather them without end. */
const MAX_RUNNING = 1_000;
const REVERTED = 'transaction_reverted';

export class TopUps {
  readonly #options: PaymentServices;
  /** An external facilitator sends transactions whose ids we do not know beforehand. */
  readonly #isExternal: boolean;
  readonly #running = new Map<
    string,
    { readonly hash: string; readonly done: Promise<TopUpReceipt> }
  >();
  readonly #backoff: RevertBackoff;
  #isSweeping = false;

  constructor(options: PaymentServices) {
    this.#options = options;
    this.#isExternal = options.settings.facilitator.url !== undefined;
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

  /** Looks for a failed payment again, and credits it once it is found. Throws a Fault otherwise. */
  async recover(paymentKey: string): Promise<TopUpReceipt> {
    const { table, rails } = this.#options;
    await table.revive(paymentKey);
    const row = await table.lease(paymentKey);
    const current = row ?? (await table.find(paymentKey));
    if (current?.state === 'credited') return receiptOf(current);
    const rail = rails.get(current?.network ?? '');
    if (row === undefined || rail === undefined) throw inProgress();
    const payment = paymentOf(rail, row);
    return await this.#track(payment, this.#finish(payment, row, 'look', true));
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
        log.warn({ reason: chainReason(error) }, 'The lease of a payment could not be renewed');
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
    if (row?.payload_hash === payment.hash) return await this.#resume(payment, row);
    // The same authorization with other content: only one of them can ever be executed.
    if (row?.state === 'credited') {
      throw invalidPayment('The authorization was already used by another payment');
    }
    // The transaction of a failed row that is watched may still be mined.
    if (row !== undefined && (row.state !== 'failed' || row.is_watched === 1n)) throw inProgress();
    return await this.#open(payment, row, onOpened);
  }

  /** A payment that was never seen: check it, open its row, send it. */
  async #open(
    payment: SignedPayment,
    failed: TopUpRow | undefined,
    onOpened?: OnOpened,
  ): Promise<TopUpReceipt> {
    const { table, onStep } = this.#options;
    const rail = this.#railOf(payment);
    let position: Position;
    try {
      // Where the chain is before the check: a use from here on comes after us.
      position = await rail.position(payment);
    } catch (error) {
      throw notSent(chainReason(error));
    }
    const verdict = await rail.verify(payment);
    if (verdict.kind !== 'valid') {
      // Another process may have sent it meanwhile, which reads as a refusal too.
      const isOpenElsewhere = failed === undefined && (await table.find(payment.key)) !== undefined;
      if (isOpenElsewhere) return await this.#pay(payment);
      throw await this.#refusal(payment, verdict);
    }
    this.#backoff.check(payment.wallet);
    const row = await table.open(payment, position);
    // Another process was faster.
    if (row === undefined) return await this.#pay(payment);
    await onStep?.('opened');
    await onOpened?.();
    return await this.#finish(payment, row, 'send');
  }

  /** Why a payment without a row is not taken. Where the check could not tell, the chain can. */
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

  /** A payment that has a row: its stored answer, or the rest of its way, here or elsewhere. */
  async #resume(payment: SignedPayment, found: TopUpRow): Promise<TopUpReceipt> {
    const { table, clock, settleWaitMs, pollMs } = this.#options;
    const deadlineMs = clock.monotonicMs() + settleWaitMs;
    let row: TopUpRow | undefined = found;
    for (;;) {
      if (row.state === 'credited') return receiptOf(row);
      if (row.state === 'failed') {
        throw settlementFailed(payment, row.tx_id, row.failure ?? 'failed');
      }
      const leased = await table.lease(payment.key);
      if (leased !== undefined) {
        // It moves what its row says, not what this request would have moved.
        return await this.#finish(underItsOffer(payment, leased), leased, 'look-and-send');
      }
      // Another process works on it: its result appears in the row.
      if (clock.monotonicMs() >= deadlineMs) throw pending(payment, row.tx_id);
      await clock.sleep(pollMs);
      row = await table.find(payment.key);
      if (row?.payload_hash !== payment.hash) return await this.#pay(payment);
    }
  }

  /**
   * Works on a row that is leased: looks at the chain, sends what is not there once, looks again.
   * Ends with a credit, a refusal or "pending"; one that has arrived or was refused in a block is
   * waited for until that is deep enough, except in a sweep, where others would wait too.
   */
  async #finish(
    payment: SignedPayment,
    leased: TopUpRow,
    begin: Begin,
    isSweep = false,
  ): Promise<TopUpReceipt> {
    const { clock, settleWaitMs, pollMs } = this.#options;
    let state: Sent = { row: leased, isUnderWay: false, refusal: undefined };
    let isSent = begin === 'look';
    let startMs = clock.monotonicMs();
    let evidence: Evidence | undefined =
      begin === 'send' ? { kind: 'open', attempt: 'none' } : await this.#look(payment, leased);
    for (;;) {
      const { row, refusal } = state;
      if (evidence?.kind === 'paid' && evidence.isConfirmed) {
        return await this.#credit(payment, evidence);
      }
      if (evidence?.kind === 'final' && evidence.isConfirmed) {
        throw await this.#fail(payment, row, evidence.reason);
      }
      if (evidence?.kind === 'open') {
        if (!isSent) {
          isSent = true;
          state = await this.#send(payment, row, begin === 'send' ? 'new' : evidence.attempt);
          startMs = clock.monotonicMs();
          evidence = await this.#look(payment, state.row);
          continue;
        }
        if (refusal !== undefined) throw await this.#refuse(payment, row, refusal);
        if (evidence.attempt === 'reverted') throw await this.#reverted(payment, row);
      }
      const isDecided = evidence?.kind === 'paid' || evidence?.kind === 'final';
      const waits = state.isUnderWay || (isDecided && !isSweep);
      if (clock.monotonicMs() - startMs >= (waits ? settleWaitMs : 0)) {
        throw await this.#leave(payment, row, isDecided);
      }
      await clock.sleep(pollMs);
      evidence = await this.#look(payment, row);
    }
  }

  /** Sends the payment of a row unless it is under way. What came of it the chain is asked, whatever was answered. */
  async #send(
    payment: SignedPayment,
    leased: TopUpRow,
    attempt: 'new' | Extract<Evidence, { kind: 'open' }>['attempt'],
  ): Promise<Sent> {
    const { table, log, onStep } = this.#options;
    const rail = this.#railOf(payment);
    let row = leased;
    if (attempt !== 'new') {
      const raw = row.state === 'sent' && attempt !== 'reverted' ? row.raw_tx : null;
      const isAlive =
        attempt === 'waiting' || (raw !== null && (await this.#rebroadcast(rail, raw)));
      if (raw !== null && isAlive) return { row, isUnderWay: true, refusal: undefined };
      // Nothing is under way: a new transaction of the same single-use authorization is safe.
      const verdict = await rail.verify(payment);
      if (verdict.kind === 'rejected') throw await this.#refuse(payment, row, verdict.reason);
      if (verdict.kind === 'unclear') return { row, isUnderWay: false, refusal: undefined };
      const waiting = this.#backoff.refusal(payment.wallet);
      if (waiting !== undefined) {
        await this.#release(row, row.failure);
        throw waiting;
      }
    }
    const journal = async (transaction: string | null, raw: string | null): Promise<void> => {
      row = await table.journal(payment.key, transaction, raw);
      await onStep?.('journaled');
    };
    try {
      // Handed over: from here on it may be on the chain under an id that we do not know.
      if (this.#isExternal) await journal(null, null);
      await rail.settle(payment, async (_key, transaction, raw) => await journal(transaction, raw));
    } catch (error) {
      if (error instanceof SettlementRefused) {
        return { row, isUnderWay: false, refusal: error.message };
      }
      // A lost reply, a refusal, a time limit: the chain tells which.
      const note = { reason: chainReason(error), paymentId: payment.id };
      log.warn(note, 'A settlement gave no answer');
    }
    await onStep?.('settled');
    return { row, isUnderWay: false, refusal: undefined };
  }

  /** `false` when the bytes can never land. An unanswered broadcast counts as alive. */
  async #rebroadcast(rail: Rail, raw: string): Promise<boolean> {
    try {
      return (await rail.rebroadcast(raw)) === 'sent';
    } catch (error) {
      const note = { reason: chainReason(error) };
      this.#options.log.warn(note, 'A transaction could not be sent again');
      return true;
    }
  }

  async #look(payment: SignedPayment, row: TopUpRow): Promise<Evidence | undefined> {
    try {
      return await this.#railOf(payment).findPayment(payment, attemptOf(row), 'credit');
    } catch (error) {
      const note = { reason: chainReason(error), paymentId: payment.id };
      this.#options.log.warn(note, 'The chain could not be asked about a payment');
      return undefined;
    }
  }

  /** Ends a try that the chain refuses, and gives the Fault to throw. */
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

  /** Leaves an unfinished row to the sweep and gives the Fault to throw. */
  async #leave(payment: SignedPayment, row: TopUpRow, isDecided: boolean): Promise<Fault> {
    await this.#release(row, row.failure);
    if (row.state === 'sent' || isDecided) return pending(payment, row.tx_id);
    return notSent('the transaction was not sent');
  }

  async #fail(payment: SignedPayment, row: TopUpRow, reason: string): Promise<Fault> {
    if (reason === FAILED_ON_CHAIN) this.#backoff.reverted(payment.wallet);
    const { table, clock, log } = this.#options;
    await table.fail(payment.key, reason, clock.nowMs() + FIRST_LOOK_MS);
    log.info({ paymentId: payment.id, reason }, 'A payment has failed');
    return settlementFailed(payment, row.tx_id, reason);
  }

  async #credit(payment: SignedPayment, paid: Paid): Promise<TopUpReceipt> {
    const { table, credit, clock, log, onStep, signing } = this.#options;
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
      { transaction, height, settlement, nextCheckMs: clock.nowMs() + FIRST_LOOK_MS },
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

  async #sweepRow({ payment_key: key, network }: TopUpRow): Promise<void> {
    const { table, rails, log } = this.#options;
    if (this.#running.has(key)) return;
    const row = await table.lease(key);
    if (row === undefined) return;
    this.#noteStuck(row);
    const rail = rails.get(network);
    // Its network is not configured any more; others must not wait behind it.
    if (rail === undefined) return await this.#release(row, row.failure);
    try {
      const payment = paymentOf(rail, row);
      // An open row was checked and never sent, because the chain was away or the process died: it
      // is sent now, while it is valid. One that failed after sending is only looked for.
      const isJournaled = row.raw_tx !== null && row.failure === null;
      const begin = row.state === 'open' || isJournaled ? 'look-and-send' : 'look';
      await this.#track(payment, this.#finish(payment, row, begin, true));
    } catch (error) {
      // Pending and failed payments end in a Fault here too, and their row says so.
      const note = { reason: chainReason(error), paymentId: row.payment_id };
      if (error instanceof Fault) log.debug(note, 'A swept payment is not credited');
      else log.error(note, 'A payment could not be swept');
      await this.#release(row, row.failure);
    }
  }

  /** A transaction that is neither mined nor dropped for long needs a person: fees, gas key, node. */
  #noteStuck(row: TopUpRow): void {
    const ageMs = this.#options.clock.nowMs() - Number(row.created_ms);
    if (ageMs < STUCK_AFTER_MS) return;
    const { payment_id: paymentId, network, tx_id: transaction } = row;
    const minutes = Math.floor(ageMs / MINUTE_MS);
    this.#options.log.warn(
      { paymentId, network, transaction, minutes },
      'A payment is not settled for long: check the node and the gas key',
    );
  }

  /** Gives the lease back; the next look at the row comes ever more rarely. */
  async #release(row: TopUpRow, failure: string | null): Promise<void> {
    const waitMs = Math.min(FIRST_CHECK_MS * 2 ** Math.min(Number(row.attempts), 10), MAX_CHECK_MS);
    const nextCheckMs = this.#options.clock.nowMs() + waitMs;
    await this.#options.table.release(row.payment_key, nextCheckMs, failure);
  }

  #railOf(payment: SignedPayment): Rail {
    const rail = this.#options.rails.get(payment.network);
    assert(rail !== undefined, 'a payment is read by its rail');
    return rail;
  }
}
