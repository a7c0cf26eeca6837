/**
 * The public file of documents: files and pages to text, pictures of engines to facts, exact token counts.
 * Everything that parses runs in worker processes with bounds of time and memory; a file that cannot be read is an outcome
 * with a reason, which becomes a note in the prompt, never an error.
 */
import type { Clock } from '../core/clock.ts';
import { delimitUntrusted, singleLineLabel } from '../core/untrusted-text.ts';
import type { Log } from '../core/log.ts';
import type { Job } from './jobs.ts';
import type { PngFacts } from './read-png.ts';
import { createTokenizer, type Tokenizer } from './tokenizer.ts';
import { WorkerPool, type WorkerPoolOptions } from './worker-pool.ts';

export type { Encoding, TokenCounts, TokenIds, Tokenizer, TokenText } from './tokenizer.ts';
export {
  createMediaLoader,
  type LoadedAudio,
  type LoadedFile,
  type LoadedImage,
  type LoadedVideo,
  type MediaContext,
  type MediaLoader,
  type MediaLoaderOptions,
  type RequestMedia,
} from './media.ts';
export { type DataUrl, parseDataUrl } from './data-url.ts';
export type { AlphaShares, PngFacts } from './read-png.ts';
export { imageSize, type ImageSize, type SniffedMedia, sniffMedia } from './sniff.ts';

export interface DocumentsOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Processes that read at the same time; started when needed, ended when idle. */
  readonly workers?: number;
  readonly memoryMb?: number;
  readonly timeoutMs?: number;
  readonly maxChars?: number;
  readonly maxPages?: number;
}

export interface ExtractLimits {
  readonly maxChars?: number;
  readonly maxPages?: number;
  readonly timeoutMs?: number;
}

export interface ExtractRequest {
  readonly filename: string;
  /** What the sender claims; the bytes decide. */
  readonly mediaType: string;
  readonly bytes: Uint8Array;
  readonly limits?: ExtractLimits;
  readonly signal?: AbortSignal;
  /** An account or address: jobs of one caller do not crowd out those of others. */
  readonly caller?: string;
}

export type Extraction =
  | {
      readonly ok: true;
      readonly text: string;
      /** Pages, slides, sheets or chapters, where the format has them. */
      readonly pages?: number;
      readonly truncated: boolean;
    }
  | {
      readonly ok: false;
      /** The end of "… could not be read: it …". */
      readonly reason: string;
    };

export interface PageRequest {
  /** Where the page came from, for its relative links. */
  readonly url: string;
  readonly mediaType: string;
  readonly charset?: string;
  readonly bytes: Uint8Array;
  readonly limits?: ExtractLimits;
  readonly signal?: AbortSignal;
  readonly caller?: string;
}

export type PageText =
  | {
      readonly ok: true;
      readonly title?: string;
      readonly markdown: string;
      readonly truncated: boolean;
    }
  | { readonly ok: false; readonly reason: string };

export interface PngRequest {
  readonly bytes: Uint8Array;
  readonly signal?: AbortSignal;
  readonly caller?: string;
}

export type PngReading =
  | { readonly ok: true; readonly png: PngFacts }
  | { readonly ok: false; readonly reason: string };

export interface Documents {
  /** The text of a file. Throws `SERVICE_UNAVAILABLE` when too many wait, and the abort's reason. */
  extract(request: ExtractRequest): Promise<Extraction>;
  /** The readable part of a fetched page as Markdown; other media types go through `extract`. */
  readPage(request: PageRequest): Promise<PageText>;
  /** What a PNG shows, or why it is none. Throws as `extract` does. */
  readPng(request: PngRequest): Promise<PngReading>;
  readonly tokenizer: Tokenizer;
  /** Ends every worker process. */
  close(): Promise<void>;
}

/** Own bounds, each settable: 500,000 characters are about 125,000 tokens. */
export const DOCUMENT_DEFAULTS = {
  workers: 2,
  memoryMb: 768,
  timeoutMs: 20_000,
  maxChars: 500_000,
  maxPages: 1_000,
} as const;

