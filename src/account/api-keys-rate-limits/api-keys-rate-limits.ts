/**
 * `GET /api_keys/rate_limits`, the authoritative source of a caller's limits, by the same rules
 * that admission uses; and the log of what a limit refused, under both of its paths.
 */
import type { Catalog, CatalogModel } from '../../catalog/catalog.ts';
import type { RateRule } from '../../billing/sale.ts';
import type { Caller, Identity } from '../../identity/identity.ts';
import { type Clock, dayOf, dayStartMs, isoTime } from '../../core/clock.ts';
import { type Nano, toUsdNumber } from '../../core/money.ts';
import type { Ledger } from '../../billing/ledger/ledger.ts';
import type { LimitLog } from '../../billing/limits/limits.ts';
import type { Route } from '../../http/route.ts';
import { RATE_LIMITS, RATE_LIMIT_LOG, RATE_LIMIT_LOGS } from './describe.ts';
import type { RateLimitLogAnswer, RateLimitsAnswer } from './schema.ts';

export interface RateLimitRouteParts {
  readonly catalog: Catalog;
  readonly identity: Identity;
  readonly ledger: Ledger;
  readonly limitLog: LimitLog;
  readonly clock: Clock;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
  readonly minimumCreditNano: () => Nano;
}

export function rateLimitRoutes(parts: RateLimitRouteParts): Route[] {
  return [
    {
      method: 'GET',
      path: '/api_keys/rate_limits',
      auth: 'key',
      describe: RATE_LIMITS,
      handle: async (context) => context.json(200, await limitsOf(parts, context.caller)),
    },
    ...['/api_keys/rate_limits/log', '/api_keys/rate_limit_logs'].map((path): Route => ({
      method: 'GET',
      path,
      auth: 'key',
      describe: path.endsWith('logs') ? RATE_LIMIT_LOGS : RATE_LIMIT_LOG,
      handle: async (context) => context.json(200, await logOf(parts, context.caller)),
    })),
  ];
}

async function limitsOf(parts: RateLimitRouteParts, caller: Caller): Promise<RateLimitsAnswer> {
  const nowMs = parts.clock.nowMs();
  const [balances, key] = await Promise.all([
    parts.ledger.balances(caller.accountId),
    parts.identity.findKey(caller.accountId, caller.keyId),
  ]);
  return {
    data: {
      accessPermitted: balances.usdNano + balances.diemNano >= parts.minimumCreditNano(),
      apiTier: { id: caller.plan, isCharged: true },
      balances: { USD: toUsdNumber(balances.usdNano), DIEM: toUsdNumber(balances.diemNano) },
      keyExpiration: key?.expiresMs === undefined ? null : isoTime(key.expiresMs),
      nextEpochBegins: isoTime(dayStartMs(dayOf(nowMs) + 1)),
      rateLimits: parts.catalog
        .models()
        .filter((model) => model.listed && mayUse(caller, model))
        .map((model) => ({
          apiModelId: model.id,
          rateLimits: ratesOf(parts.rateOf(caller, model)),
        })),
    },
  };
}

function mayUse(caller: Caller, model: CatalogModel): boolean {
  return caller.models === undefined || caller.models.has(model.id);
}

function ratesOf(rule: RateRule): RateLimitsAnswer['data']['rateLimits'][number]['rateLimits'] {
  return [
    { type: 'RPM' as const, amount: rule.requestsPerMinute },
    { type: 'TPM' as const, amount: rule.tokensPerMinute },
  ].filter(({ amount }) => amount > 0);
}

/** An ADMIN key sees the whole account, another key itself. */
async function logOf(parts: RateLimitRouteParts, caller: Caller): Promise<RateLimitLogAnswer> {
  const { accountId, keyId, keyKind } = caller;
  const hits = await parts.limitLog.last(accountId, keyKind === 'ADMIN' ? undefined : keyId);
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
