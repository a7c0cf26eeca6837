/**
 * Takes the payment header of a request as a top-up or as the payment of that request.
 *
 * - A response contains nothing about a payment before its signature is verified.
 * - A payment with a row may have been copied from the chain. Its sender receives the state of the
 *   payment, never a balance, and is served only as a retry of the request that opened it.
 * - A ceiling of a wallet with enough credit moves nothing and serves one request, as a sign-in does.
 * - A response does not wait for a slow node: the work continues, and the next request joins it.
 */
import { SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { type Nano, larger, smaller, usdToNano } from '../core/money.ts';
import { checkBoundNonce } from './extensions/bound-nonce.ts';
import { chainReason } from './chain-log.ts';
import { type AmountLimits, checkAmount, mostUnder, readEnvelope } from './envelope.ts';
import { encodeHeader } from './header-codec.ts';
import { nanoToUnits, unitsAbove, unitsToNano } from './networks.ts';
import { NO_PROOF, type PaymentPasses, type RetryProof } from './payment-passes.ts';
import { type SignedPayment, paymentError } from './payment.ts';
import type { PaymentServices } from './payment-options.ts';
import {
  alreadyCredited,
  notSent,
  pending,
  rejected,
  servedAlready,
  withClaim,
} from './top-up-faults.ts';
import { type OnOpened, type TopUpReceipt, receiptOf, underItsOffer } from './top-up-records.ts';
import { MAX_PATH_CHARS, type RailOffer, resourceUrl } from './requirements.ts';
import type { Amounts } from './settings.ts';
import type { TopUps } from './top-ups.ts';
import { endsWithin } from './bounded.ts';

/** A verified payment before any of it is moved. */
export interface RequestPayment {
  readonly wallet: string;
  readonly amountNano: Nano;
  /** The signed amount, at most the largest payment. A retry of a ceiling moves less. */
  readonly signedNano: Nano;
  /**
   * Settles and credits the payment: all of it, or with the scheme `upto` the wanted amount, at least the
   * smallest payment, and nothing for zero. Returns the value of the `PAYMENT-RESPONSE` header. Throws
   * the Faults of a top-up, and 409 if the payment has served another request.
   */
  take(wanted: Nano): Promise<string>;
}

const RESPONSE_GRACE_MS = 2 * SECOND_MS;

const BAD_SIGNATURE = {
  erc3009: 'invalid_exact_evm_signature',
  permit2: 'invalid_permit2_signature',
  solana: 'invalid_exact_svm_payload_signature_invalid',
} as const;

interface VerifiedHeader {
  payment: SignedPayment;
  /** True if the payment has no row, so that this request may open it. */
  readonly isNew: boolean;
  /** How long the response may still wait for the chain. */
  leftMs: number;
}

export class PaymentHeaders {
  readonly #services: PaymentServices;
  readonly #topUps: TopUps;
  readonly #passes: PaymentPasses;

  constructor(services: PaymentServices, topUps: TopUps, passes: PaymentPasses) {
    this.#services = services;
    this.#topUps = topUps;
    this.#passes = passes;
  }

  /** A reload can change them. */
  get #limits(): Readonly<Record<'topUp' | 'offer', AmountLimits>> {
    return limitsOf(this.#services.amounts);
  }

  /**
   * Credits a payment once, in any of the three header layouts. Throws a Fault: 400 bad payment, 402
   * `SETTLEMENT_FAILED`, 202 `SETTLEMENT_PENDING`, 409, 503. The receipt has a balance only for the
   * request that opened the payment.
   */
  async topUp(header: string, proof: RetryProof = NO_PROOF): Promise<TopUpReceipt> {
    const passes = this.#passes;
    const verified = await this.#read(header, proof, this.#limits.topUp);
    const { key } = verified.payment;
    let isOwn = await passes.isRetry(key, proof);
    const receipt = await this.#pay(verified, async () => {
      isOwn = true;
      await passes.open(key, proof, 'top-up');
    }).catch((error: unknown) => {
      throw isOwn ? withClaim(error, passes.claimOf(key)) : error;
    });
    return isOwn ? receipt : { ...receipt, newBalanceNano: undefined };
  }

  /**
   * Verifies the payment of a request that buys something, and moves nothing yet. It serves the request
   * that opens it and retries of that request, once. Throws the Faults of `topUp`, and 409 for a payment
   * that another caller may have opened.
   */
  async offer(header: string, proof: RetryProof): Promise<RequestPayment> {
    const passes = this.#passes;
    const verified = await this.#read(header, proof, this.#limits.offer);
    const { payment, isNew } = verified;
    const isCeiling = isNew && payment.authorization.kind === 'permit2';
    if (isCeiling) await this.#requireUnspent(payment, proof);
    if (isNew) await this.#inTime(verified, this.#topUps.check(payment), tooLate);
    else if (!(await passes.isRetry(payment.key, proof))) {
      // Continues its settlement, and reports only its state.
      throw alreadyCredited(await this.#pay(verified));
    }
    return {
      wallet: payment.wallet,
      amountNano: unitsToNano(payment.amountUnits),
      signedNano: this.#signedNano(payment),
      take: async (wanted) => {
        if (isCeiling && wanted <= 0n) return await this.#moveNothing(payment, proof);
        if (isCeiling) {
          if (!(await passes.reserve(payment.key, proof))) throw servedAlready();
          verified.payment = { ...payment, amountUnits: this.#unitsOf(payment, wanted) };
        }
        return (await this.#take(verified, proof)).responseHeader;
      },
    };
  }

  #signedNano({ authorization, amountUnits }: SignedPayment): Nano {
    if (authorization.kind !== 'permit2') return unitsToNano(amountUnits);
    return unitsToNano(smaller(authorization.ceiling, this.#limits.offer.maximumUnits));
  }

  /** Throws 409 for a spent ceiling, unless the request is a retry of the one that it has served. */
  async #requireUnspent({ key }: SignedPayment, proof: RetryProof): Promise<void> {
    const passes = this.#passes;
    if ((await passes.isSpent(key)) && !(await passes.isRetry(key, proof))) throw servedAlready();
  }

  /** Spends the signature on one request that the credit of the wallet pays; settles zero. */
  async #moveNothing(payment: SignedPayment, proof: RetryProof): Promise<string> {
    if (!(await this.#passes.spend(payment.key, proof))) throw servedAlready();
    const { network, wallet: payer } = payment;
    return encodeHeader({ success: true, transaction: '', network, payer, amount: '0' });
  }

  /** The units of an `upto` payment to move: the wanted amount, between the smallest payment and all. */
  #unitsOf({ amountUnits, offer }: SignedPayment, wanted: Nano): bigint {
    const { leastUnits = 0n } = limitsOn(this.#limits.offer, offer);
    // A reload during the request can raise the smallest payment above the signed amount.
    return smaller(larger(unitsAbove(wanted), leastUnits), amountUnits);
  }

  async #take(verified: VerifiedHeader, proof: RetryProof): Promise<TopUpReceipt> {
    const passes = this.#passes;
    const { key, authorization } = verified.payment;
    const isCeiling = authorization.kind === 'permit2';
    let isOwn = !verified.isNew || (await passes.isRetry(key, proof));
    const receipt = await this.#pay(verified, async () => {
      isOwn = true;
      await passes.open(key, proof, isCeiling ? 'ceiling' : 'request');
    }).catch(async (error: unknown) => {
      if (isCeiling) await passes.unreserve(key);
      // It was verified before it was on the chain, so the caller is the payer.
      throw withClaim(error, passes.claimOf(key));
    });
    if (!isOwn || !(await passes.use(key))) throw alreadyCredited(receipt);
    return receipt;
  }

  /** Reads a header under the offer of its row, or the current one, and verifies the signature. */
  async #read(
    header: string,
    { path, clientAddress }: RetryProof,
    limits: AmountLimits,
  ): Promise<VerifiedHeader> {
    const { rails, table, settleWaitMs, publicUrl } = this.#services;
    const envelope = readEnvelope(header);
    const rail = rails.get(envelope.network);
    if (rail === undefined) {
      const names = [...rails.keys()].join(', ');
      throw paymentError('UNSUPPORTED_NETWORK', `The payment network must be one of ${names}`);
    }
    let payment = rail.read(envelope);
    checkBoundNonce(payment, envelope.salt, resourceUrl(publicUrl, path));
    const row = await table.find(payment.key);
    const isSame = row?.payload_hash === payment.hash;
    if (isSame) payment = underItsOffer(payment, row);
    else {
      await rail.checkOffer(payment, envelope.accepted);
      const ownLimits = limitsOn(limits, rail.offer);
      if (payment.authorization.kind === 'permit2') {
        const most = mostUnder(payment.amountUnits, ownLimits);
        payment = { ...payment, amountUnits: most };
      } else checkAmount(payment.amountUnits, ownLimits);
      // The receipt names the paid path, also if another process signs the receipt.
      const { offer } = payment;
      if (path !== '')
        payment = { ...payment, offer: { ...offer, path: path.slice(0, MAX_PATH_CHARS) } };
    }
    // A failed row gives way to another payment under the same authorization key.
    const isNew = row === undefined || (row.state === 'failed' && !isSame);
    const verified = { payment, isNew, leftMs: settleWaitMs + RESPONSE_GRACE_MS };
    let isSigned: boolean;
    try {
      isSigned = await this.#inTime(verified, rail.isSigned(payment, clientAddress), tooLate);
    } catch (error) {
      throw error instanceof Fault ? error : notSent(chainReason(error));
    }
    if (!isSigned) throw rejected(BAD_SIGNATURE[payment.authorization.kind]);
    return verified;
  }

  async #pay(verified: VerifiedHeader, onOpened?: OnOpened): Promise<TopUpReceipt> {
    const { payment } = verified;
    return await this.#inTime(verified, this.#topUps.pay(payment, onOpened), async () => {
      const row = await this.#services.table.find(payment.key);
      if (row?.state === 'credited') return receiptOf(row);
      throw row?.state === 'sent' ? pending(payment, row.tx_id) : tooLateError();
    });
  }

  /** Waits for `work` within the rest of the response time. */
  async #inTime<T>(verified: VerifiedHeader, work: Promise<T>, late: () => Promise<T>): Promise<T> {
    const { clock } = this.#services;
    const startMs = clock.monotonicMs();
    const isInTime = await endsWithin(clock, verified.leftMs, work);
    verified.leftMs = Math.max(0, verified.leftMs - (clock.monotonicMs() - startMs));
    return await (isInTime ? work : late());
  }
}

