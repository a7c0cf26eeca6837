/**
 * A model of the catalog: settings with all defaults, compiled prices, and its origin. Built from
 * configured settings, from engine reports, or from both.
 */
import type {
  CallerPrices,
  Capability,
  Config,
  DefaultsSection,
  ModelSettings,
  ModelType,
  PriceSettings,
  Tier,
  VideoPricing,
} from '../config/config.ts';
import { compileBatchPrice, compilePrice, type Price, type PriceOptions } from './compile-price.ts';
import { type Clock, DAY_MS } from '../core/clock.ts';
import type { ModelPrivacy } from '../identity/identity.ts';

/** Why a known model is unavailable: it is being fetched, or failed. */
export interface ModelOutage {
  /** For callers, after the name of the model: `is being downloaded: 12 %`. */
  readonly reason: string;
  /** Monotonic time in milliseconds of its return; missing if waiting does not help. */
  readonly backAtMs?: number;
}

/** Origins of models, best first: the order of preference for traits. */
export const ORIGINS = ['configured', 'discovered', 'downloaded', 'demo'] as const;
export type Origin = (typeof ORIGINS)[number];

export interface Replica {
  readonly engine: string;
  readonly model: string;
  readonly weight: number;
  readonly order: number;
  /** Prices of the supplier. */
  readonly cost?: Price | undefined;
  readonly videoCost?: VideoPricing | undefined;
}

/** A model without configuration: found on a local port, or run by an embedded engine. */
export interface DiscoveredModel {
  readonly id: string;
  readonly type: ModelType;
  readonly origin: Exclude<Origin, 'configured'>;
  readonly replicas: readonly (Pick<Replica, 'engine' | 'model'> & Partial<Replica>)[];
  readonly name?: string;
  readonly description?: string;
  readonly source?: string;
  readonly context?: number;
  readonly maxCompletionTokens?: number;
  readonly capabilities?: readonly Capability[];
  readonly reasoningEfforts?: ModelSettings['reasoningEfforts'];
  readonly embedding?: ModelSettings['embedding'];
  readonly video?: ModelSettings['video'];
  readonly rerank?: ModelSettings['rerank'];
  readonly speech?: ModelSettings['speech'];
  readonly quantization?: ModelSettings['quantization'];
  readonly parameters?: number;
  /** Default: the configured default price of its type. */
  readonly price?: PriceSettings;
  readonly outage?: ModelOutage;
  readonly listed?: boolean;
}

type Settled =
  | 'price'
  | 'capabilities'
  | 'replicas'
  | 'tier'
  | 'name'
  | 'ownedBy'
  | 'created'
  | 'context'
  | 'maxCompletionTokens';

/** The settings from which the prices of a model are compiled. */
interface PricedSettings {
  readonly price: PriceSettings | undefined;
  readonly batchPriceFactor: string;
  readonly options: PriceOptions;
}

/** Models with the prices of customers. */
export interface CustomerModels {
  /** The model with the prices of a customer; the same object for each call. */
  modelFor(model: CatalogModel, prices: CallerPrices): CatalogModel;
}

export interface CatalogModel extends Readonly<Omit<ModelSettings, Settled>> {
  readonly origin: Origin;
  readonly outage: ModelOutage | undefined;
  readonly name: string;
  readonly ownedBy: string;
  readonly createdSeconds: number;
  readonly tier: Tier;
  /** Tokens of prompt and completion together; 0 if the type has no context. */
  readonly context: number;
  readonly maxCompletionTokens: number;
  readonly capabilities: ReadonlySet<Capability>;
  readonly price: Price | undefined;
  /** The settings of its prices, from which those of customers are compiled. */
  readonly priced: PricedSettings;
  readonly customers: CustomerModels;
  /** The model with the list prices, if this one has the prices of a customer. */
  readonly listModel?: CatalogModel;
  /** Price of a request in a batch; missing if the model does not support batches. */
  readonly batchPrice: Price | undefined;
  readonly replicas: readonly Replica[];
  /** Whether a replica has the prices of its supplier. */
  readonly hasCosts: boolean;
  /** Maximum number of prompt tokens that an engine of the model adds. */
  readonly addedPromptTokens: number;
  /** Deprecation stage when the snapshot was built. */
  readonly stage: Stage;
  /** Time of the next stage; `Infinity` for never. */
  readonly stageEndsMs: number;
}

