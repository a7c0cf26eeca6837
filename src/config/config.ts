/**
 * Loads the configuration from an optional YAML file and environment variables. The result is either a
 * valid configuration or a list of problems with their lines.
 *
 * Relative paths start at the folder of the file; without a file, and for `FAREBOX_DATA`, at the working
 * directory. Loading only reads files.
 */
import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

import { reasonOf } from '../core/log.ts';
import { crossCheck, importModels } from './cross-checks.ts';
import { downloadSettings } from './download-settings.ts';
import {
  type ConfigProblem,
  rejectEmptySettings,
  explainIssues,
  Diagnostics,
  schemaTree,
  valueAt,
} from './explain.ts';
import type { ModelSettings, ModelType, PriceSettings } from './models-section.ts';
import { environmentProxies, PROXY_RULE, type ProxySettings } from './outgoing-proxy.ts';
import { resolvePlans } from './plans-section.ts';
import { type PriceFile, readPriceFile } from './price-file.ts';
import {
  type Config,
  type ConfigInputs,
  type ConfigSource,
  fileSchema,
  type FileSettings,
  type LoadedConfig,
  type RoutedSections,
  sourceOf,
} from './sections.ts';
import { routeTo, withProxy } from './upstream-routes.ts';
import { type Environment, type Path, pathKey, readYaml, type YamlSource } from './yaml-source.ts';

export type { BatchesSection } from './batches-section.ts';
export { editSection, maskedText, readSection, sectionSchema, sectionsIn } from './edit-config.ts';
export { describeConfig } from './effective-config.ts';
export type { DownloadSettings } from './download-settings.ts';
export { missingPrices, priceRuleProblems } from './plan-checks.ts';
export { formatProblem } from './explain.ts';
export {
  type ListedPrice,
  type ModelFacts,
  plainNumbers,
  PriceNames,
  readPriceList,
} from './price-list.ts';
export { type LimitsSection, type PlanLimits } from './limits-section.ts';
export { type Tier, TIERS } from './limits-section.ts';
export { VIDEO_RESULT_MB, maxCallerMb, maxDownloadBytes } from './media-section.ts';
export {
  SPEECH_FORMATS,
  SPEECH_SPEEDS,
  type SpeechFormat,
  SpeechModelSettings,
} from './media-model-sections.ts';
export {
  CAPABILITIES,
  type Capability,
  type DefaultsSection,
  MODEL_TYPES,
  type ModelSettings,
  type ModelType,
  PriceSettings,
  type ServiceTier,
  stepsOf,
  type TokenPrice,
  QUANTIZATIONS,
} from './models-section.ts';
export { type ProxySettings, proxyOf } from './outgoing-proxy.ts';
export {
  type CallerPrices,
  DEFAULT_PLANS,
  type DefaultPlan,
  PlanName,
  PriceRules,
  type PriceSource,
  type ResolvedPlan,
  type ResolvedPlans,
  creditPrice,
  discountFactor,
  limitsOfPlan,
  type RpcLimits,
  rpcLimitsOf,
  ruleFor,
} from './plans-section.ts';
export { PROVIDERS } from './provider-names.ts';
export type { RpcSection } from './rpc-section.ts';
export {
  MEMBER_ROLES,
  type MemberRole,
  type SignInProviderSettings,
  type SignInRule,
} from './sign-in-section.ts';
export {
  type Config,
  type ConfigInForce,
  type ConfigInputs,
  type ConfigSource,
  type LoadedConfig,
  SECTIONS,
  diffConfig,
  settingsInForce,
  sourceOf,
} from './sections.ts';
export {
  VIDEO_ASPECT_RATIOS,
  VIDEO_DURATIONS,
  VIDEO_RESOLUTIONS,
  VideoModelSettings,
  VideoPricing,
  VideoRate,
  type VideoResolution,
} from './video-model-section.ts';
export { ConfigWatch, reloadConfig } from './watch-config.ts';
export { PersonaSection } from './web-section.ts';

/** The file that is read if `FAREBOX_CONFIG` is not set. */
export const CONFIG_FILE = 'farebox.yaml';

/** Far more than the largest generated list of models. */
const CONFIG_LIMIT_CHARACTERS = 64_000_000;

