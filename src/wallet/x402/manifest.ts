/** `/.well-known/x402.json`, at the origin: what can be paid for here, and how. */
import type { Payments } from '../../payments/payments.ts';
import type { Route } from '../../http/route.ts';
import { MANIFEST } from './describe.ts';
import type { WalletRouteParts } from './wallet-route-parts.ts';

const MAX_AGE_SECONDS = 300;

export function manifestRoute(parts: WalletRouteParts, payments: Payments): Route {
  return {
    method: 'GET',
    path: '/.well-known/x402.json',
    root: true,
    auth: 'public',
    describe: MANIFEST,
    handle: async (context) => {
      context.set('cache-control', `public, max-age=${MAX_AGE_SECONDS}`);
      await context.json(200, payments.manifest(parts.resources()));
    },
  };
}
