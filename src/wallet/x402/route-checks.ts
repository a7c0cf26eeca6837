/** Options of the wallet endpoints, and their checks: rate limits and the wallet of the caller. */
import type { Ledger } from '../../billing/ledger/ledger.ts';
import type { Windows } from '../../billing/limits/limits.ts';
import { walletIdentity } from '../../core/addresses.ts';
import type { Clock } from '../../core/clock.ts';
import { Fault, invalidField } from '../../core/faults.ts';
import type { Store } from '../../db/db.ts';
import { type LimitParts, limitRequests } from '../../http/limit-requests.ts';
import type { RequestContext } from '../../http/request-context.ts';
import type { Payments, Resource, Signing } from '../../payments/payments.ts';

export interface WalletRouteOptions {
  /** `undefined` without rails: the routes then return 503. */
  readonly payments: Payments | undefined;
  readonly signing: Signing | undefined;
  readonly ledger: Ledger;
  readonly store: Store;
  readonly windows: Windows;
  readonly clock: Clock;
  /** Maximum requests per minute of one address or wallet. */
  readonly perMinute: Readonly<
    Record<'topUp' | 'balance' | 'transactions' | 'token' | 'facilitator', number>
  >;
  readonly basePath: string;
  /** Paid endpoints. */
  readonly resources: () => readonly Resource[];
  /** Paid tools of the MCP server. */
  readonly paidTools: () => Promise<readonly Resource[]>;
}

/**
 * Throws 401 for a wallet token with a limit: its owner may spend a part of the credit, and must not read
 * the transactions of the wallet, as with `/billing/transactions`.
 */
export function refuseLimitedToken({ caller }: RequestContext): void {
  if (caller.capId === undefined) return;
  throw new Fault('AUTHENTICATION_FAILED', {
    message:
      'A wallet token with a limit cannot read the transactions of its wallet; send the signature of the wallet in SIGN-IN-WITH-X',
  });
}

const WALLET_PATH = /^(?:0x[a-fA-F0-9]{40}|[1-9A-HJ-NP-Za-km-z]{32,44})$/;

/** Counts a payment on any endpoint against the top-ups of its address. Throws 429. */
export async function limitPayments(
  options: LimitParts,
  context: RequestContext,
  perMinute: number,
): Promise<void> {
  await limitRequests(options, `x402-top-up|${context.countedAddress}`, perMinute);
}

/** The wallet of the path. Throws 400 for a malformed address, 403 if another wallet signed. */
export function requireOwnWallet(context: RequestContext): string {
  const given = context.parameters['wallet'] ?? '';
  if (!WALLET_PATH.test(given)) {
    throw invalidField(['walletAddress'], 'The wallet must be an EVM or a Solana address');
  }
  const wallet = walletIdentity(given);
  if (context.caller.wallet !== wallet) throw new Fault('X402_WALLET_MISMATCH');
  return wallet;
}
