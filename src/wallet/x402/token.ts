/**
 * `/x402/token`: one sign-in for a short-lived bearer token, because OpenAI SDKs cannot sign each
 * request; the list of a wallet's tokens, and their end. Each of the three takes a signature: a
 * token neither renews itself nor ends another one.
 */
import type { z } from 'zod';
import { walletAccountId } from '../../identity/identity.ts';
import { isoTime } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Nano, decimalUsd, usdToNano } from '../../core/money.ts';
import { cappedSpending } from '../../billing/ledger/ledger.ts';
import type { TokenLimits } from '../../payments/payments.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { readQuery } from '../../http/read-request.ts';
import type { Route } from '../../http/route.ts';
import { TOKEN_LIST, TOKEN_REVOKE, TokenQuery, WALLET_TOKEN } from './describe-token.ts';
import { requireConfigured, takeTurn } from './route-checks.ts';
import type { WalletRouteParts } from './wallet-route-parts.ts';

export function tokenRoutes(parts: WalletRouteParts): Route[] {
  return [mint(parts), list(parts), revoke(parts)];
}

function mint(parts: WalletRouteParts): Route {
  return {
    method: 'POST',
    path: '/x402/token',
    auth: 'wallet',
    about: 'Wallet token',
    describe: WALLET_TOKEN,
    handle: async (context) => {
      const wallet = await signedWallet(parts, context);
      const limits = limitsOf(readQuery(context, TokenQuery));
      const made = await requireConfigured(parts).mintToken(wallet, limits);
      const { id, token, expiresAt } = made;
      context.set('cache-control', 'no-store');
      await context.json(200, {
        success: true,
        data: { walletAddress: wallet, id, token, tokenType: 'Bearer', expiresAt },
      });
    },
  };
}

function list(parts: WalletRouteParts): Route {
  return {
    method: 'GET',
    path: '/x402/token',
    auth: 'wallet',
    about: 'Wallet tokens',
    describe: TOKEN_LIST,
    handle: async (context) => {
      const wallet = await signedWallet(parts, context);
      const tokens = await requireConfigured(parts).tokens(wallet);
      const nowMs = parts.clock.nowMs();
      const spending = await cappedSpending(parts.store, walletAccountId(wallet), nowMs);
      const data = tokens.map(({ id, createdMs, expiresMs, limits }) => {
        const spent = spending.get(id);
        return {
          id,
          createdAt: isoTime(createdMs),
          expiresAt: isoTime(expiresMs),
          usd: limitBody(limits.usdNano, spent?.usdNano),
          diem: limitBody(limits.diemNano, spent?.diemNano),
        };
      });
      await context.json(200, { success: true, data });
    },
  };
}

function revoke(parts: WalletRouteParts): Route {
  return {
    method: 'DELETE',
    path: '/x402/token/:id',
    auth: 'wallet',
    about: 'Wallet token',
    describe: TOKEN_REVOKE,
    handle: async (context) => {
      const wallet = await signedWallet(parts, context);
      const id = context.parameters['id'] ?? '';
      if (!(await requireConfigured(parts).revokeToken(wallet, id))) {
        throw new Fault('INVALID_REQUEST', {
          message: 'The wallet has no token with this id that can still be used',
        });
      }
      await context.json(200, { success: true });
    },
  };
}

/** The wallet that signed this very request, within its turns of the minute. */
async function signedWallet(parts: WalletRouteParts, context: RequestContext): Promise<string> {
  const wallet = requireSignature(context);
  await takeTurn(parts, `x402-token|${wallet}`, parts.perMinute.token);
  return wallet;
}

function limitsOf({ usdLimit, diemLimit }: z.infer<typeof TokenQuery>): TokenLimits {
  return {
    usdNano: usdLimit === undefined ? undefined : usdToNano(usdLimit),
    diemNano: diemLimit === undefined ? undefined : usdToNano(diemLimit),
  };
}

function limitBody(limit: Nano | undefined, spent: Nano | undefined): object | null {
  if (limit === undefined) return null;
  return { limit: decimalUsd(limit), spent: decimalUsd(spent ?? 0n) };
}

function requireSignature(context: RequestContext): string {
  const { wallet } = context.caller;
  const isSigned =
    context.header('sign-in-with-x') !== undefined ||
    context.header('x-sign-in-with-x') !== undefined;
  if (wallet !== undefined && isSigned) return wallet;
  throw new Fault('AUTHENTICATION_FAILED', {
    message:
      'Tokens are made, listed and revoked by a wallet sign-in; send the header SIGN-IN-WITH-X',
  });
}
