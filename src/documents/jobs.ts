/** Messages between the server and its worker processes. */

import type { PngFacts } from './read-png.ts';

/**
 * `reader` parses documents and pages, `image` checks generated images, `tokenizer` counts; each
 * loads its own libraries only.
 */
export type WorkerRole = 'reader' | 'image' | 'tokenizer';

export type Encoding = 'o200k' | 'cl100k';

export interface ExtractJob {
  readonly kind: 'extract';
  readonly filename: string;
  /** Declared by the sender; the bytes take precedence. */
  readonly mediaType: string;
  readonly maxChars: number;
  readonly maxPages: number;
}

export interface PageJob {
  readonly kind: 'page';
  readonly url: string;
  readonly charset?: string | undefined;
  readonly maxChars: number;
}

export interface PngJob {
  readonly kind: 'png';
}

/**
 * - `count`: the payload is the concatenated texts, of `sizes` UTF-8 bytes each
 * - `decode`: the payload is the token ids as unsigned 32-bit integers, little endian
 */
export type TokenJob =
  | { readonly kind: 'count'; readonly encoding: Encoding; readonly sizes: readonly number[] }
  | { readonly kind: 'decode'; readonly encoding: Encoding };

export type ReaderJob = ExtractJob | PageJob;
export type Job = ReaderJob | PngJob | TokenJob;

export interface JobHeader {
  readonly job: Job;
  readonly timeoutMs: number;
}

export interface Unreadable {
  readonly ok: false;
  /** The end of "… could not be read: it …". */
  readonly reason: string;
}

/** The text of a reply is its payload; undefined members are not sent. */
export type ReplyHeader =
  | {
      readonly ok: true;
      readonly title?: string | undefined;
      readonly truncated?: boolean;
      readonly counts?: readonly number[];
      readonly png?: PngFacts;
    }
  | Unreadable;

/** Message of a worker; `isSpent` if it uses too much memory for another job. */
export type SentHeader = ReplyHeader & { readonly isSpent?: boolean };

export interface Reply {
  readonly header: ReplyHeader;
  readonly payload: Uint8Array;
}

/** Runs one job in a worker process; rejects only because of a bug. */
export type RunJob = (job: Job, payload: Buffer) => Promise<Reply>;
