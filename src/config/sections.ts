/**
 * The one table of the configuration: every top-level key, its schema, and whether a change needs
 * a restart. A new section is one line here.
 */
import { z } from 'zod';

import { ClusterSection, RetentionSection } from './cluster-section.ts';
import { DiscoverySection, EmbeddedSection, EnginesSection } from './engines-section.ts';
import { LimitsSection } from './limits-section.ts';
import { DefaultsSection, ModelsSection, PriceFileSection } from './models-section.ts';
import { MediaSection } from './media-section.ts';
import { LogSection, MetricsSection, TracingSection } from './observability-section.ts';
import {
  DatabaseSection,
  DataSection,
  HttpSection,
  ListenSection,
  ServiceSection,
} from './server-section.ts';

import { PaymentsSection } from './payments-section.ts';
import { RpcSection } from './rpc-section.ts';
import { VideoSection } from './video-model-section.ts';
import {
  ContentSection,
  DocumentsSection,
  FetchSection,
  PersonasSection,
  ScrapingSection,
  SearchSection,
  SocialSearchSection,
} from './web-section.ts';

interface Section {
  readonly schema: z.ZodType;
  /** `restart`: the running server keeps the old value until it is started again. */
  readonly change: 'live' | 'restart';
  /** One sentence for the reference page. */
  readonly about: string;
}

export const SECTIONS = {
  service: { schema: ServiceSection, change: 'restart', about: 'Who the server is.' },
  listen: { schema: ListenSection, change: 'restart', about: 'Where it listens.' },
  database: { schema: DatabaseSection, change: 'restart', about: 'The ledger database.' },
  cluster: { schema: ClusterSection, change: 'restart', about: 'Processes on one database.' },
  retention: { schema: RetentionSection, change: 'live', about: 'How long rows are kept.' },
  data: { schema: DataSection, change: 'restart', about: 'The data folder.' },
  http: { schema: HttpSection, change: 'restart', about: 'How HTTP is spoken.' },
  engines: { schema: EnginesSection, change: 'live', about: 'Engines that run models.' },
  discovery: { schema: DiscoverySection, change: 'live', about: 'Engines on local ports.' },
  embedded: { schema: EmbeddedSection, change: 'restart', about: 'Engines of our own.' },
  priceFile: { schema: PriceFileSection, change: 'live', about: 'Imported prices.' },
  defaults: { schema: DefaultsSection, change: 'live', about: 'Models that nobody configured.' },
  models: { schema: ModelsSection, change: 'live', about: 'The models on offer.' },
  limits: { schema: LimitsSection, change: 'live', about: 'Rate limits and credit rules.' },
  payments: { schema: PaymentsSection.prefault({}), change: 'restart', about: 'Wallet payments.' },
  rpc: { schema: RpcSection.prefault({}), change: 'restart', about: 'The JSON-RPC proxy.' },
  search: { schema: SearchSection.optional(), change: 'restart', about: 'Web search.' },
  scraping: {
    schema: ScrapingSection.prefault({}),
    change: 'restart',
    about: 'Reading web pages.',
  },
  socialSearch: {
    schema: SocialSearchSection.prefault({}),
    change: 'live',
    about: 'Searches that engines make by themselves.',
  },
  fetch: {
    schema: FetchSection.prefault({}),
    change: 'restart',
    about: 'Fetching what callers name by URL.',
  },
  content: {
    schema: ContentSection.prefault({}),
    change: 'restart',
    about: 'Media in chat requests.',
  },
  media: {
    schema: MediaSection,
    change: 'restart',
    about: 'Background removal, transcription and media decoding.',
  },
  video: { schema: VideoSection, change: 'restart', about: 'Video generation.' },
  documents: {
    schema: DocumentsSection.prefault({}),
    change: 'restart',
    about: 'Documents in chat requests.',
  },
  personas: {
    schema: PersonasSection.prefault({}),
    change: 'restart',
    about: 'Character personas.',
  },
  log: { schema: LogSection, change: 'live', about: 'The log.' },
  metrics: { schema: MetricsSection, change: 'live', about: 'Metrics.' },
  tracing: { schema: TracingSection, change: 'restart', about: 'Traces.' },
} as const satisfies Record<string, Section>;

export type SectionName = keyof typeof SECTIONS;

type Shape = { readonly [K in SectionName]: (typeof SECTIONS)[K]['schema'] };

/** The whole file. */
export function fileSchema(): z.ZodObject<Shape, z.core.$strict> {
  const entries = Object.entries(SECTIONS).map(([name, section]) => [name, section.schema]);
  // `fromEntries` forgets which schema stands under which name; the table keeps it.
  return z.strictObject(Object.fromEntries(entries) as Shape);
}

/** What the file says after defaults, before folders and addresses are worked out. */
export type FileSettings = z.infer<ReturnType<typeof fileSchema>>;
