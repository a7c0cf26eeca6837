/**
 * Checks across several settings: duplicate ids, missing engines and prices, payments that could not be
 * settled. Also imports properties of models from the price file.
 */
import { compile } from '@fastify/proxy-addr';
import { didYouMean } from '../core/nearest-word.ts';
import type { Diagnostics } from './explain.ts';
import { VIDEO_RESULT_MB, maxCallerMb } from './media-section.ts';
import { type ModelSettings, stepsOf } from './models-section.ts';
import { checkPayments } from './payments-checks.ts';
import {
  type AmountName,
  checkPlans,
  missingPrices,
  NEEDED_PRICES,
  videoPricingProblem,
} from './plan-checks.ts';
import type { PriceFile } from './price-file.ts';
import type { FileSettings } from './sections.ts';
import type { Path } from './yaml-source.ts';

/** Adds missing properties of models with `import`. `typeWasGiven` is false if `type` is a default. */
export function importModels(
  models: readonly ModelSettings[],
  prices: PriceFile | undefined,
  typeWasGiven: (index: number) => boolean,
  diagnostics: Diagnostics,
): ModelSettings[] {
  return models.map((model, index) => {
    if (model.import === undefined) return model;
    const path = ['models', index, 'import'];
    if (prices === undefined) {
      diagnostics.problem(path, 'There is no price file to import from; set "priceFile"');
      return model;
    }
    const found = prices(model.import);
    if (typeof found === 'string') {
      diagnostics.problem(path, found);
      return model;
    }
    for (const warning of found.warnings) diagnostics.warning(path, warning);
    const { dimensions, maxInputTokens } = found;
    return {
      ...model,
      type: typeWasGiven(index) ? model.type : found.type,
      context: model.context ?? found.context,
      maxCompletionTokens: model.maxCompletionTokens ?? found.maxCompletionTokens,
      capabilities: model.capabilities ?? [...found.capabilities],
      price: model.price ?? found.price,
      embedding:
        model.embedding ??
        (dimensions === undefined
          ? undefined
          : { dimensions, maxInputTokens: maxInputTokens ?? 8_192, customDimensions: false }),
    };
  });
}

/** Adds problems and warnings. `settings.models` must include the imported properties. */
export function crossCheck(settings: FileSettings, diagnostics: Diagnostics): void {
  const engines = new Set(Object.keys(settings.engines));
  checkNames(settings.models, diagnostics);
  const ids = new Map(settings.models.map((model) => [model.id, model]));
  for (const [index, model] of settings.models.entries()) {
    const path = ['models', index];
    checkNeeds(model, path, diagnostics);
    checkPrice(model, path, diagnostics);
    checkUsualPrice(model, path, diagnostics);
    checkReplicas(model, path, engines, diagnostics);
    checkDeprecation(model, path, ids, diagnostics);
    checkFallbacks(model, path, ids, diagnostics);
  }
  const used = new Set(settings.models.flatMap((model) => model.replicas.map((r) => r.engine)));
  for (const name of engines) {
    if (!used.has(name))
      diagnostics.warning(['engines', name], 'No model has a replica on this engine');
  }
  for (const [name, engine] of Object.entries(settings.engines)) {
    checkEngine(engine, ['engines', name], diagnostics);
  }
  checkPlans(settings, ids, diagnostics);
  checkPayments(settings.payments, diagnostics);
  checkVideoCapacity(settings, diagnostics);
  checkServer(settings, diagnostics);
}

/** Settings of connections, which a provider package makes by itself. */
const OF_CONNECTIONS = ['url', 'cert', 'key'] as const;

function checkEngine(
  engine: FileSettings['engines'][string],
  path: Path,
  diagnostics: Diagnostics,
): void {
  const problem = (name: string, message: string): void =>
    diagnostics.problem([...path, name], message);
  if (engine.cachePrompts && engine.protocol !== 'anthropic')
    problem('cachePrompts', 'Needs "protocol: anthropic"; remove this setting');
  if (engine.provider === undefined) {
    if (engine.url === undefined) diagnostics.problem(path, 'Needs "url" or "provider"');
    for (const name of ['settings', 'providerOptions'] as const) {
      if (engine[name] !== undefined) problem(name, 'Needs "provider"; remove this setting');
    }
    return;
  }
  for (const name of OF_CONNECTIONS) {
    if (engine[name] === undefined) continue;
    const advice = name === 'url' ? 'write it as settings.baseURL' : 'remove this setting';
    problem(name, `Has no effect with "provider"; ${advice}`);
  }
  if (engine.protocol !== 'openai') problem('protocol', 'Must be openai with "provider"');
}