/** A top-up may also be exactly the first payment; a request is paid for with its price. */
function limitsOf(amounts: Amounts): Readonly<Record<'topUp' | 'offer', AmountLimits>> {
  const minimumUnits = nanoToUnits(amounts.minimumTopUp);
  const maximumUnits = nanoToUnits(amounts.maximumTopUp);
  const versionOne = unitsAbove(amounts.firstPaymentVersionOne);
  return {
    topUp: {
      minimumUnits,
      maximumUnits,
      firstUnits: unitsAbove(amounts.firstPayment),
    },
    offer: {
      // A request has any price.
      minimumUnits: smaller(versionOne, minimumUnits),
      maximumUnits,
      leastUnits: versionOne,
    },
  };
}

/** The limits on a network whose minimum is higher. */
function limitsOn(limits: AmountLimits, { minimumUsd }: RailOffer): AmountLimits {
  if (minimumUsd === undefined) return limits;
  const own = unitsAbove(usdToNano(minimumUsd));
  const { minimumUnits, firstUnits, leastUnits, ...rest } = limits;
  return {
    ...rest,
    minimumUnits: larger(minimumUnits, own),
    ...(firstUnits === undefined ? {} : { firstUnits: larger(firstUnits, own) }),
    ...(leastUnits === undefined ? {} : { leastUnits: larger(leastUnits, own) }),
  };
}

function tooLateError(): Fault {
  return notSent('the node takes too long');
}

async function tooLate(): Promise<never> {
  throw tooLateError();
}
