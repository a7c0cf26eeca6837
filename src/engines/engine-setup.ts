/**
 * Connects a model server for the command line and the console: the entry of the configuration file,
 * the calls that test it, and the entries of its models with their prices.
 */
import { isIP } from 'node:net';
import { scaledRow } from '../catalog/catalog.ts';
import {
  type Config,
  editSection,
  type ListedPrice,
  missingPrices,
  type ModelFacts,
  type ModelType,
  plainNumbers,
  PriceNames,
  type PriceSettings,
  readSection,
} from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { decimalUsd, usdToNano } from '../core/money.ts';
import { isJsonObject, type JsonObject } from '../json/json-scan.ts';
import { addressRule } from '../net/guard-address.ts';
import type { ChatProtocol, ProbeResult } from './contract.ts';
import { probeProvider } from './embedded/embedded.ts';
import { type PackageFetchOptions, fetchPackages } from './embedded/package-fetch.ts';
import { enginesFolder, findPackages, packageSet, providerSet } from './embedded/packages.ts';
import { Engines } from './engines.ts';
import type { KnownProvider } from './known-providers.ts';
import { configuredEngines } from './registry.ts';

export interface EngineChoice {
  /** `undefined` for a server of which only the URL is known. */
  readonly known: KnownProvider | undefined;
  /** Required without `known`; otherwise it replaces the usual address. */
  readonly url?: string | undefined;
  readonly protocol?: ChatProtocol | undefined;
  /** The variable of the key, or the key. Default: the usual variable of the provider. */
  readonly key?: { readonly env: string } | { readonly value: string } | 'none' | undefined;
  /** Settings of a provider package; dots separate members. */
  readonly settings?: readonly (readonly [name: string, value: string])[];
}

/** The entry of `engines` in the file. Throws an Error about a setting that is missing or has no effect. */
export function engineEntry(choice: EngineChoice): JsonObject {
  const { known, url, protocol, key, settings: given = [] } = choice;
  const { engine = {}, keyEnv, secrets = {}, needs = [] } = known ?? {};
  const isPackage = engine['provider'] !== undefined;
  const settings: Record<string, unknown> = {};
  for (const [path, value] of given) setAt(settings, path.split('.'), value);
  if (given.length > 0 && !isPackage) {
    throw new Error('Settings are for providers with a package; this one is an engine with a URL');
  }
  if (known === undefined && url === undefined) throw new Error('The engine needs a URL');
  if (url !== undefined && isPackage) settings['baseURL'] = url;
  for (const names of needs) {
    if (names.some((one) => settings[one] !== undefined)) continue;
    throw new Error(`The provider needs the setting ${names.join(' or ')}`);
  }
  if (key === undefined) {
    for (const [one, variable] of Object.entries(secrets)) settings[one] ??= `\${${variable}}`;
  }
  const usual = keyEnv === undefined ? undefined : { env: keyEnv };
  const apiKey = keyText(key ?? usual);
  return {
    ...engine,
    ...(protocol !== undefined && protocol !== 'openai' && { protocol }),
    ...(url !== undefined && !isPackage && { url }),
    ...(apiKey !== undefined && { apiKey }),
    ...(Object.keys(settings).length > 0 && { settings }),
  };
}