/** Open jobs without capacity on the disk are rejected before `video.maxOpenJobs` is reached. */
function checkVideoCapacity({ media, video }: FileSettings, diagnostics: Diagnostics): void {
  const neededMb = video.maxOpenJobs * VIDEO_RESULT_MB;
  const capacities = [
    ['maxStoredMbPerCaller', maxCallerMb(media, video.maxOpenJobs)],
    ['maxStoredMb', media.maxStoredMb],
  ] as const;
  for (const [name, capacityMb] of capacities) {
    if (capacityMb >= neededMb) continue;
    const jobs = Math.floor(capacityMb / VIDEO_RESULT_MB);
    diagnostics.warning(
      ['video', 'maxOpenJobs'],
      `media.${name} is enough for ${jobs} open jobs of ${VIDEO_RESULT_MB} MB each: set it to ${neededMb} or more, or lower this`,
    );
  }
}

function checkServer({ http, cluster, database }: FileSettings, diagnostics: Diagnostics): void {
  const proxies = http.trustProxy;
  for (const [index, entry] of typeof proxies === 'boolean' ? [] : proxies.entries()) {
    try {
      compile([entry]);
    } catch {
      // The package validates addresses and names.
      const message = `Must be an address, a range such as 10.0.0.0/8, or loopback, linklocal or uniquelocal, not "${entry}"`;
      diagnostics.problem(['http', 'trustProxy', index], message);
    }
  }
  const isFile = database === undefined || database.startsWith('sqlite:');
  if (cluster.workers > 1 && isFile) {
    const message = `${cluster.workers} workers need PostgreSQL: set "database" to postgres://…, or "workers" to 1`;
    diagnostics.problem(['cluster', 'workers'], message);
  }
}

function checkNames(models: readonly ModelSettings[], diagnostics: Diagnostics): void {
  const names = new Map<string, string>();
  const traits = new Map<string, string>();
  for (const [index, model] of models.entries()) {
    const taken = names.get(model.id);
    if (taken !== undefined)
      diagnostics.problem(['models', index, 'id'], `${taken} also has this id`);
    names.set(model.id, `models[${index}]`);
  }
  for (const [index, model] of models.entries()) {
    for (const [place, alias] of model.aliases.entries()) {
      const taken = names.get(alias);
      const path = ['models', index, 'aliases', place];
      if (taken !== undefined)
        diagnostics.problem(path, `${taken} also has the id or alias "${alias}"`);
      names.set(alias, `models[${index}]`);
    }
    for (const [place, trait] of model.traits.entries()) {
      const taken = traits.get(`${model.type} ${trait}`);
      const path = ['models', index, 'traits', place];
      if (taken !== undefined)
        diagnostics.problem(path, `"${taken}" also has the trait "${trait}"`);
      traits.set(`${model.type} ${trait}`, model.id);
    }
  }
}

function checkNeeds(model: ModelSettings, path: Path, diagnostics: Diagnostics): void {
  const { type, context, maxCompletionTokens: cap } = model;
  if (model.gguf !== undefined && type !== 'text' && type !== 'embedding') {
    diagnostics.problem(
      [...path, 'gguf'],
      'Only models of type text and embedding can be a GGUF file',
    );
  }
  if (type === 'text' && context === undefined && model.gguf === undefined) {
    diagnostics.problem(
      path,
      `The text model "${model.id}" needs "context", the context length in tokens`,
    );
  }
  if (context !== undefined && cap !== undefined && cap > context) {
    const message = `Must be at most the context of ${context} tokens, not ${cap}`;
    diagnostics.problem([...path, 'maxCompletionTokens'], message);
  }
  if (type === 'embedding' && model.embedding === undefined && model.gguf === undefined) {
    const message = `The embedding model "${model.id}" needs "embedding" with its "dimensions"`;
    diagnostics.problem(path, message);
  }
  if (type === 'video' && model.video === undefined) {
    const message = `The video model "${model.id}" needs "video" with its "task" and "pricing"`;
    diagnostics.problem(path, message);
  }
  const effort = model.defaultReasoningEffort;
  const efforts = model.reasoningEfforts;
  if (effort !== undefined && efforts !== undefined && !efforts.includes(effort)) {
    const message = `Must be one of reasoningEfforts: ${efforts.join(', ')}`;
    diagnostics.problem([...path, 'defaultReasoningEffort'], message);
  }
}

