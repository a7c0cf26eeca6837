/**
 * `farebox engines add`: connects a provider. It builds the section, loads the changed configuration
 * and calls the provider before it writes the file, so that a wrong key or setting changes nothing.
 */
import { dirname, resolve } from 'node:path';
import { InvalidArgumentError } from '@commander-js/extra-typings';
import {
  type Config,
  CONFIG_FILE,
  type ListedPrice,
  readPriceList,
  readSection,
} from '../config/config.ts';
import { didYouMean } from '../core/nearest-word.ts';
import {
  type EngineChoice,
  engineEntry,
  isSellable,
  markupFactor,
  modelEntry,
  type OfferedModel,
  offeredModels,
  privacyOf,
  withEngine,
  withModels,
} from '../engines/engine-setup.ts';
import { type KnownProvider, KNOWN_PROVIDERS } from '../engines/known-providers.ts';
import { type Cli, UsageError, httpAddress } from './command.ts';
import { replaceFile } from '../core/replace-file.ts';
import { loadChanged, optionalFile } from './config-file.ts';
import { PROXY, type fetchWith } from './fetch-command.ts';
import { listText, modelsOfEngine } from './supplier-lists.ts';
import { table } from './terminal.ts';

const NAMES = Object.keys(KNOWN_PROVIDERS);

interface AddOptions {
  readonly name?: string | undefined;
  readonly keyEnv?: string | undefined;
  readonly url?: string | undefined;
  readonly set?: readonly (readonly [name: string, value: string])[] | undefined;
  readonly sell?: readonly string[] | undefined;
  /** The factor of the prices. */
  readonly markup?: string | undefined;
  readonly prices?: string | undefined;
  readonly probe: boolean;
}

export function engineAddCommand(cli: Cli): void {
  cli
    .group('engines')
    .command('add')
    .description(`Connect a model provider, or a model server by its URL

Adds an engine to the configuration file and keeps everything else in it. The key stays in the
environment: the file refers to the variable. The command calls the provider first and changes nothing
if the call fails. It lists the models with their prices in the price file ("priceFile"), or in the
list of --prices, and sells those that you choose at these prices plus the markup. A running server
applies the change.

Providers:
  ${lines(NAMES, 76).join('\n  ')}`)
    .argument('<provider>', 'one of the providers above, or a URL such as http://127.0.0.1:8000/v1')
    .option('--key-env <name>', 'environment variable with the key (default: the usual one)')
    .option('--name <engine>', 'name of the engine (default: that of the provider)')
    .option('--url <url>', 'another address of the provider, such as a gateway', httpAddress)
    .option('--set <name=value>', 'setting of the provider; can be repeated', setting)
    .option('--sell <model...>', 'models to sell, or "all" that have a price')
    .option(
      '--markup <percent>',
      'markup on the prices of the supplier, such as 20% (default: none)',
      markup,
    )
    .option('--prices <file-or-url>', 'price list, as for "farebox prices import"')
    .option('--no-probe', 'do not call the provider')
    .option(...PROXY)
    .action(async (provider: string, options) => {
      if (/^https?:\/\//.test(provider)) {
        const url = httpAddress(provider);
        await addEngine(cli, { name: options.name ?? 'local', known: undefined, options, url });
        return;
      }
      const known = Object.hasOwn(KNOWN_PROVIDERS, provider)
        ? KNOWN_PROVIDERS[provider]
        : undefined;
      if (known === undefined) {
        const advice = didYouMean(provider, NAMES) || `; known are ${NAMES.join(', ')}, or a URL`;
        throw new UsageError(`There is no provider "${provider}"${advice}`);
      }
      await addEngine(cli, { name: options.name ?? provider, known, options, url: options.url });
    });
}

interface Addition {
  readonly name: string;
  readonly known: KnownProvider | undefined;
  readonly url: string | undefined;
  readonly options: AddOptions & Parameters<typeof fetchWith>[2];
}

