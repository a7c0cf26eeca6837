/** What the server asks of a worker process and what comes back: both ends import these shapes. */

import type { PngFacts } from './read-png.ts';

/** `reader` parses documents and pages, `tokenizer` counts; each loads only its own libraries. */
export type WorkerRole = 'reader' | 'tokenizer';

export type Encoding = 'o200k' | 'cl100k';

export interface ExtractJob {
  readonly kind: 'extract';
  readonly filename: string;
  readonly mediaType: string;
  readonly maxChars: number;
  readonly maxPages: number;
}

export interface PageJob {
  readonly kind: 'page';
  readonly url: string;
  readonly charset?: string;
  readonly maxChars: number;
}

/** The payload is the picture. */
export interface PngJob {
  readonly kind: 'png';
}

/** The payload is the texts one after another; `sizes` are their lengths in UTF-8 bytes. */
export interface CountJob {
  readonly kind: 'count';
  readonly encoding: Encoding;
  readonly sizes: readonly number[];
}

export interface EncodeJob {
  readonly kind: 'encode';
  readonly encoding: Encoding;
}

/** The payload is the ids as unsigned 32-bit integers, little endian. */
export interface DecodeJob {
  readonly kind: 'decode';
  readonly encoding: Encoding;
}

export type Job = ExtractJob | PageJob | PngJob | CountJob | EncodeJob | DecodeJob;

/** What arrives on the pipe: the job and the number of milliseconds it may take. */
export interface JobHeader {
  readonly job: Job;
  readonly timeoutMs: number;
}

/** The text or the ids of a reply are its payload. */
export type ReplyHeader =
  | {
      readonly ok: true;
      readonly pages?: number;
      readonly title?: string;
      readonly truncated?: boolean;
      readonly counts?: readonly number[];
      readonly png?: PngFacts;
    }
  | { readonly ok: false; readonly reason: string };

export interface Reply {
  readonly header: ReplyHeader;
  readonly payload: Uint8Array;
}

/** Runs one job in a worker process; rejects only for bugs of ours. */
export type RunJob = (job: Job, payload: Buffer) => Promise<Reply>;