function checkPrice(model: ModelSettings, path: Path, diagnostics: Diagnostics): void {
  const needed = NEEDED_PRICES[model.type] ?? [];
  const { price } = model;
  if (price === undefined) {
    if (needed.length === 0) return;
    const example = needed.map(([key]) => `${key}: 0`).join(', ');
    diagnostics.problem(
      path,
      `The model "${model.id}" has no "price"; for a free model write price: { ${example} }`,
    );
    return;
  }
  for (const missing of missingPrices(model.type, price)) {
    diagnostics.problem([...path, 'price'], missing);
  }
  const { extended } = price;
  const steps = Array.isArray(extended) ? extended : stepsOf(price);
  for (const [index, { above }] of steps.entries()) {
    const place = [
      ...path,
      'price',
      'extended',
      ...(Array.isArray(extended) ? [index] : []),
      'above',
    ];
    if (model.context !== undefined && above >= model.context) {
      const message = `Has no effect, because a prompt has at most ${model.context} tokens ("context")`;
      diagnostics.warning(place, message);
    }
  }
}

/**
 * Prices of today's providers, in USD per unit of the setting, with a margin of a factor of ten. A price
 * outside is usually a price per token instead of per million tokens.
 */
const USUAL_PRICES: Partial<
  Record<AmountName, { readonly least: number; readonly most: number; readonly unit: string }>
> = {
  input: { least: 0.001, most: 1_000, unit: '1,000,000 tokens' },
  output: { least: 0.001, most: 3_000, unit: '1,000,000 tokens' },
  cacheInput: { least: 0.0001, most: 1_000, unit: '1,000,000 tokens' },
  cacheWrite: { least: 0.001, most: 1_000, unit: '1,000,000 tokens' },
  cacheWrite1h: { least: 0.001, most: 1_000, unit: '1,000,000 tokens' },
  audioInput: { least: 0.001, most: 1_000, unit: '1,000,000 tokens' },
  imageInput: { least: 0.001, most: 1_000, unit: '1,000,000 tokens' },
  reasoning: { least: 0.001, most: 3_000, unit: '1,000,000 tokens' },
  audioOutput: { least: 0.001, most: 3_000, unit: '1,000,000 tokens' },
  imageOutput: { least: 0.001, most: 3_000, unit: '1,000,000 tokens' },
  perImage: { least: 0.000_01, most: 20, unit: 'image' },
  perSecond: { least: 0.000_001, most: 1, unit: 'second' },
  perMillionCharacters: { least: 0.01, most: 3_000, unit: '1,000,000 characters' },
};

/** Warns of unusual prices; 0 is a free model. */
function checkUsualPrice({ price }: ModelSettings, path: Path, diagnostics: Diagnostics): void {
  if (price === undefined) return;
  for (const [key, { least, most, unit }] of Object.entries(USUAL_PRICES)) {
    const value = price[key as keyof typeof USUAL_PRICES]; // a key of the table
    const usd = value === undefined ? 0 : Number(value);
    if (usd === 0 || (usd >= least && usd <= most)) continue;
    const isPerToken = usd < least && unit === '1,000,000 tokens';
    const hint = isPerToken ? `; a price per token must be multiplied by 1,000,000` : '';
    diagnostics.warning(
      [...path, 'price', key],
      `${value} USD per ${unit} is far outside the usual ${least} to ${most}${hint}`,
    );
  }
}

