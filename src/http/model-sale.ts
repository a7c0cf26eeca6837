/**
 * The sale of a model's work to the caller of a request, as every priced route of a model begins it:
 * the model is noted, the caller may use it, and `Sales.sell` is told who buys what at which price.
 * It sells nothing itself.
 */
import type { PriceBounds, RateRule, SaleRequest } from '../billing/sale.ts';
import type { CatalogModel, Price, ResolvedModel } from '../catalog/catalog.ts';
import { requireSold } from '../catalog/model-access.ts';
import type { RequestContext } from './request-context.ts';

/**
 * The price of a model for the caller. From here on the log names the model, and so do the headers of
 * a refusal. Throws 401, 403 or 503.
 */
export function priceFor(
  context: RequestContext,
  { model, deprecation }: Pick<ResolvedModel, 'model' | 'deprecation'>,
): Price {
  context.notes.model = model.id;
  context.known = { model, deprecation };
  return requireSold(model, context.caller, context);
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
