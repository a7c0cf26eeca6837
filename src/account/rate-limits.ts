/** `GET /api_keys/rate_limits`: the limits of a caller in admission; and the log of rejections. */
import * as z from 'zod';
import { dayOf, dayStartMs, isoTime, isoTimeOrNull } from '../core/clock.ts';
import { toUsdNumber } from '../core/money.ts';
import { type WindowState, bucketOf, stateNow } from '../billing/limits/limits.ts';
import { ratesBy } from '../http/model-sale.ts';
import { type RouteDescription, jsonResponse, listOf } from '../http/describe.ts';
import { type Route, get } from '../http/route.ts';
import type { Caller } from '../identity/identity.ts';
import {
  type AccountParts,
  STORAGE,
  StorageItem,
  isEnough,
  keyExpiryMs,
  storageOf,
} from './account-parts.ts';
import { Time } from './api-key-schema.ts';
import { KEYS_ENDPOINT, creationRate } from './manage-keys.ts';

const Rate = z.object({
  type: z.enum(['RPM', 'RPD', 'TPM']).describe('Per minute, per 24 hours, tokens per minute.'),
  unit: z
    .enum(['requests', 'tokens', 'credits'])
    .describe('Counted unit; `credits` are credits of blockchain RPC.'),
  amount: z.number().int().describe('Maximum in a window.'),
  used: z
    .number()
    .int()
    .describe('Used in the current window, with estimates for running requests.'),
  left: z.number().int().describe('Rest in the current window.'),
});
type Rate = z.infer<typeof Rate>;

export type RateLimitsResponse = z.infer<typeof RateLimitsResponse>;
export const RateLimitsResponse = z
  .object({
    data: z
      .object({
        accessPermitted: z.boolean().describe('Whether the credit is enough for a priced request.'),
        apiTier: z
          .object({
            id: z.string().describe('The plan.'),
            isCharged: z.boolean().describe('Whether requests are charged.'),
          })
          .describe('The plan of the account.'),
        balances: z
          .object({
            USD: z.number().describe('Posted USD.'),
            DIEM: z.number().describe("Rest of today's credit."),
          })
          .describe('Credit of the account.'),
        keyExpiration: Time.nullable().describe('Expiry of the key; null: never.'),
        nextEpochBegins: Time.describe('Next start of daily credit and EPOCH limits.'),
        rateLimits: z
          .array(
            z.object({
              apiModelId: z
                .string()
                .describe('A model, or `endpoint:<path>` for an endpoint with its own limit.'),
              rateLimits: z.array(Rate).describe('A missing type of limit does not apply.'),
            }),
          )
          .describe('Limits by model and endpoint.'),
        storage: StorageItem,
      })
      .describe('The limits, and the account that they depend on.'),
  })
  .meta({ id: 'RateLimits' });

const Refusal = z.object({
  apiKeyId: z.string().describe('The key of the rejected request.'),
  modelId: z.string().describe('A model, or `endpoint:<path>`.'),
  rateLimitTier: z.string().describe('The plan.'),
  rateLimitType: z
    .enum(['RPM', 'RPD', 'TPM', 'FAILED_REQUESTS', 'UNSUPPORTED_FEATURE_REQUESTS'])
    .describe(
      'Type of the limit: requests per minute or day, tokens per minute, failed requests, or requests for features that a model does not have.',
    ),
  timestamp: Time.describe(
    'ISO 8601, UTC. Rejections of one key, model and type in a minute are one entry with the time of the last one.',
  ),
});

export type RateLimitLogResponse = z.infer<typeof RateLimitLogResponse>;
export const RateLimitLogResponse = listOf(Refusal, 'The last 50, newest first.').meta({
  id: 'RateLimitLog',
});

const RATES = [
  { type: 'RPM', unit: 'requests', amount: 50, used: 3, left: 47 },
  { type: 'TPM', unit: 'tokens', amount: 750000, used: 2100, left: 747900 },
];
const RPC_RATES = [
  { type: 'RPM', unit: 'requests', amount: 100, used: 0, left: 100 },
  { type: 'RPD', unit: 'credits', amount: 10000000, used: 40, left: 9999960 },
];
const RATE_LIMITS: RouteDescription = {
  tag: 'API keys',
  summary: 'Limits in force',
  about:
    'The limits that admission applies. If several processes share the limits, `left` can be too low by the amount that other processes have leased and not used.',
  response: jsonResponse('Limits by model, and the balances.', RateLimitsResponse, {
    data: {
      accessPermitted: true,
      apiTier: { id: 'paid', isCharged: true },
      balances: { USD: 50.23, DIEM: 0 },
      keyExpiration: null,
      nextEpochBegins: '2026-11-22T00:00:00.000Z',
      rateLimits: [
        { apiModelId: 'atlas-24b', rateLimits: RATES },
        { apiModelId: 'endpoint:api/v1/crypto/rpc', rateLimits: RPC_RATES },
      ],
      storage: STORAGE,
    },
  }),
};

