/**
 * Calls the configured search provider. Its URL comes from the operator, and redirects are not
 * followed, so the key goes to that host only. A failure is an outcome: the completion can do
 * without a search.
 */
import { Agent } from 'undici';
import type { Config } from '../../config/config.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import { isJsonObject } from '../../json/json-scan.ts';
import { connectorOf } from '../../net/connector.ts';
import { cleanResults, type RawResult, type SearchResult } from './search-results.ts';

export type SearchSettings = NonNullable<Config['search']>;

export type SearchOutcome =
  | { readonly ok: true; readonly query: string; readonly results: readonly SearchResult[] }
  | { readonly ok: false; readonly reason: string; readonly cause?: string };

/** Brave rejects longer queries. */
const MAX_QUERY_CHARS = 400;
const MAX_QUERY_WORDS = 50;
const MAX_RESPONSE_BYTES = 4_000_000;
const MAX_CONNECTIONS = 16;

export class SearchClient {
  readonly #settings: SearchSettings;
  readonly #log: Log;
  readonly #agent: Agent;

  constructor(settings: SearchSettings, log: Log) {
    this.#settings = settings;
    this.#log = log;
    const { proxy, timeoutMs } = settings;
    this.#agent = new Agent({
      connections: MAX_CONNECTIONS,
      pipelining: 1,
      connect: connectorOf({ proxy }, timeoutMs, null),
      headersTimeout: timeoutMs,
      bodyTimeout: timeoutMs,
      maxResponseSize: MAX_RESPONSE_BYTES,
    });
  }

  async search(query: string, signal?: AbortSignal): Promise<SearchOutcome> {
    const words = shortenQuery(query);
    if (words === '') return { ok: false, reason: 'The query is empty' };
    const timeout = AbortSignal.timeout(this.#settings.timeoutMs);
    try {
      const whole = signal === undefined ? timeout : AbortSignal.any([timeout, signal]);
      const raw = await this.#ask(words, whole);
      const results = cleanResults(raw, this.#settings.maxResults);
      // A list without any valid result is a failure; an empty list is not.
      if (raw.length > 0 && results.length === 0) throw new Error('No result can be used');
      return { ok: true, query: words, results };
    } catch (error) {
      if (signal?.aborted === true) throw error;
      // The cause is only for the operator.
      const cause = reasonOf(error);
      this.#log.warn({ provider: this.#settings.provider, cause }, 'A search failed');
      return { ok: false, reason: 'The search provider did not respond', cause };
    }
  }

  async close(): Promise<void> {
    await this.#agent.destroy();
  }

  async #ask(query: string, signal: AbortSignal): Promise<readonly RawResult[]> {
    const { url, headers } = requestFor(this.#settings, query);
    const response = await this.#agent.request({
      origin: url.origin,
      path: `${url.pathname}${url.search}`,
      method: 'GET',
      headers: { accept: 'application/json', ...headers },
      signal,
    });
    const text = await response.body.text();
    if (response.statusCode !== 200) throw new Error(`Status ${response.statusCode}`);
    return readResponse(this.#settings.provider, JSON.parse(text));
  }
}

/** One line, limited in characters and words. */
export function shortenQuery(query: string): string {
  const words = query
    .slice(0, MAX_QUERY_CHARS * 8)
    .trim()
    .split(/\s+/);
  const line = words.slice(0, MAX_QUERY_WORDS).join(' ');
  if (line.length <= MAX_QUERY_CHARS) return line.toWellFormed();
  const cut = line.slice(0, MAX_QUERY_CHARS);
  return cut.slice(0, cut.lastIndexOf(' ') > 0 ? cut.lastIndexOf(' ') : undefined).toWellFormed();
}

function requestFor(settings: SearchSettings, query: string) {
  const base = settings.url.endsWith('/') ? settings.url : `${settings.url}/`;
  const { language, maxResults, safeSearch } = settings;
  if (settings.provider === 'brave') {
    const url = new URL('res/v1/web/search', base);
    url.searchParams.set('q', query);
    url.searchParams.set('count', String(maxResults));
    url.searchParams.set('safesearch', safeSearch);
    url.searchParams.set('result_filter', 'web');
    url.searchParams.set('text_decorations', 'false');
    if (language !== undefined) url.searchParams.set('search_lang', language.slice(0, 2));
    return { url, headers: { 'x-subscription-token': settings.apiKey } };
  }
  const url = new URL('search', base);
  url.searchParams.set('q', query);
  url.searchParams.set('format', 'json');
  url.searchParams.set('safesearch', String(['off', 'moderate', 'strict'].indexOf(safeSearch)));
  if (language !== undefined) url.searchParams.set('language', language);
  return { url, headers: {} };
}

function readResponse(provider: SearchSettings['provider'], answer: unknown): RawResult[] {
  const list =
    provider === 'brave' ? field(field(answer, 'web'), 'results') : field(answer, 'results');
  if (!Array.isArray(list)) {
    // Brave omits `web` if it found nothing; SearXNG always sends the list.
    if (provider === 'brave' && field(answer, 'type') === 'search') return [];
    throw new Error('The response has no results');
  }
  const [content, date] =
    provider === 'brave' ? ['description', 'page_age'] : ['content', 'publishedDate'];
  return list.map((item: unknown) => ({
    title: field(item, 'title'),
    url: field(item, 'url'),
    content: field(item, content),
    date: field(item, date),
  }));
}

function field(value: unknown, name: string): unknown {
  return isJsonObject(value) ? value[name] : undefined;
}
