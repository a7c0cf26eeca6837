/**
 * The typed configuration: one optional YAML file and a few environment variables, turned into
 * settings that the rest of the server trusts. A configuration is either whole and valid or a list
 * of problems with their lines; nothing in between leaves this folder.
 *
 * Relative paths in the file start at the file's folder; without a file, and for `FAREBOX_DATA`,
 * they start at the working directory. Reads only; opens no database, calls no engine.
 */
import { readFile } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';

import { crossCheck, type Findings, importModels } from './cross-checks.ts';
import {
  type ConfigProblem,
  explainIssues,
  pathText,
  problemAt,
  type Read,
  schemaTree,
  valueAt,
} from './explain.ts';
import { checkPayments } from './payments-checks.ts';
import { type PriceFile, readPriceFile } from './price-file.ts';
import {
  type Config,
  type ConfigInputs,
  type ConfigSource,
  fileSchema,
  type FileSettings,
  type LoadedConfig,
  sourceOf,
} from './sections.ts';
import type { PersonasSection } from './web-section.ts';
import { type Environment, type Path, pathKey, readYaml, type YamlSource } from './yaml-source.ts';

export type { ClusterSection, RetentionSection } from './cluster-section.ts';
export { describeConfig } from './describe-config.ts';
export type { EmbeddedSection, DiscoverySection, EngineSettings } from './engines-section.ts';
export { type ConfigProblem, formatProblem } from './explain.ts';
export { type LimitsSection, type Plan, type PlanLimits } from './limits-section.ts';
export { type Tier, TIERS } from './limits-section.ts';
export { maxDownloadBytes, type MediaSection } from './media-section.ts';
export {
  CAPABILITIES,
  type Capability,
  type DefaultsSection,
  MODEL_TYPES,
  type ModelSettings,
  type ModelType,
  type PriceSettings,
  QUANTIZATIONS,
  REASONING_EFFORTS,
  type ReplicaSettings,
} from './models-section.ts';
export type { LogSection, MetricsSection, TracingSection } from './observability-section.ts';
export type { RpcSection } from './rpc-section.ts';
export type { HttpSection, ListenSection, ServiceSection } from './server-section.ts';
export {
  type Config,
  type ConfigDifference,
  type ConfigInputs,
  type ConfigSource,
  diffConfig,
  type LoadedConfig,
} from './sections.ts';
export { serviceWords, type ServiceWords } from './service-name.ts';
export {
  VIDEO_ASPECT_RATIOS,
  VIDEO_DURATIONS,
  VIDEO_RESOLUTIONS,
  type VideoAspectRatio,
  VideoModelSettings,
  VideoPricing,
  VideoRate,
  type VideoResolution,
  type VideoSection,
} from './video-model-section.ts';
export {
  type ConfigWatch,
  type ConfigWatchOptions,
  reloadConfig,
  watchConfig,
} from './watch-config.ts';
export { PersonaSection, type PersonasSection } from './web-section.ts';

/** The file that is read when `FAREBOX_CONFIG` names none. */
export const CONFIG_FILE = 'farebox.yaml';

/** Larger than any hand-written or generated list of models. */
const CONFIG_LIMIT_CHARACTERS = 64_000_000;

/** Reads and checks the configuration. Never throws for what an operator can write. */
export async function loadConfig(inputs: ConfigInputs): Promise<LoadedConfig> {
  const { env, cwd } = inputs;
  const named = env['FAREBOX_CONFIG'];
  const shown = named ?? CONFIG_FILE;
  const path = resolve(cwd, shown);
  const text = await readText(inputs, path);
  if (typeof text !== 'string' && (text.error !== undefined || named !== undefined)) {
    const message = text.error ?? 'FAREBOX_CONFIG names this file, but it does not exist';
    return {
      ok: false,
      problems: [{ file: shown, path: '', message }],
      sources: [sourceOf(path, undefined)],
    };
  }
  const isThere = typeof text === 'string';
  const sources = isThere ? [sourceOf(path, text)] : [];
  const source = readYaml(isThere ? text : '', env);
  const context: Read = { file: shown, source };
  if (source.problems.length > 0) {
    const problems = source.problems.map(({ path: at, ...rest }) => {
      return { file: shown, ...rest, path: pathText(at) };
    });
    return { ok: false, problems, sources };
  }
  const parsed = parseSettings(context);
  if (!parsed.ok) return { ok: false, problems: parsed.problems, sources };
  const folder = isThere ? dirname(path) : cwd;
  return completeConfig(parsed.settings, context, inputs, folder, sources);
}

async function readText(
  inputs: ConfigInputs,
  path: string,
): Promise<string | { readonly error?: string }> {
  try {
    const text = await (inputs.readFile ?? readFileText)(path);
    if (text === undefined) return {};
    return text.length <= CONFIG_LIMIT_CHARACTERS ? text : { error: 'The file is too large' };
  } catch (error) {
    // A folder, a missing permission: the operator needs the reason, not a stack.
    return { error: `Cannot be read: ${error instanceof Error ? error.message : String(error)}` };
  }
}