const LOGGED = {
  apiKeyId: 'key_019aa3f1c0de',
  modelId: 'atlas-24b',
  rateLimitTier: 'paid',
  rateLimitType: 'RPM',
  timestamp: '2026-11-21T04:00:00.000Z',
};
const RATE_LIMIT_LOG: RouteDescription = {
  tag: 'API keys',
  summary: 'Requests that a limit rejected',
  about:
    'An ADMIN key sees the account; another key sees its own requests. Both paths return the same.',
  response: jsonResponse('The last 50, newest first.', RateLimitLogResponse, {
    object: 'list',
    data: [LOGGED],
  }),
};

export function rateLimitRoutes(parts: AccountParts): Route[] {
  const log = (path: string, describe: RouteDescription): Route =>
    get(path, 'key', describe, async (context) =>
      context.json(200, await logOf(parts, context.caller)),
    );
  return [
    get('/api_keys/rate_limits', 'key', RATE_LIMITS, async (context) =>
      context.json(200, await limitsOf(parts, context.caller)),
    ),
    log('/api_keys/rate_limits/log', RATE_LIMIT_LOG),
    log('/api_keys/rate_limit_logs', {
      ...RATE_LIMIT_LOG,
      summary: 'Requests that a limit rejected (second path)',
    }),
  ];
}

async function limitsOf(parts: AccountParts, caller: Caller): Promise<RateLimitsResponse> {
  const { endpointLimits, windows, clock } = parts;
  const { limits } = parts.config.current;
  const nowMs = clock.nowMs();
  const rateBy = ratesBy(parts.config);
  const models = parts.catalog
    .models()
    .filter((model) => model.listed && caller.models?.has(model.id) !== false);
  const all = [
    ...models.map((model) => ({
      apiModelId: model.id,
      bucket: model.id,
      rate: rateBy(caller, model),
    })),
    ...endpointLimits.of(caller).map(({ modelId, rate, ownLimit }) => ({
      apiModelId: ownLimit?.loggedAs ?? modelId,
      bucket: ownLimit?.bucket ?? modelId,
      rate,
    })),
    { apiModelId: KEYS_ENDPOINT, bucket: KEYS_ENDPOINT, rate: creationRate(limits) },
  ].map((one) => ({ ...one, bucket: bucketOf(caller, one.rate, one.bucket) }));
  const [balances, expiresMs, counted, credits, storage] = await Promise.all([
    parts.stores.ledger.balances(caller.accountId),
    keyExpiryMs(parts, caller),
    windows.counted(
      all.map(({ bucket }) => bucket),
      nowMs,
    ),
    endpointLimits.credits(caller),
    storageOf(parts, caller.accountId),
  ]);
  const rateLimits = all.map(({ apiModelId, bucket, rate }) => {
    const rates = ratesOf(stateNow(rate, counted.get(bucket), nowMs));
    return { apiModelId, rateLimits: rates };
  });
  if (credits !== undefined) {
    const { endpoint, amount, used } = credits;
    const ofDay = rateOf('RPD', 'credits', amount, Math.max(0, amount - used));
    rateLimits.find(({ apiModelId }) => apiModelId === endpoint)?.rateLimits.push(ofDay);
  }
  return {
    data: {
      accessPermitted: isEnough(balances.usdNano + balances.diemNano, parts),
      apiTier: { id: caller.plan, isCharged: true },
      balances: { USD: toUsdNumber(balances.usdNano), DIEM: toUsdNumber(balances.diemNano) },
      keyExpiration: isoTimeOrNull(expiresMs),
      nextEpochBegins: isoTime(dayStartMs(dayOf(nowMs) + 1)),
      rateLimits,
      storage,
    },
  };
}

function ratesOf({ requestLimit, requestsLeft, tokenLimit, tokensLeft }: WindowState): Rate[] {
  const rates: Rate[] = [];
  if (requestLimit > 0) rates.push(rateOf('RPM', 'requests', requestLimit, requestsLeft));
  if (tokenLimit > 0) rates.push(rateOf('TPM', 'tokens', tokenLimit, tokensLeft));
  return rates;
}

function rateOf(type: Rate['type'], unit: Rate['unit'], amount: number, left: number): Rate {
  return { type, unit, amount, used: amount - left, left };
}

async function logOf(parts: AccountParts, caller: Caller): Promise<RateLimitLogResponse> {
  const { accountId, keyId, keyKind } = caller;
  const hits = await parts.limitLog.last(accountId, keyKind !== 'INFERENCE' ? undefined : keyId);
  return {
    object: 'list',
    data: hits.map((hit) => ({
      apiKeyId: hit.keyId,
      modelId: hit.modelId,
      rateLimitTier: hit.tier,
      rateLimitType: hit.type,
      timestamp: isoTime(hit.createdMs),
    })),
  };
}
