/**
 * The interface of a chain: a rail reads, verifies and sends payments, and decides from the chain alone
 * whether a payment has arrived.
 */
import type { SchemeNetworkFacilitator } from '@x402/core/types';
import type { Clock } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import type { Store } from '../db/db.ts';
import type { Contradictions } from './chain-log.ts';
import type { Envelope } from './envelope.ts';
import type { ExternalFacilitator } from './extensions/external-facilitator.ts';
import type { SignedPayment } from './payment.ts';
import type { RailOffer } from './requirements.ts';

/** The result of verifying a signed payment before it is sent. */
export type Verdict =
  | { readonly kind: 'valid' }
  /** The payment is invalid; no money can have moved. */
  | { readonly kind: 'rejected'; readonly reason: string }
  /** The payment may have been made already, or the chain did not respond. */
  | { readonly kind: 'unclear'; readonly reason: string };

/** The payment was on the chain before it was sent here. */
export const USED_BEFORE = 'authorization_already_used';

/** The payment was in a block, cost our fee and failed permanently. */
export const FAILED_ON_CHAIN = 'transaction_failed_on_chain';

/** The transaction was in a block without effect, because of the payer; the payment can still arrive. */
export const REVERTED = 'transaction_reverted';

/** The state of a payment on the chain. A function that returns it rejects if the chain does not respond. */
export type Evidence =
  | Paid
  /** The payment can never arrive, unless the blocks that show this are reorganised. */
  | {
      readonly kind: 'final';
      readonly reason: string;
      /** Whether these blocks are at the requested depth. */
      readonly isConfirmed: boolean;
    }
  /** The payment has not arrived and still can. */
  | { readonly kind: 'open'; readonly attempt: 'none' | 'waiting' | 'unseen' | 'reverted' };

export interface Paid {
  readonly kind: 'paid';
  readonly transaction: string;
  /** Number of the block, on Solana the slot. */
  readonly height: bigint;
  /** Whether the block is at the requested depth. */
  readonly isConfirmed: boolean;
}

/** Requested depth: enough for a credit of the amount, or final on the chain. */
export type EvidenceDepth = 'credit' | 'final';

export interface Received {
  readonly transaction: string;
  readonly height: bigint;
  readonly amountUnits: bigint | undefined;
}

export interface ReceivedSearch {
  readonly offer: Pick<RailOffer, 'asset' | 'payTo'>;
  readonly fromHeight: bigint;
  readonly isKnown: (transaction: string) => boolean;
  readonly onProgress?: ((done: number, total: number) => void) | undefined;
}

/** The state of the chain when a payment was received first. */
export interface Position {
  readonly startHeight: bigint;
  /** Hash of the block at `startHeight`, if heights can repeat after a reorganisation. */
  readonly startBlock: string | undefined;
  /** EVM: Unix seconds of `validBefore`. Solana: last block height that can include the payment. */
  readonly expiresAt: bigint;
}

export interface Attempt extends Position {
  readonly transaction: string | undefined;
  readonly raw: string | undefined;
  /** Height at which the payment was seen before; evidence from a node below it is ignored. */
  readonly seenHeight?: bigint | undefined;
}

/**
 * The result of sending stored bytes again. `dead`: the chain can never include them, so a new transaction
 * is needed. `reverted`: so too, because they are in a block and had no effect.
 */
export type Rebroadcast = 'sent' | 'dead' | 'reverted';

/** The simulation of a transaction failed, so it was not sent. */
export class SettlementRefused extends Error {
  override readonly name = 'SettlementRefused';
}

/** Writes the id and the bytes of a transaction before it is sent; throws to stop the sending. */
export type Journal = (key: string, transaction: string, raw: string) => Promise<void>;

/** A transaction whose gas is not known. */
export interface SentTransaction {
  readonly transaction: string;
  readonly network: string;
  /** Address of the key that pays. */
  readonly payer: string;
  /** The nonce of the key; 0 on Solana. */
  readonly number: bigint;
  readonly sentMs: number;
}

