/**
 * A model as the rest of the server sees it: settings with every gap filled, prices compiled, and
 * where it comes from. Built from configured settings, from what engines report, or from both.
 */
import type {
  Capability,
  DefaultsSection,
  ModelSettings,
  ModelType,
  PriceSettings,
  Tier,
} from '../config/config.ts';
import { compilePrice, type Price } from './pricing.ts';
import { tierOfId, tierOfParameters } from './tier.ts';

/** Where a model comes from, best first: the order in which traits move between models. */
export const ORIGINS = ['configured', 'discovered', 'downloaded', 'demo'] as const;
export type Origin = (typeof ORIGINS)[number];

export interface Replica {
  readonly engine: string;
  /** The engine's own id of the model. */
  readonly model: string;
  readonly weight: number;
  readonly order: number;
}

/** A model that nobody configured: found on a local port, or run by an embedded engine. */
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
  readonly quantization?: ModelSettings['quantization'];
  /** Number of parameters, for the tier. */
  readonly parameters?: number;
  /** Default: the configured default price of its type. */
  readonly price?: PriceSettings;
  /** Default true. */
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

export interface CatalogModel extends Readonly<Omit<ModelSettings, Settled>> {
  readonly origin: Origin;
  readonly name: string;
  readonly ownedBy: string;
  readonly createdSeconds: number;
  readonly tier: Tier;
  /** Tokens of prompt and completion together; 0 where the type has none. */
  readonly context: number;
  readonly maxCompletionTokens: number;
  readonly capabilities: ReadonlySet<Capability>;
  readonly price: Price | undefined;
  readonly replicas: readonly Replica[];
}

export interface ModelDefaults {
  readonly serviceName: string;
  readonly startedSeconds: number;
  readonly defaults: DefaultsSection;
}

/** A configured model; what an engine reports about the same id fills what was left open. */
export function configuredModel(
  settings: ModelSettings,
  found: DiscoveredModel | undefined,
  given: ModelDefaults,
): CatalogModel {
  const replicas = settings.replicas.map(({ engine, model, weight, order }) => {
    return { engine, model: model ?? settings.id, weight, order };
  });
  const context = settings.context ?? found?.context ?? 0;
  const created = settings.created;
  return {
    ...settings,
    origin: 'configured',
    name: settings.name ?? found?.name ?? settings.id,
    ownedBy: settings.ownedBy ?? given.serviceName,
    createdSeconds:
      created === undefined ? given.startedSeconds : Math.floor(Date.parse(created) / 1_000),
    tier: settings.tier ?? tierOf(settings.id, found),
    context,
    maxCompletionTokens: settings.maxCompletionTokens ?? found?.maxCompletionTokens ?? context,
    capabilities: new Set(settings.capabilities ?? found?.capabilities ?? []),
    price: settings.price === undefined ? undefined : compilePrice(settings.price),
    replicas: replicas.length > 0 ? replicas : replicasOf(found),
    embedding: settings.embedding ?? found?.embedding,
    video: settings.video ?? found?.video,
  };
}

/** A model as an engine reports it, with the default price of its type. */
export function discoveredModel(found: DiscoveredModel, given: ModelDefaults): CatalogModel {
  const price = found.price ?? defaultPrice(found.type, given.defaults);
  const context = found.context ?? (found.type === 'text' ? given.defaults.context : 0);
  return {
    ...BARE,
    id: found.id,
    type: found.type,
    origin: found.origin,
    name: found.name ?? found.id,
    description: found.description ?? '',
    source: found.source ?? '',
    ownedBy: given.serviceName,
    createdSeconds: given.startedSeconds,
    privacy: given.defaults.privacy,
    tier: tierOf(found.id, found),
    context,
    maxCompletionTokens: found.maxCompletionTokens ?? context,
    capabilities: new Set(found.capabilities ?? []),
    quantization: found.quantization ?? 'not-available',
    reasoningEfforts: found.reasoningEfforts,
    embedding: found.embedding,
    video: found.video,
    price: price === undefined ? undefined : compilePrice(price),
    replicas: replicasOf(found),
    listed: found.listed ?? true,
  };
}

const BARE = {
  traits: [],
  aliases: [],
  imageTokens: 2_048,
  audioTokensPerSecond: 64,
  videoTokensPerSecond: 1_024,
  sampling: {},
  regionRestrictions: [],
  offline: false,
  beta: false,
  uncensored: false,
};

function tierOf(id: string, found: DiscoveredModel | undefined): Tier {
  return found?.parameters === undefined ? tierOfId(id) : tierOfParameters(found.parameters);
}

function replicasOf(found: DiscoveredModel | undefined): readonly Replica[] {
  return (found?.replicas ?? []).map((replica) => ({ weight: 1, order: 0, ...replica }));
}

function defaultPrice(type: ModelType, defaults: DefaultsSection): PriceSettings | undefined {
  const table: Partial<Record<ModelType, PriceSettings>> = defaults.price;
  return table[type];
}

/** The same model on several engines is one model with several replicas. */
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
