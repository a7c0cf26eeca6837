/** `GET /credits` and `GET /key`: the balance in the format of OpenRouter, which many tools poll. */
import { isoTimeOrNull } from '../core/clock.ts';
import * as z from 'zod';
import {
  type CapPeriod,
  type Spending,
  cappedSpending,
  spentEver,
} from '../billing/ledger/ledger.ts';
import { type Nano, ZERO, larger, nano, toUsdNumber } from '../core/money.ts';
import { type RouteDescription, jsonResponse } from '../http/describe.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get } from '../http/route.ts';
import type { Caller } from '../identity/identity.ts';
import { type AccountParts, keyExpiryMs } from './account-parts.ts';

export type CreditsResponse = z.infer<typeof CreditsResponse>;
export const CreditsResponse = z
  .strictObject({
    data: z
      .strictObject({
        total_credits: z
          .number()
          .describe('USD including daily credit: `total_usage` plus the posted balance.'),
        total_usage: z
          .number()
          .describe(
            'USD spent since the account exists, minus refunds. The rest is the difference of the two.',
          ),
      })
      .describe('Sums of the whole account.'),
  })
  .meta({ id: 'Credits' });

const CREDITS: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Get the credit in the format of OpenRouter',
  response: jsonResponse('Credit of the account or wallet, in USD.', CreditsResponse, {
    data: { total_credits: 50.25, total_usage: 0.02 },
  }),
};

export type KeyStateResponse = z.infer<typeof KeyStateResponse>;
export const KeyStateResponse = z
  .strictObject({
    data: z
      .strictObject({
        label: z.string().describe('Dots and the end of the secret; empty for a wallet.'),
        limit: z
          .number()
          .nullable()
          .describe('Maximum USD per period, of the key or of a parent key; null: no limit.'),
        limit_remaining: z
          .number()
          .nullable()
          .describe('Rest of `limit` in this period; null without a limit.'),
        limit_reset: z
          .enum(['daily', 'weekly', 'monthly'])
          .nullable()
          .describe('Period of `limit`, which starts at 00:00 UTC; null: unlimited.'),
        usage: z
          .number()
          .describe('USD spent since the key exists, minus refunds; includes daily credit.'),
        is_free_tier: z
          .boolean()
          .describe('Whether the account has spent nothing and has no credit.'),
        is_provisioning_key: z.boolean().describe('Whether the key is an ADMIN key.'),
        expires_at: z.string().nullable().describe('ISO 8601, UTC; null: never.'),
      })
      .describe('The key or wallet of the request.'),
  })
  .meta({ id: 'KeyState' });

const KEY_STATE: RouteDescription = {
  tag: 'API keys',
  summary: 'Get the limit and the spending of the key',
  response: jsonResponse('Amounts in USD.', KeyStateResponse, {
    data: {
      label: '...3f9a2c',
      limit: 10,
      limit_remaining: 9.98,
      limit_reset: 'monthly',
      usage: 0.02,
      is_free_tier: false,
      is_provisioning_key: false,
      expires_at: null,
    },
  }),
};

export function creditRoutes(parts: AccountParts): Route[] {
  return [
    get('/credits', 'key-or-wallet', CREDITS, async (context) => {
      const { spentNano, leftNano } = await sumsOf(parts, context.caller);
      const data = {
        total_credits: toUsdNumber(nano(spentNano + leftNano)),
        total_usage: toUsdNumber(spentNano),
      };
      await context.json(200, { data } satisfies CreditsResponse);
    }),
    get('/key', 'key-or-wallet', KEY_STATE, async (context) =>
      context.json(200, await keyStateBody(parts, context)),
    ),
  ];
}

/** Spending of the account and of the key, minus refunds, and the posted balance. */
async function sumsOf(
  { stores: { store, ledger }, clock }: AccountParts,
  { accountId, keyId }: Caller,
): Promise<{ readonly spentNano: Nano; readonly keySpentNano: Nano; readonly leftNano: Nano }> {
  const { usdNano, diemNano } = await ledger.balances(accountId);
  const { account, key } = await spentEver(store, { accountId, keyId }, clock.nowMs());
  return {
    spentNano: totalOf(account),
    keySpentNano: totalOf(key),
    leftNano: nano(usdNano + diemNano),
  };
}

async function keyStateBody(
  parts: AccountParts,
  { caller }: RequestContext,
): Promise<KeyStateResponse> {
  const { accountId, keyId, keyKind } = caller;
  const key = keyId === '' ? undefined : await parts.stores.identity.findKey(accountId, keyId);
  const cap = await tightestCap(parts, caller);
  const { leftNano, spentNano, keySpentNano } = await sumsOf(parts, caller);
  return {
    data: {
      label: key === undefined ? '' : `...${key.last6}`,
      limit: cap === undefined ? null : toUsdNumber(cap.limitNano),
      limit_remaining: cap === undefined ? null : toUsdNumber(cap.leftNano),
      limit_reset: cap === undefined ? null : RESETS[cap.period],
      usage: toUsdNumber(keySpentNano),
      is_free_tier: leftNano <= 0n && spentNano === 0n,
      is_provisioning_key: keyKind === 'ADMIN',
      expires_at: isoTimeOrNull(await keyExpiryMs(parts, caller)),
    },
  };
}

/** The cap in USD with the least left, of those of the key or token and of its parent keys. */
async function tightestCap(
  { stores: { store }, clock }: AccountParts,
  { capId, budgets }: Caller,
): Promise<{ limitNano: Nano; leftNano: Nano; period: CapPeriod } | undefined> {
  const ids = [capId ?? [], budgets?.parentIds ?? []].flat();
  const caps = await cappedSpending(store, ids, clock.nowMs());
  return [...caps.values()]
    .flatMap(({ usdLimitNano: limitNano, usdNano, period }) => {
      if (limitNano === undefined) return [];
      return { limitNano, leftNano: larger(ZERO, nano(limitNano - usdNano)), period };
    })
    .toSorted((one, other) => (one.leftNano < other.leftNano ? -1 : 1))[0];
}

const RESETS = { EPOCH: 'daily', WEEK: 'weekly', MONTH: 'monthly', LIFETIME: null } as const;

function totalOf({ usdNano, diemNano }: Spending): Nano {
  return nano(usdNano + diemNano);
}
