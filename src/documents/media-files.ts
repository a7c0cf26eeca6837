/**
 * Stores untrusted media for one request: fetched through the guard, or decoded from a data URL,
 * into files that are deleted with the request. Sizes and times are limited; the type of a file is
 * detected from its first bytes.
 *
 * Bytes are counted before they are written, so that a full disk causes a clean rejection: bytes
 * being fetched, job inputs and job results, per caller and in total. Each process counts its own
 * fetches; the database counts the jobs of all processes.
 */
import { mkdtemp, open, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { CONTAINER_TYPES, inspectMedia } from '../engines/media/media.ts';
import { base64Pieces, decodeBase64 } from '../core/event-loop.ts';
import { Fault } from '../core/faults.ts';
import { isDataUrl } from './data-url.ts';
import type { Guard } from '../net/guard.ts';

export { MAX_IMAGE_PIXELS, imageSizeOf, requirePixels } from './image-size.ts';

export interface MediaFilesParts {
  readonly guard: Guard;
  /** A folder that lives as long as the process. */
  readonly folder: () => Promise<string>;
  readonly timeoutMs: number;
  /** Limits of all media on the disk, and of one caller's. */
  readonly maxBytes: number;
  readonly maxCallerBytes: number;
  readonly stored: (caller: string) => Promise<{ callerBytes: number; allBytes: number }>;
}

export interface MediaLimits {
  readonly maxBytes: number;
  /** Shorter than the configured limit, for anonymous requests. */
  readonly timeoutMs?: number;
  readonly signal: AbortSignal;
}

export interface MediaFile {
  readonly path: string;
  readonly sizeBytes: number;
}

const MAX_REDIRECTS = 5;
const RETRY_AFTER_SECONDS = 60;
/** A program that was just ended can still create a file. */
const DELETE_RETRIES = 3;
const COUNTED_AT_ONCE_BYTES = 16_000_000;
const DATA_HEAD = /^data:[^,]{0,200};base64,/i;
const DATA_HEAD_CHARACTERS = 256;

export class MediaFiles {
  readonly #parts: MediaFilesParts;
  /** Bytes being fetched, by account or address. */
  readonly #fetching = new Map<string, number>();
  #allFetching = 0;

  constructor(parts: MediaFilesParts) {
    this.#parts = parts;
  }

  /**
   * Runs `work` with a folder that is deleted afterwards. `caller` is the account id or IP address
   * whose storage limit the bytes count against.
   */
  async within<T>(caller: string, work: (workspace: MediaWorkspace) => Promise<T>): Promise<T> {
    const folder = await mkdtemp(join(await this.#parts.folder(), 'request-'));
    const workspace = new MediaWorkspace(this.#parts, folder, caller, this);
    try {
      return await work(workspace);
    } finally {
      workspace.free();
      await rm(folder, { recursive: true, force: true, maxRetries: DELETE_RETRIES });
    }
  }

  /** Reserves bytes of a caller before they are written. Faults: 429, 503. */
  async take(caller: string, bytes: number): Promise<void> {
    this.count(caller, bytes);
    try {
      const { maxBytes, maxCallerBytes, stored } = this.#parts;
      const { callerBytes, allBytes } = await stored(caller);
      // Concurrent requests may have reserved bytes during the query, so check the current totals.
      if (callerBytes + (this.#fetching.get(caller) ?? 0) > maxCallerBytes) {
        throw new Fault('RATE_LIMIT_EXCEEDED', {
          message: `Your media exceeds ${Math.floor(maxCallerBytes / 1_000_000)} MB on this server: wait for running requests, or complete finished videos`,
          retryAfterSeconds: RETRY_AFTER_SECONDS,
        });
      }
      if (allBytes + this.#allFetching > maxBytes) {
        throw new Fault('SERVICE_UNAVAILABLE', {
          message: 'The media storage of the server is full',
          retryAfterSeconds: RETRY_AFTER_SECONDS,
        });
      }
    } catch (error) {
      this.count(caller, -bytes);
      throw error;
    }
  }

  count(caller: string, bytes: number): void {
    this.#allFetching += bytes;
    const bytesOfCaller = (this.#fetching.get(caller) ?? 0) + bytes;
    if (bytesOfCaller === 0) this.#fetching.delete(caller);
    else this.#fetching.set(caller, bytesOfCaller);
  }
}

export class MediaWorkspace {
  readonly #parts: MediaFilesParts;
  readonly #folder: string;
  readonly #caller: string;
  readonly #files: MediaFiles;
  #paths = 0;
  #usedBytes = 0;
  #countedBytes = 0;

  constructor(parts: MediaFilesParts, folder: string, caller: string, files: MediaFiles) {
    this.#parts = parts;
    this.#folder = folder;
    this.#caller = caller;
    this.#files = files;
  }

  newPath(): string {
    this.#paths += 1;
    return join(this.#folder, String(this.#paths));
  }

  /** Reserves bytes before they are written. Faults: 429, 503. */
  async reserve(bytes: number): Promise<void> {
    this.#usedBytes += bytes;
    const missing = this.#usedBytes - this.#countedBytes;
    if (missing <= 0) return;
    const wanted = Math.max(missing, COUNTED_AT_ONCE_BYTES);
    await this.#files.take(this.#caller, wanted);
    this.#countedBytes += wanted;
  }

  free(): void {
    this.#files.count(this.#caller, -this.#countedBytes);
    this.#countedBytes = 0;
  }

  async write(bytes: Buffer): Promise<MediaFile> {
    await this.reserve(bytes.length);
    return await this.#writeFile(bytes);
  }

  /**
   * Writes the result of an engine, to check it. It counts, but is not rejected: the engine has done
   * its work, and as the result is in memory, its copy on the disk is bounded too.
   */
  async writeResult(bytes: Buffer): Promise<MediaFile> {
    this.#usedBytes += bytes.length;
    this.#countedBytes += bytes.length;
    this.#files.count(this.#caller, bytes.length);
    return await this.#writeFile(bytes);
  }

  async #writeFile(bytes: Buffer): Promise<MediaFile> {
    const path = this.newPath();
    await writeFile(path, bytes);
    return { path, sizeBytes: bytes.length };
  }

  /** Writes the content of a URL. Faults: those of guard and budget; 413; INVALID_REQUEST. */
  async fetch(url: string, limits: MediaLimits): Promise<MediaFile> {
    const path = this.newPath();
    const file = await open(path, 'w');
    try {
      const write = async (chunk: Buffer): Promise<void> => {
        await this.reserve(chunk.length);
        await file.writeFile(chunk);
      };
      if (isDataUrl(url)) return { path, sizeBytes: await writeDataUrl(url, limits, write) };
      const { guard, timeoutMs } = this.#parts;
      const options = { timeoutMs, maxRedirects: MAX_REDIRECTS, caller: this.#caller, ...limits };
      return { path, sizeBytes: (await guard.stream(url, write, options)).sizeBytes };
    } finally {
      await file.close();
    }
  }
}

async function writeDataUrl(
  url: string,
  { maxBytes }: MediaLimits,
  write: (chunk: Buffer) => Promise<void>,
): Promise<number> {
  const start = dataStart(url);
  if (start === undefined) {
    const message = 'A data URL of media must be base64: data:<type>;base64,<data>';
    throw new Fault('INVALID_REQUEST', { message });
  }
  let sizeBytes = 0;
  for await (const piece of base64Pieces(url, start)) {
    sizeBytes += piece.length;
    if (sizeBytes > maxBytes) {
      const message = `The media is larger than ${Math.floor(maxBytes / 1_000_000)} MB`;
      throw new Fault('PAYLOAD_TOO_LARGE', { message });
    }
    await write(piece);
  }
  return sizeBytes;
}

function dataStart(url: string): number | undefined {
  return DATA_HEAD.exec(url.slice(0, DATA_HEAD_CHARACTERS))?.[0].length;
}

/** The bytes of a base64 data URL; `undefined` for other URLs. */
export async function dataUrlBytes(url: string): Promise<Buffer | undefined> {
  const start = dataStart(url);
  return start === undefined ? undefined : await decodeBase64(url, start);
}

/** The media type by the first bytes. Faults: INVALID_VIDEO_FORMAT, CORRUPTED_IMAGE. */
export async function mediaTypeOf(path: string, want: 'av' | 'image'): Promise<string> {
  try {
    return CONTAINER_TYPES[(await inspectMedia(path, want)).format];
  } catch (error) {
    // The error code documented for images.
    if (want === 'image' && error instanceof Fault && error.code === 'INVALID_VIDEO_FORMAT') {
      throw new Fault('CORRUPTED_IMAGE', { message: error.message });
    }
    throw error;
  }
}
