/**
 * `farebox prices import`: sets prices and costs of models from a public price list, and adds models that
 * an engine offers. The file is written only if the server would accept it.
 */
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { scaledRow } from '../catalog/catalog.ts';
import {
  type Config,
  editSection,
  type ListedPrice,
  missingPrices,
  type ModelSettings,
  plainNumbers,
  PriceNames,
  type PriceSettings,
  readPriceList,
  readSection,
} from '../config/config.ts';
import { didYouMean } from '../core/nearest-word.ts';
import {
  isSellable,
  markupFactor,
  modelEntry,
  type OfferedModel,
  offeredModels,
  privacyOf,
  soldPrice,
  withModels,
} from '../engines/engine-setup.ts';
import { knownProviderOf } from '../engines/known-providers.ts';
import type { JsonObject } from '../json/json-scan.ts';
import { type Cli, UsageError } from './command.ts';
import { replaceFile } from '../core/replace-file.ts';
import { loadChanged, optionalFile } from './config-file.ts';
import { PROXY } from './fetch-command.ts';
import { listText, modelsOfEngine } from './supplier-lists.ts';

/** Markups in percent as decimal factors, such as `1.2`. `undefined` is the general one. */
type Markups = ReadonlyMap<string | undefined, string>;

export function pricesCommands(cli: Cli): void {
  cli
    .group('prices')
    .description('Set prices from the public lists of suppliers')
    .command('import')
    .description(`Set the prices and costs of the configured models from a price list

The list is model_prices_and_context_window.json of LiteLLM, api.json of models.dev, or the response
of GET /models of OpenRouter, as a file or a URL. Each replica whose model is in the list gets the
listed prices as "cost", and the model gets the highest of these costs plus the markup as "price".
The command looks for "import" of the model, then for "<engine>/<model of the replica>", then for the
model of the replica. With --add it also calls the named engines for their models, and adds those
that the list has a price for; the markups apply to them, too. It shows all changes, and writes them
with --write. Comments in the configuration file stay.`)
    .argument('<file-or-url>', 'price list')
    .option(
      '--markup <percent>',
      'for example 20%, or anthropic=15% for a provider, or my-model=30% for a model; repeatable',
      markupOption,
    )
    .option('--model <id...>', 'only these models')
    .option(
      '--add <engine...>',
      'also add the models with a price that these engines offer and the configuration does not have',
    )
    .option('--write', 'write the configuration file')
    .option(...PROXY)
    .action(async (source, { markup = new Map(), model: ids, add = [], write = false, proxy }) => {
      const { console } = cli;
      const { config, sources } = await cli.settings();
      const path = sources[0]?.path ?? '';
      const text = (await optionalFile(path)) ?? '';
      if (text === '') throw new Error(`There is no configuration file ${path} with models`);
      const list = readPriceList(await listText(source, console.cwd));
      const names = new PriceNames(list);
      const isWanted = ({ id }: { readonly id: string }): boolean => ids?.includes(id) !== false;
      const plans = config.models.filter(isWanted).map((model) => planOf(model, names, markup));
      const additions: Addition[] = [];
      for (const engine of add) {
        const offered = await offersOf(cli, config, engine, { list, proxy });
        for (const one of offered.filter(isWanted)) {
          additions.push(additionOf(one, { engine, config, additions, markup }));
        }
      }
      const priced = editSection(text, 'models', edited(readSection(text, 'models'), plans));
      const next = withModels(
        priced,
        additions.flatMap(({ entry }) => (entry === undefined ? [] : [entry])),
      );
      const isChanged = next !== text;
      if (isChanged) await loadChanged(console, path, next);
      if (isChanged && write) await replaceFile(path, next);
      const models = [...plans.map(planJson), ...additions.map(additionJson)];
      cli.print(
        { source, changed: isChanged, written: isChanged && write, models },
        `${[...plans.map(planText), ...additions.map(additionText)].join('')}${endText(isChanged, write, path)}`,
      );
    });
}

function endText(isChanged: boolean, write: boolean, path: string): string {
  if (!isChanged) return 'Nothing changes\n';
  if (write) return `Written: ${path}. A running server applies the change at its next reload\n`;
  return 'Nothing was written; add --write to change the configuration file\n';
}

