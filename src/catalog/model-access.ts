/** Whether a caller may use a model and how often: plan, privacy, the list and limits of its key. */
import type { LimitsSection, ModelType, PlanLimits } from '../config/config.ts';
import type { Caller, ModelPrivacy } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import type { CatalogModel } from './model.ts';
import { type Price, requirePrice } from './pricing.ts';

/** Throws `PRO_ONLY_MODEL` (401) or `MODEL_NOT_ALLOWED` (403). */
export function requireAccess(
  model: CatalogModel,
  caller: Pick<Caller, 'plan' | 'modelPrivacy' | 'models'>,
): void {
  if (model.requires !== undefined && caller.plan === 'paid') {
    throw new Fault('PRO_ONLY_MODEL', {
      message: `The model "${model.id}" is only available to Pro users`,
    });
  }
  if (!isWithinPrivacy(model, caller.modelPrivacy)) {
    throw new Fault('MODEL_NOT_ALLOWED', {
      message: `The API key is limited to private models and "${model.id}" is not private`,
    });
  }
  if (caller.models?.has(model.id) === false) {
    throw new Fault('MODEL_NOT_ALLOWED', {
      message: `This API key may not use the model "${model.id}"`,
    });
  }
}

/** Whether a key with this limit may use the model. */
export function isWithinPrivacy(model: CatalogModel, privacy: ModelPrivacy): boolean {
  if (privacy === 'ALL' || model.privacy === 'private') return true;
  return privacy === 'PRIVATE_TEXT' && model.type !== 'text';
}

/** The price of a model for a caller who may use it. Throws 401, 403 or 503. */
export function requireSold(model: CatalogModel, caller: Caller): Price {
  requireAccess(model, caller);
  return requirePrice(model);
}

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

/**
 * The rate limits of one caller for one model: the key's own, else the account's own, else those of
 * the model itself, else those of the plan for its tier or kind.
 */
export function callerRate(
  limits: LimitsSection,
  caller: Pick<Caller, 'plan' | 'keyLimits' | 'accountLimits'>,
  { type, tier, limits: ofModel }: Pick<CatalogModel, 'type' | 'tier' | 'limits'>,
) {
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
    type: isOfKey ? ('api_key' as const) : ('user' as const),
  };
}
