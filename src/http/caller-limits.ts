/**
 * The rate limits of one caller for one model: the key's own, else the account's own, else those
 * of the plan.
 */
import { type CatalogModel, rateFor } from '../catalog/catalog.ts';
import type { LimitsSection } from '../config/config.ts';
import type { Caller, LimitOverrides } from '../identity/identity.ts';
import type { RateRule } from '../billing/sale.ts';

export function callerRate(limits: LimitsSection, caller: Caller, model: CatalogModel): RateRule {
  const base = rateFor(model, caller.plan, limits);
  if (isSet(caller.keyLimits)) return { ...overridden(base, caller.keyLimits), type: 'api_key' };
  return { ...overridden(base, caller.accountLimits), type: 'user' };
}

function isSet(overrides: LimitOverrides): boolean {
  return overrides.requestsPerMinute !== undefined || overrides.tokensPerMinute !== undefined;
}

function overridden(
  base: { readonly requestsPerMinute: number; readonly tokensPerMinute: number },
  overrides: LimitOverrides,
) {
  return {
    requestsPerMinute: overrides.requestsPerMinute ?? base.requestsPerMinute,
    tokensPerMinute: overrides.tokensPerMinute ?? base.tokensPerMinute,
  };
}
