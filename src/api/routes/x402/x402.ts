/**
 * The wallet endpoints: top-up, balance, transactions, token, the exposed facilitator and the
 * manifest. Each lives in a file of its own; this door puts them together.
 */
import type { Clock } from '../../../kernel/clock.ts';
import type { Ledger } from '../../../ledger/ledger.ts';
import type { Windows } from '../../../limits/limits.ts';
import type { Payments, Resource } from '../../../payments/payments.ts';
import type { Store } from '../../../store/store.ts';
import type { Route } from '../../route.ts';
import { balanceRoute } from './balance.ts';
import { facilitatorRoutes } from './facilitator.ts';
import { manifestRoute } from './manifest.ts';
import { tokenRoute } from './token.ts';
import { topUpRoute } from './top-up.ts';
import { transactionsRoute } from './transactions.ts';

export { X_PAYMENT_RESPONSE, setPaymentResponse } from './top-up.ts';

export interface WalletRouteParts {
  /** `undefined` on a server without rails: the routes then say so. */
  readonly payments: Payments | undefined;
  readonly ledger: Ledger;
  readonly store: Store;
  readonly windows: Windows;
  readonly clock: Clock;
  /** Requests a minute that each route takes from one address or wallet. */
  readonly perMinute: Readonly<
    Record<'topUp' | 'balance' | 'transactions' | 'token' | 'facilitator', number>
  >;
  /** Path of the API, `/api/v1`. */
  readonly basePath: string;
  /** What wallets can buy here, for the manifest. */
  readonly resources: () => readonly Resource[];
}

export function walletRoutes(parts: WalletRouteParts): Route[] {
  const always = [
    topUpRoute(parts),
    balanceRoute(parts),
    transactionsRoute(parts),
    tokenRoute(parts),
  ];
  const { payments } = parts;
  if (payments === undefined) return always;
  const exposed =
    payments.facilitator === undefined ? [] : facilitatorRoutes(parts, payments.facilitator);
  return [...always, ...exposed, manifestRoute(parts, payments)];
}
