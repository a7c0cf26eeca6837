/**
 * A payment header as a request shows it: read, its signature checked, and taken as a top-up or as
 * the way into one request.
 *
 * - Nothing is said about a payment before its signature is checked, of a credited one neither.
 * - Whoever shows a payment that has a row may have read it on the chain. It learns what has become
 *   of the payment, never a balance, and is served only as a retry of the request that opened it.
 * - An answer does not wait for a slow node: the work goes on, and the next request joins it.
 */
import { SECOND_MS } from '../core/clock.ts';
import type { Clock } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { Nano } from '../core/money.ts';
import { chainReason } from './chain-reason.ts';
import { readEnvelope } from './envelope.ts';
import type { Envelope } from './envelope.ts';
import { unitsToNano } from './networks.ts';
import type { Passes, RetryProof } from './passes.ts';
import { refusePayment } from './payment.ts';
import type { SignedPayment } from './payment.ts';
import type { Rail } from './rail.ts';
import { alreadyCredited, notSent, pending, rejected, withClaim } from './top-up-faults.ts';
import { receiptOf, underItsOffer } from './top-up-records.ts';
import type { TopUpReceipt } from './top-up-records.ts';
import type { TopUpTable } from './top-up-table.ts';
import type { TopUps } from './top-ups.ts';

/** A payment that is good, and that nothing has been moved of so far. */
export interface OfferedPayment {
  readonly wallet: string;
  readonly amountNano: Nano;
  /** Settles and credits it. Throws as a top-up does, and 409 when it has served another request. */
  take(): Promise<TopUpReceipt>;
}

export interface ShownPaymentsOptions {
  readonly rails: ReadonlyMap<string, Rail>;
  readonly topUps: TopUps;
  readonly table: TopUpTable;
  readonly passes: Passes;
  readonly clock: Clock;
  readonly settleWaitMs: number;
}

/** What an answer may take beyond `settleWaitSeconds`. */
const ANSWER_GRACE_MS = 2 * SECOND_MS;

/** How long the answer to a request may still wait for the chain; every wait takes from it. */
interface Patience {
  leftMs: number;
}

export class ShownPayments {
  readonly #options: ShownPaymentsOptions;

  constructor(options: ShownPaymentsOptions) {
    this.#options = options;
  }

