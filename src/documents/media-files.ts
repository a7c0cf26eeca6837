/**
 * Foreign media on its way into the server: fetched through the guard, or decoded from a data URL,
 * into files of one request that go away with it. Sizes and times are bounded, and bytes are counted
 * against the budget of their caller before they are written; what is in a file is nobody's word but
 * that of its first bytes.
 */
import { mkdtemp, open, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type ContainerFormat, inspectMedia } from '../engines/media/media.ts';
import { base64Pieces, decodeBase64 } from '../core/event-loop.ts';
import { Fault } from '../core/faults.ts';
import type { Guard } from '../net/guard.ts';
import type { MediaBudget } from './media-budget.ts';

export interface MediaFilesParts {
  readonly guard: Guard;
  readonly budget: MediaBudget;
  /** A folder that lives as long as the process. */
  readonly folder: () => Promise<string>;
  /** Of one fetch. */
  readonly timeoutMs: number;
}

export interface MediaLimits {
  readonly maxBytes: number;
  /** Shorter than that of the configuration, where nobody has paid yet. */
  readonly timeoutMs?: number;
  readonly signal: AbortSignal;
}

export interface MediaFile {
  readonly path: string;
  readonly sizeBytes: number;
}

const MAX_REDIRECTS = 5;
/** The budget is asked once for so much. */
const COUNTED_AT_ONCE_BYTES = 16_000_000;
const DATA_HEAD = /^data:[^,]{0,200};base64,/i;
const DATA_HEAD_CHARACTERS = 256;

export class MediaFiles {
  readonly #parts: MediaFilesParts;

  constructor(parts: MediaFilesParts) {
    this.#parts = parts;
  }

  /**
   * Runs `work` with a folder of its own, which is gone when it ends. `holder` is the account or
   * address whose media it is.
   */
  async within<T>(holder: string, work: (bag: MediaBag) => Promise<T>): Promise<T> {
    const folder = await mkdtemp(join(await this.#parts.folder(), 'request-'));
    const bag = new MediaBag(this.#parts, folder, holder);
    try {
      return await work(bag);
    } finally {
      await rm(folder, { recursive: true, force: true });
      bag.free();
    }
  }
}

/** The files of one request. */
export class MediaBag {
  readonly #parts: MediaFilesParts;
  readonly #folder: string;
  readonly #holder: string;
  #count = 0;
  #usedBytes = 0;
  #countedBytes = 0;

  constructor(parts: MediaFilesParts, folder: string, holder: string) {
    this.#parts = parts;
    this.#folder = folder;
    this.#holder = holder;
  }

  /** A path that nobody has. */
  newPath(): string {
    this.#count += 1;
    return join(this.#folder, String(this.#count));
  }

  /** Counts bytes that will be written. Faults: 429, 503. */
  async reserve(bytes: number): Promise<void> {
    this.#usedBytes += bytes;
    const missing = this.#usedBytes - this.#countedBytes;
    if (missing <= 0) return;
    const wanted = Math.max(missing, COUNTED_AT_ONCE_BYTES);
    await this.#parts.budget.take(this.#holder, wanted);
    this.#countedBytes += wanted;
  }

  /** Gives back what was counted. */
  free(): void {
    this.#parts.budget.free(this.#holder, this.#countedBytes);
    this.#countedBytes = 0;
  }

  /** Writes what a URL gives. Faults: those of the guard and the budget; 413; INVALID_REQUEST. */
  async fetch(url: string, limits: MediaLimits): Promise<MediaFile> {
    const path = this.newPath();
    const file = await open(path, 'w');
    try {
      const write = async (chunk: Buffer): Promise<void> => {
        await this.reserve(chunk.length);
        await file.writeFile(chunk);
      };
      const sizeBytes = /^data:/i.test(url)
        ? await writeDataUrl(url, limits.maxBytes, write)
        : (await this.#parts.guard.stream(url, write, this.#fetchOptions(limits))).sizeBytes;
      return { path, sizeBytes };
    } finally {
      await file.close();
    }
  }

  #fetchOptions({ maxBytes, timeoutMs, signal }: MediaLimits) {
    const usualMs = this.#parts.timeoutMs;
    return { maxBytes, timeoutMs: timeoutMs ?? usualMs, maxRedirects: MAX_REDIRECTS, signal };
  }
}

async function writeDataUrl(
  url: string,
  maxBytes: number,
  write: (chunk: Buffer) => Promise<void>,
): Promise<number> {
  const start = dataStart(url);
  if (start === undefined) {
    throw new Fault('INVALID_REQUEST', {
      message: 'A data URL of media must be base64: data:<type>;base64,<data>',
    });
  }
  let sizeBytes = 0;
  for await (const piece of base64Pieces(url, start)) {
    sizeBytes += piece.length;
    if (sizeBytes > maxBytes) throw mediaTooLarge(maxBytes);
    await write(piece);
  }
  return sizeBytes;
}

function dataStart(url: string): number | undefined {
  return DATA_HEAD.exec(url.slice(0, DATA_HEAD_CHARACTERS))?.[0].length;
}

/** The bytes of a base64 data URL; `undefined` for another kind. */
export async function dataUrlBytes(url: string): Promise<Buffer | undefined> {
  const start = dataStart(url);
  return start === undefined ? undefined : await decodeBase64(url, start);
}

export function mediaTooLarge(maxBytes: number): Fault {
  return new Fault('PAYLOAD_TOO_LARGE', {
    message: `The media is larger than ${Math.floor(maxBytes / 1_000_000)} MB`,
  });
}

const MIME_TYPES: Readonly<Record<ContainerFormat, string>> = {
  mov: 'video/mp4',
  matroska: 'video/webm',
  avi: 'video/x-msvideo',
  wav: 'audio/wav',
  ogg: 'audio/ogg',
  flac: 'audio/flac',
  aac: 'audio/aac',
  mp3: 'audio/mpeg',
  flv: 'video/x-flv',
  mpegts: 'video/mp2t',
  mpeg: 'video/mpeg',
  amr: 'audio/amr',
  aiff: 'audio/aiff',
  asf: 'video/x-ms-wmv',
  jpeg_pipe: 'image/jpeg',
  png_pipe: 'image/png',
  webp_pipe: 'image/webp',
};

/** The media type by the first bytes. Faults: INVALID_VIDEO_FORMAT, CORRUPTED_IMAGE. */
export async function mediaTypeOf(path: string, want: 'av' | 'image'): Promise<string> {
  try {
    return MIME_TYPES[(await inspectMedia(path, want)).format];
  } catch (error) {
    // The same finding under the code that callers know for images.
    if (want === 'image' && error instanceof Fault && error.code === 'INVALID_VIDEO_FORMAT') {
      throw new Fault('CORRUPTED_IMAGE', { message: error.message });
    }
    throw error;
  }
}
