/**
 * The wallet endpoints: top-up, balance, transactions, token, the exposed facilitator and the
 * manifest. Each lives in a file of its own; this door puts them together.
 */
import type { Route } from '../../http/route.ts';
import { balanceRoute } from './balance.ts';
import { facilitatorRoutes } from './facilitator.ts';
import { manifestRoute } from './manifest.ts';
import { tokenRoutes } from './token.ts';
import { topUpRoute } from './top-up.ts';
import { transactionsRoute } from './transactions.ts';
import type { WalletRouteParts } from './wallet-route-parts.ts';

export { takePaymentTurn } from './route-checks.ts';
export { setPaymentResponse } from './top-up.ts';

export function walletRoutes(parts: WalletRouteParts): Route[] {
  const always = [
    topUpRoute(parts),
    balanceRoute(parts),
    transactionsRoute(parts),
    ...tokenRoutes(parts),
  ];
  const { payments } = parts;
  if (payments === undefined) return always;
  const exposed =
    payments.facilitator === undefined ? [] : facilitatorRoutes(parts, payments.facilitator);
  return [...always, ...exposed, manifestRoute(parts, payments)];
}
