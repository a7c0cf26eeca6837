/**
 * Credits and their price: integers only. Rule of the specification: base credits of the chain
 * times the tier for a success, five for an item that carries an error, nothing for an item that
 * no node answered.
 */
import { formatUsd, nano } from '../core/money.ts';
import type { Nano } from '../core/money.ts';

/** Billing rule 1: an item with an error, and a success whose id matches no request. */
const ERROR_ITEM_CREDITS = 5;
/** 6.25e-7 USD, the price of one credit unless the operator sets another. */
export const NANO_PER_CREDIT = 625n;

/** Credits that an item costs after it ended; `unknown-id` is a success for another request. */
export function itemCredits(
  outcome: 'success' | 'error' | 'unknown-id' | 'unanswered',
  fullCredits: number,
): number {
  if (outcome === 'success') return fullCredits;
  // A success is never cheaper than an error: the smallest tier is 20 credits.
  return outcome === 'unanswered' ? 0 : ERROR_ITEM_CREDITS;
}

/** The price of credits in nano-USD. */
export function creditsToNano(credits: number, nanoPerCredit: bigint = NANO_PER_CREDIT): Nano {
  return nano(BigInt(credits) * nanoPerCredit);
}

/** `X-Svc-RPC-Cost-USD`: eight decimals, rounded half up. */
export function formatRpcCost(cost: Nano): string {
  return formatUsd(cost, 8);
}