/** Deprecation: announced, warned, removed (rerouted or rejected), no longer listed. */
export type Stage = 'active' | 'warned' | 'removed' | 'gone';

/** Types with batch support: those with JSON requests and JSON responses. */
export type BatchType = Extract<
  ModelType,
  'text' | 'embedding' | 'image' | 'moderation' | 'rerank'
>;
const BATCH_TYPES: ReadonlySet<ModelType> = new Set<BatchType>([
  'text',
  'embedding',
  'image',
  'moderation',
  'rerank',
]);

/** Retired models stay listed for 30 days after their removal, as documented. */
const LISTED_AFTER_REMOVAL_MS = 30 * DAY_MS;

interface ModelDefaults {
  readonly serviceName: string;
  readonly startedSeconds: number;
  readonly nowMs: number;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly defaults: DefaultsSection;
  readonly batchPriceFactor: string;
  readonly customers: CustomerModels;
  readonly engines: Config['engines'];
}

/** A configured model; an engine's report for the same id fills missing settings. */
export function configuredModel(
  settings: ModelSettings,
  found: DiscoveredModel | undefined,
  given: ModelDefaults,
): CatalogModel {
  const { price: prices, type } = settings;
  const options = { type, clock: given.clock };
  const configured = settings.replicas.map(({ engine, model, weight, order, cost, videoCost }) => {
    const price = cost && compilePrice(cost, options);
    return { engine, model: model ?? settings.id, weight, order, videoCost, cost: price };
  });
  const replicas: readonly Replica[] = configured.length > 0 ? configured : replicasOf(found);
  const context = settings.context ?? found?.context ?? 0;
  const created = settings.created;
  return {
    ...settings,
    origin: 'configured',
    outage: undefined,
    name: settings.name ?? found?.name ?? settings.id,
    ownedBy: settings.ownedBy ?? given.serviceName,
    createdSeconds:
      created === undefined ? given.startedSeconds : Math.floor(Date.parse(created) / 1_000),
    tier: settings.tier ?? tierOf(settings.id, found?.parameters),
    context,
    maxCompletionTokens: settings.maxCompletionTokens ?? found?.maxCompletionTokens ?? context,
    capabilities: new Set(settings.capabilities ?? found?.capabilities ?? []),
    price: prices && compilePrice(prices, options),
    priced: { price: prices, batchPriceFactor: given.batchPriceFactor, options },
    customers: given.customers,
    batchPrice:
      prices === undefined || !settings.batch || !BATCH_TYPES.has(type)
        ? undefined
        : compileBatchPrice(prices, given.batchPriceFactor, options),
    replicas,
    hasCosts: replicas.some(({ cost }) => cost !== undefined),
    addedPromptTokens: Math.max(
      0,
      ...replicas.map(({ engine }) => given.engines[engine]?.addedPromptTokens ?? 0),
    ),
    embedding: settings.embedding ?? found?.embedding,
    video: settings.video ?? found?.video,
    rerank: settings.rerank ?? found?.rerank,
    ...lifeOf(settings.deprecation, given.nowMs),
  };
}

export function discoveredModel(found: DiscoveredModel, given: ModelDefaults): CatalogModel {
  const { id, type, origin, description = '', source = '', listed = true } = found;
  const { defaults } = given;
  const prices: Partial<Record<ModelType, PriceSettings>> = defaults.price;
  const settings: ModelSettings = {
    ...BARE,
    id,
    type,
    description,
    source,
    listed,
    privacy: defaults.privacy,
    context: type === 'text' ? (found.context ?? defaults.context) : found.context,
    quantization: found.quantization ?? 'not-available',
    reasoningEfforts: found.reasoningEfforts,
    // A removed background is sold like an image.
    price: found.price ?? prices[type === 'inpaint' ? 'image' : type],
    speech: found.speech,
  };
  return { ...configuredModel(settings, found, given), origin, outage: found.outage };
}

