/**
 * The rate limits of one caller for one kind of work: the key's own, else the account's own, else
 * those of the plan. Limits, tables "Text models", "Other model types" and "Partner tier".
 */
import type { CatalogModel } from '../catalog/catalog.ts';
import type { LimitsSection, Tier } from '../config/config.ts';
import type { Caller, LimitOverrides } from '../identity/identity.ts';
import type { RateRule } from './charge.ts';

export type WorkKind = 'text' | 'image' | 'audio' | 'embedding' | 'videoQueue' | 'videoRetrieve';

/** Limits for a model of the catalogue. */
export function rateOfModel(limits: LimitsSection, caller: Caller, model: CatalogModel): RateRule {
  switch (model.type) {
    case 'text':
      return rateOf(limits, caller, 'text', model.tier);
    case 'embedding':
      return rateOf(limits, caller, 'embedding', model.tier);
    case 'asr':
    case 'tts':
    case 'music':
      return rateOf(limits, caller, 'audio', model.tier);
    case 'image':
    case 'inpaint':
    case 'upscale':
      return rateOf(limits, caller, 'image', model.tier);
    case 'video':
      return rateOf(limits, caller, 'videoQueue', model.tier);
  }
}

export function rateOf(
  limits: LimitsSection,
  caller: Caller,
  work: WorkKind,
  tier: Tier,
): RateRule {
  const plan = limits.plans[caller.plan];
  const base =
    work === 'text' ? plan.text[tier] : { requestsPerMinute: plan[work], tokensPerMinute: 0 };
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
