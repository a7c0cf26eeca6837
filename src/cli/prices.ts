/** `farebox prices import`: sets prices and costs of models from a public price list. */
import { readFile, rename, stat, writeFile } from 'node:fs/promises';
import { resolve } from 'node:path';
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { scaledRow } from '../catalog/catalog.ts';
import {
  editSection,
  formatProblem,
  type ListedPrice,
  loadConfig,
  type ModelSettings,
  plainNumbers,
  PriceNames,
  type PriceSettings,
  readPriceList,
  readSection,
} from '../config/config.ts';
import { markupFactor, soldPrice } from '../engines/engine-setup.ts';
import { fetchPriceList } from '../engines/price-lists.ts';
import type { Cli } from './command.ts';

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
model of the replica. It shows all changes, and writes them with --write. Comments in the
configuration file stay.`)
    .argument('<file-or-url>', 'price list')
    .option(
      '--markup <percent>',
      'for example 20%, or anthropic=15% for a provider, or my-model=30% for a model; repeatable',
      markupOption,
      new Map<string | undefined, string>(),
    )
    .option('--model <id...>', 'only these models')
    .option('--write', 'write the configuration file')
    .action(async (source, { markup, model: ids, write = false }) => {
      const { config, sources } = await cli.settings();
      const path = sources[0]?.path ?? '';
      const text = await readFile(path, 'utf8').catch(() => {
        throw new Error(`There is no configuration file ${path} with models`);
      });
      const list = readPriceList(await listText(source, cli.console.cwd));
      const wanted = config.models.filter(({ id }) => ids?.includes(id) !== false);
      const plans = wanted.map((model) => planOf(model, new PriceNames(list), markup));
      const next = editSection(text, 'models', edited(readSection(text, 'models'), plans));
      const isChanged = next !== text;
      if (isChanged && write) await writeChecked(cli, path, next);
      cli.print(
        { source, changed: isChanged, written: isChanged && write, models: plans.map(planJson) },
        `${plans.map(planText).join('')}${endText(isChanged, write, path)}`,
      );
    });
}

function endText(isChanged: boolean, write: boolean, path: string): string {
  if (!isChanged) return 'Nothing changes\n';
  if (write) return `Written: ${path}. A running server applies the change at its next reload\n`;
  return 'Nothing was written; add --write to change the configuration file\n';
}

function markupOption(text: string, before: Map<string | undefined, string>) {
  const match = /^(?:(.+)=)?(\d+(?:\.\d+)?)%?$/.exec(text.trim());
  const [, name, percent = ''] = match ?? [];
  const factor = markupFactor(percent);
  if (match === null || factor === undefined) {
    throw new InvalidArgumentError(`must be a percentage such as 20% or openai=15%, not "${text}"`);
  }
  return new Map([...before, [name, factor]]);
}

/** The text of a price list, from a file or a URL. */
export async function listText(source: string, cwd: string): Promise<string> {
  const isUrl = /^https?:$/.test(URL.parse(source)?.protocol ?? '');
  return isUrl ? await fetchPriceList(source) : await readFile(resolve(cwd, source), 'utf8');
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
    if (typeof found === 'string') notes.push(`${engine}: ${found}`);
    else {
      costs.set(index, found);
      notes.push(...found.warnings.map((warning) => `${found.key}: ${warning}`));
    }
  }
  const dearest = [...costs.values()].toSorted((a, b) => weightOf(b) - weightOf(a))[0];
  const factor =
    markups.get(model.id) ?? markups.get(dearest?.provider) ?? markups.get(undefined) ?? '1';
  if (dearest === undefined) return { model, costs, price: undefined, factor, notes };
  const { type, batch } = model;
  const price = batch
    ? soldPrice(dearest.price, factor, type)
    : scaledRow(dearest.price, factor, type);
  return { model, costs, price, factor, notes };
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

/** Writes the file if the server would accept it. */
async function writeChecked({ console }: Cli, path: string, text: string): Promise<void> {
  const loaded = await loadConfig({
    env: console.env,
    cwd: console.cwd,
    readFile: async (file) => (file === path ? text : await readFile(file, 'utf8')),
  });
  if (!loaded.ok) throw new Error(loaded.problems.map(formatProblem).join('\n'));
  const { mode } = await stat(path);
  await writeFile(`${path}.next`, text, { mode });
  await rename(`${path}.next`, path);
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

function planText(plan: Plan): string {
  const { model, factor, costs, notes } = plan;
  const keys = [...new Set([...costs.values()].map(({ key }) => key))].join(', ');
  const head = keys === '' ? model.id : `${model.id} (${keys}, factor ${factor})`;
  const lines = changesOf(plan).map(([name, before, after]) => `${name}: ${before} -> ${after}`);
  return `${[head, ...lines, ...notes].join('\n  ')}\n`;
}
