/**
 * Requests images from an engine, and validates each image of the response. A field that an engine
 * rejects is omitted in a second request.
 */
import type { Outcome } from '../billing/sale.ts';
import type { Clock } from '../core/clock.ts';
import { decodeBase64, nextTurn, sha256InTurns } from '../core/event-loop.ts';
import { Fault } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import type { Documents } from '../documents/documents.ts';
import { dataUrlBytes, type MediaFiles } from '../documents/media-files.ts';
import type { Media } from '../engines/media/media.ts';
import { failedCall } from '../engines/engine-refusal.ts';
import type { EngineCall, EngineHead, Engines, Replica } from '../engines/engines.ts';
import { type LearnedFields, OmittedFields, type Rejects } from '../engines/learned-fields.ts';
import { type ReadLargeJson, readEngineJson } from '../http/read-request.ts';
import type { Guard } from '../net/guard.ts';
import type { FailedWork, ServedBy, HeldWork, SellingParts } from '../http/sell-work.ts';
import { isJsonObject, type JsonObject } from '../json/json-scan.ts';
import { type PricedImages, billImages } from './image-bill.ts';
import { type ImageJob, endOfJob, imageJobIn } from './image-job.ts';
import {
  type ImageFormat,
  type GeneratedImage,
  type Validation,
  validImage,
} from './made-image.ts';

export interface MakeImagesParts extends SellingParts {
  readonly engines: Engines;
  readonly documents: Documents;
  readonly files: MediaFiles;
  readonly media: () => Promise<Media>;
  readonly clock: Clock;
  readonly log: Log;
  readonly readLargeJson: ReadLargeJson;
  readonly learned: LearnedFields;
  readonly guard: Guard;
  readonly fetchTimeoutMs: number;
}

export interface ImageOrder extends PricedImages {
  readonly model: string | undefined;
  readonly format: ImageFormat | undefined;
  readonly asUrls: boolean;
  /** Requested by the caller; `auto` lets the engine choose. */
  readonly background: string;
  readonly stream: boolean;
  /** Number of partial images per image in a stream. */
  readonly partialImages: number;
  readonly work: 'image' | 'image_edit';
  readonly path: '/images/generations' | '/images/edits';
  readonly contentType: string;
  /** Fetches inputs given by URL, after the hold is placed. */
  readonly fetch?: (signal: AbortSignal) => Promise<void>;
  readonly body: (
    model: string,
    form: ImageForm,
  ) => ReturnType<NonNullable<EngineCall['buildBody']>>;
  /** Prefix of the event names of a stream. */
  readonly event: 'image_generation' | 'image_edit';
}

/** Base64 length of an image of the maximum size that does not compress. */
export const MAX_IMAGE_BASE64 = 64 * 1024 * 1024;
const MAX_REDIRECTS = 5;
const MAX_RESPONSE_BYTES = 256 * 1024 * 1024;
const MIN_RESPONSE_BYTES = 1024 * 1024;
/** A large image takes minutes on a small machine. */
const TIME_LIMITS = { firstByteMs: 600_000, totalMs: 1_200_000 };

export interface ImageForm {
  readonly isPlain: boolean;
  /** Number of partial images in a streaming request; 0 for a non-streaming request. */
  readonly partialImages: number;
}

/** Fields that only determine how an engine sends the images. */
const OPTIONAL: readonly (readonly [string, Rejects])[] = [
  ['response_format', (text) => text.search(/response_format/i)],
  ['stream', (text) => text.search(/\bstream\b|partial_images/i)],
];

export function omittedFields({ learned }: MakeImagesParts, { context }: HeldWork): OmittedFields {
  return new OmittedFields(learned, context.caller.accountId, OPTIONAL);
}

export function imagesCall(
  omitted: OmittedFields,
  { count, partialImages, path, contentType, body }: ImageOrder,
  { model, context, signal }: HeldWork,
): EngineCall {
  const images = count * (1 + partialImages);
  return {
    work: 'images',
    replicas: model.replicas,
    method: 'POST',
    path,
    contentType,
    buildBody: (replica, refusal) => {
      if (refusal !== undefined && !omitted.add(replica, refusal)) return undefined;
      return body(replica.model, {
        isPlain: omitted.has(replica, 'response_format'),
        partialImages: omitted.has(replica, 'stream') ? 0 : partialImages,
      });
    },
    canAmend: true,
    isOptionalPath: true,
    caller: context.caller.accountId,
    tries: context,
    signal,
    maxResponseBytes: Math.min(MAX_RESPONSE_BYTES, MIN_RESPONSE_BYTES + images * MAX_IMAGE_BASE64),
    timeLimits: TIME_LIMITS,
  };
}

export interface GeneratedImages {
  readonly images: readonly (GeneratedImage & {
    readonly revisedPrompt: string | undefined;
    readonly sha256: string;
  })[];
  readonly quality: string | undefined;
  readonly background: string | undefined;
  readonly usage: JsonObject | undefined;
}

export interface ImageReading extends Validation {
  readonly readLargeJson: ReadLargeJson;
  readonly guard: Guard;
  readonly fetchTimeoutMs: number;
}

export async function readGenerated(
  body: Buffer,
  order: ImageOrder,
  reading: ImageReading,
): Promise<GeneratedImages | string> {
  const response = await readEngineJson(body, reading.caller, reading.readLargeJson);
  const data = isJsonObject(response) ? response['data'] : undefined;
  if (!isJsonObject(response) || !Array.isArray(data)) return 'The response has no list "data"';
  return await validateImages(data, response, order, reading);
}

