/**
 * What makes a chat more than a relay, wired once: the guard of every fetch, documents, web,
 * media and personas. The chat, embeddings and characters are built on it.
 */
import type { LargeBodies } from './large-bodies.ts';
import { characterRoutes } from '../chat/characters/characters.ts';
import { embeddingsRoute } from '../embeddings/embeddings.ts';
import type { Config } from '../config/config.ts';
import { Documents, type MediaSettings } from '../documents/documents.ts';
import { type AdditionParts, type ChatParts, PaidFindings } from '../chat/chat.ts';
import { type Clock, isoTime, MINUTE_MS } from '../core/clock.ts';
import type { Log } from '../core/log.ts';
import { usdToNano } from '../core/money.ts';
import { Guard } from '../net/guard.ts';
import { openPersonas, type Personas } from '../chat/personas/personas.ts';
import { openWeb, type Web } from '../chat/web/web.ts';
import { perConfig } from '../config/per-config.ts';
import type { Feature } from '../http/feature.ts';

export interface Extras {
  readonly guard: Guard;
  readonly documents: Documents;
  readonly media: MediaSettings;
  readonly web: Web;
  readonly personas: Personas;
  /** Ends the workers and the connections to the search provider. */
  close(): Promise<void>;
}

/** Opens everything; rejects when the folder of personas cannot be read. */
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
  const web = openWeb({
    guard,
    log,
    readPage: (page) => documents.readPage(page),
    scraping: config.scraping,
    ...(config.search === undefined ? {} : { search: config.search }),
  });
  const media = { guard, ...config.content };
  // Every process reads its own folder: this is no job that one does for all.
  const stopReading =
    config.personas.folder === undefined
      ? undefined
      : clock.every(MINUTE_MS, () => void personas.reload());
  return {
    guard,
    documents,
    media,
    web,
    personas,
    close: async () => {
      stopReading?.();
      await Promise.all([web.close(), documents.close()]);
    },
  };
}

/** The routes that need nothing but these parts and those of the chat. */
export function extrasFeature(extras: Extras, chat: ChatParts, largeBodies: LargeBodies): Feature {
  const { tokenizer } = extras.documents;
  return {
    routes: [
      embeddingsRoute({ ...chat, tokenizer }, (body) => largeBodies.embeddings(body)),
      ...characterRoutes(extras.personas),
    ],
    close: () => extras.close(),
  };
}

/** What the chat flow takes of it; prices and engine settings follow a changed configuration. */
export function additionParts(extras: Extras, clock: Clock, config: () => Config): AdditionParts {
  const { personas, web, documents, media } = extras;
  return {
    personas,
    web,
    documents,
    media,
    findings: new PaidFindings(clock),
    clock,
    maxFileChars: config().documents.maxChars,
    prices: perConfig(config, pricesOf),
    fetchesMedia: (engineId) => config().engines[engineId]?.fetchesMedia ?? false,
    socialSearch: () => {
      const { maxResults } = config().socialSearch;
      const membersFor = (engineId: string) =>
        config().engines[engineId]?.socialSearch ?? xaiSearch(maxResults);
      return { maxResults, membersFor };
    },
  };
}

function pricesOf({ search, scraping, socialSearch }: Config) {
  return {
    searchNano: usdToNano(search?.usdPerSearch ?? '0'),
    pageNano: usdToNano(scraping.usdPerPage),
    socialNano: usdToNano(socialSearch.usdPerResult),
  };
}

/** xAI's own spelling, which other servers with such a search have taken over. */
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
