/**
 * Images, audio, video and files in chat content: counted, measured and checked by their bytes,
 * fetched through the guard when they are remote. Nothing is decoded here. One `RequestMedia` serves
 * one request and bounds what all its fetches hold in memory together.
 */
import { Fault, type FaultCode, invalidField } from '../core/faults.ts';
import type { Guard } from '../net/guard.ts';
import { type DataUrl, fromBase64, parseDataUrl } from './data-url.ts';
import { type ImageSize, imageSize, SNIFF_BYTES, type SniffedMedia, sniffMedia } from './sniff.ts';

const IMAGE_TYPES = new Set([
  'image/png',
  'image/jpeg',
  'image/webp',
  'image/heic',
  'image/heif',
  'image/avif',
]);
const VIDEO_TYPES = new Set(['video/mp4', 'video/mpeg', 'video/quicktime', 'video/webm']);
const AUDIO_FORMATS = new Set([
  'wav',
  'mp3',
  'aiff',
  'aac',
  'ogg',
  'flac',
  'm4a',
  'pcm16',
  'pcm24',
]);
/** Raw samples and streams that no magic number marks. */
const UNMARKED_AUDIO = new Set(['pcm16', 'pcm24', 'aac', 'mp3', 'aiff']);

/** Decisions 7: at least 64 pixels a side, images and files of at most 25 MB. */
const MIN_IMAGE_SIDE_PX = 64;
const HEADER_STEPS_BYTES = [65_536, 1_048_576];

export interface MediaLoaderOptions {
  readonly guard: Guard;
  readonly timeoutMs?: number;
  readonly maxImageBytes?: number;
  readonly maxAudioBytes?: number;
  readonly maxVideoBytes?: number;
  readonly maxFileBytes?: number;
  /** Bound of everything that one request has fetched. */
  readonly maxRequestBytes?: number;
}

const DEFAULTS = {
  timeoutMs: 20_000,
  maxImageBytes: 25_000_000,
  maxAudioBytes: 25_000_000,
  maxVideoBytes: 50_000_000,
  maxFileBytes: 25_000_000,
  maxRequestBytes: 100_000_000,
} as const;

type Settings = Required<MediaLoaderOptions>;

export interface MediaContext {
  readonly signal?: AbortSignal;
  /** The engine fetches remote images and videos itself: the URL is checked and handed on. */
  readonly engineFetches?: boolean;
}

export interface LoadedImage {
  /** A data URL, or the caller's URL when the engine fetches. */
  readonly url: string;
  /** Absent for a URL that the engine fetches. */
  readonly mediaType?: string;
  readonly size?: ImageSize;
  readonly sizeBytes?: number;
}

export interface LoadedVideo {
  readonly url: string;
  readonly mediaType?: string;
  readonly sizeBytes?: number;
}

export interface LoadedAudio {
  /** Bare base64, as the wire has it. */
  readonly data: string;
  readonly format: string;
  readonly sizeBytes: number;
}

export interface LoadedFile {
  readonly filename: string;
  readonly mediaType: string;
  readonly bytes: Buffer;
}

/** The media of one request; `path` names the field in a refusal, as `['messages', '0', …]`. */
export interface RequestMedia {
  image(url: string, path: readonly string[]): Promise<LoadedImage>;
  video(url: string, path: readonly string[]): Promise<LoadedVideo>;
  audio(audio: { data: string; format?: string }, path: readonly string[]): LoadedAudio;
  file(
    file: { filename?: string; file_data: string },
    path: readonly string[],
  ): Promise<LoadedFile>;
}

export interface MediaLoader {
  forRequest(context: MediaContext): RequestMedia;
}

export function createMediaLoader(options: MediaLoaderOptions): MediaLoader {
  const settings: Settings = { ...DEFAULTS, ...options };
  return { forRequest: (context) => new LoadedMedia(settings, context) };
}

class LoadedMedia implements RequestMedia {
  readonly #settings: Settings;
  readonly #context: MediaContext;
  #heldBytes = 0;