export type GasState =
  | 'waiting'
  /** A final block shows that it cannot be mined any more. */
  | 'dead'
  | { readonly amount: bigint; readonly paidMs: number };

/** Reads transactions as of the final block at which the reader was opened. */
export type GasReader = (sent: SentTransaction) => Promise<GasState>;

export interface RailHealth {
  readonly network: string;
  readonly isReady: boolean;
  /** True if no node responds, so that the state is an earlier one. */
  readonly isSilent?: boolean;
  readonly problems: readonly string[];
  /** Address and native balance (smallest unit) of the key that pays fees, if there is one. */
  readonly gasAddress: string | undefined;
  readonly gasBalance: bigint | undefined;
}

export interface RailOptions {
  readonly store: Pick<Store, 'query'>;
  readonly clock: Clock;
  readonly log: Log;
  readonly maxTimeoutSeconds: number;
  readonly settleWaitMs: number;
  readonly pollMs: number;
  readonly contradictions: Contradictions;
  /** Settles in place of the embedded facilitator. */
  readonly external: ExternalFacilitator | undefined;
}

export interface Rail {
  readonly network: string;
  readonly offer: RailOffer;
  /** Blocks, or slots, of an hour. */
  readonly hourBlocks: bigint;
  /** `undefined` without a refund key. */
  readonly refunds: RefundRail | undefined;
  /** Reads the payment of a header by its shape, which gives its key. Throws a 400 Fault. */
  read(envelope: Envelope): SignedPayment;
  /** Compares a new payment, except for its amount, with the current offer. Rejects with a 400 Fault. */
  checkOffer(payment: SignedPayment, accepted: Envelope['accepted']): Promise<void>;
  /**
   * Whether the payer signed the payment. A call of a contract wallet counts against the limit of
   * `clientAddress`, and rejects if the chain does not respond.
   */
  isSigned(payment: SignedPayment, clientAddress: string): Promise<boolean>;
  verify(payment: SignedPayment): Promise<Verdict>;
  position(payment: SignedPayment): Promise<Position>;
  /**
   * Calls `journal`, sends and waits; `findPayment` returns the result. Rejects with `SettlementRefused`
   * if nothing was sent because the chain would reject it.
   */
  settle(payment: SignedPayment, journal: Journal): Promise<void>;
  /** Returns `final` if the authorization was used before the attempt. */
  findPayment(payment: SignedPayment, attempt: Attempt, depth: EvidenceDepth): Promise<Evidence>;
  newestHeight(): Promise<bigint>;
  /** Tokens that the payer has, in base units. */
  balanceOf(payment: SignedPayment): Promise<bigint>;
  /** Decimals of the token, read from the chain once. */
  decimals(): Promise<number>;
  /** Unknown transfers to a receiver, in any order. */
  received(search: ReceivedSearch): Promise<readonly Received[]>;
  /** Sends stored bytes again. */
  rebroadcast(raw: string): Promise<Rebroadcast>;
  /** Opens a reader of the gas of our transactions at the newest final block. */
  gasReader(): Promise<GasReader>;
  health(): Promise<RailHealth>;
  /** The official scheme on the same gas key, for the exposed facilitator. */
  exposedScheme(): SchemeNetworkFacilitator;
}

export interface RefundAuthorization {
  /** The signed refund in the format of the rail. */
  readonly text: string;
  readonly startHeight: bigint;
  readonly expiresAt: bigint;
}

export interface RefundRail {
  /** Signs a transfer to a wallet that the chain executes at most once. */
  authorize(refundId: string, wallet: string, amountUnits: bigint): Promise<RefundAuthorization>;
  /** `raw`: the stored bytes of an earlier attempt, which are sent again if the chain can include them. */
  send(text: string, raw: string | undefined, journal: Journal): Promise<void>;
  /** Returns evidence at the depth `final`. */
  find(text: string, attempt: Attempt): Promise<Evidence>;
}
