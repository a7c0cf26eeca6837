/**
 * `POST /image/background-remove`: takes an image as file, base64 or URL; returns a PNG with an
 * alpha channel.
 *
 * The handler checks the header of the image, places a hold for the price of one image, calls an
 * engine, decodes the returned PNG completely, and sends it after the charge is committed. A
 * failure costs nothing, and neither does a cutout that is empty or removes less than 2 % of the
 * image.
 */
import { type CatalogModel, chargeFor } from '../../catalog/catalog.ts';
import { decodeBase64, sha256InTurns } from '../../core/event-loop.ts';
import { Fault, invalidField } from '../../core/faults.ts';
import type { Log } from '../../core/log.ts';
import { imageSize, imageType } from '../../core/media-type.ts';
import type { AlphaShares, Documents, PngFacts } from '../../documents/documents.ts';
import { MAX_IMAGE_PIXELS, dataUrlBytes, requirePixels } from '../../documents/media-files.ts';
import type { EngineResponse, Engines } from '../../engines/engines.ts';
import { type RefusalCodes, mediaEngineFault } from '../../engines/media-engine-fault.ts';
import type { BodyMemory } from '../../http/body-memory.ts';
import { type ReadLargeJson, readJson } from '../../http/read-request.ts';
import { isMultipart, readFile, sizeBound } from '../../http/multipart.ts';
import type { RequestContext } from '../../http/request-context.ts';
import { JSON_BODY, type Route } from '../../http/route.ts';
import { type SellingParts, answerWork, findModel, sellWork } from '../../http/sell-work.ts';
import type { Guard } from '../../net/guard.ts';
import { multipartBody } from '../../net/multipart-body.ts';
import { BACKGROUND_REMOVE } from './describe.ts';
import { BackgroundRemoveRequest } from './schema.ts';

export interface BackgroundRemoveParts extends SellingParts {
  readonly engines: Engines;
  readonly guard: Guard;
  readonly documents: Documents;
  /** Memory for the bodies of requests, which a fetched image counts against. */
  readonly bodyMemory: Pick<BodyMemory, 'reserveMedia'>;
  readonly log: Log;
  readonly readLargeJson: ReadLargeJson;
  readonly fetchTimeoutMs: number;
  /** Size limit of an image from any source; the limit of the specification applies as well. */
  readonly fileLimitBytes: number;
}

const MAX_IMAGE_BYTES = 25_000_000;
const MIN_PIXELS = 65_536;
/** Four bytes per pixel, in case nothing compresses. */
const MAX_PNG_BYTES = MAX_IMAGE_PIXELS * 4 + 1_000_000;
const MAX_REDIRECTS = 5;
/** Minimum share of visible pixels: a disc with a diameter of 25 pixels in one megapixel. */
const MIN_VISIBLE_SHARE = 0.000_5;
/** Minimum share of removed pixels; a smaller share is noise of a model that found no subject. */
const MIN_CLEAR_SHARE = 0.02;
const MODEL_NAME = /^[\w. -]{1,64}$/;
const PNG_TYPE = 'image/png';
const PERSON_ABILITY = 'Cuts out people in photographs only';
const REFUSALS: RefusalCodes = {
  byStatus: {
    413: 'PAYLOAD_TOO_LARGE',
    415: 'INVALID_CONTENT_TYPE',
    422: 'IMAGE_TOO_LARGE',
  },
  refused: 'CORRUPTED_IMAGE',
  failed: 'INFERENCE_FAILED',
};

export function imageBackgroundRemoveRoute(parts: BackgroundRemoveParts): Route {
  return {
    method: 'POST',
    path: '/image/background-remove',
    auth: 'key-or-wallet',
    body: { ...JSON_BODY, types: ['multipart/form-data', ...JSON_BODY.types] },
    sells: 'cutout',
    describe: BACKGROUND_REMOVE,
    handle: (context) => removeBackground(parts, context),
  };
}

