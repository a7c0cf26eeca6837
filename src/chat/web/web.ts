/** The public file of web access: searches by the configured provider and scrapes pages. */
import type { Config } from '../../config/config.ts';
import { Fault } from '../../core/faults.ts';
import type { Log } from '../../core/log.ts';
import type { Documents } from '../../documents/documents.ts';
import type { Guard } from '../../net/guard.ts';
import { findUrls } from './find-urls.ts';
import { pagesTextBytes, searchTextBytes, type ScrapedPage } from './prompts.ts';
import { SearchClient, type SearchOutcome, type SearchSettings } from './search.ts';

export {
  MAX_AUTO_SEARCHES,
  pagesPrompt,
  readSearchCall,
  type ScrapedPage,
  searchPrompt,
  searchToolMessage,
  webSearchTool,
} from './prompts.ts';
export { SearchClient, type SearchOutcome, type SearchSettings } from './search.ts';
export {
  withCited,
  documentsOf,
  type FoundDocument,
  type RawResult,
  type SearchResult,
} from './search-results.ts';

interface WebOptions {
  readonly guard: Guard;
  readonly documents: Pick<Documents, 'readPage'>;
  readonly log: Log;
  readonly search: SearchSettings | undefined;
  readonly scraping: Omit<Config['scraping'], 'usdPerPage'>;
}

interface ScrapeOptions {
  readonly signal?: AbortSignal;
  readonly caller?: string;
}

const READABLE = [
  'text/*',
  'application/xhtml+xml',
  'application/xml',
  'application/json',
  'application/pdf',
  'application/epub+zip',
  'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
  'application/vnd.openxmlformats-officedocument.presentationml.presentation',
  'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet',
];
const MAX_REDIRECTS = 5;

export class Web {
  readonly searchBytes: number;
  readonly #options: WebOptions;
  readonly #client: SearchClient | undefined;

  constructor(options: WebOptions) {
    const { search, log } = options;
    this.#options = options;
    this.#client = search && new SearchClient(search, log);
    this.searchBytes = searchTextBytes(search?.maxResults ?? 0);
  }

  get canSearch(): boolean {
    return this.#client !== undefined;
  }

  async search(query: string, signal?: AbortSignal): Promise<SearchOutcome> {
    const none = { ok: false, reason: 'This server offers no web search' } as const;
    return this.#client === undefined ? none : await this.#client.search(query, signal);
  }

  urlsIn(text: string): string[] {
    return findUrls(text, this.#options.scraping.maxUrls);
  }

  pagesBytes(count: number): number {
    return pagesTextBytes(count, this.#options.scraping.maxCharsPerPage);
  }

  /**
   * Reads all pages concurrently; the results are in the order of `urls`. Pages with `ok` are billed.
   * Rejects only with the reason of an abort.
   */
  scrape(urls: readonly string[], options: ScrapeOptions = {}): Promise<ScrapedPage[]> {
    const wanted = urls.slice(0, this.#options.scraping.maxUrls);
    return Promise.all(wanted.map((url) => this.#scrapePage(url, options)));
  }

  async #scrapePage(url: string, options: ScrapeOptions): Promise<ScrapedPage> {
    const { guard, documents, scraping } = this.#options;
    const { maxBytes, timeoutMs, maxCharsPerPage } = scraping;
    try {
      const limits = { maxBytes, timeoutMs, maxRedirects: MAX_REDIRECTS, accept: READABLE };
      const fetched = await guard.fetch(url, { ...limits, ...options });
      const page = await documents.readPage({
        url: fetched.url,
        mediaType: fetched.mediaType,
        bytes: fetched.bytes,
        ...(fetched.charset === undefined ? {} : { charset: fetched.charset }),
        limits: { maxChars: maxCharsPerPage },
        ...options,
      });
      if (!page.ok) return { ok: false, url, reason: `It ${page.reason}` };
      const title = page.title ?? new URL(fetched.url).hostname;
      return { ok: true, url, title, markdown: page.markdown, truncated: page.truncated };
    } catch (error) {
      // An unreadable page does not end the chat.
      if (error instanceof Fault) return { ok: false, url, reason: error.message };
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#client?.close();
  }
}