async function readFileText(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    // Only a missing file is an answer; anything else is a reason to stop.
    if (error instanceof Error && 'code' in error && error.code === 'ENOENT') return undefined;
    throw error;
  }
}

type Parsed =
  | { readonly ok: true; readonly settings: FileSettings }
  | { readonly ok: false; readonly problems: readonly ConfigProblem[] };

function parseSettings(context: Read): Parsed {
  const schema = fileSchema();
  const { source } = context;
  const value = source.value ?? {};
  const first = schema.safeParse(value);
  if (first.success) return { ok: true, settings: first.data };
  const converted = convertFromEnvironment(value, first.error.issues, source);
  const second = converted === undefined ? first : schema.safeParse(converted);
  if (second.success) return { ok: true, settings: second.data };
  const explained = { ...context, schema: schemaTree(schema) };
  return { ok: false, problems: explainIssues(second.error.issues, explained) };
}

/** `port: ${PORT}` is text by nature; where a number or a truth value is wanted it becomes one. */
function convertFromEnvironment(
  value: unknown,
  issues: readonly { readonly code?: string; readonly path: readonly PropertyKey[] }[],
  source: YamlSource,
): unknown {
  const copy = structuredClone(value);
  let changed = false;
  for (const issue of issues) {
    const path = issue.path as Path; // a YAML path has texts and numbers only
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
  if (text === 'true') return true;
  if (text === 'false') return false;
  if (typeof text !== 'string' || !/^-?\d+(\.\d+)?$/.test(text)) return undefined;
  return Number(text);
}

async function completeConfig(
  settings: FileSettings,
  context: Read,
  inputs: ConfigInputs,
  folder: string,
  sources: readonly ConfigSource[],
): Promise<LoadedConfig> {
  const problems: ConfigProblem[] = [];
  const warnings: ConfigProblem[] = [];
  const findings: Findings = {
    problem: (path, message) => problems.push(problemAt(path, message, context)),
    warning: (path, message) => warnings.push(problemAt(path, message, context)),
  };
  const pricePath =
    settings.priceFile === undefined ? undefined : resolve(folder, settings.priceFile);
  const { prices, source } = await openPriceFile(pricePath, inputs, findings);
  const all = source === undefined ? sources : [...sources, source];
  const typeWasGiven = (index: number): boolean =>
    valueAt(context.source.value, ['models', index, 'type']) !== undefined;
  const models =
    settings.priceFile !== undefined && prices === undefined
      ? settings.models
      : importModels(settings.models, prices, typeWasGiven, findings);
  if (problems.length === 0) {
    crossCheck({ ...settings, models }, findings);
    checkPayments(settings.payments, findings);
  }
  const listen = listenFrom(settings.listen, inputs.env, problems);
  if (problems.length > 0) return { ok: false, problems, sources: all };
  const config = assemble({ ...settings, models, listen }, inputs, folder);
  return { ok: true, config, warnings, sources: all };
}

async function openPriceFile(
  path: string | undefined,
  inputs: ConfigInputs,
  findings: Findings,
): Promise<{ readonly prices?: PriceFile; readonly source?: ConfigSource }> {
  if (path === undefined) return {};
  const text = await readText(inputs, path);
  if (typeof text !== 'string') {
    findings.problem(['priceFile'], text.error ?? `There is no file ${path}`);
    return { source: sourceOf(path, undefined) };
  }
  const source = sourceOf(path, text);
  try {
    return { prices: readPriceFile(text), source };
  } catch (error) {
    // JSON.parse says where it stumbled; that is all an operator can be told.
    const reason = error instanceof Error ? error.message : String(error);
    findings.problem(['priceFile'], `${path} is not valid JSON: ${reason}`);
    return { source };
  }
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

function assemble(settings: FileSettings, inputs: ConfigInputs, folder: string): Config {
  const { database, data, priceFile: _, ...sections } = settings;
  const moved = inputs.env['FAREBOX_DATA'];
  const dataFolder = moved ? resolve(inputs.cwd, moved) : resolve(folder, data);
  const { host, port } = settings.listen;
  const personas = personasFrom(settings.personas, folder);
  return {
    ...sections,
    personas,
    dataFolder,
    databaseUrl: databaseUrlFrom(database, folder, dataFolder),
    searchPath: inputs.env['PATH'] ?? '',
    publicUrl: settings.service.publicUrl ?? `http://${reachableHost(host)}:${port}`,
  };
}

function personasFrom(personas: PersonasSection, folder: string): PersonasSection {
  if (personas.folder === undefined) return personas;
  return { ...personas, folder: resolve(folder, personas.folder) };
}

function databaseUrlFrom(url: string | undefined, folder: string, dataFolder: string): string {
  if (url === undefined) return `sqlite:${resolve(dataFolder, 'farebox.db')}`;
  if (!url.startsWith('sqlite:') || url === 'sqlite::memory:') return url;
  return `sqlite:${resolve(folder, url.slice('sqlite:'.length))}`;
}

/** An address that a client on the same machine can use. */
export function reachableHost(host: string): string {
  if (host === '0.0.0.0' || host === '::') return '127.0.0.1';
  return host.includes(':') ? `[${host}]` : host;
}
