/**
 * Foreign media on its way into the server: fetched through the guard, or decoded from a data URL,
 * into files of one request that go away with it. Sizes and times are bounded; what is in a file is
 * nobody's word but that of its first bytes.
 */
import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { type ContainerFormat, inspectMedia } from '../engines/media/media.ts';
import { Fault } from '../kernel/faults.ts';
import type { Guard } from '../net/guard.ts';

export interface MediaFilesParts {
  readonly guard: Guard;
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

export class MediaFiles {
  readonly #parts: MediaFilesParts;

  constructor(parts: MediaFilesParts) {
    this.#parts = parts;
  }

  /** Runs `work` with a folder of its own, which is gone when it ends. */
  async within<T>(work: (bag: MediaBag) => Promise<T>): Promise<T> {
    const folder = await mkdtemp(join(await this.#parts.folder(), 'request-'));
    try {
      return await work(new MediaBag(this.#parts, folder));
    } finally {
      await rm(folder, { recursive: true, force: true });
    }
  }
}

/** The files of one request. */
export class MediaBag {
  readonly #parts: MediaFilesParts;
  readonly #folder: string;
  #count = 0;

  constructor(parts: MediaFilesParts, folder: string) {
    this.#parts = parts;
    this.#folder = folder;
  }

  /** A path that nobody has. */
  newPath(): string {
    this.#count += 1;
    return join(this.#folder, String(this.#count));
  }

  /** Writes what a URL gives. Faults: those of the guard; PAYLOAD_TOO_LARGE; INVALID_REQUEST. */
  async fetch(url: string, limits: MediaLimits): Promise<MediaFile> {
    const path = this.newPath();
    if (/^data:/i.test(url)) return await writeDataUrl(url, path, limits.maxBytes);
    const file = await open(path, 'w');
    try {
      const { sizeBytes } = await this.#parts.guard.stream(
        url,
        async (chunk) => void (await file.write(chunk)),
        {
          maxBytes: limits.maxBytes,
          timeoutMs: limits.timeoutMs ?? this.#parts.timeoutMs,
          maxRedirects: MAX_REDIRECTS,
          signal: limits.signal,
        },
      );
      return { path, sizeBytes };
    } finally {
      await file.close();
    }
  }
}

async function writeDataUrl(url: string, path: string, maxBytes: number): Promise<MediaFile> {
  const bytes = dataUrlBytes(url);
  if (bytes === undefined) {
    throw new Fault('INVALID_REQUEST', {
      message: 'A data URL of media must be base64: data:<type>;base64,<data>',
      canRetry: false,
    });
  }
  if (bytes.length > maxBytes) throw mediaTooLarge(maxBytes);
  await writeFile(path, bytes);
  return { path, sizeBytes: bytes.length };
}

/** The bytes of a base64 data URL; `undefined` for another kind. */
export function dataUrlBytes(url: string): Buffer | undefined {
  const head = /^data:[^,]{0,200};base64,/i.exec(url.slice(0, 256))?.[0];
  return head === undefined ? undefined : Buffer.from(url.slice(head.length), 'base64');
}

export function mediaTooLarge(maxBytes: number): Fault {
  return new Fault('PAYLOAD_TOO_LARGE', {
    message: `The media is larger than ${Math.floor(maxBytes / 1_000_000)} MB`,
    canRetry: false,
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
      throw new Fault('CORRUPTED_IMAGE', { message: error.message, canRetry: false });
    }
    throw error;
  }
}