function checkReplicas(
  model: ModelSettings,
  path: Path,
  engines: ReadonlySet<string>,
  diagnostics: Diagnostics,
): void {
  for (const [index, replica] of model.replicas.entries()) {
    const { videoCost } = replica;
    const costProblem = videoCost && videoPricingProblem(model, 'videoCost', videoCost);
    if (costProblem !== undefined) {
      diagnostics.problem([...path, 'replicas', index, 'videoCost'], costProblem);
    }
    if (engines.has(replica.engine)) continue;
    const hint = didYouMean(replica.engine, engines) || '.';
    const known = engines.size === 0 ? 'none are configured' : [...engines].join(', ');
    diagnostics.problem(
      [...path, 'replicas', index, 'engine'],
      `There is no engine "${replica.engine}"${hint} Engines: ${known}`,
    );
  }
}

function checkDeprecation(
  model: ModelSettings,
  path: Path,
  ids: ReadonlyMap<string, ModelSettings>,
  diagnostics: Diagnostics,
): void {
  const { deprecation } = model;
  if (deprecation === undefined) return;
  const { replacement, startsAt, date, removesAt } = deprecation;
  if (startsAt !== undefined && startsAt > (removesAt ?? date)) {
    diagnostics.problem([...path, 'deprecation', 'startsAt'], 'Must not be after the removal');
  }
  if (replacement === undefined) return;
  const place = [...path, 'deprecation', 'replacement'];
  const found = ids.get(replacement);
  if (found === undefined) {
    const hint = didYouMean(replacement, ids.keys());
    diagnostics.problem(place, `There is no model "${replacement}"${hint}`);
  } else if (found === model) {
    diagnostics.problem(place, 'A model cannot replace itself');
  } else if (found.type !== model.type) {
    diagnostics.problem(place, `"${replacement}" is of type ${found.type}, not ${model.type}`);
  }
}

/** Protections of a model that its fallbacks must have too. */
const PROTECTIONS = ['teeAttestation', 'e2ee'] as const;

const FALLBACK_TYPES: readonly ModelSettings['type'][] = ['text', 'embedding', 'image', 'rerank'];

function checkFallbacks(
  model: ModelSettings,
  path: Path,
  ids: ReadonlyMap<string, ModelSettings>,
  diagnostics: Diagnostics,
): void {
  const { id, type, privacy, fallbacks = [] } = model;
  if (fallbacks.length > 0 && !FALLBACK_TYPES.includes(type)) {
    const message = `Only models of type ${FALLBACK_TYPES.join(', ')} can have fallbacks`;
    diagnostics.problem([...path, 'fallbacks'], message);
    return;
  }
  for (const [index, fallback] of fallbacks.entries()) {
    const problem = (message: string): void =>
      diagnostics.problem([...path, 'fallbacks', index], message);
    const found = ids.get(fallback);
    if (found === undefined) {
      problem(`There is no model "${fallback}"${didYouMean(fallback, ids.keys())}`);
      continue;
    }
    const lost = PROTECTIONS.find(
      (one) => model.capabilities?.includes(one) === true && !found.capabilities?.includes(one),
    );
    if (found === model) problem('A model cannot be its own fallback');
    else if (found.type !== type) problem(`"${fallback}" is of type ${found.type}, not ${type}`);
    else if (fallbacks.indexOf(fallback) < index) problem(`"${fallback}" is already in the list`);
    else if (leadsTo(id, found, ids)) {
      problem(`The fallbacks of "${fallback}" lead back to "${id}"`);
    } else if (privacy === 'private' && found.privacy !== 'private') {
      problem(`"${fallback}" is not private, unlike "${id}"`);
    } else if (lost !== undefined) problem(`"${fallback}" does not have ${lost}, unlike "${id}"`);
    else if (dimensionsOf(found) !== dimensionsOf(model)) {
      problem(`The vectors of "${fallback}" have other dimensions than those of "${id}"`);
    }
  }
}

function dimensionsOf({ embedding }: ModelSettings): string {
  const { dimensions, customDimensions } = embedding ?? {};
  return `${dimensions} ${customDimensions}`;
}

function leadsTo(
  id: string,
  from: ModelSettings,
  ids: ReadonlyMap<string, ModelSettings>,
): boolean {
  const seen = new Set<ModelSettings>();
  const open = [from];
  for (const model of open) {
    if (seen.has(model)) continue;
    seen.add(model);
    if (model.fallbacks?.includes(id) === true) return true;
    open.push(...(model.fallbacks ?? []).flatMap((next) => ids.get(next) ?? []));
  }
  return false;
}
