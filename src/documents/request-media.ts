/**
 * Images, audio, video and files in chat content: counts, measures and validates them by their
 * bytes, and fetches remote ones through the guard. Nothing is decoded here. One `RequestMedia`
 * serves one request and limits the memory of all its fetches.
 */
import type { Config } from '../config/config.ts';
import { Fault, type FaultCode, invalidField } from '../core/faults.ts';
import { type ImageSize, imageSize, SNIFF_BYTES, sniffMedia } from '../core/media-type.ts';
import type { Guard } from '../net/guard.ts';
import { type DataUrl, fromBase64, fromBytes, isDataUrl, parseDataUrl } from './data-url.ts';

const IMAGE_TYPES = new Set(
  ['png', 'jpeg', 'webp', 'heic', 'heif', 'avif'].map((name) => `image/${name}`),
);
const VIDEO_TYPES = new Set(['mp4', 'mpeg', 'quicktime', 'webm'].map((name) => `video/${name}`));
const AUDIO_FORMATS = ['wav', 'mp3', 'aiff', 'aac', 'ogg', 'flac', 'm4a', 'pcm16', 'pcm24'];
/** Raw samples and streams without a magic number. */
const UNMARKED_AUDIO = new Set(['pcm16', 'pcm24', 'aac', 'mp3', 'aiff']);

/** Limits of the API: at least 64 pixels per side, files of at most 25 MB. */
const MIN_IMAGE_SIDE_PX = 64;
/** More than any camera; a file of kilobytes can decompress to gigabytes in an engine. */
const MAX_IMAGE_PIXELS = 120_000_000;
const HEADER_STEPS_BYTES = [65_536, 1_048_576];
const MAX_REDIRECTS = 5;

export type MediaSettings = Config['content'] & { readonly guard: Guard };

export interface MediaContext {
  readonly signal?: AbortSignal;
  readonly caller?: string;
  /** Counts all fetched bytes until the request ends; returns a fault if there is no memory. */
  readonly reserve?: (totalBytes: number) => Fault | undefined;
  /** The engine fetches remote images and videos itself; the URL is only checked. */
  readonly engineFetches?: boolean;
}

/** The media of one request; `path` is the field in error messages, as `['messages', '0', …]`. */
export class RequestMedia {
  readonly #settings: MediaSettings;
  readonly #context: MediaContext;
  #loadedBytes = 0;

  constructor(settings: MediaSettings, context: MediaContext) {
    this.#settings = settings;
    this.#context = context;
  }

