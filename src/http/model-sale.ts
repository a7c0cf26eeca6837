/**
 * The sale of a model's work to the caller of a request, as every priced route of a model begins it:
 * whether the caller may use the model (plan, privacy, the list and limits of its key), how often and
 * at what price, and what `Sales.sell` is told. It sells nothing itself.
 */
import type { PriceBounds, RateRule, SaleRequest } from '../billing/sale.ts';
import {
  type CatalogModel,
  isWithinPrivacy,
  type Price,
  requireBatchPrice,
  requirePrice,
  type ResolvedModel,
} from '../catalog/catalog.ts';
import type { LimitsSection, ModelType, PlanLimits } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import type { Caller } from '../identity/identity.ts';
import type { RequestContext } from './request-context.ts';

/**
 * The price of a model for the caller. From here on the log names the model, and so do the headers of
 * a refusal. Throws 401, 403 or 503.
 */
export function priceFor(
  context: RequestContext,
  { model, deprecation }: Pick<ResolvedModel, 'model' | 'deprecation'>,
): Price {
  const { caller } = context;
  context.notes.model = model.id;
  context.known = { model, deprecation };
  requireAccess(model, caller, context);
  return caller.isBatch === true ? requireBatchPrice(model) : (model.price ?? requirePrice(model));
}

/** What is sold of a model, and on what terms. */
export interface SaleTerms {
  /** Names the work in the usage record and the metrics. */
  readonly kind: string;
  readonly model: CatalogModel;
  readonly price: Price;
  /** The limits of this caller for this model. */
  readonly rate: RateRule;
  /** The least and the most that it costs; missing while that is not known: `Sale.reserve` then. */
  readonly bounds?: PriceBounds;
  /** About how many tokens it will use; none for what is not counted in tokens. */
  readonly tokensEstimate?: number;
  readonly paid?: SaleRequest['paid'];
  readonly metadata?: SaleRequest['metadata'];
}

/**
 * What `Sales.sell` takes for the request of this context. A tag of its body goes before that of its
 * header.
 */
export function saleRequest(
  { requestId, caller, cancellation, keeper, tags }: RequestContext,
  { kind, model, price, rate, bounds, tokensEstimate = 0, paid, metadata }: SaleTerms,
): SaleRequest {
  return {
    requestId,
    caller,
    kind,
    modelId: model.id,
    rate,
    tokensEstimate,
    price: bounds,
    priceVersion: price.version,
    metadata: tags === undefined ? metadata : { ...tags, ...metadata },
    cancellation,
    paid,
    keeper,
  };
}

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
  if (caller.modelPrivacy !== 'ALL' && !isWithinPrivacy(model, caller.modelPrivacy)) {
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