function markupOption(text: string, before: Markups = new Map()): Markups {
  const match = /^(?:(.+)=)?(\d+(?:\.\d+)?)%?$/.exec(text.trim());
  const [, name, percent = ''] = match ?? [];
  const factor = markupFactor(percent);
  if (match === null || factor === undefined) {
    throw new InvalidArgumentError(`must be a percentage such as 20% or openai=15%, not "${text}"`);
  }
  return new Map([...before, [name, factor]]);
}

interface Plan {
  readonly model: ModelSettings;
  /** By the index of the replica. */
  readonly costs: ReadonlyMap<number, ListedPrice>;
  readonly price: PriceSettings | undefined;
  readonly factor: string;
  readonly notes: readonly string[];
}

function planOf(model: ModelSettings, names: PriceNames, markups: Markups): Plan {
  const costs = new Map<number, ListedPrice>();
  const notes: string[] = [];
  for (const [index, { engine, model: name = model.id }] of model.replicas.entries()) {
    const own = model.import === undefined ? [] : [model.import];
    const found = names.find([...own, `${engine}/${name}`, name], name, engine);
    const lacks = typeof found === 'string' ? [found] : missingPrices(model.type, found.price);
    if (typeof found === 'string' || lacks.length > 0) {
      notes.push(...lacks.map((reason) => `${engine}: ${reason}`));
    } else {
      costs.set(index, found);
      notes.push(...found.warnings.map((warning) => `${found.key}: ${warning}`));
    }
  }
  const dearest = [...costs.values()].toSorted((a, b) => weightOf(b) - weightOf(a))[0];
  const factor = factorOf(model.id, dearest?.provider, markups);
  if (dearest === undefined) return { model, costs, price: undefined, factor, notes };
  const { type, batch } = model;
  const price = batch
    ? soldPrice(dearest.price, factor, type)
    : scaledRow(dearest.price, factor, type);
  return { model, costs, price, factor, notes };
}

/** Factor for a model: that of its id, of its provider, or the general one. */
function factorOf(id: string, provider: string | undefined, markups: Markups): string {
  return markups.get(id) ?? markups.get(provider) ?? markups.get(undefined) ?? '1';
}

/** Orders costs; amounts are not computed from it. */
function weightOf({ price: { input = '0', output = '0' } }: ListedPrice): number {
  return Number(input) + Number(output);
}

/** The section `models` with the prices and costs of the plans. */
function edited(section: unknown, plans: readonly Plan[]): unknown {
  if (!Array.isArray(section)) return section;
  return section.map((item: Readonly<Record<string, unknown>>) => {
    const plan = plans.find(({ model }) => model.id === item['id']);
    if (plan?.price === undefined) return item;
    const replicas = item['replicas'];
    return {
      ...item,
      price: plainNumbers(plan.price),
      replicas: Array.isArray(replicas)
        ? replicas.map((replica: object, index) => {
            const found = plan.costs.get(index);
            return found === undefined ? replica : { ...replica, cost: plainNumbers(found.price) };
          })
        : replicas,
    };
  });
}

/** A model that an engine offers; `entry` is absent if it cannot be added. */
interface Addition {
  readonly id: string;
  readonly factor: string;
  readonly entry?: JsonObject;
  readonly notes: readonly string[];
}

/** Models of the engine that the configuration does not have as a replica. Throws if the call fails. */
async function offersOf(
  { console }: Cli,
  config: Config,
  name: string,
  { list, proxy }: { readonly list: readonly ListedPrice[]; readonly proxy: string | undefined },
): Promise<readonly OfferedModel[]> {
  const engine = config.engines[name];
  if (engine === undefined) {
    const advice = didYouMean(name, Object.keys(config.engines));
    throw new UsageError(`There is no engine "${name}" in the configuration${advice}`);
  }
  const used = { name, isProtocolKnown: true };
  const { models } = await modelsOfEngine(console, config, used, { proxy });
  const offered = offeredModels(
    models,
    { engine: name, known: knownProviderOf(name, engine) },
    list,
  );
  const sold = new Set(
    config.models.flatMap(({ id, replicas }) =>
      replicas.flatMap((one) => (one.engine === name ? [one.model ?? id] : [])),
    ),
  );
  return offered.filter(({ model }) => !sold.has(model));
}

