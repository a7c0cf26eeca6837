/**
 * A payment as a caller signed it, after normalising: one v2 payload whatever layout it came in,
 * its key (the signed authorization itself, never a transaction id) and what it pays.
 */
import { sha256Hex } from '../core/ids.ts';
import { type FaultCode, type FaultOptions, Fault } from '../core/faults.ts';
import type { RailOffer } from './requirements.ts';

export interface Erc3009 {
  readonly kind: 'erc3009';
  readonly from: `0x${string}`;
  readonly to: `0x${string}`;
  readonly value: bigint;
  /** Unix seconds, of up to 256 bits, as is `validBefore`. */
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  readonly nonce: `0x${string}`;
}

/** An authorization of the scheme `upto`: one transfer of at most the ceiling, by one facilitator. */
export interface Permit2 {
  readonly kind: 'permit2';
  readonly from: `0x${string}`;
  readonly to: `0x${string}`;
  readonly token: `0x${string}`;
  readonly ceiling: bigint;
  /** Of 256 bits: a bit in a word of Permit2's bitmap. */
  readonly nonce: bigint;
  /** Unix seconds, of up to 256 bits, as is `validAfter`. */
  readonly deadline: bigint;
  readonly validAfter: bigint;
  readonly facilitator: `0x${string}`;
}

export interface SolanaPayment {
  readonly kind: 'solana';
  readonly transaction: string;
  /** Lower-case hex SHA-256 of the message: the wire bytes are malleable, the message is not. */
  readonly messageHash: string;
  /** Base58 account that the tokens leave from. */
  readonly source: string;
}

export interface SignedPayment {
  /**
   * `eip155:8453/erc3009:<from>:<nonce>`, `eip155:8453/permit2:<from>:<nonce>` or
   * `solana:<reference>/tx:<sha256 of the message>`.
   */
  readonly key: string;
  readonly id: string;
  readonly network: string;
  readonly wallet: string;
  /** What is moved; of an `upto` payment without a row the most that may be. */
  readonly amountUnits: bigint;
  /** The offer that it was made under, which may not be today's. */
  readonly offer: RailOffer;
  readonly authorization: Erc3009 | Permit2 | SolanaPayment;
  /** The v2 payload without `accepted`, as the client signed it. */
  readonly inner: Readonly<Record<string, unknown>>;
  /** Of the inner payload: two payments under one key must be the same payment. */
  readonly hash: string;
  readonly identifier: string | undefined;
}

export function paymentId(key: string): string {
  return `x402-${sha256Hex(key).slice(0, 32)}`;
}

/** A refusal in the body layout of the top-up endpoint: `{error: CODE, message, details?}`. */
export function paymentError(
  code: FaultCode,
  message: string,
  options: FaultOptions & { readonly reason?: string } = {},
): Fault {
  const { reason, ...rest } = options;
  const details = reason === undefined ? {} : { details: { reason } };
  return new Fault(code, { ...rest, message, body: { error: code, message, ...details } });
}

export function invalidPayment(message: string): Fault {
  return paymentError('INVALID_PAYMENT', message);
}
