/**
 * The model catalog: configured models and models reported by engines, found by id, trait, alias or
 * a tolerant spelling, and listed by `GET /models`.
 *
 * Every change builds a new snapshot and swaps it in one step, so that a request never sees a
 * mixture of two states. The catalog does not call engines.
 */
import { isDeepStrictEqual } from 'node:util';

import { type CallerPrices, type Config, MODEL_TYPES, type ModelType } from '../config/config.ts';
import { type Clock, SECOND_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import type { ModelPrivacy } from '../identity/identity.ts';
import {
  type ModelOutage,
  type CatalogModel,
  configuredModel,
  discoveredModel,
  type DiscoveredModel,
  isWithinPrivacy,
  mergeDiscovered,
} from './model.ts';
import {
  isOnList,
  listBody,
  type ListOptions,
  type ListType,
  modelItem,
  type VideoConstraints,
} from './model-list.ts';
import { CustomerPrices, soldModel } from './customer-prices.ts';
import { ModelLookup, type ResolvedModel } from './model-lookup.ts';
import { assignTraits } from './traits.ts';

export type { BatchType, CatalogModel, DiscoveredModel, ModelOutage } from './model.ts';
export { isWithinPrivacy } from './model.ts';
export { isLoss, lossText, type Margin, marginsOf, type PriceLine, pricesFor } from './margins.ts';
export { capabilities, LIST_TYPES, type ListType, type VideoConstraints } from './model-list.ts';
export { CLAUDE_PREFIX, type DeprecationNotice, type ResolvedModel } from './model-lookup.ts';
export { soldModel } from './customer-prices.ts';
export { compilePrice, type ImageKind, type Price, scaledRow, soldTier } from './compile-price.ts';
export {
  boundFor,
  chargeFor,
  chargeForCalls,
  highestImagePrice,
  imagePrice,
  outputTokensAffordable,
  requireBatchPrice,
  requirePrice,
  type StoredLine,
  storedTokenLines,
  surcharge,
  tokenLines,
  tokenPrices,
  unpricedKinds,
  type UsageBound,
} from './pricing.ts';
export { supplierCost, type SuppliedWork } from './supplier-cost.ts';

/** The part of the configuration that the catalog reads; a whole `Config` fits. */
type CatalogSettings = Pick<Config, 'service' | 'models' | 'defaults' | 'batches' | 'engines'>;

interface CatalogOptions {
  readonly settings: CatalogSettings;
  readonly clock: Clock;
  /** If web search is configured, every text model is listed as supporting it. Default `false`. */
  readonly webSearch?: boolean;
  readonly videoConstraints?: VideoConstraints;
}

/** The models that a key may use, with its prices; `models` of `undefined` allows all. */
export interface KeyLimits {
  readonly modelPrivacy: ModelPrivacy;
  readonly models: ReadonlySet<string> | undefined;
  /** `undefined` for the list prices. */
  readonly prices?: CallerPrices;
}

const UNLIMITED: KeyLimits = { modelPrivacy: 'ALL', models: undefined };

interface Snapshot {
  readonly models: ReadonlyMap<string, CatalogModel>;
  readonly traits: ReadonlyMap<ModelType, ReadonlyMap<string, CatalogModel>>;
  readonly lookup: ModelLookup;
  readonly builtAtMs: number;
  /** Time of the next deprecation change, at which the snapshot must be rebuilt. */
  readonly validUntilMs: number;
  readonly bodies: Map<string, Buffer>;
}

export class Catalog {
  readonly #clock: Clock;
  readonly #shown: ListOptions;
  readonly #startedSeconds: number;
  /** Own prices of customers. */
  readonly customers = new CustomerPrices();
  #settings: CatalogSettings;
  #discovered: readonly DiscoveredModel[] = [];
  #areStarting = false;
  #snapshot: Snapshot;

  constructor(options: CatalogOptions) {
    this.#clock = options.clock;
    const { webSearch = false, videoConstraints } = options;
    this.#shown = { webSearch, videoConstraints };
    this.#startedSeconds = Math.floor(options.clock.nowMs() / 1_000);
    this.#settings = options.settings;
    this.#snapshot = this.#build();
  }

  configure(settings: CatalogSettings): void {
    this.#settings = settings;
    this.#snapshot = this.#build();
  }

  /**
   * Replaces all models reported by engines; an equal list changes nothing. `areStarting`: further
   * models may follow soon.
   */
  setDiscovered(models: readonly DiscoveredModel[], areStarting = false): void {
    this.#areStarting = areStarting;
    if (isDeepStrictEqual(models, this.#discovered)) return;
    this.#discovered = [...models];
    this.#snapshot = this.#build();
  }

  get(id: string): CatalogModel | undefined {
    return this.#current().models.get(id);
  }

  /** The model with this id, otherwise the one with this alias. */
  named(name: string): CatalogModel | undefined {
    return this.get(name) ?? this.models().find((model) => model.aliases.includes(name));
  }

  models(): readonly CatalogModel[] {
    return [...this.#current().models.values()];
  }

  holderOf(trait: string, type: ModelType): CatalogModel | undefined {
    return this.#current().traits.get(type)?.get(trait);
  }

  /** The model of a name, or its replacement, even if it is offline. */
  resolve(name: string, type: ModelType): ResolvedModel | undefined {
    return this.#current().lookup.resolve(name, type);
  }

  /** As `resolve`, but throws 404, 400 for the wrong type, 410, or 503 if offline. */
  require(name: string, type: ModelType): ResolvedModel {
    const { lookup } = this.#current();
    const resolved = lookup.resolve(name, type);
    if (resolved === undefined) {
      if (!lookup.knows(name, type)) {
        if (this.#areStarting) throw this.starting();
        if (name === 'default') throw noModel(type);
      }
      return lookup.refuse(name, type);
    }
    const { id, offline, replicas, outage } = resolved.model;
    if (outage !== undefined) throw outageFault(id, outage, this.#clock.monotonicMs());
    if (!offline && replicas.length > 0) return resolved;
    throw new Fault('MODEL_OFFLINE', { message: `The model "${id}" is offline`, modelId: id });
  }

  /** For a missing model: a 503 Fault while engines start, otherwise `undefined`. */
  starting(): Fault | undefined {
    if (!this.#areStarting) return undefined;
    return new Fault('MODEL_OFFLINE', {
      message: 'The engines of this server are starting; retry in a few seconds',
      retryAfterSeconds: STARTING_SECONDS,
    });
  }

  /** The JSON body of `GET /models?type=`, without models that the key may not use. */
  listBody(type: ListType, limits: KeyLimits = UNLIMITED): Buffer {
    const { modelPrivacy, models, prices } = limits;
    const make = (snapshot: Snapshot): Buffer => this.#list(snapshot, type, limits);
    // Not cached: each key with a model list, or own prices, has its own body.
    if (models !== undefined || prices !== undefined) return make(this.#current());
    return this.#body(`list ${type} ${modelPrivacy}`, make);
  }

  /** The models of a list, without those that the key may not use. */
  listed(type: ListType, limits: KeyLimits = UNLIMITED): CatalogModel[] {
    return listedModels(this.#current(), type, limits);
  }

  /**
   * The model with this id, of any type, or the text model of this name. Throws 404 (also for a
   * model that the key may not use) and 410.
   */
  describe(name: string, limits: KeyLimits = UNLIMITED): CatalogModel {
    const { models, lookup } = this.#current();
    const exact = models.get(name);
    const isThere = exact !== undefined && exact.stage !== 'gone';
    const model = isThere ? exact : lookup.resolve(name, 'text')?.model;
    if (model === undefined) return lookup.refuse(name, exact?.type ?? 'text');
    return isAllowed(model, limits) ? model : lookup.refuseUnknown(name);
  }

  /** The JSON body of `GET /models/{id}`: the item of the list. */
  itemBody(model: CatalogModel, { prices }: KeyLimits = UNLIMITED): Buffer {
    return Buffer.from(JSON.stringify(this.#item(this.#current(), model, prices)));
  }

  #list(snapshot: Snapshot, type: ListType, limits: KeyLimits): Buffer {
    const models = listedModels(snapshot, type, limits);
    return listBody(
      type,
      models.map((model) => this.#item(snapshot, model, limits.prices)),
    );
  }

  #item(snapshot: Snapshot, model: CatalogModel, prices?: CallerPrices): object {
    const offline =
      model.offline ||
      model.stage === 'removed' ||
      model.replicas.length === 0 ||
      model.outage !== undefined;
    const held = [...(snapshot.traits.get(model.type) ?? [])];
    const traits = held.flatMap(([trait, holder]) => (holder === model ? [trait] : []));
    const sold = prices === undefined ? model : soldModel(model, prices);
    return modelItem({ model: sold, traits, offline }, this.#shown);
  }

  /** The JSON body of `GET /models/traits?type=`. */
  traitsBody(type: ModelType): Buffer {
    return this.#body(`traits ${type}`, (snapshot) => {
      const held = [...(snapshot.traits.get(type) ?? [])];
      return listBody(type, Object.fromEntries(held.map(([trait, model]) => [trait, model.id])));
    });
  }

  /** The JSON body of `GET /models/compatibility_mapping?type=`. */
  mappingBody(type: ModelType): Buffer {
    return this.#body(`mapping ${type}`, (snapshot) => {
      const models = [...snapshot.models.values()].filter((model) => model.type === type);
      const pairs = models.flatMap((model) => model.aliases.map((alias) => [alias, model.id]));
      return listBody(type, Object.fromEntries(pairs));
    });
  }

  #body(key: string, make: (snapshot: Snapshot) => Buffer): Buffer {
    const snapshot = this.#current();
    const known = snapshot.bodies.get(key);
    if (known !== undefined) return known;
    const body = make(snapshot);
    snapshot.bodies.set(key, body);
    return body;
  }

  #current(): Snapshot {
    const nowMs = this.#clock.nowMs();
    const { builtAtMs, validUntilMs } = this.#snapshot;
    // The clock may have been set back.
    if (nowMs >= validUntilMs || nowMs < builtAtMs) this.#snapshot = this.#build();
    return this.#snapshot;
  }

  #build(): Snapshot {
    const { service, models: configured, defaults, batches, engines } = this.#settings;
    const nowMs = this.#clock.nowMs();
    const given = {
      serviceName: service.name,
      startedSeconds: this.#startedSeconds,
      nowMs,
      clock: this.#clock,
      defaults,
      batchPriceFactor: batches.priceFactor,
      customers: this.customers,
      engines,
    };
    const found = mergeDiscovered(this.#discovered);
    const models = new Map<string, CatalogModel>();
    for (const settings of configured) {
      const same = found.get(settings.id);
      const matching = same?.type === settings.type ? same : undefined;
      models.set(settings.id, configuredModel(settings, matching, given));
    }
    for (const model of found.values()) {
      if (!models.has(model.id)) models.set(model.id, discoveredModel(model, given));
    }
    const all = [...models.values()];
    const traits = new Map(
      MODEL_TYPES.map((type) => [type, assignTraits(all.filter((model) => model.type === type))]),
    );
    return {
      models,
      traits,
      lookup: new ModelLookup(models, traits, `${service.name}-`),
      builtAtMs: nowMs,
      validUntilMs: all.reduce((least, model) => Math.min(least, model.stageEndsMs), Infinity),
      bodies: new Map(),
    };
  }
}

function listedModels({ models }: Snapshot, type: ListType, limits: KeyLimits): CatalogModel[] {
  return (
    [...models.values()]
      .filter((model) => model.listed && isOnList(model, type))
      // A model without a known return time is not listed; a request for it returns the reason.
      .filter(({ outage }) => outage === undefined || outage.backAtMs !== undefined)
      .filter((model) => isAllowed(model, limits))
      .filter((model) => model.stage !== 'gone')
  );
}

function isAllowed(model: CatalogModel, { modelPrivacy, models }: KeyLimits): boolean {
  return isWithinPrivacy(model, modelPrivacy) && models?.has(model.id) !== false;
}

/** The named model, or the default of its type if no name is given. Throws 404, 410, 503. */
export function requireModel(
  catalog: Catalog,
  type: ModelType,
  wanted: { readonly name: string | undefined; readonly work: string },
): ResolvedModel {
  const name = wanted.name ?? catalog.holderOf('default', type)?.id;
  if (name !== undefined) return catalog.require(name, type);
  throw (
    catalog.starting() ??
    new Fault('MODEL_OFFLINE', {
      message: `No engine for ${wanted.work} is running on this server`,
    })
  );
}

/** The name "default" is valid, but no model has the trait. */
function noModel(type: ModelType): Fault {
  const message = `This server has no ${type} model: add an engine, or run "farebox models pull"`;
  return new Fault('MODEL_OFFLINE', { message });
}

/** Typical start time of an embedded engine. */
const STARTING_SECONDS = 3;

function outageFault(id: string, { reason, backAtMs }: ModelOutage, nowMs: number): Fault {
  const message = `The model "${id}" ${reason}`;
  if (backAtMs === undefined) return new Fault('MODEL_OFFLINE', { message });
  const retryAfterSeconds = Math.max(1, Math.ceil((backAtMs - nowMs) / SECOND_MS));
  return new Fault('MODEL_OFFLINE', { message, retryAfterSeconds });
}
