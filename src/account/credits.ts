/**
 * `GET /credits` and `GET /key`: the balance in the format of OpenRouter, which many tools poll.
 */
import { isoTimeOrNull } from '../core/clock.ts';
import { z } from 'zod';
import { type Spending, cappedSpending, spentEver } from '../billing/ledger/ledger.ts';
import { type Nano, nano, toUsdNumber } from '../core/money.ts';
import { type RouteDescription, jsonResponse } from '../http/describe.ts';
import type { RequestContext } from '../http/request-context.ts';
import { type Route, get } from '../http/route.ts';
import type { Caller } from '../identity/identity.ts';
import type { AccountParts } from './account-parts.ts';

export type CreditsResponse = z.infer<typeof CreditsResponse>;
export const CreditsResponse = z
  .strictObject({
    data: z
      .strictObject({
        total_credits: z
          .number()
          .describe('USD, daily credit included: `total_usage`, and what is posted now.'),
        total_usage: z
          .number()
          .describe(
            'USD that was ever spent, less what was given back of it. What is left is the difference of the two.',
          ),
      })
      .describe('Of the whole account.'),
  })
  .meta({ id: 'Credits' });

const CREDITS: RouteDescription = {
  tag: 'Usage and billing',
  summary: 'Get what is left, for tools',
  response: jsonResponse('Of the account or wallet, in USD.', CreditsResponse, {
    data: { total_credits: 50.25, total_usage: 0.02 },
  }),
};

export type KeyStateResponse = z.infer<typeof KeyStateResponse>;
export const KeyStateResponse = z
  .strictObject({
    data: z
      .strictObject({
        label: z.string().describe('The end of the secret, behind dots; empty for a wallet.'),
        limit: z.number().nullable().describe('USD that it may spend a period; null: no limit.'),
        limit_remaining: z
          .number()
          .nullable()
          .describe('USD that are left of `limit` in this period; null without a limit.'),
        limit_reset: z
          .enum(['daily', 'weekly', 'monthly'])
          .nullable()
          .describe('How often `limit` starts again, at 00:00 UTC; null: never.'),
        usage: z
          .number()
          .describe(
            'USD that it has ever spent, less what was given back of it; daily credit included.',
          ),
        is_free_tier: z.boolean().describe('Whether nothing was ever spent and nothing is left.'),
        is_provisioning_key: z.boolean().describe('Whether it manages keys: an ADMIN key.'),
        expires_at: z.string().nullable().describe('ISO 8601, UTC; null: it does not expire.'),
      })
      .describe('Of the key or wallet that asks.'),
  })
  .meta({ id: 'KeyState' });

const KEY_STATE: RouteDescription = {
  tag: 'API keys',
  summary: 'Get the limit and the spending of the key that asks',
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

/** What an account and the key that asks have ever spent, less refunds, and what is left. */
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
  const { store, identity } = parts.stores;
  const key = keyId === '' ? undefined : await identity.findKey(accountId, keyId);
  const limitNano = key?.usdLimitNano;
  const capped = await cappedSpending(
    store,
    limitNano === undefined ? [] : [keyId],
    parts.clock.nowMs(),
  );
  const usedNano = capped.get(keyId)?.usdNano ?? 0n;
  const { leftNano, spentNano, keySpentNano } = await sumsOf(parts, caller);
  const left = limitNano === undefined ? null : limitNano - usedNano;
  return {
    data: {
      label: key === undefined ? '' : `...${key.last6}`,
      limit: limitNano === undefined ? null : toUsdNumber(limitNano),
      limit_remaining: left === null ? null : toUsdNumber(nano(left < 0n ? 0n : left)),
      limit_reset: limitNano === undefined ? null : RESETS[key?.limitPeriod ?? 'LIFETIME'],
      usage: toUsdNumber(keySpentNano),
      is_free_tier: leftNano <= 0n && spentNano === 0n,
      is_provisioning_key: keyKind === 'ADMIN',
      expires_at: isoTimeOrNull(key?.expiresMs),
    },
  };
}

const RESETS = { EPOCH: 'daily', WEEK: 'weekly', MONTH: 'monthly', LIFETIME: null } as const;

function totalOf({ usdNano, diemNano }: Spending): Nano {
  return nano(usdNano + diemNano);
}