/** Reads and validates the configuration. Invalid input is a result, not an exception. */
export async function loadConfig(inputs: ConfigInputs): Promise<LoadedConfig> {
  const { env, cwd } = inputs;
  const named = env['FAREBOX_CONFIG'];
  const file = named ?? CONFIG_FILE;
  const path = resolve(cwd, file);
  const { text, error } = await readText(inputs, path);
  if (text === undefined && (error ?? named) !== undefined) {
    const message = error ?? 'The file that --config or FAREBOX_CONFIG names does not exist';
    const sources = [sourceOf(path, undefined)];
    return { ok: false, problems: [{ file, path: '', message }], sources };
  }
  const sources = text === undefined ? [] : [sourceOf(path, text)];
  const diagnostics = new Diagnostics(file, readYaml(text ?? '', env));
  const { problems, warnings } = diagnostics;
  const settings = problems.length > 0 ? undefined : parseSettings(diagnostics);
  if (settings === undefined) return { ok: false, problems, sources };
  const folder = text === undefined ? cwd : dirname(path);
  const parts = { diagnostics, inputs, folder, sources };
  const imported = await importedModels(settings, parts);
  const models = imported.map((model) => withFile(model, settings, folder));
  const { ignored, ...proxies } = environmentProxies(env);
  for (const name of ignored) {
    const message = `${PROXY_RULE}, and is ignored; correct or unset it`;
    warnings.push({ file: 'environment', path: name, message });
  }
  const routed = await routedSections(settings, proxies, parts);
  if (problems.length === 0) crossCheck({ ...settings, models }, diagnostics);
  const listen = listenFrom(settings.listen, env, problems);
  if (problems.length > 0) return { ok: false, problems, sources };
  const downloads = await downloadSettings(settings.embedded, env, async (name) => {
    // The file of npm is optional.
    return (await readText(inputs, name)).text;
  });
  const rest = assemble({ ...settings, models, listen }, inputs, folder);
  const config = { ...rest, ...routed, proxies, downloads };
  return { ok: true, config, warnings, sources };
}

/** Returns the text of a file or the error; neither if the file does not exist. */
async function readText(
  inputs: ConfigInputs,
  path: string,
): Promise<{ readonly text?: string | undefined; readonly error?: string }> {
  try {
    const text = await (inputs.readFile ?? readFileText)(path);
    if (text !== undefined && text.length > CONFIG_LIMIT_CHARACTERS) {
      return { error: `The file must have at most ${CONFIG_LIMIT_CHARACTERS} characters` };
    }
    return { text };
  } catch (error) {
    // For example a folder, or a missing permission.
    return { error: `Cannot be read: ${reasonOf(error)}` };
  }
}

