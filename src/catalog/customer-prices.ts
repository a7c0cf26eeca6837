/**
 * Prices of customers: models with the prices of one list of own prices instead of the list prices.
 * A list is compiled for a model when it is first used, and kept until the model changes.
 */
import { type CallerPrices, discountFactor, ruleFor } from '../config/config.ts';
import { type Price, compileBatchPrice, compilePrice, scaledRow } from './compile-price.ts';
import type { CatalogModel, CustomerModels } from './model.ts';

/** Models of one list; above it, all are compiled again. */
const MAX_MODELS = 1_000;
/** Prices that receipts can name. */
const MAX_PRICES = 20_000;

export class CustomerPrices implements CustomerModels {
  readonly #models = new WeakMap<CallerPrices, Map<CatalogModel, CatalogModel>>();
  readonly #prices = new Map<string, Price>();

  modelFor(model: CatalogModel, prices: CallerPrices): CatalogModel {
    let models = this.#models.get(prices);
    if (models === undefined) this.#models.set(prices, (models = new Map()));
    const known = models.get(model);
    if (known !== undefined) return known;
    const made = soldModel(model, prices, (price) => this.#keep(price));
    if (models.size >= MAX_MODELS) models.clear();
    models.set(model, made);
    return made;
  }

  /** Compiled own prices, oldest first. */
  prices(): Iterable<Price> {
    return this.#prices.values();
  }

  priceOf(version: string): Price | undefined {
    return this.#prices.get(version);
  }

  #keep(price: Price): void {
    const [oldest = ''] = this.#prices.keys();
    if (this.#prices.size >= MAX_PRICES) this.#prices.delete(oldest);
    this.#prices.set(price.version, price);
  }
}

/** As `CustomerPrices.modelFor`, compiled for this call. `keep` receives each compiled price. */
export function soldModel(
  model: CatalogModel,
  prices: CallerPrices,
  keep?: (price: Price) => void,
): CatalogModel {
  const found = ruleFor(prices, model);
  if (found === undefined) return model;
  const { discountPercent, price: own, videoPricing } = found.rule;
  const factor = discountPercent === undefined ? undefined : discountFactor(discountPercent);
  const { price: settings, batchPriceFactor, options } = model.priced;
  const row =
    own ??
    (factor === undefined || settings === undefined
      ? settings
      : scaledRow(settings, factor, model.type));
  const kept = keep === undefined ? options : { ...options, keep };
  const { video } = model;
  const pricing = videoPricing ?? (video && factor && scaledRow(video.pricing, factor, model.type));
  return {
    ...model,
    listModel: model,
    price: row && compilePrice(row, { ...kept, list: model.price }),
    batchPrice:
      row &&
      model.batchPrice &&
      compileBatchPrice(row, batchPriceFactor, { ...kept, list: model.batchPrice }),
    video: video && pricing ? { ...video, pricing } : video,
  };
}
