/**
 * `/x402/token`: creates, lists and revokes short-lived bearer tokens, because OpenAI SDKs cannot sign each
 * request. Each of the three requires a signature, so a token cannot renew itself or revoke another one.
 */
import type * as z from 'zod';
import { cappedSpending } from '../../billing/ledger/ledger.ts';
import { isoTime } from '../../core/clock.ts';
import { Fault } from '../../core/faults.ts';
import { type Nano, decimalUsd, usdToNano } from '../../core/money.ts';
import { limitRequests } from '../../http/limit-requests.ts';
import { readQuery } from '../../http/read-request.ts';
import type { RequestContext } from '../../http/request-context.ts';
import type { Route } from '../../http/route.ts';
import { type TokenLimits, requirePayments } from '../../payments/payments.ts';
import { TOKEN_LIST, TOKEN_REVOKE, TokenQuery, WALLET_TOKEN } from './token-describe.ts';
import type { WalletRouteOptions } from './route-checks.ts';

export function tokenRoutes(options: WalletRouteOptions): Route[] {
  const common = { path: '/x402/token', auth: 'wallet', about: 'Wallet token' } as const;
  return [
    {
      ...common,
      method: 'POST',
      describe: WALLET_TOKEN,
      handle: async (context) => {
        const wallet = await signedWallet(options, context);
        const limits = limitsOf(readQuery(context, TokenQuery));
        const { id, token, expiresAt } = await requirePayments(options.payments).sessions.mint(
          wallet,
          limits,
        );
        context.set('cache-control', 'no-store');
        await context.json(200, {
          success: true,
          data: { walletAddress: wallet, id, token, tokenType: 'Bearer', expiresAt },
        });
      },
    },
    {
      ...common,
      method: 'GET',
      about: 'Wallet tokens',
      describe: TOKEN_LIST,
      handle: async (context) => {
        const wallet = await signedWallet(options, context);
        const tokens = await requirePayments(options.payments).sessions.list(wallet);
        const nowMs = options.clock.nowMs();
        const ids = tokens.map(({ id }) => id);
        const spending = await cappedSpending(options.store, ids, nowMs);
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
    },
    {
      ...common,
      method: 'DELETE',
      path: '/x402/token/:id',
      describe: TOKEN_REVOKE,
      handle: async (context) => {
        const wallet = await signedWallet(options, context);
        const id = context.parameters['id'] ?? '';
        if (!(await requirePayments(options.payments).sessions.revoke(wallet, id))) {
          throw new Fault('INVALID_REQUEST', {
            message: 'The wallet has no valid token with this id',
          });
        }
        await context.json(200, { success: true });
      },
    },
  ];
}

/** The wallet that signed this request. Throws 401, and 429 above the limit. */
async function signedWallet(options: WalletRouteOptions, context: RequestContext): Promise<string> {
  const { wallet, isSigned } = context.caller;
  if (wallet === undefined || isSigned !== true) {
    throw new Fault('AUTHENTICATION_FAILED', {
      message:
        'Creating, listing and revoking tokens requires a wallet sign-in; send the header SIGN-IN-WITH-X',
    });
  }
  await limitRequests(options, `x402-token|${wallet}`, options.perMinute.token);
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
