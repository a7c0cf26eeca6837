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
import { Fault } from '../core/faults.ts';
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
    supplierCost: costsOf(model),
  };
  await parts.sales.sell(wanted, async (sale) => {
    context.known = { model, deprecation, sale };
    await work({ ...found, parts, context, sale, signal: context.workSignal });
  });
}

/** A failure before the first byte of the response. */
export interface FailedWork {
  readonly fault: Fault;
  /** The engines could not respond, so that another model may do the work. */
  readonly isUnavailable: boolean;
}

export interface FallbackRule {
  readonly type: ModelType;
  /** The kind of work in the error texts of `findModel`. */
  readonly work: string;
  /** The maximum charge. Throws a Fault if the model cannot do the work. */
  readonly boundOf: (one: FoundModel) => Nano;
}

/**
 * Like `sellWork`, with the maximum charge of the model. If its engines cannot respond, its fallbacks run in
 * order: those that the caller may use, that can do the work, and whose maximum charge the hold covers.
 * The model that responds is charged. `work` resolves to `undefined` once it has responded or settled.
 */
export async function sellWithFallbacks(
  parts: SellingParts,
  context: RequestContext,
  found: FoundModel,
  { rule, ...order }: Omit<WorkOrder, 'bounds'> & { readonly rule: FallbackRule },
  work: (held: HeldWork) => Promise<FailedWork | undefined>,
): Promise<void> {
  const maxNano = rule.boundOf(found);
  const fallbacks = fallbacksOf(parts, context, found.model, { ...rule, maxNano });
  const bounds = { minNano: maxNano, maxNano };
  await sellWork(parts, context, found, { ...order, bounds }, async (held) => {
    const { sale } = held;
    const { request } = sale;
    let fault: Fault | undefined;
    for (const one of [found, ...fallbacks]) {
      if (one !== found) {
        const { model, price } = one;
        const cost = { supplierCost: costsOf(model) };
        sale.request = { ...request, modelId: model.id, priceVersion: price.version, ...cost };
        noteModel(context, { ...one, sale });
      }
      const failed = await work({ ...held, ...one });
      if (failed === undefined) return;
      fault ??= failed.fault;
      // A fallback may also reject a request that the requested model accepts.
      if (held.signal.aborted || (one === found && !failed.isUnavailable)) break;
    }
    sale.request = request;
    noteModel(context, { ...found, sale });
    throw fault;
  });
}

function noteModel(context: RequestContext, known: FoundModel & Pick<HeldWork, 'sale'>): void {
  const { model, deprecation, sale } = known;
  context.known = { model, deprecation, sale };
  context.notes.model = model.id;
}

function fallbacksOf(
  parts: SellingParts,
  context: RequestContext,
  { id, fallbacks = [] }: CatalogModel,
  { type, work, boundOf, maxNano }: FallbackRule & { readonly maxNano: Nano },
): FoundModel[] {
  if (fallbacks.length === 0) return [];
  const { known } = context;
  const found = fallbacks.flatMap((name) => {
    try {
      const one = findModel(parts, context, type, { name, work });
      // A removed model is not replaced by another one.
      return one.model.id === name && boundOf(one) <= maxNano ? [one] : [];
    } catch (error) {
      if (!(error instanceof Fault)) throw error;
      // The model is offline, or not for this caller or this request.
      return [];
    }
  });
  context.known = known;
  context.notes.model = id;
  return found;
}

function costsOf(model: CatalogModel): SaleRequest['supplierCost'] {
  return model.hasCosts ? supplierCostOf(model) : undefined;
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
    sayAnswered(held, by, settled.after.usdNano);
    return write(costOf(settled));
  });
  noteOutcome(context, outcome);
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