async function addEngine(cli: Cli, { name, known, url, options }: Addition): Promise<void> {
  const { console } = cli;
  const path = resolve(console.cwd, console.env['FAREBOX_CONFIG'] ?? CONFIG_FILE);
  const text = (await optionalFile(path)) ?? ''; // the command creates a missing file
  const load = (changed: string): Promise<Config> => loadChanged(console, path, changed);
  const key = options.keyEnv === undefined ? undefined : { env: options.keyEnv };
  const entry = (used: Pick<EngineChoice, 'url' | 'protocol'>) =>
    engineEntry({ known, key, settings: options.set ?? [], ...used });
  let withIt = withEngine(text, name, entry({ url }));
  const config = await load(withIt);
  const engine = { name, isProtocolKnown: known !== undefined };
  const tested = options.probe ? await modelsOfEngine(console, config, engine, options) : undefined;
  if (tested !== undefined && url !== undefined && known === undefined) {
    withIt = withEngine(text, name, entry({ url: url + tested.path, protocol: tested.protocol }));
  }
  const list = await pricesFor(cli, text, path, options.prices);
  const offered = offeredModels(tested?.models ?? [], { engine: name, known }, list);
  const sold = await chosenModels(cli, offered, options.sell);
  const factor = options.markup ?? '1';
  const canImport = options.prices === undefined && factor === '1';
  const privacy = privacyOf(known === undefined ? url : undefined);
  const added = sold.map((one) => {
    const { id, model, priceKey } = one;
    if (!canImport) return modelEntry(one, { engine: name, factor, privacy });
    return { id, import: priceKey, privacy, replicas: [{ engine: name, model }] };
  });
  const final = withModels(withIt, added);
  await load(final);
  await replaceFile(path, final);
  const rows = offered.map((one) => {
    return [one.id, priceText(one), sold.includes(one) ? 'sold' : '-'];
  });
  const shown =
    rows.length === 0 ? '' : `${table(['MODEL', 'PRICE OF THE SUPPLIER', 'STATE'], rows)}\n`;
  const note = tested?.note === undefined ? '' : `${tested.note}\n`;
  const next =
    sold.length > 0
      ? ''
      : `No model is sold yet: add models with a replica on "${name}" to ${path}\n`;
  const models = offered.map((one) => {
    const priceKey = isSellable(one) ? one.priceKey : undefined;
    return { id: one.id, model: one.model, priceKey, price: priceText(one) };
  });
  cli.print(
    { engine: name, file: path, models, sold: sold.map(({ id }) => id) },
    `${shown}${note}The engine "${name}" is in ${path}\n${next}`,
  );
}

/** The list of `--prices`, otherwise the price file of the configuration. */
async function pricesFor(
  { console }: Cli,
  text: string,
  path: string,
  source: string | undefined,
): Promise<readonly ListedPrice[]> {
  if (source !== undefined) return readPriceList(await listText(source, console.cwd));
  const file = readSection(text, 'priceFile');
  if (typeof file !== 'string') return [];
  const json = await optionalFile(resolve(dirname(path), file));
  return json === undefined ? [] : readPriceList(json);
}

function priceText({ cost = {} }: OfferedModel): string {
  const prices = Object.entries(cost);
  const shown = prices.flatMap(([name, usd]) => (typeof usd === 'string' ? `${name} ${usd}` : []));
  return shown.join(', ') || 'unknown';
}

/** The models of `--sell`, or those that the operator enters on a terminal. */
async function chosenModels(
  { console }: Cli,
  offered: readonly OfferedModel[],
  given: readonly string[] | undefined,
): Promise<readonly OfferedModel[]> {
  const priced = offered.filter(isSellable);
  let wanted = given;
  if (wanted === undefined && priced.length > 0 && console.stdout.isTTY === true) {
    const rows = priced.map((one) => [one.id, priceText(one)]);
    console.stdout.write(table(['MODEL', 'PRICE OF THE SUPPLIER'], rows));
    console.stdout.write('Sell which of them? Enter ids, "all", or nothing: ');
    wanted = (await firstLine(console.stdin?.())).split(/[\s,]+/).filter(Boolean);
  }
  if (wanted?.includes('all') === true) return priced;
  return (wanted ?? []).map((id) => {
    const found = priced.find((one) => one.id === id);
    if (found !== undefined) return found;
    const ids = priced.map((one) => one.id);
    throw new Error(
      `Nothing was changed: "${id}" has no usable price in the price list${didYouMean(id, ids)}`,
    );
  });
}

async function firstLine(input: AsyncIterable<Uint8Array | string> | undefined): Promise<string> {
  let text = '';
  for await (const piece of input ?? []) {
    text += Buffer.from(piece).toString();
    if (text.includes('\n')) break;
  }
  return text.split('\n', 1)[0] ?? '';
}

function setting(
  text: string,
  before: readonly (readonly [string, string])[] = [],
): readonly (readonly [name: string, value: string])[] {
  const [, name, value] = /^([A-Za-z][\w.]{0,100})=(.+)$/s.exec(text) ?? [];
  if (name !== undefined && value !== undefined) return [...before, [name, value]];
  throw new InvalidArgumentError(`must be a name and a value such as region=eu-central-1`);
}

function markup(text: string): string {
  const factor = markupFactor(text);
  if (factor !== undefined) return factor;
  throw new InvalidArgumentError(`must be a percentage such as 20%, not "${text}"`);
}

function lines(words: readonly string[], width: number): string[] {
  const made = [''];
  for (const word of words) {
    const last = made.at(-1) ?? '';
    const next = last === '' ? word : `${last}, ${word}`;
    if (next.length > width) made.push(word);
    else made[made.length - 1] = next;
  }
  return made;
}