  constructor(settings: Settings, context: MediaContext) {
    this.#settings = settings;
    this.#context = context;
  }

  async image(url: string, path: readonly string[]): Promise<LoadedImage> {
    if (await this.#isForEngine(url)) return { url };
    const { maxImageBytes } = this.#settings;
    const isRemote = !isDataUrl(url);
    const media = isRemote
      ? await this.#fetch(url, maxImageBytes, ['image/*'], 0)
      : readInline(url, maxImageBytes, path);
    const sniffed = sniffMedia(media.head(SNIFF_BYTES));
    if (sniffed === undefined || !IMAGE_TYPES.has(sniffed.mediaType)) {
      throw refused(
        'CORRUPTED_IMAGE',
        path,
        `must be PNG, JPEG, WebP, HEIF or AVIF${found(sniffed)}`,
      );
    }
    const size = measure(media);
    if (size === undefined)
      throw refused('CORRUPTED_IMAGE', path, 'has a header that cannot be read');
    if (Math.min(size.widthPx, size.heightPx) < MIN_IMAGE_SIDE_PX) {
      const sides = `${size.widthPx} x ${size.heightPx}`;
      throw refused(
        'IMAGE_TOO_SMALL',
        path,
        `is ${sides} pixels, each side must have ${MIN_IMAGE_SIDE_PX}`,
      );
    }
    const { mediaType } = sniffed;
    const isExact = !isRemote && media.mediaType === mediaType;
    const inline = isExact ? url : toDataUrl(mediaType, media.bytes());
    return { url: inline, mediaType, size, sizeBytes: media.sizeBytes };
  }

  async video(url: string, path: readonly string[]): Promise<LoadedVideo> {
    if (await this.#isForEngine(url)) return { url };
    const { maxVideoBytes } = this.#settings;
    const isRemote = !isDataUrl(url);
    const media = isRemote
      ? await this.#fetch(url, maxVideoBytes, ['video/*'])
      : readInline(url, maxVideoBytes, path);
    const sniffed = sniffMedia(media.head(SNIFF_BYTES));
    if (sniffed === undefined || !VIDEO_TYPES.has(sniffed.mediaType)) {
      throw refused(
        'INVALID_VIDEO_FORMAT',
        path,
        `must be MP4, MPEG, MOV or WebM${found(sniffed)}`,
      );
    }
    const { mediaType } = sniffed;
    const inline = isRemote ? toDataUrl(mediaType, media.bytes()) : url;
    return { url: inline, mediaType, sizeBytes: media.sizeBytes };
  }

  audio(audio: { data: string; format?: string }, path: readonly string[]): LoadedAudio {
    const format = (audio.format ?? 'wav').toLowerCase();
    if (!AUDIO_FORMATS.has(format)) {
      throw refused(
        'INVALID_AUDIO_FORMAT',
        path,
        `must have one of the formats ${[...AUDIO_FORMATS].join(', ')}`,
      );
    }
    if (/^https?:/i.test(audio.data.slice(0, 6))) {
      throw refused('INVALID_AUDIO_FORMAT', path, 'must be base64; a URL is not taken for audio');
    }
    // Some clients send a data URL although the field is bare base64.
    const data = isDataUrl(audio.data) ? audio.data.slice(audio.data.indexOf(',') + 1) : audio.data;
    const media = fromBase64('application/octet-stream', data);
    if (media === undefined || media.sizeBytes === 0) {
      throw refused('INVALID_AUDIO_FORMAT', path, 'must be base64 and not empty');
    }
    refuseLarge(media.sizeBytes, this.#settings.maxAudioBytes, path);
    const sniffed = sniffMedia(media.head(SNIFF_BYTES));
    if (
      sniffed?.kind !== 'audio' &&
      sniffed?.mediaType !== 'video/mp4' &&
      !UNMARKED_AUDIO.has(format)
    ) {
      throw refused('INVALID_AUDIO_FORMAT', path, `is not ${format}${found(sniffed)}`);
    }
    return { data, format, sizeBytes: media.sizeBytes };
  }

  async file(
    file: { filename?: string; file_data: string },
    path: readonly string[],
  ): Promise<LoadedFile> {
    const { maxFileBytes } = this.#settings;
    const media = isDataUrl(file.file_data)
      ? readInline(file.file_data, maxFileBytes, path)
      : await this.#fetch(file.file_data, maxFileBytes);
    const named = isDataUrl(file.file_data) ? '' : nameOf(file.file_data);
    const filename = file.filename ?? named;
    return { filename, mediaType: media.mediaType, bytes: media.bytes() };
  }

  async #isForEngine(url: string): Promise<boolean> {
    if (this.#context.engineFetches !== true || isDataUrl(url)) return false;
    await this.#settings.guard.check(url); // the engine must not be our way inside
    return true;
  }

  async #fetch(
    url: string,
    maxBytes: number,
    accept?: readonly string[],
    maxRedirects = 5,
  ): Promise<DataUrl> {
    const room = this.#settings.maxRequestBytes - this.#heldBytes;
    const { guard, timeoutMs } = this.#settings;
    if (room <= 0) throw tooMuchMedia(this.#settings);
    const { signal } = this.#context;
    const fetched = await guard.fetch(url, {
      maxBytes: Math.min(maxBytes, room),
      timeoutMs,
      maxRedirects,
      ...(accept === undefined ? {} : { accept }),
      ...(signal === undefined ? {} : { signal }),
    });
    const { bytes, mediaType } = fetched;
    this.#heldBytes += bytes.length;
    if (this.#heldBytes > this.#settings.maxRequestBytes) throw tooMuchMedia(this.#settings);
    return {
      mediaType,
      sizeBytes: bytes.length,
      head: (count) => bytes.subarray(0, count),
      bytes: () => bytes,
    };
  }
}

function readInline(url: string, maxBytes: number, path: readonly string[]): DataUrl {
  const media = parseDataUrl(url);
  if (media === undefined || media.sizeBytes === 0) {
    throw invalidField(path, 'Must be an http(s) URL, or a data URL with a media type and base64');
  }
  refuseLarge(media.sizeBytes, maxBytes, path);
  return media;
}

/** JPEG can hide its size behind a long profile, so a short head is tried first. */
function measure(media: DataUrl): ImageSize | undefined {
  for (const count of HEADER_STEPS_BYTES) {
    const size = imageSize(media.head(count));
    if (size !== undefined || count >= media.sizeBytes) return size;
  }
  return undefined;
}

function isDataUrl(text: string): boolean {
  return /^data:/i.test(text.slice(0, 5));
}

function toDataUrl(mediaType: string, bytes: Buffer): string {
  return `data:${mediaType};base64,${bytes.toString('base64')}`;
}

function nameOf(url: string): string {
  return URL.canParse(url) ? (new URL(url).pathname.split('/').at(-1) ?? '') : '';
}

function refuseLarge(sizeBytes: number, maxBytes: number, path: readonly string[]): void {
  if (sizeBytes <= maxBytes) return;
  const limit = `${Math.floor(maxBytes / 1_000_000)} MB`;
  throw refused('PAYLOAD_TOO_LARGE', path, `is larger than ${limit}`);
}

function tooMuchMedia({ maxRequestBytes }: Settings): Fault {
  const message = `The media of one request must stay below ${Math.floor(maxRequestBytes / 1_000_000)} MB together`;
  return new Fault('PAYLOAD_TOO_LARGE', { message });
}

function found(sniffed: SniffedMedia | undefined): string {
  return sniffed === undefined ? '' : `, this is ${sniffed.mediaType}`;
}

function refused(code: FaultCode, path: readonly string[], problem: string): Fault {
  return new Fault(code, { message: `\`${path.join('.')}\` ${problem}`, canRetry: false });
}
