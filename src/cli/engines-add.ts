/**
 * `farebox engines add`: connects a provider. It builds the section, loads the changed configuration
 * and calls the provider before it writes the file, so that a wrong key or setting changes nothing.
 */
import { readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { type Config, CONFIG_FILE, formatProblem, loadConfig } from '../config/config.ts';
import { editSection, readSection } from '../config/edit-config.ts';
import { type PriceFile, readPriceFile } from '../config/price-file.ts';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { silentLog } from '../core/log.ts';
import { didYouMean } from '../core/nearest-word.ts';
import { probeEmbedded } from '../engines/embedded/embedded.ts';
import { fetchPackages } from '../engines/embedded/package-fetch.ts';
import {
  enginesFolder,
  findPackages,
  packageSet,
  providerSet,
} from '../engines/embedded/packages.ts';
import { Engines } from '../engines/engines.ts';
import { configuredEngines } from '../engines/registry.ts';
import { isJsonObject, type JsonObject } from '../json/json-scan.ts';
import { type Cli, UsageError, httpAddress } from './command.ts';
import { PROXY, fetchWith, stoppable } from './fetch-command.ts';
import { type KnownProvider, KNOWN_PROVIDERS } from './known-providers.ts';
import { table } from './terminal.ts';

const NAMES = Object.keys(KNOWN_PROVIDERS);

interface AddOptions {
  readonly name?: string | undefined;
  readonly keyEnv?: string | undefined;
  readonly url?: string | undefined;
  readonly set: readonly (readonly [name: string, value: string])[];
  readonly sell?: readonly string[] | undefined;
  readonly probe: boolean;
}

/** A model of the provider, with its key in the price file if it has a price there. */
interface OfferedModel {
  readonly id: string;
  readonly model: string;
  readonly priceKey: string | undefined;
  readonly price: string;
}

export function engineAddCommand(cli: Cli): void {
  cli
    .group('engines')
    .command('add')
    .description(`Connect a model provider

Adds an engine to the configuration file and keeps everything else in it. The key stays in the
environment: the file refers to the variable. The command calls the provider first and changes nothing
if the call fails. It lists the models of the provider with their prices in the price file
("priceFile") and sells those that you choose at these prices. A running server applies the change.

Providers:
  ${lines(NAMES, 92).join('\n  ')}`)
    .argument('<provider>', 'one of the providers above')
    .option('--key-env <name>', 'environment variable with the key (default: the usual one)')
    .option('--name <engine>', 'name of the engine (default: that of the provider)')
    .option('--url <url>', 'another address of the provider, such as a gateway', httpAddress)
    .option('--set <name=value>', 'setting of the provider; can be repeated', setting, [])
    .option('--sell <model...>', 'models to sell, or "all" that have a price')
    .option('--no-probe', 'do not call the provider')
    .option(...PROXY)
    .action(async (provider: string, options) => {
      const known = Object.hasOwn(KNOWN_PROVIDERS, provider)
        ? KNOWN_PROVIDERS[provider]
        : undefined;
      if (known === undefined) {
        const advice = didYouMean(provider, NAMES) || `; known are ${NAMES.join(', ')}`;
        throw new UsageError(`There is no provider "${provider}"${advice}`);
      }
      await addEngine(cli, { name: options.name ?? provider, known, options });
    });
}

interface Addition {
  readonly name: string;
  readonly known: KnownProvider;
  readonly options: AddOptions & Parameters<typeof fetchWith>[2];
}

async function addEngine(cli: Cli, { name, known, options }: Addition): Promise<void> {
  const { console } = cli;
  const path = resolve(console.cwd, console.env['FAREBOX_CONFIG'] ?? CONFIG_FILE);
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    // The command creates a missing file.
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  const engines = objectOf(readSection(text, 'engines'));
  if (Object.hasOwn(engines, name)) {
    throw new Error(
      `The engine "${name}" exists; choose another name with --name, or edit ${path}`,
    );
  }
  const engine = engineOf(known, options);
  const withEngine = editSection(text, 'engines', { ...engines, [name]: engine });
  const load = async (changed: string): Promise<Config> => {
    const loaded = await loadConfig({
      env: console.env,
      cwd: console.cwd,
      readFile: async (file) => (file === path ? changed : await optionalFile(file)),
    });
    if (loaded.ok) return loaded.config;
    const problems = loaded.problems.map((problem) => formatProblem(problem));
    throw new Error(`Nothing was changed:\n${problems.join('\n')}`);
  };
  const config = await load(withEngine);
  const listed = options.probe ? await probe(cli, config, name, options) : [];
  const prices = await priceFileOf(text, path);
  const offered = offeredModels(listed, known, prices);
  const sold = await chosenModels(cli, offered, options.sell);
  const models = readSection(text, 'models');
  const kept: readonly unknown[] = Array.isArray(models) ? models : [];
  const added = sold.map(({ id, model, priceKey }) => {
    return {
      id,
      import: priceKey,
      privacy: 'anonymized',
      replicas: [{ engine: name, model }],
    };
  });
  const final =
    added.length > 0 ? editSection(withEngine, 'models', [...kept, ...added]) : withEngine;
  await load(final);
  await replaceFile(path, final);
  const rows = offered.map((one) => {
    return [one.id, one.price, sold.includes(one) ? 'sold' : '-'];
  });
  const list =
    rows.length === 0 ? '' : `${table(['MODEL', 'PRICE OF THE SUPPLIER', 'STATE'], rows)}\n`;
  const next =
    sold.length > 0
      ? ''
      : `No model is sold yet: add models with a replica on "${name}" to ${path}\n`;
  cli.print(
    { engine: name, file: path, models: offered, sold: sold.map(({ id }) => id) },
    `${list}The engine "${name}" is in ${path}\n${next}`,
  );
}

function engineOf(
  { engine, keyEnv, secrets = {}, needs = [] }: KnownProvider,
  options: AddOptions,
): JsonObject {
  const isPackage = engine['provider'] !== undefined;
  const settings: Record<string, unknown> = {};
  for (const [path, value] of options.set) setAt(settings, path.split('.'), value);
  if (options.set.length > 0 && !isPackage) {
    throw new UsageError('--set is for providers with a package; this one is an engine with a URL');
  }
  if (options.url !== undefined && isPackage) settings['baseURL'] = options.url;
  for (const names of needs) {
    if (names.some((one) => settings[one] !== undefined)) continue;
    throw new UsageError(`The provider needs ${names.map((one) => `--set ${one}=…`).join(' or ')}`);
  }
  const key = options.keyEnv ?? keyEnv;
  if (options.keyEnv === undefined) {
    for (const [one, variable] of Object.entries(secrets)) settings[one] ??= `\${${variable}}`;
  }
  return {
    ...engine,
    ...(options.url !== undefined && !isPackage && { url: options.url }),
    ...(key !== undefined && { apiKey: `\${${key}}` }),
    ...(Object.keys(settings).length > 0 && { settings }),
  };
}

/** The models that the provider lists; a package lists none. Throws the reason of a failed call. */
async function probe(
  cli: Cli,
  config: Config,
  name: string,
  options: Addition['options'],
): Promise<readonly string[]> {
  const parts = { clock: systemClock(), ids: systemIds(), log: silentLog };
  const only = config.engines[name];
  if (only?.provider === undefined) {
    const engines = new Engines(parts);
    try {
      engines.update(configuredEngines(config));
      const result = await engines.probe(name);
      if (result.ok) return result.models;
      const hint = [401, 403].includes(result.status ?? 0) ? '; check the key' : '';
      throw new Error(`Nothing was changed: ${result.message}${hint}`);
    } finally {
      await engines.close();
    }
  }
  const set = packageSet(providerSet(only.provider));
  if (findPackages(set, config.dataFolder) === undefined) {
    const into = enginesFolder(config.dataFolder);
    const fetching = fetchWith(cli.console, config, options);
    await stoppable(cli.console, (signal) =>
      fetchPackages({ set, into, ...fetching, ...parts, signal }),
    );
  }
  const alone = {
    ...config,
    engines: { [name]: only },
    embedded: { ...config.embedded, enabled: false },
  };
  const [probed] = await probeEmbedded({ config: alone, ...parts, onChange: () => undefined });
  if (probed?.problem !== undefined) throw new Error(`Nothing was changed: ${probed.problem}`);
  return [];
}

interface Prices {
  readonly keys: readonly string[];
  readonly find: PriceFile;
}

async function priceFileOf(text: string, path: string): Promise<Prices | undefined> {
  const file = readSection(text, 'priceFile');
  if (typeof file !== 'string') return undefined;
  const json = await optionalFile(resolve(dirname(path), file));
  if (json === undefined) return undefined;
  return { keys: Object.keys(JSON.parse(json) as object), find: readPriceFile(json) }; // loaded before
}

/** The listed models, or without a list those of the price file. */
function offeredModels(
  listed: readonly string[],
  { priceKeys }: KnownProvider,
  prices: Prices | undefined,
): OfferedModel[] {
  const keys = prices?.keys ?? [];
  const own = keys.filter((key) => priceKeys.some((start) => key.startsWith(start)));
  const modelOf = (key: string): string => {
    const prefix = priceKeys.find((start) => start.endsWith('/') && key.startsWith(start));
    return key.slice(prefix?.length ?? 0);
  };
  const byModel = new Map(own.map((key) => [modelOf(key), key]));
  const models = listed.length > 0 ? listed : [...byModel.keys()];
  return models.map((model) => {
    const id = model.replace(/^models\//, '');
    const priceKey = byModel.get(id);
    const found = priceKey === undefined ? undefined : prices?.find(priceKey);
    const price = typeof found === 'object' ? Object.entries(found.price) : [];
    const shown = price.flatMap(([name, usd]) => (typeof usd === 'string' ? `${name} ${usd}` : []));
    const isPriced = shown.length > 0 && isComplete(found);
    return {
      id,
      model,
      priceKey: isPriced ? priceKey : undefined,
      price: shown.join(', ') || 'unknown',
    };
  });
}

/** Whether the price file has what a model of its type needs; a video needs a table of its own. */
function isComplete(found: ReturnType<PriceFile> | undefined): boolean {
  if (typeof found !== 'object' || found.type === 'video') return false;
  if (found.type === 'text') return found.context !== undefined;
  return found.type !== 'embedding' || found.dimensions !== undefined;
}

/** The models of `--sell`, or those that the operator enters on a terminal. */
async function chosenModels(
  { console }: Cli,
  offered: readonly OfferedModel[],
  given: readonly string[] | undefined,
): Promise<readonly OfferedModel[]> {
  const priced = offered.filter(({ priceKey }) => priceKey !== undefined);
  let wanted = given;
  if (wanted === undefined && priced.length > 0 && console.stdout.isTTY === true) {
    const rows = priced.map(({ id, price }) => [id, price]);
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
      `Nothing was changed: "${id}" has no usable price in the price file${didYouMean(id, ids)}`,
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
  before: readonly (readonly [string, string])[],
): readonly (readonly [name: string, value: string])[] {
  const [, name, value] = /^([A-Za-z][\w.]{0,100})=(.+)$/s.exec(text) ?? [];
  if (name !== undefined && value !== undefined) return [...before, [name, value]];
  throw new InvalidArgumentError(`must be a name and a value such as region=eu-central-1`);
}

/** `googleAuthOptions.keyFile` is a member of a member. */
function setAt(
  target: Record<string, unknown>,
  [name = '', ...rest]: string[],
  value: string,
): void {
  if (rest.length === 0) {
    target[name] = value;
    return;
  }
  const inner = { ...objectOf(target[name]) };
  setAt(inner, rest, value);
  target[name] = inner;
}

function objectOf(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}

async function optionalFile(path: string): Promise<string | undefined> {
  return await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    // Only a missing file is no error.
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
}

/** Replaces the file at once, with the permissions that it has. */
async function replaceFile(path: string, text: string): Promise<void> {
  const found = await stat(path).catch(() => undefined);
  const draft = `${path}.${process.pid}.new`;
  try {
    await writeFile(draft, text, { mode: found?.mode ?? 0o600, flag: 'wx' });
    await rename(draft, path);
  } finally {
    await rm(draft, { force: true });
  }
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