export async function validateImages(
  data: readonly unknown[],
  facts: JsonObject,
  { count, format }: ImageOrder,
  reading: ImageReading,
): Promise<GeneratedImages | string> {
  const images: GeneratedImages['images'][number][] = [];
  // Images beyond the requested number are neither billed nor checked.
  for (const one of data.slice(0, count)) {
    const bytes = isJsonObject(one) ? await bytesOf(one, reading) : undefined;
    if (bytes === undefined) return 'An image is not in "b64_json" or "url"';
    if (typeof bytes === 'string') return bytes;
    const image = await validImage(bytes, reading);
    if (image === undefined) return 'An image cannot be read';
    if (format !== undefined && image.format !== format) {
      return `An image is ${image.format}, not ${format}`;
    }
    const revised: unknown = isJsonObject(one) ? one['revised_prompt'] : undefined;
    images.push({
      ...image,
      revisedPrompt: typeof revised === 'string' ? revised : undefined,
      sha256: await sha256InTurns(bytes),
    });
    await nextTurn();
  }
  if (images.length === 0) return 'The response has no image';
  const { quality, background, usage } = facts;
  return {
    images,
    quality: typeof quality === 'string' ? quality : undefined,
    background: typeof background === 'string' ? background : undefined,
    usage: isJsonObject(usage) ? usage : undefined,
  };
}

/** The bytes of an image, fetched if the engine sent a URL; a text states why they are missing. */
async function bytesOf(
  { b64_json: base64, url }: JsonObject,
  { guard, fetchTimeoutMs: timeoutMs, signal, caller }: ImageReading,
): Promise<Buffer | string | undefined> {
  if (typeof base64 === 'string') return await decodeBase64(base64);
  if (typeof url !== 'string') return undefined;
  if (url.startsWith('data:')) return await dataUrlBytes(url);
  try {
    const bounds = { maxBytes: MAX_IMAGE_BASE64, timeoutMs, maxRedirects: MAX_REDIRECTS };
    return (await guard.fetch(url, { ...bounds, signal, caller })).bytes;
  } catch (error) {
    if (!(error instanceof Fault)) throw error;
    return `The URL of an image cannot be fetched: ${error.message}`;
  }
}

export interface ImageSale {
  readonly made: GeneratedImages;
  readonly by: ServedBy;
  readonly outcome: Outcome;
}

export function saleOf(
  parts: MakeImagesParts,
  order: ImageOrder,
  held: HeldWork,
  { made, head }: { readonly made: GeneratedImages; readonly head: EngineHead },
): ImageSale {
  const { attempts, headers } = head;
  const replica = head.replica.engine;
  const { images, quality, usage } = made;
  const work = { sizes: images.map(({ size }) => size), quality, usage };
  const bill = billImages(work, order, held, head.replica);
  const sha256 = images.map((image) => image.sha256);
  return {
    made,
    by: { replica, attempts, flags: parts.headers.flagsOf(headers) },
    outcome: {
      ...bill,
      extras: {
        ...bill.extras,
        ...(order.inputImages !== undefined && { inputImages: order.inputImages }),
        sha256,
      },
      status: 'completed',
      attempts,
      replica,
    },
  };
}

/** Requests the images with one call. */
export async function generateImages(
  parts: MakeImagesParts,
  order: ImageOrder,
  held: HeldWork,
): Promise<ImageSale | FailedWork> {
  const { engines, log } = parts;
  const { requestId } = held.context;
  const omitted = omittedFields(parts, held);
  const reading = readingOf(parts, held);
  const answer = await engines.collectRead(imagesCall(omitted, order, held), async (body) => {
    const job = imageJobIn(body);
    if (job !== undefined) return { job };
    const made = await readGenerated(body, order, reading);
    if (typeof made !== 'string') return { made };
    log.warn({ requestId, reason: made }, 'Images are not sold');
    return undefined;
  });
  if (!answer.ok) return failedCall(answer, held.model.id);
  omitted.learn(answer.replica);
  const { read, head } = answer;
  const made =
    'made' in read ? read.made : await awaitImages(parts, order, held, read.job, head.replica);
  if (typeof made !== 'string') return saleOf(parts, order, held, { made, head });
  log.warn({ requestId, reason: made }, 'Images are not sold');
  return { fault: new Fault('INFERENCE_FAILED', { cause: made }), isUnavailable: true };
}

/** Waits for the images of an asynchronous engine; a text states why there are none. */
export async function awaitImages(
  parts: MakeImagesParts,
  order: ImageOrder,
  held: HeldWork,
  job: ImageJob,
  replica: Replica,
): Promise<GeneratedImages | string> {
  const { context, signal } = held;
  const ended = await endOfJob(parts, job, {
    replica,
    path: order.path,
    caller: context.caller.accountId,
    signal,
    totalMs: TIME_LIMITS.totalMs,
    maxResponseBytes: imagesCall(omittedFields(parts, held), order, held).maxResponseBytes,
  });
  if (typeof ended === 'string') return ended;
  return await validateImages(ended.images, ended.facts, order, readingOf(parts, held));
}

export function readingOf(
  { documents, files, media, readLargeJson, guard, fetchTimeoutMs }: MakeImagesParts,
  { signal, context }: HeldWork,
): ImageReading {
  const parts = { documents, files, media, readLargeJson, guard, fetchTimeoutMs };
  return { ...parts, signal, caller: context.caller.accountId };
}

export function factsOf(
  { images, quality, background, usage }: GeneratedImages,
  order: ImageOrder,
): JsonObject {
  return {
    output_format: images[0]?.format,
    size: images[0]?.size,
    quality: order.kind.quality ?? quality,
    background: background ?? order.background,
    usage,
  };
}