async function readFileText(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    // Only a missing file is no error.
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Compiling a schema is slower than parsing one value with it. */
const ONCE = { jitless: true };

/** Returns the settings with defaults, or `undefined` after adding the problems to `diagnostics`. */
function parseSettings(diagnostics: Diagnostics): FileSettings | undefined {
  const schema = fileSchema();
  const value = diagnostics.source.value ?? {};
  if (diagnostics.source.emptyPaths.length > 0) {
    rejectEmptySettings(schemaTree(schema), diagnostics);
    if (diagnostics.problems.length > 0) return undefined;
  }
  let parsed = schema.safeParse(value, ONCE);
  if (parsed.success) return parsed.data;
  const converted = convertFromEnvironment(value, parsed.error.issues, diagnostics.source);
  if (converted !== undefined) parsed = schema.safeParse(converted, ONCE);
  if (parsed.success) return parsed.data;
  explainIssues(parsed.error.issues, schemaTree(schema), diagnostics);
  return undefined;
}

/** Converts texts from environment variables (`port: ${PORT}`) if a number or boolean is expected. */
function convertFromEnvironment(
  value: unknown,
  issues: readonly { readonly code?: string; readonly path: readonly PropertyKey[] }[],
  source: YamlSource,
): unknown {
  const copy = structuredClone(value);
  let changed = false;
  for (const issue of issues) {
    const path = issue.path as Path; // a YAML path has only strings and numbers
    const key = path.at(-1);
    const holder = valueAt(copy, path.slice(0, -1));
    if (key === undefined || typeof holder !== 'object' || holder === null) continue;
    if (issue.code !== 'invalid_type' && issue.code !== 'invalid_union') continue;
    if (!source.fromEnvironment.has(pathKey(path))) continue;
    const plain = plainScalar(valueAt(copy, path));
    if (plain === undefined) continue;
    Object.assign(holder, { [key]: plain });
    changed = true;
  }
  return changed ? copy : undefined;
}

function plainScalar(text: unknown): number | boolean | undefined {
  if (text === 'true' || text === 'false') return text === 'true';
  if (typeof text !== 'string' || !/^-?\d+(\.\d+)?$/.test(text)) return undefined;
  return Number(text);
}

interface SourceParts {
  readonly diagnostics: Diagnostics;
  readonly inputs: ConfigInputs;
  readonly folder: string;
  readonly sources: ConfigSource[];
}

/** Returns the models with missing properties from the price file. */
async function importedModels(
  { models, priceFile }: FileSettings,
  { diagnostics, inputs, folder, sources }: SourceParts,
): Promise<ModelSettings[]> {
  const typeWasGiven = (index: number): boolean =>
    valueAt(diagnostics.source.value, ['models', index, 'type']) !== undefined;
  if (priceFile === undefined) return importModels(models, undefined, typeWasGiven, diagnostics);
  const path = resolve(folder, priceFile);
  const { text, error } = await readText(inputs, path);
  sources.push(sourceOf(path, text));
  if (text === undefined) {
    diagnostics.problem(
      ['priceFile'],
      error ?? `There is no file ${path}; write the path of a price file`,
    );
    return models;
  }
  let prices: PriceFile;
  try {
    prices = readPriceFile(text);
  } catch (cause) {
    // The message of JSON.parse contains the position.
    diagnostics.problem(['priceFile'], `${path} is not valid JSON: ${reasonOf(cause)}`);
    return models;
  }
  return importModels(models, prices, typeWasGiven, diagnostics);
}

/** Resolves the path of the GGUF file of a model, and adds the default price. */
function withFile(model: ModelSettings, { defaults }: FileSettings, folder: string): ModelSettings {
  if (model.gguf === undefined) return model;
  const prices: Partial<Record<ModelType, PriceSettings>> = defaults.price;
  return { ...model, gguf: resolve(folder, model.gguf), price: model.price ?? prices[model.type] };
}

/** Adds the proxy and the certificates to each upstream server. */
async function routedSections(
  { engines, rpc, search }: FileSettings,
  proxies: ProxySettings,
  { diagnostics, inputs, folder, sources }: SourceParts,
): Promise<RoutedSections> {
  const readPem = async (path: string) => {
    const read = await readText(inputs, path);
    sources.push(sourceOf(path, read.text));
    return read;
  };
  const parts = { diagnostics, folder, proxies, readFile: readPem };
  const routedEngines: [string, RoutedSections['engines'][string]][] = [];
  for (const [name, engine] of Object.entries(engines)) {
    const { url = '', provider, ca } = engine;
    const routed =
      provider === undefined
        ? await routeTo({ ...engine, url }, ['engines', name], parts)
        : { ...engine, url, ...(ca !== undefined && { ca: resolve(folder, ca) }) };
    routedEngines.push([name, routed]);
  }
  const networks: [string, RoutedSections['rpc']['networks'][string]][] = [];
  for (const [slug, { upstreams, ...more }] of Object.entries(rpc.networks)) {
    const nodes = upstreams.map((node, index) =>
      routeTo(node, ['rpc', 'networks', slug, 'upstreams', index], parts),
    );
    networks.push([slug, { ...more, upstreams: await Promise.all(nodes) }]);
  }
  return {
    engines: Object.fromEntries(routedEngines),
    rpc: { ...rpc, networks: Object.fromEntries(networks) },
    search: search && withProxy(search, proxies),
  };
}

function listenFrom(
  listen: FileSettings['listen'],
  env: Environment,
  problems: ConfigProblem[],
): FileSettings['listen'] {
  const host = env['HOST'] || listen.host;
  const text = env['PORT'] || String(listen.port);
  const port = Number(text);
  if (!/^\d{1,5}$/.test(text) || port > 65_535) {
    const message = `PORT must be a whole number from 0 to 65535, not "${text.slice(0, 40)}"`;
    problems.push({ file: 'environment', path: 'PORT', message });
  }
  return { host, port };
}

function assemble(
  settings: FileSettings,
  inputs: ConfigInputs,
  folder: string,
): Omit<Config, 'downloads' | 'proxies' | keyof RoutedSections> {
  const { database, data, priceFile: _, ...sections } = settings;
  const moved = inputs.env['FAREBOX_DATA'];
  const dataFolder = moved ? resolve(inputs.cwd, moved) : resolve(folder, data);
  const { host, port } = settings.listen;
  const { personas, backup } = sections;
  const { to } = backup;
  const own = personas.folder === undefined ? {} : { folder: resolve(folder, personas.folder) };
  return {
    ...sections,
    resolvedPlans: resolvePlans(sections.plans, sections.limits),
    personas: { ...personas, ...own },
    backup: { ...backup, ...(to === undefined ? {} : { to: backupPlace(to, folder) }) },
    dataFolder,
    databaseUrl: databaseUrlFrom(database, folder, dataFolder),
    searchPath: inputs.env['PATH'] ?? '',
    publicUrl: settings.service.publicUrl ?? `http://${reachableHost(host)}:${port}`,
  };
}

/** A relative path starts at `folder`; an `s3://` URL stays. */
export function backupPlace(to: string, folder: string): string {
  return to.startsWith('s3://') ? to : resolve(folder, to);
}

function databaseUrlFrom(url: string | undefined, folder: string, dataFolder: string): string {
  if (url === undefined) return `sqlite:${resolve(dataFolder, 'farebox.db')}`;
  if (!url.startsWith('sqlite:')) return url;
  return `sqlite:${resolve(folder, url.slice('sqlite:'.length))}`;
}

/** Returns an address that a client on the same machine can use. */
export function reachableHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return '127.0.0.1';
  return host.includes(':') ? `[${host}]` : host;
}
