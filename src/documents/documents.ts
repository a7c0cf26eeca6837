/**
 * The public file of documents: converts files and pages to text, reads properties of generated
 * images, counts tokens exactly. All parsing runs in worker processes with limits of time and
 * memory. A file that cannot be read is a result with a reason, which becomes a note in the prompt,
 * not an error.
 */
import type { Config } from '../config/config.ts';
import type { Clock } from '../core/clock.ts';
import { delimitUntrusted, singleLineLabel } from '../core/untrusted-text.ts';
import type { Log } from '../core/log.ts';
import type { PngJob, ReaderJob, ReplyHeader, Unreadable } from './jobs.ts';
import type { PngFacts } from './read-png.ts';
import { Tokenizer } from './tokenizer.ts';
import { type RunOptions, WorkerPool } from './worker-pool.ts';
import { WorkerStarter } from './worker-starter.ts';

export { type MediaSettings, RequestMedia, requireModestImage } from './request-media.ts';
export type { AlphaShares, PngFacts } from './read-png.ts';
export type { Tokenizer } from './tokenizer.ts';

type DocumentsOptions = Config['documents'] & { readonly clock: Clock; readonly log: Log };

/** `caller` is an account or address, for fair queueing. */
interface ReadRequest extends Pick<RunOptions, 'signal' | 'caller'> {
  readonly bytes: Uint8Array;
  readonly limits?: Partial<Pick<DocumentsOptions, 'maxChars' | 'maxPages' | 'timeoutMs'>>;
}

export interface ExtractRequest extends ReadRequest {
  readonly filename: string;
  /** Declared by the sender; the bytes take precedence. */
  readonly mediaType: string;
}

export interface PageRequest extends ReadRequest {
  readonly url: string;
  readonly mediaType: string;
  readonly charset?: string;
}

export type Extraction =
  | {
      readonly ok: true;
      readonly text: string;
      readonly truncated: boolean;
    }
  | Unreadable;

export type PageText =
  | {
      readonly ok: true;
      readonly title?: string;
      readonly markdown: string;
      readonly truncated: boolean;
    }
  | Unreadable;

export type PngReading = { readonly ok: true; readonly png: PngFacts } | Unreadable;

export class Documents {
  readonly #settings: DocumentsOptions;
  readonly #starter = new WorkerStarter();
  readonly #readers: WorkerPool;
  readonly #images: WorkerPool;
  readonly #counters: WorkerPool;
  readonly tokenizer: Tokenizer;

  constructor(options: DocumentsOptions) {
    this.#settings = options;
    const { clock, log, memoryMb, workers } = options;
    const shared = { clock, log, memoryMb, starter: this.#starter };
    this.#readers = new WorkerPool({ ...shared, role: 'reader', size: workers });
    this.#images = new WorkerPool({ ...shared, role: 'image', size: workers });
    this.#counters = new WorkerPool({ ...shared, role: 'tokenizer', size: 1 });
    this.tokenizer = new Tokenizer(this.#counters);
  }

  /** The text of a file. Throws `SERVICE_UNAVAILABLE` for a full queue, and the abort reason. */
  async extract(request: ExtractRequest): Promise<Extraction> {
    const { filename, mediaType, limits } = request;
    const { maxChars, maxPages } = { ...this.#settings, ...limits };
    const job = { kind: 'extract', filename, mediaType, maxChars, maxPages } as const;
    const read = await this.#read(this.#readers, job, request);
    if (!read.ok) return read;
    const { text, truncated = false } = read;
    return { ok: true, text, truncated };
  }

  /** The readable part of a fetched page as Markdown; other media types are passed to `extract`. */
  async readPage(request: PageRequest): Promise<PageText> {
    const { url, charset, mediaType, limits } = request;
    const { maxChars, maxPages } = { ...this.#settings, ...limits };
    const isHtml = mediaType === '' || /^(?:text\/html|application\/xhtml\+xml)$/.test(mediaType);
    const filename = new URL(url).pathname.split('/').at(-1) ?? '';
    const job: ReaderJob = isHtml
      ? { kind: 'page', url, maxChars, charset }
      : { kind: 'extract', filename, mediaType, maxChars, maxPages };
    const read = await this.#read(this.#readers, job, request);
    if (!read.ok) return read;
    const { text: markdown, title, truncated = false } = read;
    return { ok: true, markdown, truncated, ...(title !== undefined && { title }) };
  }

  /** The properties of a PNG, or why it is invalid. Throws as `extract` does. */
  async readPng(request: ReadRequest): Promise<PngReading> {
    const read = await this.#read(this.#images, { kind: 'png' }, request);
    if (!read.ok) return read;
    if (read.png === undefined) throw new Error('A PNG was read without properties');
    return { ok: true, png: read.png };
  }

  async close(): Promise<void> {
    await Promise.all([this.#readers, this.#images, this.#counters].map((pool) => pool.close()));
    await this.#starter.close();
  }

  async #read(
    pool: WorkerPool,
    job: ReaderJob | PngJob,
    { bytes, signal, caller, limits }: ReadRequest,
  ): Promise<(ReplyHeader & { ok: true; text: string }) | Unreadable> {
    const { timeoutMs } = { ...this.#settings, ...limits };
    const outcome = await pool.run(job, bytes, { timeoutMs, signal, caller });
    if (!outcome.ok) {
      const reason =
        outcome.reason === 'timeout'
          ? `took longer than ${Math.ceil(timeoutMs / 1000)} seconds to read`
          : 'needs more memory than the limit, or is damaged';
      return { ok: false, reason };
    }
    const { header, payload } = outcome.reply;
    return header.ok ? { ...header, text: payload.toString() } : header;
  }
}

/** The text for the prompt: the delimited content of the file, or a note why it cannot be read. */
export function fileText(filename: string, extraction: Extraction): string {
  const name = singleLineLabel(filename) || 'unnamed';
  if (!extraction.ok) return `[The file "${name}" could not be read: it ${extraction.reason}]`;
  const note = extraction.truncated ? '\n[The rest of the file was omitted: it is too long]' : '';
  return `${delimitUntrusted(extraction.text, `file "${name}"`)}${note}`;
}
