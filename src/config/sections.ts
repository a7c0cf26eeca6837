/**
 * The table of all sections with their schemas, and whether a change needs a restart. Also the types of a
 * loaded configuration, and the difference between two configurations.
 */
import { hash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';

import { BackupSection } from './backup-section.ts';
import { BatchesSection } from './batches-section.ts';
import { EmailSection } from './email-section.ts';
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
import { PlansSection, type ResolvedPlans } from './plans-section.ts';
import { RpcSection } from './rpc-section.ts';
import type { Proxied, Routed } from './upstream-routes.ts';
import { SignInSection } from './sign-in-section.ts';
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

/** A section whose changes apply to the running server. `about` is for the reference page. */
function live<Schema extends z.ZodType>(schema: Schema, about: string) {
  return { schema, change: 'live' as const, about };
}

/** A section whose changes apply at the next start. */
function restart<Schema extends z.ZodType>(schema: Schema, about: string) {
  return { schema, change: 'restart' as const, about };
}

export const SECTIONS = {
  service: restart(ServiceSection, 'Name, address and documentation of the service.'),
  listen: restart(ListenSection, 'Listen address.'),
  database: restart(DatabaseSection, 'Database of the ledger.'),
  cluster: restart(ClusterSection, 'Processes that share one database.'),
  retention: live(RetentionSection, 'Deletion of old rows.'),
  backup: live(BackupSection, 'Backups of the database and the configuration.'),
  data: restart(DataSection, 'Data folder.'),
  http: restart(HttpSection, 'HTTP server: proxies, CORS, limits and timeouts.'),
  engines: live(EnginesSection, 'Configured engines, by name.'),
  discovery: live(DiscoverySection, 'Discovery of engines on local ports.'),
  embedded: restart(EmbeddedSection, 'Embedded engines.'),
  priceFile: live(PriceFileSection, 'Price file.'),
  defaults: live(DefaultsSection, 'Defaults of discovered and embedded models.'),
  models: live(ModelsSection, 'Models.'),
  limits: live(LimitsSection, 'Rate limits and credit rules.'),
  plans: live(PlansSection, 'Plans of accounts with their limits and prices.'),
  payments: restart(PaymentsSection, 'Wallet payments.'),
  signIn: live(SignInSection, 'Company sign-in to the console by OpenID Connect.'),
  email: restart(EmailSection, 'Mail server for messages to accounts and operators.'),
  rpc: restart(RpcSection, 'JSON-RPC proxy.'),
  mcp: restart(McpSection, 'MCP server.'),
  search: restart(SearchSection.optional(), 'Web search.'),
  scraping: restart(ScrapingSection, 'Web pages in user messages.'),
  socialSearch: live(SocialSearchSection, 'Searches by engines.'),
  fetch: restart(FetchSection, 'Fetching of URLs from callers.'),
  content: restart(ContentSection, 'Media in chat requests.'),
  media: restart(MediaSection, 'Background removal, transcription and media decoding.'),
  video: restart(VideoSection, 'Video generation.'),
  batches: restart(BatchesSection, 'Uploaded files and batches.'),
  documents: restart(DocumentsSection, 'Documents in chat requests.'),
  promptCaches: live(PromptCachesSection, 'Prompt caches of model servers.'),
  responses: live(ResponsesSection, 'Stored responses of `POST /responses`.'),
  personas: restart(PersonasSection, 'Character personas.'),
  log: live(LogSection, 'Log.'),
  metrics: live(MetricsSection, 'Metrics.'),
  tracing: restart(TracingSection, 'Traces.'),
};

type Shape = { readonly [K in keyof typeof SECTIONS]: (typeof SECTIONS)[K]['schema'] };

export function fileSchema(): z.ZodObject<Shape, z.core.$strict> {
  const entries = Object.entries(SECTIONS).map(([name, section]) => [name, section.schema]);
  // `fromEntries` loses the type of each entry.
  return z.strictObject(Object.fromEntries(entries) as Shape);
}

/** Settings of the file with defaults, before paths and addresses are resolved. */
export type FileSettings = z.infer<ReturnType<typeof fileSchema>>;

type RpcNetwork = FileSettings['rpc']['networks'][string];

/** Sections of upstream servers, each server with its proxy and certificates. */
export interface RoutedSections {
  readonly engines: Readonly<
    Record<string, Routed<FileSettings['engines'][string] & { readonly url: string }>>
  >;
  readonly rpc: Omit<FileSettings['rpc'], 'networks'> & {
    readonly networks: Readonly<
      Record<
        string,
        Omit<RpcNetwork, 'upstreams'> & {
          readonly upstreams: readonly Routed<RpcNetwork['upstreams'][number]>[];
        }
      >
    >;
  };
  readonly search: Proxied<NonNullable<FileSettings['search']>> | undefined;
}

/** The settings in force. */
export interface Config
  extends
    Readonly<Omit<FileSettings, 'database' | 'data' | 'priceFile' | keyof RoutedSections>>,
    RoutedSections {
  /** All plans with their limits, the default ones included. */
  readonly resolvedPlans: ResolvedPlans;
  /** `sqlite:<absolute file>` or `postgres://…`. */
  readonly databaseUrl: string;
  /** Absolute. */
  readonly dataFolder: string;
  readonly proxies: ProxySettings;
  readonly downloads: DownloadSettings;
  /** `PATH` of the environment, for programs such as ffmpeg. */
  readonly searchPath: string;
  /** `service.publicUrl`, or the address to listen on. No trailing slash. */
  readonly publicUrl: string;
}

/** A file that the configuration reads. */
export interface ConfigSource {
  /** Absolute. */
  readonly path: string;
  /** Digest of the text; `undefined` if there is no such file. */
  readonly digest: string | undefined;
}

export function sourceOf(path: string, text: string | undefined): ConfigSource {
  return { path, digest: text === undefined ? undefined : hash('sha256', text) };
}

export interface ConfigInputs {
  readonly env: Environment;
  readonly cwd: string;
  /** Returns the text of a file, or `undefined` if there is none. Default: reads the file system. */
  readonly readFile?: (path: string) => Promise<string | undefined>;
}

/** `current` changes while the server runs: read it for each use. */
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
  /** Changed sections that need a restart. */
  readonly restart: readonly string[];
}

/** Sections whose resolved value has another name. */
const DERIVED: Readonly<Record<string, string>> = { database: 'databaseUrl', data: 'dataFolder' };

/** Settings that are derived from sections that need a restart. */
const RESTART_SETTINGS = ['publicUrl', 'downloads'];

/** The next settings, with the current ones of the sections that need a restart. */
export function settingsInForce(current: Config, next: Config): Config {
  const sections = Object.entries(SECTIONS).flatMap(([name, { change }]) =>
    change === 'restart' ? (DERIVED[name] ?? name) : [],
  );
  // An optional section can be missing in one of them.
  const kept = [...sections, ...RESTART_SETTINGS].map((name) => [name, Reflect.get(current, name)]);
  return { ...next, ...Object.fromEntries(kept) };
}

export function diffConfig(before: Config, after: Config): ConfigDifference {
  const [old, current] = [new Map(Object.entries(before)), new Map(Object.entries(after))];
  // A changed `priceFile` shows as a change of `models`.
  const changed = Object.entries(SECTIONS).filter(([name]) => {
    const key = DERIVED[name] ?? name;
    return !isDeepStrictEqual(old.get(key), current.get(key));
  });
  const restart = changed.filter(([, section]) => section.change === 'restart');
  return { changed: changed.map(([name]) => name), restart: restart.map(([name]) => name) };
}
