/**
 * Prepares the sale of a model's work: whether the caller may use the model (plan, privacy, models
 * of its key), its rate limits, the price, and the request to `Sales.sell`.
 */
import type { Settlement } from '../billing/ledger/ledger.ts';
import type { Outcome, PriceBounds, RateRule, SaleRequest } from '../billing/sale.ts';
import {
  type CatalogModel,
  isWithinPrivacy,
  type Price,
  requireBatchPrice,
  requirePrice,
  type ResolvedModel,
} from '../catalog/catalog.ts';
import type { CallerPrices, Config, ModelType, PlanLimits, ServiceTier } from '../config/config.ts';
import { Fault } from '../core/faults.ts';
import { formatUsd, toUsdNumber } from '../core/money.ts';
import type { Caller } from '../identity/identity.ts';
import type { RequestContext } from './request-context.ts';

/**
 * Returns the price of a model for the caller. Sets the model for the log and for the headers of
 * error responses. `tier`: a service tier that the model sells. Throws 401, 403 or 503.
 */
export function priceFor(
  context: RequestContext,
  { model, deprecation }: Pick<ResolvedModel, 'model' | 'deprecation'>,
  tier?: ServiceTier,
): Price {
  const { caller } = context;
  context.notes.model = model.id;
  context.known = { model, deprecation };
  requireAccess(model, caller, context);
  const price =
    caller.isBatch === true ? requireBatchPrice(model) : (model.price ?? requirePrice(model));
  return price.variants === undefined ? price : price.variants.now(tier);
}

/** The model with the own prices of a caller. */
export function withPrices<Resolved extends Pick<ResolvedModel, 'model'>>(
  resolved: Resolved,
  prices: CallerPrices,
): Resolved {
  const { model } = resolved;
  return { ...resolved, model: model.customers.modelFor(model, prices) };
}

export interface SaleTerms {
  /** Names the work in the usage record and the metrics. */
  readonly kind: string;
  readonly model: CatalogModel;
  readonly price: Price;
  /** The limits of this caller for this model. */
  readonly rate: RateRule;
  /** `undefined` while the price is unknown; then call `Sale.reserve`. */
  readonly bounds?: PriceBounds;
  /** Default 0, for work that is not counted in tokens. */
  readonly tokensEstimate?: number;
  readonly paid?: SaleRequest['paid'];
  readonly metadata?: SaleRequest['metadata'];
}

/** Tags of the body override those of the header. */
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

export interface Origin {
  /** As `RequestContext.country`. */
  readonly country: string | undefined;
}

/** Throws `PRO_ONLY_MODEL` (401), `MODEL_NOT_ALLOWED` or `REGION_NOT_ALLOWED` (403). */
export function requireAccess(
  model: CatalogModel,
  caller: Pick<Caller, 'plan' | 'basedOn' | 'modelPrivacy' | 'models'>,
  origin: Origin,
): void {
  if (model.requires !== undefined && (caller.basedOn ?? caller.plan) === 'paid') {
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

/** With the setting for countries, rejects a request of a restricted or unknown country. */
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
 * The setting with the requests per minute of other models than text; their tokens are not limited.
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
 * Returns the rate limits of a caller for a model, by the current settings: of the key, else of the
 * account, else of the model, else of the plan.
 */
export function ratesBy(config: { readonly current: Pick<Config, 'resolvedPlans'> }) {
  return (
    { plan: planName, keyLimits, accountLimits }: RatedCaller,
    { type, tier, limits: ofModel }: Pick<CatalogModel, 'type' | 'tier' | 'limits'>,
  ): RateRule => {
    const { resolvedPlans } = config.current;
    const plan = (resolvedPlans.byName.get(planName) ?? resolvedPlans.paid).limits;
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
  };
}

type RatedCaller = Pick<Caller, 'plan' | 'keyLimits' | 'accountLimits'>;

export function costOf({ usdNano, diemNano }: Pick<Settlement, 'usdNano' | 'diemNano'>) {
  return { usd: toUsdNumber(usdNano), diem: toUsdNumber(diemNano) };
}

/** Adds what was settled to the log line. */
export function noteOutcome({ notes }: RequestContext, outcome: Outcome): void {
  const { costNano, replica, tokens } = outcome;
  notes.costUsd = formatUsd(costNano);
  if (replica !== undefined) notes.replica = replica;
  if (tokens === undefined) return;
  notes.promptTokens = tokens.prompt;
  notes.completionTokens = tokens.completion;
}
