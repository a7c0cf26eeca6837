/**
 * The rate limits of one caller for one model: the key's own, else the account's own, else those of
 * the model itself, else those of the plan for its tier or kind.
 */
import type { CatalogModel } from '../catalog/catalog.ts';
import type { LimitsSection, ModelType, PlanLimits } from '../config/config.ts';
import type { Caller } from '../identity/identity.ts';
import type { RateRule } from '../billing/sale.ts';

/** Requests a minute of what is no text; its tokens are not limited. */
const REQUESTS_OF = {
  embedding: 'embedding',
  image: 'image',
  upscale: 'image',
  inpaint: 'image',
  asr: 'audio',
  tts: 'audio',
  music: 'audio',
  video: 'videoQueue',
} as const satisfies Record<Exclude<ModelType, 'text'>, keyof PlanLimits>;

export function callerRate(
  limits: LimitsSection,
  caller: Pick<Caller, 'plan' | 'keyLimits' | 'accountLimits'>,
  { type, tier, limits: ofModel }: Pick<CatalogModel, 'type' | 'tier' | 'limits'>,
): RateRule {
  const { keyLimits, accountLimits } = caller;
  const plan = limits.plans[caller.plan];
  const base =
    type === 'text'
      ? plan.text[tier]
      : { requestsPerMinute: plan[REQUESTS_OF[type]], tokensPerMinute: 0 };
  const isOfKey =
    keyLimits.requestsPerMinute !== undefined || keyLimits.tokensPerMinute !== undefined;
  const own = isOfKey ? keyLimits : accountLimits;
  return {
    requestsPerMinute:
      own.requestsPerMinute ?? ofModel?.requestsPerMinute ?? base.requestsPerMinute,
    tokensPerMinute: own.tokensPerMinute ?? ofModel?.tokensPerMinute ?? base.tokensPerMinute,
    type: isOfKey ? 'api_key' : 'user',
  };
}
