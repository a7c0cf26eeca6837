/** A signed payment, normalised to one layout. */
import { sha256Hex } from '../core/ids.ts';
import { type FaultCode, type FaultOptions, Fault } from '../core/faults.ts';
import type { RailOffer } from './requirements.ts';

export interface Erc3009 {
  readonly kind: 'erc3009';
  readonly from: `0x${string}`;
  readonly to: `0x${string}`;
  readonly value: bigint;
  /** Unix seconds of up to 256 bits, as `validBefore`. */
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
  /** 256 bits: the position of a bit in Permit2's bitmap. */
  readonly nonce: bigint;
  /** Unix seconds of up to 256 bits, as `validAfter`. */
  readonly deadline: bigint;
  readonly validAfter: bigint;
  readonly facilitator: `0x${string}`;
}

export interface SolanaPayment {
  readonly kind: 'solana';
  readonly transaction: string;
  /** Lower-case hex SHA-256 of the message, because the wire bytes are malleable. */
  readonly messageHash: string;
  /** Base58 token account of the payer. */
  readonly source: string;
}

export interface SignedPayment {
  /**
   * The signed authorization, not a transaction: `eip155:8453/erc3009:<from>:<nonce>`,
   * `eip155:8453/permit2:<from>:<nonce>` or `solana:<reference>/tx:<sha256 of the message>`.
   */
  readonly key: string;
  readonly id: string;
  readonly network: string;
  readonly wallet: string;
  /** The amount to move; for an `upto` payment without a row the ceiling. */
  readonly amountUnits: bigint;
  /** The offer that is paid, which may differ from the current one. */
  readonly offer: RailOffer;
  readonly authorization: Erc3009 | Permit2 | SolanaPayment;
  /** The v2 payload without `accepted`, as the client signed it. */
  readonly inner: Readonly<Record<string, unknown>>;
  /** Hash of the inner payload: two payments under one key must be the same payment. */
  readonly hash: string;
  readonly identifier: string | undefined;
}

export function paymentId(key: string): string {
  return `x402-${sha256Hex(key).slice(0, 32)}`;
}

/** An error response with the body of the top-up endpoint: `{error: CODE, message, details?}`. */
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
