/**
 * Credits and their price: integers only. Rule of the specification: base credits of the chain
 * times the tier for a success, five for an item that carries an error, nothing for an item that
 * no node answered.
 */
import { formatUsd, nano } from '../core/money.ts';
import type { Nano } from '../core/money.ts';
import type { Method, Network } from './catalogue.ts';

/** Billing rule 1: an item with an error, and a success whose id matches no request. */
export const ERROR_ITEM_CREDITS = 5;
/** 6.25e-7 USD, the price of one credit unless the operator sets another. */
export const NANO_PER_CREDIT = 625n;

/** How one item of a request ended. */
export type ItemOutcome = 'success' | 'error' | 'unknown-id' | 'unanswered';

/** Credits of a successful call. */
export function tierCredits(network: Network, method: Method): number {
  return network.baseCredits * method.tier;
}

/** Credits that an item costs after it ended. */
export function itemCredits(outcome: ItemOutcome, fullCredits: number): number {
  switch (outcome) {
    case 'success':
      return fullCredits;
    case 'error':
    case 'unknown-id':
      // A success is never cheaper than an error: the smallest tier is 20 credits.
      return ERROR_ITEM_CREDITS;
    case 'unanswered':
      return 0;
  }
}

/** The price of credits in nano-USD. */
export function creditsToNano(credits: number, nanoPerCredit: bigint = NANO_PER_CREDIT): Nano {
  return nano(BigInt(credits) * nanoPerCredit);
}

/** `X-Svc-RPC-Cost-USD`: eight decimals, rounded half up. */
export function formatRpcCost(cost: Nano): string {
  return formatUsd(cost, 8);
}
