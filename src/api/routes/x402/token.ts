/**
 * `POST /x402/token`: one sign-in for a short-lived bearer token, because OpenAI SDKs cannot sign
 * each request. A token does not renew itself: only a signature gives a new one.
 */
import { Fault } from '../../../kernel/faults.ts';
import type { Exchange } from '../../exchange.ts';
import type { Route } from '../../route.ts';
import { WALLET_TOKEN } from './describe.ts';
import { requireConfigured, takeTurn } from './route-checks.ts';
import type { WalletRouteParts } from './wallet-route-parts.ts';

export function tokenRoute(parts: WalletRouteParts): Route {
  return {
    method: 'POST',
    path: '/x402/token',
    auth: 'wallet',
    about: 'Wallet token',
    describe: WALLET_TOKEN,
    handle: async (exchange) => {
      const wallet = requireSignature(exchange);
      await takeTurn(parts, `x402-token|${wallet}`, parts.perMinute.token);
      const { token, expiresAt } = requireConfigured(parts).mintToken(wallet);
      exchange.set('cache-control', 'no-store');
      await exchange.json(200, {
        success: true,
        data: { walletAddress: wallet, token, tokenType: 'Bearer', expiresAt },
      });
    },
  };
}

function requireSignature(exchange: Exchange): string {
  const { wallet } = exchange.caller;
  const isSigned =
    exchange.header('sign-in-with-x') !== undefined ||
    exchange.header('x-sign-in-with-x') !== undefined;
  if (wallet !== undefined && isSigned) return wallet;
  throw new Fault('AUTHENTICATION_FAILED', {
    message: 'A new token needs a wallet sign-in; send the header SIGN-IN-WITH-X',
    canRetry: false,
  });
}