function keyText(key: EngineChoice['key']): string | undefined {
  if (key === undefined || key === 'none') return undefined;
  return 'env' in key ? `\${${key.env}}` : key.value;
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

/** The text of the file with the engine. Throws an Error if the name is taken. */
export function withEngine(text: string, name: string, entry: JsonObject): string {
  const engines = objectOf(readSection(text, 'engines'));
  if (Object.hasOwn(engines, name)) {
    throw new Error(`The engine "${name}" exists; choose another name`);
  }
  return editSection(text, 'engines', { ...engines, [name]: entry });
}

/** The text of the file with further models. */
export function withModels(text: string, added: readonly JsonObject[]): string {
  if (added.length === 0) return text;
  const models = readSection(text, 'models');
  const kept: readonly unknown[] = Array.isArray(models) ? models : [];
  return editSection(text, 'models', [...kept, ...added]);
}

interface SetupParts {
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
  readonly signal: AbortSignal;
  /** How the packages of a provider are fetched. */
  readonly fetching: Pick<PackageFetchOptions, 'downloads' | 'viewOf' | 'onRetry'>;
}

export type EngineTest = {
  readonly latencyMs: number;
  /** Path to append to the URL of the engine. */
  readonly path: '' | '/v1';
  readonly protocol: ChatProtocol;
} & (
  | {
      readonly ok: true;
      readonly models: readonly string[];
      /** Why the key or the list of models was not verified. */
      readonly note: string | undefined;
    }
  | { readonly ok: false; readonly status: number | null; readonly problem: string }
);

/**
 * Lists the models of the engine `name` of the configuration. Without `isProtocolKnown` it also tries
 * the protocol of Anthropic, and `/v1` below a URL without a path. Never rejects, except for a package
 * that cannot be fetched.
 */
export async function testEngine(
  config: Config,
  name: string,
  isProtocolKnown: boolean,
  parts: SetupParts,
): Promise<EngineTest> {
  const engine = config.engines[name];
  if (engine?.provider !== undefined) return await testProvider(config, name, parts);
  const { url = '', protocol = 'openai' } = engine ?? {};
  const own = protocol === 'rembg' ? 'openai' : protocol;
  const protocols: readonly ChatProtocol[] = isProtocolKnown ? [own] : [own, 'anthropic'];
  const isBare = !isProtocolKnown && URL.parse(url)?.pathname === '/';
  const paths = isBare ? (['/v1', ''] as const) : ([''] as const);
  const tries = paths.flatMap((path) => protocols.map((used) => ({ path, protocol: used })));
  const results = await probeAll(
    config,
    tries.map((one) => ({ ...engine, protocol: one.protocol, url: url + one.path })),
    parts,
  );
  const found = results.findIndex(({ ok }) => ok);
  const refused = results.findIndex((one) => !one.ok && isKeyRefusal(one.status));
  const at = [found, refused, 0].find((one) => one >= 0) ?? 0;
  const [used, result] = [tries[at], results[at]];
  const facts = {
    latencyMs: result?.latencyMs ?? 0,
    path: used?.path ?? '',
    protocol: used?.protocol ?? own,
  };
  if (result?.ok !== true) {
    const { status = null, message = 'The engine is not configured' } = result ?? {};
    const hint = isKeyRefusal(status) ? '; check the key' : '';
    return { ...facts, ok: false, status, problem: `${message}${hint}` };
  }
  const isOpen = engine?.apiKey !== undefined && (await isListOpen(config, name, facts, parts));
  const note = isOpen
    ? 'The list of models needs no key, so that the key is not verified before the first call'
    : undefined;
  return { ...facts, ok: true, models: result.models, note };
}

function isKeyRefusal(status: number | null): boolean {
  return status === 401 || status === 403;
}

/** Whether the engine lists its models without the key. */
async function isListOpen(
  config: Config,
  name: string,
  { path, protocol }: Pick<EngineTest, 'path' | 'protocol'>,
  parts: SetupParts,
): Promise<boolean> {
  const { apiKey: _, url = '', ...engine } = config.engines[name] ?? {};
  const [result] = await probeAll(config, [{ ...engine, url: url + path, protocol }], parts);
  return result?.ok === true;
}

async function probeAll(
  config: Config,
  engines: readonly object[],
  { clock, ids, log }: SetupParts,
): Promise<readonly ProbeResult[]> {
  const calls = new Engines({ clock, ids, log });
  try {
    const named = Object.fromEntries(engines.map((one, at) => [`try-${at}`, one]));
    // Variations of one engine of the configuration.
    calls.update(configuredEngines({ ...config, engines: named as Config['engines'] }));
    return await Promise.all(engines.map((_, at) => calls.probe(`try-${at}`)));
  } finally {
    await calls.close();
  }
}

async function testProvider(config: Config, name: string, parts: SetupParts): Promise<EngineTest> {
  const { clock, fetching } = parts;
  const settings = config.engines[name];
  const set = packageSet(providerSet(settings?.provider ?? ''));
  if (findPackages(set, config.dataFolder) === undefined) {
    await fetchPackages({ set, into: enginesFolder(config.dataFolder), ...parts, ...fetching });
  }
  const startedMs = clock.monotonicMs();
  const onChange = (): void => undefined;
  const result = await probeProvider({ ...parts, config, onChange }, name);
  const facts = {
    latencyMs: clock.monotonicMs() - startedMs,
    path: '' as const,
    protocol: 'openai' as const,
  };
  if (typeof result === 'string') return { ...facts, ok: false, status: null, problem: result };
  const note =
    'The provider has no list of models, so that the key is not verified before the first call';
  if (result.ok) {
    const { models } = result;
    return { ...facts, ok: true, models, note: models.length === 0 ? note : undefined };
  }
  const { status, message } = result;
  if (status === 404) return { ...facts, ok: true, models: [], note };
  const hint = isKeyRefusal(status) ? '; check the key' : '';
  return { ...facts, ok: false, status, problem: `${message}${hint}` };
}

/** A model of an engine, with its price at the supplier if a list has it. */
export interface OfferedModel {
  /** Id in requests. */
  readonly id: string;
  /** Id at the engine. */
  readonly model: string;
  readonly facts: ModelFacts;
  /** Key in the list, and the price of the supplier. */
  readonly priceKey?: string | undefined;
  readonly cost?: PriceSettings | undefined;
  /** Provider in the list. */
  readonly provider?: string | undefined;
  /** About values of the list that were changed or ignored. */
  readonly warnings?: readonly string[];
}

interface Supplier {
  readonly engine: string;
  readonly known: KnownProvider | undefined;
}

/** The listed models, or without a list those that the price list has of the provider. */
export function offeredModels(
  models: readonly string[],
  { engine, known }: Supplier,
  list: readonly ListedPrice[],
): OfferedModel[] {
  const starts = known?.priceKeys ?? [];
  const names = new PriceNames(list);
  const priced = (id: string): Partial<OfferedModel> & { readonly facts: ModelFacts } => {
    const keys = starts.flatMap((start) => {
      if (start.endsWith('/')) return [start + id];
      return id.startsWith(start) ? [id] : [];
    });
    // A provider that is known by its keys has no prices under the names of others.
    const others = known === undefined ? [`${engine}/${id}`, id] : [];
    const found = names.find([...keys, ...others], id, engine);
    const isOwn =
      typeof found === 'object' &&
      (known === undefined || keys.includes(found.key) || found.provider === engine);
    if (!isOwn) return { facts: {} };
    const { facts, key: priceKey, price: cost, provider, warnings } = found;
    return { facts, priceKey, cost, provider, warnings };
  };
  const listed =
    models.length > 0 ? models : list.flatMap(({ key }) => ownModel(key, starts) ?? []);
  return listed.map((model) => {
    const id = model.replace(/^models\//, '');
    return { id, model, ...priced(id) };
  });
}

function ownModel(key: string, starts: readonly string[]): string | undefined {
  const start = starts.find((one) => key.startsWith(one));
  if (start === undefined) return undefined;
  return start.endsWith('/') ? key.slice(start.length) : key;
}

/** Whether the list has everything that a model of its type needs; a video needs a table of its own. */
export function isSellable({ facts, cost }: Pick<OfferedModel, 'facts' | 'cost'>): boolean {
  const { type = 'text', context, dimensions } = facts;
  const isPriced = Object.values(cost ?? {}).some((usd) => typeof usd === 'string');
  if (cost === undefined || !isPriced || type === 'video') return false;
  if (missingPrices(type, cost).length > 0) return false;
  if (type === 'text') return context !== undefined;
  return type !== 'embedding' || dimensions !== undefined;
}

const PERCENT = /^\d{1,6}(?:\.\d{1,7})?%?$/;

/** (100 + percent) / 100 as a decimal factor, such as `1.2`; `undefined` for an invalid percentage. */
export function markupFactor(percent: string): string | undefined {
  if (!PERCENT.test(percent)) return undefined;
  // As an integer of 9 decimals.
  return decimalUsd(1_000_000_000n + usdToNano(percent.replace('%', '')) / 100n);
}

interface Sale {
  readonly engine: string;
  /** Factor of the markup, such as `1.2`. */
  readonly factor: string;
  readonly privacy: 'private' | 'anonymized';
}

/** The entry of `models` for a model with a cost: sold at the cost times the factor. */
export function modelEntry(offered: OfferedModel, { engine, factor, privacy }: Sale): JsonObject {
  const { id, model, facts, cost = {} } = offered;
  const { type = 'text', context, maxCompletionTokens, maxInputTokens, dimensions } = facts;
  const capabilities = facts.capabilities ?? [];
  return {
    id,
    ...(type !== 'text' && { type }),
    privacy,
    ...(context !== undefined && { context }),
    ...(maxCompletionTokens !== undefined && { maxCompletionTokens }),
    ...(type === 'text' && capabilities.length > 0 && { capabilities }),
    ...(dimensions !== undefined && {
      embedding: { dimensions, ...(maxInputTokens !== undefined && { maxInputTokens }) },
    }),
    price: plainNumbers(soldPrice(cost, factor, type)),
    replicas: [{ engine, ...(model !== id && { model }), cost: plainNumbers(cost) }],
  };
}

/** The costs of the supplier times the factor. */
export function soldPrice(cost: PriceSettings, factor: string, type: ModelType): PriceSettings {
  const scaled = scaledRow(cost, factor, type);
  // The server sends lines of batches to the supplier as ordinary requests, at their cost.
  return { ...scaled, serviceTiers: { ...scaled.serviceTiers, batch: { factor: '1' } } };
}

/** `private` if the host of the URL is in the network of the operator. */
export function privacyOf(url: string | undefined): 'private' | 'anonymized' {
  if (url === undefined) return 'anonymized';
  if (url.startsWith('unix:')) return 'private';
  const host = URL.parse(url)?.hostname.replace(/^\[|\]$/g, '') ?? '';
  const isName = isIP(host) === 0;
  const isLocal = isName
    ? !host.includes('.') || /\.(?:local|internal|lan)$/.test(host)
    : addressRule([])(host) === 'refused';
  return isLocal ? 'private' : 'anonymized';
}

function objectOf(value: unknown): JsonObject {
  return isJsonObject(value) ? value : {};
}