function lifeOf(
  deprecation: ModelSettings['deprecation'],
  nowMs: number,
): Pick<CatalogModel, 'stage' | 'stageEndsMs'> {
  if (deprecation === undefined) return { stage: 'active', stageEndsMs: Infinity };
  const { date, startsAt, removesAt } = deprecation;
  const warnsAtMs = startsAt === undefined ? 0 : Date.parse(startsAt);
  const removesAtMs = Date.parse(removesAt ?? date);
  const leavesListAtMs = removesAtMs + LISTED_AFTER_REMOVAL_MS;
  const ahead = [warnsAtMs, removesAtMs, leavesListAtMs].filter((timeMs) => timeMs > nowMs);
  const stageEndsMs = Math.min(...ahead);
  if (nowMs < warnsAtMs) return { stage: 'active', stageEndsMs };
  if (nowMs < removesAtMs) return { stage: 'warned', stageEndsMs };
  return { stage: nowMs < leavesListAtMs ? 'removed' : 'gone', stageEndsMs };
}

const BARE = {
  traits: [],
  aliases: [],
  replicas: [],
  imageTokens: 2_048,
  audioTokensPerSecond: 64,
  videoTokensPerSecond: 1_024,
  sampling: {},
  regionRestrictions: [],
  offline: false,
  batch: true,
  beta: false,
  uncensored: false,
};

function replicasOf(found: DiscoveredModel | undefined): readonly Replica[] {
  return (found?.replicas ?? []).map((replica) => ({ weight: 1, order: 0, ...replica }));
}

/** Merges the same model of several engines into one model with several replicas. */
export function mergeDiscovered(
  models: readonly DiscoveredModel[],
): ReadonlyMap<string, DiscoveredModel> {
  const merged = new Map<string, DiscoveredModel>();
  for (const model of models) {
    const known = merged.get(model.id);
    if (known === undefined) merged.set(model.id, model);
    else if (known.type === model.type) {
      merged.set(model.id, { ...known, replicas: [...known.replicas, ...model.replicas] });
    }
  }
  return merged;
}

const SIZES: readonly (readonly [upToBillions: number, tier: Tier])[] = [
  [4, 'XS'],
  [15, 'S'],
  [80, 'M'],
];

/**
 * Limit tier of a text model by its number of parameters: XS up to 4 B, S up to 15 B, M up to 80 B, L
 * above. Unknown sizes are M, the middle.
 */
export function tierOf(id: string, parameters = parametersInId(id)): Tier {
  if (parameters === undefined) return 'M';
  return SIZES.find(([billions]) => parameters <= billions * 1e9)?.[1] ?? 'L';
}

// `8x7b` counts all experts; `a3b` (active parameters) is not the size.
const COUNT = /(?<![a-z0-9.])(?:(\d{1,3})x)?(\d{1,4}(?:\.\d{1,3})?)([bm])(?![a-z0-9])/g;

/** The parameter count in an id such as `qwen3:0.6b`, `mixtral-8x7b` or `smol-135M`. */
export function parametersInId(id: string): number | undefined {
  let largest: number | undefined;
  for (const [, experts = '1', size = '0', unit] of id.toLowerCase().matchAll(COUNT)) {
    const parameters = Number(experts) * Number(size) * (unit === 'b' ? 1e9 : 1e6);
    if (parameters > (largest ?? 0)) largest = parameters;
  }
  return largest;
}

export function isWithinPrivacy(model: CatalogModel, privacy: ModelPrivacy): boolean {
  if (privacy === 'ALL' || model.privacy === 'private') return true;
  return privacy === 'PRIVATE_TEXT' && model.type !== 'text';
}