interface AdditionParts {
  readonly engine: string;
  readonly config: Config;
  /** Those of the engines before. */
  readonly additions: readonly Addition[];
  readonly markup: Markups;
}

function additionOf(
  offered: OfferedModel,
  { engine, config, additions, markup }: AdditionParts,
): Addition {
  const { id, priceKey = '' } = offered;
  const settings = config.engines[engine];
  const known = knownProviderOf(engine, settings ?? {});
  const factor = factorOf(id, offered.provider ?? engine, markup);
  const isTaken =
    config.models.some((model) => model.id === id || model.aliases.includes(id)) ||
    additions.some((one) => one.id === id && one.entry !== undefined);
  const note = isTaken
    ? `${engine}: not added, because the model exists; add a replica to it`
    : `${engine}: not added, because the list has no complete price`;
  if (isTaken || !isSellable(offered)) return { id, factor, notes: [note] };
  const privacy = privacyOf(known === undefined ? settings?.url : undefined);
  const entry = modelEntry(offered, { engine, factor, privacy });
  return { id, factor, entry, notes: [`${engine}: ${priceKey}`, ...(offered.warnings ?? [])] };
}

type Change = readonly [name: string, before: string, after: string];

function changesOf({ model, price, costs }: Plan): Change[] {
  if (price === undefined) return [];
  const ofCosts = [...costs].flatMap(([index, { price: cost }]) => {
    const replica = model.replicas[index];
    return differences(`cost of ${replica?.engine ?? ''}`, replica?.cost, cost);
  });
  return [...differences('price', model.price, price), ...ofCosts];
}

function differences(name: string, before: unknown, after: unknown): Change[] {
  const [old, next] = [flat(name, plainNumbers(before)), flat(name, plainNumbers(after))];
  return [...new Set([...old.keys(), ...next.keys()])].flatMap((key) => {
    const [from, to] = [old.get(key) ?? 'none', next.get(key) ?? 'none'];
    return from === to ? [] : [[key, from, to] as const];
  });
}

function flat(name: string, value: unknown): Map<string, string> {
  if (value === undefined) return new Map();
  if (typeof value !== 'object' || value === null) return new Map([[name, JSON.stringify(value)]]);
  return new Map(Object.entries(value).flatMap(([key, one]) => [...flat(`${name}.${key}`, one)]));
}

function planJson(plan: Plan) {
  const { model, factor, notes } = plan;
  const changes = changesOf(plan).map(([name, before, after]) => ({ name, before, after }));
  return { id: model.id, factor, changes, notes };
}

function additionChanges({ entry }: Addition): Change[] {
  if (entry === undefined) return [];
  const { id: _id, ...members } = entry;
  return [...flat('', members)].map(([name, after]) => [name.slice(1), 'none', after] as const);
}

function additionJson(addition: Addition) {
  const { id, factor, entry, notes } = addition;
  const changes = additionChanges(addition).map(([name, , after]) => ({
    name,
    before: 'none',
    after,
  }));
  return { id, factor, added: entry !== undefined, changes, notes };
}

function additionText(addition: Addition): string {
  const { id, factor, entry, notes } = addition;
  const head = entry === undefined ? id : `${id} (added, factor ${factor})`;
  const lines = additionChanges(addition).map(([name, , after]) => `${name}: ${after}`);
  return `${[head, ...lines, ...notes].join('\n  ')}\n`;
}

function planText(plan: Plan): string {
  const { model, factor, costs, notes } = plan;
  const keys = [...new Set([...costs.values()].map(({ key }) => key))].join(', ');
  const head = keys === '' ? model.id : `${model.id} (${keys}, factor ${factor})`;
  const lines = changesOf(plan).map(([name, before, after]) => `${name}: ${before} -> ${after}`);
  return `${[head, ...lines, ...notes].join('\n  ')}\n`;
}
