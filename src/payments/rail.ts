/**
 * What the top-up machine asks of a chain. A rail reads and checks payments, sends them, and, above
 * all, tells from the chain alone whether a payment has arrived, whoever sent it.
 */
import type { SchemeNetworkFacilitator } from '@x402/core/types';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Contradictions } from './contradictions.ts';
import type { Store } from '../db/db.ts';
import type { Envelope } from './envelope.ts';
import type { ExternalFacilitator } from './external-facilitator.ts';
import type { SignedPayment } from './payment.ts';
import type { RailOffer } from './requirements.ts';

/** The check of a signed payment before it is sent. */
export type Verdict =
  | { readonly kind: 'valid' }
  /** The payment itself is bad; nothing can have moved. */
  | { readonly kind: 'rejected'; readonly reason: string }
  /** The check cannot tell: it may have been paid already, or the chain did not answer. */
  | { readonly kind: 'unclear'; readonly reason: string };

/** Why a payment is refused that was on the chain before it was shown here. */
export const USED_BEFORE = 'authorization_already_used';

/** Why a payment has failed for good that was in a block and cost our fee. */
export const FAILED_ON_CHAIN = 'transaction_failed_on_chain';

/** What the chain shows about a payment. Rejecting means that the chain could not be asked. */
export type Evidence =
  | Paid
  /** It can never be paid any more, as long as the blocks stay that show it. */
  | {
      readonly kind: 'final';
      readonly reason: string;
      /** Whether these blocks are as deep as was asked for. */
      readonly isConfirmed: boolean;
    }
  /** Not paid so far, and it still can be. */
  | { readonly kind: 'open'; readonly attempt: 'none' | 'waiting' | 'unseen' | 'reverted' };

export interface Paid {
  readonly kind: 'paid';
  readonly transaction: string;
  /** Where it is: the number of the block, on Solana the slot. */
  readonly height: bigint;
  /** Whether that is as deep as was asked for. */
  readonly isConfirmed: boolean;
}

/** How deep evidence has to be: as a credit of its amount, or so that no reorganisation undoes it. */
export type EvidenceDepth = 'credit' | 'final';

/** Tokens that came to a receiver. */
export interface Received {
  readonly transaction: string;
  readonly height: bigint;
  readonly amountUnits: bigint | undefined;
}

/** What to read of a receiver, and who is told how far the reading is. */
export interface ReceivedSearch {
  readonly offer: Pick<RailOffer, 'asset' | 'payTo'>;
  readonly fromHeight: bigint;
  /** Transfers that are known already are not asked for their amounts. */
  readonly isKnown: (transaction: string) => boolean;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

/** Where the chain was when a payment was first seen. */
export interface Position {
  readonly startHeight: bigint;
  /** Hash of the block at that height, where heights can come again after a reorganisation. */
  readonly startBlock: string | undefined;
  /** EVM: Unix seconds of `validBefore`. Solana: last block height at which it can land. */
  readonly expiresAt: bigint;
}

export interface Attempt extends Position {
  readonly transaction: string | undefined;
  readonly raw: string | undefined;
  /** Where the payment was seen before: a node below this height is behind and has no say. */
  readonly seenHeight?: bigint | undefined;
}

/** The transaction was tried without sending it, and the chain refuses it: sending it costs gas for nothing. */
export class SettlementRefused extends Error {
  override readonly name = 'SettlementRefused';
}

/** Writes the id and the bytes of a transaction before it is sent; throws to stop the sending. */
export type Journal = (key: string, transaction: string, raw: string) => Promise<void>;

export interface RailHealth {
  readonly network: string;
  readonly isReady: boolean;
  readonly problems: readonly string[];
  /** Address and native balance (smallest unit) of the key that pays fees, where there is one. */
  readonly gasAddress: string | undefined;
  readonly gasBalance: bigint | undefined;
}

/** What a rail is opened with, beside its section of the configuration. */
export interface RailOptions {
  readonly store: Store;
  readonly clock: Clock;
  readonly log: Log;
  readonly maxTimeoutSeconds: number;
  readonly settleWaitMs: number;
  readonly pollMs: number;
  readonly contradictions: Contradictions;
  /** Settles in place of the embedded facilitator. */
  readonly external: ExternalFacilitator | undefined;
}

/** A refund under way: what was signed, in a text of the rail's own. */
export interface RefundAuthorization {
  readonly text: string;
  readonly startHeight: bigint;
  readonly expiresAt: bigint;
}

/** A block of the chain that a payment names, so that it is good for a minute or so. */
export interface RecentBlock {
  readonly blockhash: string;
  /** The last height at which a payment that names it is taken. */
  readonly lastValidBlockHeight: bigint;
}

export interface Rail {
  readonly network: string;
  readonly offer: RailOffer;
  /** The payment of a header by its shape, which gives its key. Throws a 400 Fault. */
  read(envelope: Envelope): SignedPayment;
  /** Holds a new one, but for its amount, against what is offered today. Rejects with a 400 Fault. */
  checkOffer(payment: SignedPayment, accepted: Envelope['accepted']): Promise<void>;
  /**
   * Whether its payer signed it, by the key or by the contract that is asked for `asker`. Rejects when
   * the chain has to be asked and does not answer.
   */
  isSigned(payment: SignedPayment, asker: string): Promise<boolean>;
  verify(payment: SignedPayment): Promise<Verdict>;
  position(payment: SignedPayment): Promise<Position>;
  /**
   * Journals, sends and waits. What came of it is asked with `findPayment`. Throws
   * `SettlementRefused` when nothing was sent because the chain would refuse it.
   */
  settle(payment: SignedPayment, journal: Journal): Promise<void>;
  /** A use of the authorization that is older than the attempt is no payment: `final`. */
  findPayment(payment: SignedPayment, attempt: Attempt, depth: EvidenceDepth): Promise<Evidence>;
  /** Where the chain ends. Rejects when no node tells. */
  newestHeight(): Promise<bigint>;
  /** What a payment has to name; missing where payments name no block. Rejects without a node. */
  recentBlock?(): Promise<RecentBlock>;
  /** Of its token, read until it is known. Rejects when the chain cannot be asked. */
  decimals(): Promise<number>;
  /** Transfers to a receiver that are not known, oldest or newest first. */
  received(search: ReceivedSearch): Promise<readonly Received[]>;
  /** Sends journaled bytes again. `dead`: they can never land, a new transaction is needed. */
  rebroadcast(raw: string): Promise<'sent' | 'dead'>;
  health(): Promise<RailHealth>;
  /** The official scheme on the shared key that pays fees, for the exposed facilitator. */
  exposedScheme(): SchemeNetworkFacilitator;
  /** `undefined` where no refund key is configured. */
  readonly refunds: RefundRail | undefined;
}

export interface RefundRail {
  /** Signs a transfer to a wallet that can happen at most once. */
  authorize(refundId: string, wallet: string, amountUnits: bigint): Promise<RefundAuthorization>;
  send(text: string, journal: Journal): Promise<void>;
  /** Confirmed is what no reorganisation undoes. */
  find(text: string, attempt: Attempt): Promise<Evidence>;
}
