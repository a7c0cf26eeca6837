/**
 * Assigns traits to models. A trait that the operator configured stays with its model; each other
 * trait goes to the best model that qualifies, and is reassigned when a better one appears. The
 * order is: configured models, discovered ones, downloaded ones, the demo model. Unavailable models
 * (offline, removed, without replicas) and models of a plan come last; otherwise the order of the
 * configuration decides.
 */
import type { Capability, Tier } from '../config/config.ts';
import { TIERS } from '../config/config.ts';
import { type CatalogModel, ORIGINS } from './model.ts';

const BY_CAPABILITY: Readonly<Record<string, Capability>> = {
  function_calling_default: 'functionCalling',
  default_vision: 'vision',
  default_reasoning: 'reasoning',
  default_code: 'optimizedForCode',
};

/** Maps trait to model, for the models of one type. */
export function assignTraits(models: readonly CatalogModel[]): ReadonlyMap<string, CatalogModel> {
  const ranked = models
    .filter((model) => model.listed && !isMeaningless(model))
    .map((model, index) => ({ model, index, rank: rankOf(model) }))
    .toSorted((a, b) => a.rank - b.rank || a.index - b.index)
    .map(({ model }) => model);
  const traits = new Map<string, CatalogModel>();
  const best = ranked[0];
  if (best !== undefined) derive(traits, ranked, best);
  for (const model of models) {
    if (model.stage === 'removed' || model.stage === 'gone') continue;
    for (const trait of model.traits) traits.set(trait, model);
  }
  return traits;
}

/** The demo's vectors carry no meaning, so they must not become a default. */
function isMeaningless({ origin, type }: CatalogModel): boolean {
  return origin === 'demo' && type === 'embedding';
}

function derive(
  traits: Map<string, CatalogModel>,
  ranked: readonly CatalogModel[],
  best: CatalogModel,
): void {
  traits.set('default', best);
  const peers = ranked.filter((model) => model.origin === best.origin);
  traits.set('fastest', best.type === 'text' ? extreme(peers, best, (a, b) => a < b) : best);
  if (best.type !== 'text') return;
  traits.set(
    'most_intelligent',
    extreme(peers, best, (a, b) => a > b),
  );
  const uncensored = ranked.find((model) => model.uncensored);
  if (uncensored !== undefined) traits.set('most_uncensored', uncensored);
  for (const [trait, capability] of Object.entries(BY_CAPABILITY)) {
    const able = ranked.find((model) => model.capabilities.has(capability));
    if (able !== undefined) traits.set(trait, able);
  }
}

/** `best`, unless the tier of a peer beats it: then the first such peer with the extreme tier. */
function extreme(
  peers: readonly CatalogModel[],
  best: CatalogModel,
  beats: (a: number, b: number) => boolean,
): CatalogModel {
  const size = (tier: Tier): number => TIERS.indexOf(tier);
  return peers.reduce(
    (found, model) => (beats(size(model.tier), size(found.tier)) ? model : found),
    best,
  );
}

/** Weights of disadvantages; each outweighs the sum of the following ones. */
const SERVES_NOBODY = 100;
const NEEDS_PLAN = 10;

function rankOf({ origin, offline, outage, replicas, stage, requires }: CatalogModel): number {
  const isUp = !offline && outage === undefined && replicas.length > 0;
  const serves = isUp && stage !== 'removed' && stage !== 'gone';
  return (
    ORIGINS.indexOf(origin) +
    (serves ? 0 : SERVES_NOBODY) +
    (requires === undefined ? 0 : NEEDS_PLAN)
  );
}
