/**
 * The one table of the configuration: every top-level key, its schema, and whether a change needs
 * a restart. A new section is one line here. Also what loading gives: the settings in force, or what
 * is wrong with the file; what was read; and how two settings differ.
 */
import { hash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import { z } from 'zod';

import { BatchesSection } from './batches-section.ts';
import { DiscoverySection, EmbeddedSection, EnginesSection } from './engines-section.ts';
import type { DownloadSettings } from './download-settings.ts';
import type { ConfigProblem } from './explain.ts';
import { LimitsSection } from './limits-section.ts';
import { DefaultsSection, ModelsSection, PriceFileSection } from './models-section.ts';
import { MediaSection } from './media-section.ts';
import {
  ClusterSection,
  DatabaseSection,
  DataSection,
  HttpSection,
  ListenSection,
  LogSection,
  McpSection,
  MetricsSection,
  RetentionSection,
  ServiceSection,
  TracingSection,
} from './server-section.ts';
import type { ProxySettings } from './outgoing-proxy.ts';
import { PaymentsSection } from './payments-section.ts';
import { RpcSection } from './rpc-section.ts';
import type { Proxied, Routed } from './upstream-routes.ts';
import { VideoSection } from './video-model-section.ts';
import {
  ContentSection,
  DocumentsSection,
  FetchSection,
  PersonasSection,
  PromptCachesSection,
  ResponsesSection,
  ScrapingSection,
  SearchSection,
  SocialSearchSection,
} from './web-section.ts';
import type { Environment } from './yaml-source.ts';

/** A section with one sentence for the reference page; a change of it is taken over. */
function live<Schema extends z.ZodType>(schema: Schema, about: string) {
  return { schema, change: 'live' as const, about };
}

/** As `live`, but the running server keeps the old value until it is started again. */
function restart<Schema extends z.ZodType>(schema: Schema, about: string) {
  return { schema, change: 'restart' as const, about };
}

export const SECTIONS = {
  service: restart(ServiceSection, 'Who the server is.'),
  listen: restart(ListenSection, 'Where it listens.'),
  database: restart(DatabaseSection, 'The ledger database.'),
  cluster: restart(ClusterSection, 'Processes on one database.'),
  retention: live(RetentionSection, 'How long rows are kept.'),
  data: restart(DataSection, 'The data folder.'),
  http: restart(HttpSection, 'How HTTP is spoken.'),
  engines: live(EnginesSection, 'Engines that run models.'),
  discovery: live(DiscoverySection, 'Engines on local ports.'),
  embedded: restart(EmbeddedSection, 'Engines of our own.'),
  priceFile: live(PriceFileSection, 'Imported prices.'),
  defaults: live(DefaultsSection, 'Models that nobody configured.'),
  models: live(ModelsSection, 'The models on offer.'),
  limits: live(LimitsSection, 'Rate limits and credit rules.'),
  payments: restart(PaymentsSection, 'Wallet payments.'),
  rpc: restart(RpcSection, 'The JSON-RPC proxy.'),
  mcp: restart(McpSection, 'The MCP server.'),
  search: restart(SearchSection.optional(), 'Web search.'),
  scraping: restart(ScrapingSection, 'Reading web pages.'),
  socialSearch: live(SocialSearchSection, 'Searches that engines make by themselves.'),
  fetch: restart(FetchSection, 'Fetching what callers name by URL.'),
  content: restart(ContentSection, 'Media in chat requests.'),
  media: restart(MediaSection, 'Background removal, transcription and media decoding.'),
  video: restart(VideoSection, 'Video generation.'),
  batches: restart(BatchesSection, 'Files of callers, and batches.'),
  documents: restart(DocumentsSection, 'Documents in chat requests.'),
  promptCaches: live(PromptCachesSection, 'Prompt caches of model servers.'),
  responses: live(ResponsesSection, 'Stored answers of `POST /responses`.'),
  personas: restart(PersonasSection, 'Character personas.'),
  log: live(LogSection, 'The log.'),
  metrics: live(MetricsSection, 'Metrics.'),
  tracing: restart(TracingSection, 'Traces.'),
};

type Shape = { readonly [K in keyof typeof SECTIONS]: (typeof SECTIONS)[K]['schema'] };

/** The whole file. */
export function fileSchema(): z.ZodObject<Shape, z.core.$strict> {
  const entries = Object.entries(SECTIONS).map(([name, section]) => [name, section.schema]);
  // `fromEntries` forgets which schema stands under which name; the table keeps it.
  return z.strictObject(Object.fromEntries(entries) as Shape);
}

/** What the file says after defaults, before folders and addresses are worked out. */
export type FileSettings = z.infer<ReturnType<typeof fileSchema>>;

type RpcNode = FileSettings['rpc']['networks'][string]['upstreams'][number];

/** The sections of servers that are called: with the way to each. */
export interface RoutedSections {
  readonly engines: Readonly<Record<string, Routed<FileSettings['engines'][string]>>>;
  readonly rpc: Omit<FileSettings['rpc'], 'networks'> & {
    readonly networks: Readonly<Record<string, { readonly upstreams: readonly Routed<RpcNode>[] }>>;
  };
  readonly search: Proxied<NonNullable<FileSettings['search']>> | undefined;
}

/** The settings in force. */
export interface Config
  extends
    Readonly<Omit<FileSettings, 'database' | 'data' | 'priceFile' | keyof RoutedSections>>,
    RoutedSections {
  /** `sqlite:<absolute file>` or `postgres://…`. */
  readonly databaseUrl: string;
  /** Absolute. */
  readonly dataFolder: string;
  /** The proxies of the environment. */
  readonly proxies: ProxySettings;
  /** Where packages and models come from. */
  readonly downloads: DownloadSettings;
  /** The `PATH` of the machine, where programs such as ffmpeg are looked for. */
  readonly searchPath: string;
  /** `service.publicUrl`, or the address to listen on. No trailing slash. */
  readonly publicUrl: string;
}

/** A file that was asked for. */
export interface ConfigSource {
  /** Absolute. */
  readonly path: string;
  /** Of its text; `undefined` when there was none to read. */
  readonly digest: string | undefined;
}

/** The file as it was when it was read; the digest says later whether its text is another. */
export function sourceOf(path: string, text: string | undefined): ConfigSource {
  return { path, digest: text === undefined ? undefined : hash('sha256', text) };
}

/** Where the configuration comes from. */
export interface ConfigInputs {
  readonly env: Environment;
  readonly cwd: string;
  /** The text of a file, or `undefined` when there is none. Default: the file system. */
  readonly readFile?: (path: string) => Promise<string | undefined>;
}

/** The settings change while the server runs: whoever keeps one keeps an old one. */
export interface ConfigInForce {
  readonly current: Config;
}

export type LoadedConfig =
  | {
      readonly ok: true;
      readonly config: Config;
      readonly warnings: readonly ConfigProblem[];
      /** Files that were read, the configuration first. */
      readonly sources: readonly ConfigSource[];
    }
  | {
      readonly ok: false;
      readonly problems: readonly ConfigProblem[];
      readonly sources: readonly ConfigSource[];
    };

export interface ConfigDifference {
  /** Changed sections, by their key in the file. */
  readonly changed: readonly string[];
  /** Those of them that the running server cannot take over. */
  readonly restart: readonly string[];
}

/** Values that are worked out from several places, under the key that an operator would change. */
const DERIVED: Readonly<Record<string, string>> = { database: 'databaseUrl', data: 'dataFolder' };

/** Compares what is in force with what was loaded. */
export function diffConfig(before: Config, after: Config): ConfigDifference {
  const [old, current] = [new Map(Object.entries(before)), new Map(Object.entries(after))];
  // `priceFile` shows in the models that it filled in; it has no place of its own.
  const changed = Object.entries(SECTIONS).filter(([name]) => {
    const key = DERIVED[name] ?? name;
    return !isDeepStrictEqual(old.get(key), current.get(key));
  });
  const restart = changed.filter(([, section]) => section.change === 'restart');
  return { changed: changed.map(([name]) => name), restart: restart.map(([name]) => name) };
}