export function openDocuments(options: DocumentsOptions): Documents {
  const settings = { ...DOCUMENT_DEFAULTS, ...options };
  const { clock, log, memoryMb } = settings;
  const base: Omit<WorkerPoolOptions, 'role' | 'size'> = { clock, log, memoryMb };
  const readers = new WorkerPool({ ...base, role: 'reader', size: settings.workers });
  const counters = new WorkerPool({ ...base, role: 'tokenizer', size: 1 });

  async function run(
    job: Job,
    request: ExtractRequest | PageRequest,
  ): Promise<Extraction & { title?: string }> {
    const timeoutMs = request.limits?.timeoutMs ?? settings.timeoutMs;
    const { bytes, signal, caller } = request;
    const outcome = await readers.run(job, bytes, { timeoutMs, signal, caller });
    if (!outcome.ok) return { ok: false, reason: reasonFor(outcome.reason, timeoutMs) };
    const { header, payload } = outcome.reply;
    if (!header.ok) return { ok: false, reason: header.reason };
    return {
      ok: true,
      text: payload.toString(),
      truncated: header.truncated ?? false,
      ...(header.pages === undefined ? {} : { pages: header.pages }),
      ...(header.title === undefined ? {} : { title: header.title }),
    };
  }

  const extract = async (request: ExtractRequest): Promise<Extraction> => {
    const { filename, mediaType, limits } = request;
    const maxChars = limits?.maxChars ?? settings.maxChars;
    const maxPages = limits?.maxPages ?? settings.maxPages;
    return await run({ kind: 'extract', filename, mediaType, maxChars, maxPages }, request);
  };

  return {
    extract,
    async readPage(request) {
      const { url, charset, mediaType } = request;
      const isHtml = mediaType === '' || /^(?:text\/html|application\/xhtml\+xml)$/.test(mediaType);
      const maxChars = request.limits?.maxChars ?? settings.maxChars;
      const job: Job = {
        kind: 'page',
        url,
        maxChars,
        ...(charset === undefined ? {} : { charset }),
      };
      const result = isHtml
        ? await run(job, request)
        : await run(extractJob(request, settings, maxChars), request);
      if (!result.ok) return result;
      const { text, truncated, title } = result;
      return { ok: true, markdown: text, truncated, ...(title === undefined ? {} : { title }) };
    },
    async readPng({ bytes, signal, caller }) {
      const { timeoutMs } = settings;
      const outcome = await readers.run({ kind: 'png' }, bytes, { timeoutMs, signal, caller });
      if (!outcome.ok) return { ok: false, reason: reasonFor(outcome.reason, timeoutMs) };
      const { header } = outcome.reply;
      if (!header.ok) return { ok: false, reason: header.reason };
      if (header.png === undefined) throw new Error('A picture was read without facts');
      return { ok: true, png: header.png };
    },
    tokenizer: createTokenizer(counters),
    async close() {
      await Promise.all([readers.close(), counters.close()]);
    },
  };
}

function extractJob(request: PageRequest, settings: { maxPages: number }, maxChars: number): Job {
  const filename = new URL(request.url).pathname.split('/').at(-1) ?? '';
  const maxPages = request.limits?.maxPages ?? settings.maxPages;
  return { kind: 'extract', filename, mediaType: request.mediaType, maxChars, maxPages };
}

function reasonFor(reason: 'timeout' | 'crash', timeoutMs: number): string {
  return reason === 'timeout'
    ? `took longer than ${Math.ceil(timeoutMs / 1000)} seconds to read`
    : 'needs more memory than the limit, or is damaged';
}

/** What stands in the prompt in place of a file: its delimited text, or a note why there is none. */
export function fileText(filename: string, extraction: Extraction): string {
  const name = singleLineLabel(filename) || 'unnamed';
  if (!extraction.ok) return `[The file "${name}" could not be read: it ${extraction.reason}]`;
  const note = extraction.truncated ? '\n[The rest of the file was left out: it is too long]' : '';
  return `${delimitUntrusted(extraction.text, `file "${name}"`)}${note}`;
}
