/** What the server asks of a worker process and what comes back: both ends import these shapes. */

import type { PngFacts } from './read-png.ts';

/** `reader` parses documents and pages, `tokenizer` counts; each loads only its own libraries. */
export type WorkerRole = 'reader' | 'tokenizer';

export type Encoding = 'o200k' | 'cl100k';

export interface ExtractJob {
  readonly kind: 'extract';
  readonly filename: string;
  /** What the sender claims; the bytes decide. */
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
 * - `count`: the payload is the texts one after another, of `sizes` UTF-8 bytes
 * - `decode`: the payload is the ids as unsigned 32-bit integers, little endian
 */
export type TokenJob =
  | { readonly kind: 'count'; readonly encoding: Encoding; readonly sizes: readonly number[] }
  | { readonly kind: 'decode'; readonly encoding: Encoding };

export type ReaderJob = ExtractJob | PageJob | PngJob;
export type Job = ReaderJob | TokenJob;

/** What arrives on the pipe: the job and the number of milliseconds it may take. */
export interface JobHeader {
  readonly job: Job;
  readonly timeoutMs: number;
}

export interface Unreadable {
  readonly ok: false;
  /** The end of "… could not be read: it …". */
  readonly reason: string;
}

/** The text of a reply is its payload; what is undefined does not pass the pipe. */
export type ReplyHeader =
  | {
      readonly ok: true;
      readonly title?: string | undefined;
      readonly truncated?: boolean;
      readonly counts?: readonly number[];
      readonly png?: PngFacts;
    }
  | Unreadable;

/** What a process sends: `isSpent` when it keeps too much memory for another job. */
export type SentHeader = ReplyHeader & { readonly isSpent?: boolean };

export interface Reply {
  readonly header: ReplyHeader;
  readonly payload: Uint8Array;
}

/** Runs one job in a worker process; rejects only for bugs of ours. */
export type RunJob = (job: Job, payload: Buffer) => Promise<Reply>;