async function removeBackground(
  parts: BackgroundRemoveParts,
  context: RequestContext,
): Promise<void> {
  const given = await imageOf(parts, context);
  const wanted = { name: given.model, work: 'background removal' };
  const found = findModel(parts, context, 'inpaint', wanted);
  const costNano = chargeFor({ images: 1 }, found.price);
  const inline = 'bytes' in given ? given.bytes : await dataUrlBytes(given.url);
  if (inline !== undefined) checkImage(inline, maxBytesOf(parts));
  await sellWork(parts, context, found, { kind: 'cutout' }, async (held) => {
    const { sale, model } = held;
    // Check the credit before fetching the image; its price is already known.
    if (inline === undefined && costNano > 0n) await parts.sales.requireCredit(context.caller);
    const image = inline ?? (await fetchImage(parts, 'url' in given ? given.url : '', context));
    await sale.reserve({ minNano: costNano, maxNano: costNano });
    const { body, replica, attempts, head } = await cutOut(parts, context, model, image);
    // The model behind an id can change, since a fetched model replaces the bundled one.
    const used = head.headers['x-model'];
    const hasName = typeof used === 'string' && MODEL_NAME.test(used);
    const { engine } = replica;
    const by = { replica: hasName ? `${engine}/${used}` : engine, attempts };
    const sha256 = [await sha256InTurns(body)];
    const extras = { images: 1, sha256, ...(hasName && { model: used }) };
    const outcome = { costNano, status: 'completed', attempts, replica: engine, extras } as const;
    await answerWork(held, by, outcome, () => {
      context.set('content-disposition', 'inline; filename="cutout.png"');
      return { type: PNG_TYPE, body };
    });
  });
}

type GivenImage = { readonly model: string | undefined } & (
  | { readonly bytes: Buffer }
  | { readonly url: string }
);

function maxBytesOf({ fileLimitBytes }: BackgroundRemoveParts): number {
  return Math.min(MAX_IMAGE_BYTES - 1, fileLimitBytes);
}

async function imageOf(parts: BackgroundRemoveParts, context: RequestContext): Promise<GivenImage> {
  if (isMultipart(context)) {
    const { bytes, fields } = await readFile(context, 'image', maxBytesOf(parts));
    const second = ['image', 'image_url'].find((name) => fields.has(name));
    if (second !== undefined) {
      throw invalidField([second], `${second}: Send either the file or ${second}, not both`);
    }
    return { bytes, model: fields.get('model') ?? undefined };
  }
  const request = await readJson(context, BackgroundRemoveRequest, parts.readLargeJson);
  const model = request.model ?? undefined;
  if (typeof request.image_url === 'string') return { url: request.image_url, model };
  return { bytes: await bytesOf(request.image ?? ''), model };
}

const DATA_URL = /^data:[^,]{0,200};base64,/i;
/**
 * For a text of up to 35 MB, checking the start and the end suffices: an invalid middle fails later
 * as an image.
 */
const CHECKED_CHARACTERS = 4_096;

async function bytesOf(text: string): Promise<Buffer> {
  const prefix = DATA_URL.exec(text.slice(0, 256))?.[0] ?? '';
  const payload = text.slice(prefix.length);
  const checkedText = payload.slice(0, CHECKED_CHARACTERS) + payload.slice(-CHECKED_CHARACTERS);
  if (!/^[A-Za-z0-9+/_=\s-]+$/.test(checkedText)) {
    throw invalidField(['image'], 'image: Must be the base64 of an image');
  }
  return await decodeBase64(payload);
}

