/**
 * Sells one request for a model: finds the model, holds the price, runs the work of the route, and
 * sends its response when the charge is on disk.
 */
import { expectedSettlement } from '../billing/ledger/ledger.ts';
import type { Outcome, RateRule, Sale, SaleRequest, Sales, SoldResponse } from '../billing/sale.ts';
import {
  type Catalog,
  type CatalogModel,
  type DeprecationNotice,
  type Price,
  requireModel,
  supplierCost,
} from '../catalog/catalog.ts';
import type { ModelType } from '../config/config.ts';
import { SECOND_MS } from '../core/clock.ts';
import type { Nano } from '../core/money.ts';
import type { Caller } from '../identity/identity.ts';
import type { ResponseHeaders, KnownFacts } from './response-headers.ts';
import {
  costOf,
  noteOutcome,
  priceFor,
  type SaleTerms,
  saleRequest,
  withPrices,
} from './model-sale.ts';
import type { RequestContext } from './request-context.ts';

export interface SellingParts {
  readonly catalog: Catalog;
  readonly sales: Sales;
  readonly headers: ResponseHeaders;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
}

/** A model that the caller may use, with its current price. */
export interface FoundModel {
  readonly model: CatalogModel;
  readonly deprecation: DeprecationNotice | undefined;
  readonly price: Price;
}

export interface HeldWork extends FoundModel {
  readonly parts: SellingParts;
  readonly context: RequestContext;
  readonly sale: Sale;
  /** Aborts when no caller needs the response. */
  readonly signal: AbortSignal;
}

export type ServedBy = Required<Pick<KnownFacts, 'replica' | 'attempts'>> &
  Pick<KnownFacts, 'flags'>;

/** The charge in response bodies. */
export interface ChargedCost {
  readonly usd: number;
  readonly diem: number;
}

/** Returns the named model, or the default of its type. Throws 401, 403, 404, 410, 503. */
export function findModel(
  { catalog }: SellingParts,
  context: RequestContext,
  type: ModelType,
  wanted: { readonly name: string | undefined; readonly work: string },
): FoundModel {
  const found = requireModel(catalog, type, wanted);
  const { prices } = context.caller;
  const resolved = prices === undefined ? found : withPrices(found, prices);
  const { model, deprecation } = resolved;
  return { model, deprecation, price: priceFor(context, resolved) };
}

export type WorkOrder = Omit<SaleTerms, 'model' | 'price' | 'rate'>;

/** Counts the request, holds its price and runs the work. Throws 402 and 429. */
export async function sellWork(
  parts: SellingParts,
  context: RequestContext,
  found: FoundModel,
  order: WorkOrder,
  work: (held: HeldWork) => Promise<void>,
): Promise<void> {
  const { model, deprecation, price } = found;
  const rate = parts.rateOf(context.caller, model);
  const wanted = {
    ...saleRequest(context, { ...order, model, price, rate }),
    supplierCost: model.hasCosts ? supplierCostOf(model) : undefined,
  };
  await parts.sales.sell(wanted, async (sale) => {
    context.known = { model, deprecation, sale };
    await work({ ...found, parts, context, sale, signal: context.workSignal });
  });
}

/** Computes the cost from the counts of the outcome, unless the outcome includes it. */
function supplierCostOf(model: CatalogModel): SaleRequest['supplierCost'] {
  return (outcome, startedMs) => {
    const { supplier, replica, tokens, extras = {} } = outcome;
    if (supplier !== undefined || replica === undefined) return supplier;
    const count = (name: string): number => {
      const given = extras[name];
      return typeof given === 'number' ? given : 0;
    };
    const usage = {
      promptTokens: tokens?.prompt ?? 0,
      images: count('images'),
      characters: count('characters'),
      searches: count('searches'),
      audioMs: Math.round(count('audioSeconds') * SECOND_MS),
    };
    const work = { engine: replica, usage, calls: count('engine_calls') || 1 };
    return supplierCost(model, [work], startedMs);
  };
}

/** Settles finished work, and responds with the result of `write`. */
export async function answerWork(
  held: HeldWork,
  by: ServedBy,
  outcome: Outcome,
  write: (cost: ChargedCost) => SoldResponse & { readonly body: Buffer },
): Promise<void> {
  const { context, sale } = held;
  const { type, body } = await sale.answer(outcome, (settled) => {
    noteOutcome(context, outcome);
    sayAnswered(held, by, settled.after.usdNano);
    return write(costOf(settled));
  });
  await context.bytes(200, type, body);
}

/** Sets the headers of a stream, which begins before its charge: they report the least balance. */
export function sayStreamed(held: HeldWork, by: ServedBy): void {
  sayAnswered(held, by, expectedSettlement(held.sale.hold).after.usdNano);
}

function sayAnswered(held: HeldWork, by: ServedBy, remainingNano: Nano): void {
  const { parts, context, model, deprecation, sale } = held;
  parts.headers.answered({ model, deprecation, sale, ...by, remainingNano }, context.answerHeaders);
}
