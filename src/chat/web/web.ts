/**
 * The public file of the web: searching through the configured provider, reading pages that a message
 * names, and what the model and the caller get to see of both. It holds no money and no chat.
 */
import type { Log } from '../../core/log.ts';
import type { Guard } from '../../net/guard.ts';
import { findUrls } from './find-urls.ts';
import {
  type ReadPage,
  type ScrapedPage,
  type ScrapeOptions,
  scrapePages,
  type ScrapeSettings,
} from './scrape.ts';
import { pagesTextBytes, searchTextBytes } from './prompts.ts';
import { SearchClient, type SearchOutcome, type SearchSettings } from './search.ts';

export { findUrls } from './find-urls.ts';
export {
  MAX_AUTO_SEARCHES,
  pagesPrompt,
  readSearchCall,
  searchPrompt,
  type SearchPromptOptions,
  searchToolMessage,
  type ToolMessage,
  webSearchTool,
  type WebSearchTool,
} from './prompts.ts';
export type { PageToRead, ReadPage, ScrapedPage, ScrapeOptions, ScrapeSettings } from './scrape.ts';
export { type SearchOutcome, type SearchSettings, shortenQuery } from './search.ts';
export { documentsOf, type FoundDocument, type SearchResult } from './search-results.ts';

export interface WebOptions {
  readonly guard: Guard;
  readonly readPage: ReadPage;
  readonly log: Log;
  /** Absent: this server offers no search. */
  readonly search?: SearchSettings;
  readonly scraping?: Partial<ScrapeSettings>;
}

export interface Web {
  readonly canSearch: boolean;
  /** Searches the web; a failure is an outcome, an abort rejects with its reason. */
  search(query: string, options?: { readonly signal?: AbortSignal }): Promise<SearchOutcome>;
  /** The addresses of a user message that would be scraped, at most the configured number. */
  urlsIn(text: string): string[];
  /** The most UTF-8 bytes that one search, or `count` pages, put into a prompt. */
  readonly searchBytes: number;
  pagesBytes(count: number): number;
  /** Reads pages; those with `ok` are the billed ones. */
  scrape(urls: readonly string[], options?: ScrapeOptions): Promise<ScrapedPage[]>;
  close(): Promise<void>;
}

/** Issue 7: up to 5 URLs of a user message; the rest are own bounds. */
const SCRAPING: ScrapeSettings = {
  maxUrls: 5,
  maxBytes: 10_000_000,
  timeoutMs: 15_000,
  maxCharsPerPage: 40_000,
};

export function openWeb({ guard, readPage, log, search, scraping }: WebOptions): Web {
  const settings = { ...SCRAPING, ...scraping };
  const client = search === undefined ? undefined : new SearchClient(search, log);
  return {
    canSearch: client !== undefined,
    async search(query, options = {}) {
      if (client === undefined) return { ok: false, reason: 'This server offers no web search' };
      return await client.search(query, options.signal);
    },
    searchBytes: searchTextBytes(search?.maxResults ?? 0),
    pagesBytes: (count) => pagesTextBytes(count, settings.maxCharsPerPage),
    urlsIn: (text) => findUrls(text, settings.maxUrls),
    scrape: async (urls, options = {}) =>
      await scrapePages(urls, { guard, readPage, settings }, options),
    close: async () => await client?.close(),
  };
}
