/**
 * Search results of any provider: bounded, without markup, with http(s) URLs only. Also the form in
 * which callers receive them.
 */

export interface SearchResult {
  readonly title: string;
  readonly url: string;
  readonly content: string;
  readonly date?: string;
}

/** A result as the provider sent it, unvalidated. */
export interface RawResult {
  readonly title: unknown;
  readonly url: unknown;
  readonly content: unknown;
  readonly date?: unknown;
}

const MAX_TITLE_CHARS = 300;
const MAX_URL_CHARS = 2_048;
const MAX_CONTENT_CHARS = 2_000;

/** Maximum UTF-8 bytes of a result; a UTF-16 unit takes at most three. */
export const RESULT_BYTES = 3 * (MAX_TITLE_CHARS + MAX_URL_CHARS + MAX_CONTENT_CHARS);

/** The citations of a response, with those of the engine after them. */
export function withCited(
  citations: readonly SearchResult[],
  cited: readonly RawResult[],
): SearchResult[] {
  return cleanResults([...citations, ...cited], Infinity);
}

/** The first `maxResults` valid results, each URL once. */
export function cleanResults(raw: readonly RawResult[], maxResults: number): SearchResult[] {
  const results: SearchResult[] = [];
  const seen = new Set<string>();
  for (const item of raw) {
    if (results.length >= maxResults) break;
    const url = typeof item.url === 'string' ? item.url.trim() : '';
    if (!isWebUrl(url) || seen.has(url)) continue;
    seen.add(url);
    const title = plainText(item.title, MAX_TITLE_CHARS) || new URL(url).hostname;
    const date = dayOf(item.date);
    const content = plainText(item.content, MAX_CONTENT_CHARS);
    results.push({ title, url, content, ...(date === undefined ? {} : { date }) });
  }
  return results;
}

export interface FoundDocument {
  readonly id: string;
  readonly title: string;
  readonly url: string;
  readonly snippet: string;
  readonly published_at: string | null;
}

/** The documents of `return_search_results_as_documents`; ids equal citation numbers. */
export function documentsOf(results: readonly SearchResult[]): FoundDocument[] {
  return results.map(({ title, url, content, date }, index) => ({
    id: String(index),
    title,
    url,
    snippet: content,
    published_at: date ?? null,
  }));
}

function isWebUrl(url: string): boolean {
  return url.length <= MAX_URL_CHARS && /^https?:$/.test(URL.parse(url)?.protocol ?? '');
}

const ENTITIES: Readonly<Record<string, string>> = {
  amp: '&',
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  nbsp: ' ',
};

function plainText(value: unknown, maxChars: number): string {
  if (typeof value !== 'string') return '';
  const text = value
    .slice(0, maxChars * 4)
    .replace(/<\/?[a-z][^<>]{0,200}>/gi, '')
    .replace(/&(?:#(\d{1,6})|#x([\da-f]{1,5})|(amp|lt|gt|quot|apos|nbsp));/gi, decode)
    .replace(/[\s\p{Cc}]+/gu, ' ')
    .trim();
  return text.slice(0, maxChars).toWellFormed();
}

function decode(_whole: string, decimal?: string, hex?: string, name?: string): string {
  if (name !== undefined) return ENTITIES[name.toLowerCase()] ?? '';
  const code = hex === undefined ? Number(decimal) : Number.parseInt(hex, 16);
  return code >= 32 && code <= 0x10ffff ? String.fromCodePoint(code) : ' ';
}

function dayOf(value: unknown): string | undefined {
  const day = typeof value === 'string' ? /^\d{4}-\d{2}-\d{2}/.exec(value)?.[0] : undefined;
  return day !== undefined && !Number.isNaN(Date.parse(day)) ? day : undefined;
}