async function fetchImage(
  parts: BackgroundRemoveParts,
  url: string,
  context: RequestContext,
): Promise<Buffer> {
  const { workSignal: signal } = context;
  const caller = context.caller.accountId;
  const maxBytes = maxBytesOf(parts);
  const bounds = { maxBytes, timeoutMs: parts.fetchTimeoutMs, maxRedirects: MAX_REDIRECTS };
  const { bytes } = await parts.guard.fetch(url, { ...bounds, signal, caller });
  const refusal = parts.bodyMemory.reserveMedia(context, bytes.length);
  if (refusal !== undefined) throw refusal;
  checkImage(bytes, maxBytes);
  return bytes;
}

/**
 * Checks size and format by the header. Faults: 400 empty or damaged, 413, 415, 422 too few or too
 * many pixels.
 */
function checkImage(bytes: Buffer, maxBytes: number): void {
  if (bytes.length === 0) {
    throw new Fault('CORRUPTED_IMAGE', { message: 'The image is empty' });
  }
  if (bytes.length > maxBytes) {
    throw new Fault('PAYLOAD_TOO_LARGE', {
      message: `The image must have ${sizeBound(maxBytes)}`,
    });
  }
  if (imageType(bytes) === undefined) {
    throw new Fault('INVALID_CONTENT_TYPE', {
      message: 'The file is not a JPEG, PNG, WebP, AVIF, TIFF or GIF image',
    });
  }
  requirePixels(imageSize(bytes), MIN_PIXELS);
}

/** Calls the engine; returns a complete and usable PNG of the size of the image. */
async function cutOut(
  { engines, documents, log }: BackgroundRemoveParts,
  context: RequestContext,
  model: CatalogModel,
  image: Buffer,
) {
  const { requestId, workSignal: signal } = context;
  const caller = context.caller.accountId;
  const boundary = `farebox-${requestId}`;
  const file = { filename: 'image', contentType: 'application/octet-stream' };
  const body = multipartBody(boundary, [{ name: 'file', file, data: image }]);
  let png: PngFacts | undefined;
  const answer = await engines.collect({
    work: 'cutout',
    replicas: model.replicas,
    method: 'POST',
    path: '/api/remove',
    contentType: `multipart/form-data; boundary=${boundary}`,
    buildBody: () => body,
    maxResponseBytes: MAX_PNG_BYTES,
    isUsable: async (bytes) => {
      const reading = await documents.readPng({ bytes, signal, caller });
      png = reading.ok ? reading.png : undefined;
      if (!reading.ok) {
        log.warn({ requestId, reason: `The PNG ${reading.reason}` }, 'A cutout is not sold');
      }
      return png?.alpha !== undefined && isOfSize(png, image);
    },
    caller,
    tries: context,
    signal,
  });
  if (!answer.ok) throw mediaEngineFault(answer, model.id, REFUSALS);
  const problem = png?.alpha && defectOf(png.alpha);
  if (problem !== undefined) throw noSubject(model, answer, problem);
  return answer;
}

function isOfSize(got: PngFacts, image: Buffer): boolean {
  const given = imageSize(image);
  if (given === undefined) return true;
  const isSame = got.width === given.width && got.height === given.height;
  return isSame || (got.width === given.height && got.height === given.width);
}

/** Why a valid cutout is not usable; `undefined` if it is usable. */
function defectOf({ visible, clear }: AlphaShares): string | undefined {
  if (visible < MIN_VISIBLE_SHARE) return 'removed the whole image';
  return clear < MIN_CLEAR_SHARE
    ? `removed less than ${MIN_CLEAR_SHARE * 100} % of this image`
    : undefined;
}

function noSubject(model: CatalogModel, { head }: EngineResponse, problem: string): Fault {
  // The embedded engine reports which of its models it used.
  const isForPeople = head.headers['x-model'] === 'person';
  const ability = isForPeople ? PERSON_ABILITY : (model.description ?? '').replace(/\.$/, '');
  const hint = ability === '' ? '' : `. Description of the model: ${ability}`;
  const message = `The model ${model.id} ${problem}${hint}`;
  return new Fault('SUBJECT_NOT_FOUND', { message });
}
