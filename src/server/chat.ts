/** Composes chat, models, embeddings, reranking, moderation and personas. */
import type { LargeBodies } from './large-bodies.ts';
import type { HttpServer } from '../http/http.ts';
import type { ReadLargeJson } from '../http/read-request.ts';
import {
  type AdditionParts,
  type CacheScope,
  type ChatParts,
  ChunkLayouts,
  LearnedDialects,
  LearnedTemplates,
  PaidResults,
  planAdditions,
  responsesRoutes,
  type Sealer,
  StoredTurns,
  UnpricedTokens,
} from '../chat/chat.ts';
import { chatCompletionsRoute } from '../chat/chat-completions/chat-completions.ts';
import { completionsRoute } from '../chat/completions/completions.ts';
import { messagesRoutes } from '../chat/messages/messages.ts';
import { characterRoutes, openPersonas, type Personas } from '../chat/personas/personas.ts';
import { Web } from '../chat/web/web.ts';
import { engineDialect } from '../chat/wire/engine-dialect.ts';
import type { Config, ConfigInForce } from '../config/config.ts';
import { type Clock, isoTime, MINUTE_MS } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { usdToNano } from '../core/money.ts';
import { Documents, type MediaSettings } from '../documents/documents.ts';
import { LearnedReplicas } from '../engines/learned-replicas.ts';
import { embeddingsRoute } from '../embeddings/embeddings.ts';
import { moderationsRoute } from '../moderations/moderations.ts';
import { rerankRoutes } from '../rerank/rerank.ts';
import { ResponseHeaders } from '../http/response-headers.ts';
import type { Feature } from '../http/route.ts';
import { modelRoutes } from '../models/models.ts';
import { Guard } from '../net/guard.ts';
import type { FeatureParts } from './feature-parts.ts';
import { perConfig } from './sale-parts.ts';

export interface Extras {
  readonly guard: Guard;
  readonly documents: Documents;
  readonly media: MediaSettings;
  readonly web: Web;
  readonly personas: Personas;
  close(): Promise<void>;
}

export interface ChatExtras extends Extras {
  readonly sealer: Sealer;
  readonly cacheScope: CacheScope;
  readonly server: Pick<HttpServer, 'bodyMemory'>;
}

/** Rejects if the folder of personas cannot be read. */
export async function openExtras(config: Config, clock: Clock, log: Log): Promise<Extras> {
  const { allow, ports, userAgent } = config.fetch;
  const guard = new Guard({ allow, ports, ...(userAgent === undefined ? {} : { userAgent }) });
  const personas = await openPersonas({
    list: config.personas.list,
    folder: config.personas.folder,
    log,
    startedAt: isoTime(clock.nowMs()),
  });
  const documents = new Documents({ clock, log, ...config.documents });
  const { search, scraping } = config;
  const web = new Web({ guard, log, documents, search, scraping });
  // Every process reads its own folder, so this is not a job of the leader.
  const stopReading =
    config.personas.folder === undefined
      ? undefined
      : clock.every(MINUTE_MS, () => void personas.reload());
  return {
    guard,
    documents,
    media: { guard, ...contentBounds(config) },
    web,
    personas,
    close: async () => {
      stopReading?.();
      await Promise.all([web.close(), documents.close()]);
    },
  };
}

/** Limits of images and files are at most the limit of an uploaded file. */
function contentBounds({ content, http: { fileLimitBytes } }: Config): Config['content'] {
  const maxImageBytes = Math.min(content.maxImageBytes, fileLimitBytes);
  const maxFileBytes = Math.min(content.maxFileBytes, fileLimitBytes);
  return { ...content, maxImageBytes, maxFileBytes };
}

export function chatFeature(
  shared: FeatureParts,
  extras: ChatExtras,
  largeBodies: LargeBodies,
): Feature {
  const chat = chatParts(shared, extras);
  const { tokenizer } = extras.documents;
  const { clock, config, stores } = shared;
  const keepHours = (): number => config.current.responses.keepHours;
  const turns = new StoredTurns({ store: stores.store, clock, keepHours });
  const readLarge: ReadLargeJson = (body, caller) => largeBodies.json(body, caller);
  return {
    routes: [
      chatCompletionsRoute(chat, (body, caller, options) =>
        largeBodies.chat(body, caller, options),
      ),
      completionsRoute(chat, readLarge),
      ...responsesRoutes({ chat, turns, readLarge }),
      ...messagesRoutes(chat, readLarge),
      ...modelRoutes(chat.catalog),
      embeddingsRoute(
        { ...chat, tokenizer, plainReplicas: new LearnedReplicas() },
        (body, caller) => largeBodies.embeddings(body, caller),
      ),
      ...rerankRoutes({ ...chat, readLargeJson: readLarge, textReplicas: new LearnedReplicas() }),
      moderationsRoute({ ...chat, readLargeJson: readLarge }),
      ...characterRoutes(extras.personas),
    ],
    leaderJob: () => turns.prune(),
    close: () => extras.close(),
  };
}

function chatParts(shared: FeatureParts, extras: ChatExtras): ChatParts {
  const { config, catalog, engines, sales, rateOf, clock, ids, log } = shared;
  const additions = additionParts(extras, clock, config);
  const dialects = perConfig(
    config,
    ({ engines: configured }) =>
      new Map(Object.entries(configured).map(([id, engine]) => [id, engineDialect(engine)])),
  );
  const serviceName = config.current.service.name;
  return {
    catalog,
    engines,
    sales,
    clock,
    ids,
    log,
    headers: new ResponseHeaders({ serviceName, clock }),
    serviceName,
    systemPrompt: perConfig(config, ({ service }) => service.systemPrompt ?? ''),
    rateOf,
    dialects: new LearnedDialects(dialects, clock, log),
    layouts: new ChunkLayouts(),
    templates: new LearnedTemplates(log),
    unpriced: new UnpricedTokens(log),
    searchPromptTokens: () => config.current.socialSearch.maxPromptTokens,
    sealer: extras.sealer,
    cacheScope: extras.cacheScope,
    canSearch: extras.web.canSearch,
    planAdditions: (inputs) => planAdditions(additions, inputs),
    bodyMemory: extras.server.bodyMemory,
  };
}

/** Prices and engine settings follow a changed configuration. */
function additionParts(extras: Extras, clock: Clock, config: ConfigInForce): AdditionParts {
  const { personas, web, documents, media } = extras;
  return {
    personas,
    web,
    documents,
    media,
    paidResults: new PaidResults(clock),
    clock,
    maxFileChars: config.current.documents.maxChars,
    prices: perConfig(config, ({ search, scraping, socialSearch }) => ({
      searchNano: usdToNano(search?.usdPerSearch ?? '0'),
      pageNano: usdToNano(scraping.usdPerPage),
      socialNano: usdToNano(socialSearch.usdPerResult),
    })),
    fetchesMedia: (engineId) => config.current.engines[engineId]?.fetchesMedia ?? false,
    socialSearch: () => {
      const { maxResults } = config.current.socialSearch;
      const membersFor = (engineId: string) =>
        config.current.engines[engineId]?.socialSearch ?? xaiSearch(maxResults);
      return { maxResults, membersFor };
    },
  };
}

/** The request members of xAI, which other servers with such a search also use. */
function xaiSearch(maxResults: number) {
  return {
    search_parameters: {
      mode: 'on',
      return_citations: true,
      max_search_results: maxResults,
      sources: [{ type: 'web' }, { type: 'x' }],
    },
  };
}