  /** Returns a data URL, or the caller's URL if the engine fetches it. */
  async image(url: string, path: readonly string[]): Promise<string> {
    if (await this.#isForEngine(url)) return url;
    const media = await this.#load(url, this.#settings.maxImageBytes, path, ['image/*', 0]);
    const mediaType = typeOf(media, IMAGE_TYPES, (found) =>
      rejection('CORRUPTED_IMAGE', path, `must be PNG, JPEG, WebP, HEIF or AVIF${found}`),
    );
    const size = measure(media);
    if (size === undefined) {
      throw rejection('CORRUPTED_IMAGE', path, 'has a header that cannot be read');
    }
    const { width, height } = size;
    if (Math.min(width, height) < MIN_IMAGE_SIDE_PX) {
      const problem = `is ${width} x ${height} pixels, each side must have ${MIN_IMAGE_SIDE_PX}`;
      throw rejection('IMAGE_TOO_SMALL', path, problem);
    }
    requireModestSize(size, path);
    const isExact = isDataUrl(url) && media.mediaType === mediaType;
    return isExact ? url : toDataUrl(mediaType, media.bytes());
  }

  async video(url: string, path: readonly string[]): Promise<string> {
    if (await this.#isForEngine(url)) return url;
    const media = await this.#load(url, this.#settings.maxVideoBytes, path, ['video/*']);
    const mediaType = typeOf(media, VIDEO_TYPES, (found) =>
      rejection('INVALID_VIDEO_FORMAT', path, `must be MP4, MPEG, MOV or WebM${found}`),
    );
    return isDataUrl(url) ? url : toDataUrl(mediaType, media.bytes());
  }

  /** Returns bare base64, as the API expects it. */
  audio(
    audio: { data: string; format?: string },
    path: readonly string[],
  ): { data: string; format: string } {
    const reject = (problem: string): Fault => rejection('INVALID_AUDIO_FORMAT', path, problem);
    const format = (audio.format ?? 'wav').toLowerCase();
    if (!AUDIO_FORMATS.includes(format)) {
      throw reject(`must have one of the formats ${AUDIO_FORMATS.join(', ')}`);
    }
    if (/^https?:/i.test(audio.data.slice(0, 6))) {
      throw reject('must be base64, not a URL');
    }
    // Some clients send a data URL although the field is bare base64.
    const data = isDataUrl(audio.data) ? audio.data.slice(audio.data.indexOf(',') + 1) : audio.data;
    const media = fromBase64('application/octet-stream', data);
    if (media === undefined || media.sizeBytes === 0) {
      throw reject('must be base64, and must not be empty');
    }
    requireBytes(media.sizeBytes, this.#settings.maxAudioBytes, path);
    const sniffed = sniffMedia(media.head(SNIFF_BYTES));
    const isMarked = sniffed?.startsWith('audio/') === true || sniffed === 'video/mp4';
    if (!isMarked && !UNMARKED_AUDIO.has(format)) throw reject(`is not ${format}${found(sniffed)}`);
    return { data, format };
  }

  async file(
    { filename, file_data: url }: { filename?: string; file_data: string },
    path: readonly string[],
  ): Promise<{ filename: string; mediaType: string; bytes: Buffer }> {
    const media = await this.#load(url, this.#settings.maxFileBytes, path);
    const named = isDataUrl(url) ? '' : (URL.parse(url)?.pathname.split('/').at(-1) ?? '');
    return { filename: filename ?? named, mediaType: media.mediaType, bytes: media.bytes() };
  }

  async #isForEngine(url: string): Promise<boolean> {
    if (this.#context.engineFetches !== true || isDataUrl(url)) return false;
    await this.#settings.guard.check(url); // prevents requests to internal addresses through the engine
    return true;
  }

  async #load(
    url: string,
    maxBytes: number,
    path: readonly string[],
    [accept, maxRedirects = MAX_REDIRECTS]: readonly [accept?: string, maxRedirects?: number] = [],
  ): Promise<DataUrl> {
    if (isDataUrl(url)) return readInline(url, maxBytes, path);
    const { guard, timeoutMs, maxRequestBytes } = this.#settings;
    const leftBytes = maxRequestBytes - this.#loadedBytes;
    if (leftBytes <= 0) throw tooMuchMedia(maxRequestBytes);
    const { signal, caller } = this.#context;
    const { bytes, mediaType } = await guard.fetch(url, {
      maxBytes: Math.min(maxBytes, leftBytes),
      timeoutMs,
      maxRedirects,
      ...(accept !== undefined && { accept: [accept] }),
      ...(signal && { signal }),
      ...(caller !== undefined && { caller }),
    });
    this.#loadedBytes += bytes.length;
    if (this.#loadedBytes > maxRequestBytes) throw tooMuchMedia(maxRequestBytes);
    const refusal = this.#context.reserve?.(this.#loadedBytes);
    if (refusal !== undefined) throw refusal;
    return fromBytes(mediaType, bytes);
  }
}

/** Throws 422 for a data URL of an image with too many pixels; engines check the rest. */
export function requireModestImage(url: string, path: readonly string[]): void {
  const media = parseDataUrl(url);
  const size = media && measure(media);
  if (size !== undefined) requireModestSize(size, path);
}

function requireModestSize({ width, height }: ImageSize, path: readonly string[]): void {
  if (width * height <= MAX_IMAGE_PIXELS) return;
  const problem = `is ${width} x ${height} pixels, more than the maximum of ${MAX_IMAGE_PIXELS}`;
  throw rejection('IMAGE_TOO_LARGE', path, problem);
}

function readInline(url: string, maxBytes: number, path: readonly string[]): DataUrl {
  const media = parseDataUrl(url);
  if (media === undefined || media.sizeBytes === 0) {
    throw invalidField(path, 'Must be an http(s) URL, or a data URL with a media type and base64');
  }
  requireBytes(media.sizeBytes, maxBytes, path);
  return media;
}

function typeOf(
  media: DataUrl,
  types: ReadonlySet<string>,
  reject: (found: string) => Fault,
): string {
  const sniffed = sniffMedia(media.head(SNIFF_BYTES));
  if (sniffed !== undefined && types.has(sniffed)) return sniffed;
  throw reject(found(sniffed));
}

/** Tries a short prefix first; in a JPEG the size may follow a long profile. */
function measure(media: DataUrl): ImageSize | undefined {
  for (const count of HEADER_STEPS_BYTES) {
    const size = imageSize(media.head(count));
    if (size !== undefined || count >= media.sizeBytes) return size;
  }
  return undefined;
}

function toDataUrl(mediaType: string, bytes: Buffer): string {
  return `data:${mediaType};base64,${bytes.toString('base64')}`;
}

function requireBytes(sizeBytes: number, maxBytes: number, path: readonly string[]): void {
  if (sizeBytes <= maxBytes) return;
  const limit = `${Math.floor(maxBytes / 1_000_000)} MB`;
  throw rejection('PAYLOAD_TOO_LARGE', path, `is larger than ${limit}`);
}

function tooMuchMedia(maxRequestBytes: number): Fault {
  const message = `The media of one request must have at most ${Math.floor(maxRequestBytes / 1_000_000)} MB in total`;
  return new Fault('PAYLOAD_TOO_LARGE', { message });
}

function found(sniffed: string | undefined): string {
  return sniffed === undefined ? '' : `, this is ${sniffed}`;
}

function rejection(code: FaultCode, path: readonly string[], problem: string): Fault {
  return new Fault(code, { message: `\`${path.join('.')}\` ${problem}`, canRetry: false });
}
