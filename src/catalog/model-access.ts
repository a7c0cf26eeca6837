/** Whether a caller may use a model and how often: plan, privacy, the list and limits of its key. */
import type { LimitsSection, ModelType, PlanLimits } from '../config/config.ts';
import type { Caller, ModelPrivacy } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import type { CatalogModel } from './model.ts';
import { type Price, requireBatchPrice, requirePrice } from './pricing.ts';

/** Where a request comes from. */
export interface Origin {
  /**
   * The country, as the proxy in front says; empty when it does not say one, `undefined` when the
   * settings name no header for it.
   */
  readonly country: string | undefined;
}

/** Throws `PRO_ONLY_MODEL` (401), `MODEL_NOT_ALLOWED` or `REGION_NOT_ALLOWED` (403). */
export function requireAccess(
  model: CatalogModel,
  caller: Pick<Caller, 'plan' | 'modelPrivacy' | 'models'>,
  origin: Origin,
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
  if (model.regionRestrictions.length > 0) requireRegion(model, origin);
}

/** Where countries are told, a request without one is not served with a model that they restrict. */
export function requireRegion(
  { id, regionRestrictions }: Pick<CatalogModel, 'id' | 'regionRestrictions'>,
  { country }: Origin,
): void {
  if (country === undefined || regionRestrictions.length === 0) return;
  if (country !== '' && !regionRestrictions.includes(country)) return;
  const where = country === '' ? 'where the country of a request is not known' : `in ${country}`;
  throw new Fault('REGION_NOT_ALLOWED', { message: `The model "${id}" is not offered ${where}` });
}

/** Whether a key with this limit may use the model. */
export function isWithinPrivacy(model: CatalogModel, privacy: ModelPrivacy): boolean {
  if (privacy === 'ALL' || model.privacy === 'private') return true;
  return privacy === 'PRIVATE_TEXT' && model.type !== 'text';
}

/** The price of a model for a caller who may use it. Throws 401, 403 or 503. */
export function requireSold(model: CatalogModel, caller: Caller, origin: Origin): Price {
  requireAccess(model, caller, origin);
  return caller.isBatch === true ? requireBatchPrice(model) : requirePrice(model);
}

/**
 * Requests a minute of what is no text; its tokens are not limited. What reads texts and writes none
 * is as light as embeddings.
 */
const REQUESTS_OF = {
  embedding: 'embedding',
  rerank: 'embedding',
  moderation: 'embedding',
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