  /** Credits a payment once; the receipt has a balance for the request that opened it. Throws a Fault. */
  async topUp(header: string, proof: RetryProof): Promise<TopUpReceipt> {
    const { passes } = this.#options;
    const patience = this.#patience();
    const payment = await this.#read(header, patience);
    let isOwn = await passes.isRetry(payment.key, proof);
    const opened = async (): Promise<void> => {
      isOwn = true;
      await passes.open(payment.key, proof, true);
    };
    const receipt = await this.#pay(payment, patience, opened).catch((error: unknown) => {
      throw isOwn ? withClaim(error, passes.claimOf(payment.key)) : error;
    });
    return isOwn ? receipt : { ...receipt, newBalanceNano: undefined };
  }

  /** Checks a payment that a request brings, and moves nothing. Throws a Fault, 409 for one of others. */
  async offer(header: string, proof: RetryProof): Promise<OfferedPayment> {
    const { topUps, passes } = this.#options;
    const patience = this.#patience();
    const payment = await this.#read(header, patience);
    const isNew = !(await this.#isKnown(payment));
    if (isNew) await soon(this.#options.clock, patience, topUps.check(payment), tooLate);
    else if (!(await passes.isRetry(payment.key, proof))) {
      // Helps it on its way, and says no more than what has become of it.
      throw alreadyCredited(await this.#pay(payment, patience));
    }
    return {
      wallet: payment.wallet,
      amountNano: unitsToNano(payment.amountUnits),
      take: async () => await this.#take(payment, { proof, patience, isNew }),
    };
  }

  /** Forgets requests whose retries have ended. */
  async prune(): Promise<void> {
    await this.#options.passes.prune();
  }

  async #take(
    payment: SignedPayment,
    request: { readonly proof: RetryProof; readonly patience: Patience; readonly isNew: boolean },
  ): Promise<TopUpReceipt> {
    const { passes } = this.#options;
    const { proof, patience, isNew } = request;
    let isOwn = !isNew || (await passes.isRetry(payment.key, proof));
    const opened = async (): Promise<void> => {
      isOwn = true;
      await passes.open(payment.key, proof, false);
    };
    const receipt = await this.#pay(payment, patience, opened).catch((error: unknown) => {
      // It was checked before anybody could read it on the chain: whoever brought it is the payer.
      throw withClaim(error, passes.claimOf(payment.key));
    });
    if (!isOwn || !(await passes.use(payment.key))) throw alreadyCredited(receipt);
    return receipt;
  }

  /** The payment of a header, signed by its payer. Throws a Fault. */
  async #read(header: string, patience: Patience): Promise<SignedPayment> {
    const { rails, clock } = this.#options;
    const envelope = readEnvelope(header);
    const rail = rails.get(envelope.network);
    if (rail === undefined) {
      const names = [...rails.keys()].join(', ');
      throw refusePayment('UNSUPPORTED_NETWORK', `The payment network must be one of ${names}`);
    }
    const payment = await this.#underItsOffer(rail, envelope);
    const signed = await soon(clock, patience, rail.isSigned(payment), tooLate).catch(
      (error: unknown) => {
        throw error instanceof Fault ? error : notSent(chainReason(error));
      },
    );
    if (!signed) throw rejected(BAD_SIGNATURE[payment.authorization.kind]);
    return payment;
  }

  /** Under the offer of its row, or held against what is offered today. */
  async #underItsOffer(rail: Rail, envelope: Envelope): Promise<SignedPayment> {
    const shape = await rail.readShape(envelope);
    const row = await this.#options.table.find(shape.key);
    if (row?.payload_hash === shape.hash) return underItsOffer(shape, row);
    return await rail.read(envelope);
  }

  async #pay(
    payment: SignedPayment,
    patience: Patience,
    opened?: () => Promise<void>,
  ): Promise<TopUpReceipt> {
    const { topUps, clock } = this.#options;
    const work = topUps.pay(payment, opened);
    return await soon(clock, patience, work, async () => await this.#stateOf(payment));
  }

  /** Whether the payment has a row, so that showing it again opens nothing. */
  async #isKnown(payment: SignedPayment): Promise<boolean> {
    const row = await this.#options.table.find(payment.key);
    if (row === undefined) return false;
    // A failed row gives way to another payment under the same authorization key.
    return row.state !== 'failed' || row.payload_hash === payment.hash;
  }

  /** What is known of a payment whose work is not done yet. Throws 202 or 503 then. */
  async #stateOf(payment: SignedPayment): Promise<TopUpReceipt> {
    const row = await this.#options.table.find(payment.key);
    if (row?.state === 'credited') return receiptOf(row);
    throw row?.state === 'sent' ? pending(payment, row.tx_id) : notSent('the node takes too long');
  }

  /** What one request may wait. */
  #patience(): Patience {
    return { leftMs: this.#options.settleWaitMs + ANSWER_GRACE_MS };
  }
}

const BAD_SIGNATURE = {
  erc3009: 'invalid_exact_evm_signature',
  solana: 'invalid_exact_svm_payload_signature_invalid',
} as const;

/** Waits for `work`, not for longer than the answer may take; what is late goes on by itself. */
async function soon<T>(
  clock: Clock,
  patience: Patience,
  work: Promise<T>,
  late: () => Promise<T>,
): Promise<T> {
  const startMs = clock.monotonicMs();
  const isOver = new AbortController();
  const limit = clock.sleep(patience.leftMs, isOver.signal).then(
    () => true,
    () => false, // the work was faster
  );
  try {
    const isLate = await Promise.race([work.then(() => false), limit]);
    return await (isLate ? late() : work);
  } finally {
    isOver.abort();
    patience.leftMs = Math.max(0, patience.leftMs - (clock.monotonicMs() - startMs));
  }
}

async function tooLate(): Promise<never> {
  throw notSent('the node takes too long');
}
