/**
 * Reads the pages that a user message names: fetched through the guard, turned into Markdown by
 * the reader that app.ts hands in. A page that cannot be had is an outcome with a reason; only
 * pages that were read are billed.
 */
import { Fault } from '../../core/faults.ts';
import type { Guard } from '../../net/guard.ts';

export interface ScrapeSettings {
  readonly maxUrls: number;
  readonly maxBytes: number;
  readonly timeoutMs: number;
  readonly maxCharsPerPage: number;
}

export interface PageToRead {
  readonly url: string;
  readonly mediaType: string;
  readonly charset?: string;
  readonly bytes: Uint8Array;
  readonly limits: { readonly maxChars: number };
  readonly signal?: AbortSignal;
  readonly caller?: string;
}

export type ReadPage = (page: PageToRead) => Promise<
  | {
      readonly ok: true;
      readonly title?: string;
      readonly markdown: string;
      readonly truncated: boolean;
    }
  | { readonly ok: false; readonly reason: string }
>;

export type ScrapedPage =
  | {
      readonly ok: true;
      /** As the user wrote it. */
      readonly url: string;
      readonly title: string;
      readonly markdown: string;
      readonly truncated: boolean;
    }
  | { readonly ok: false; readonly url: string; readonly reason: string };

export interface ScrapeOptions {
  readonly signal?: AbortSignal;
  readonly caller?: string;
}

export interface ScrapeParts {
  readonly guard: Guard;
  readonly readPage: ReadPage;
  readonly settings: ScrapeSettings;
}

/** What a reader of documents can make text of. */
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

/** Reads all pages at once, in the given order; rejects only with the reason of an abort. */
export async function scrapePages(
  urls: readonly string[],
  parts: ScrapeParts,
  options: ScrapeOptions,
): Promise<ScrapedPage[]> {
  const wanted = urls.slice(0, parts.settings.maxUrls);
  return await Promise.all(wanted.map(async (url) => await scrapePage(url, parts, options)));
}

async function scrapePage(
  url: string,
  { guard, readPage, settings }: ScrapeParts,
  options: ScrapeOptions,
): Promise<ScrapedPage> {
  const { maxBytes, timeoutMs, maxCharsPerPage } = settings;
  const signal = options.signal === undefined ? {} : { signal: options.signal };
  const caller = options.caller === undefined ? {} : { caller: options.caller };
  try {
    const limits = { maxBytes, timeoutMs, maxRedirects: MAX_REDIRECTS, accept: READABLE };
    const fetched = await guard.fetch(url, { ...limits, ...signal });
    const page = await readPage({
      url: fetched.url,
      mediaType: fetched.mediaType,
      bytes: fetched.bytes,
      ...(fetched.charset === undefined ? {} : { charset: fetched.charset }),
      limits: { maxChars: maxCharsPerPage },
      ...signal,
      ...caller,
    });
    if (!page.ok) return { ok: false, url, reason: `It ${page.reason}` };
    const title = page.title ?? new URL(fetched.url).hostname;
    return { ok: true, url, title, markdown: page.markdown, truncated: page.truncated };
  } catch (error) {
    // A page that cannot be had does not end the chat; an abort and a bug do.
    if (error instanceof Fault) return { ok: false, url, reason: error.message };
    throw error;
  }
}
