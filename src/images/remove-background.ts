/**
 * The background removal flow: the image is checked by its header, the price of one image is set
 * aside, an engine cuts it out, the PNG is read to its end, and leaves when the charge is on disk.
 * Whatever goes wrong costs nothing, and so does a cutout that shows everything or nothing.
 */
import { type Catalog, type CatalogModel, chargeFor } from '../catalog/catalog.ts';
import type { AlphaShares, Documents, PngFacts } from '../documents/documents.ts';
import { imageFormat, imageSize } from '../engines/cutout/cutout.ts';
import type { EngineAnswer, Engines } from '../engines/engines.ts';
import type { Caller } from '../identity/identity.ts';
import { Fault } from '../core/faults.ts';
import type { Log } from '../core/log.ts';
import { type Nano, formatUsd } from '../core/money.ts';
import type { Guard } from '../net/guard.ts';
import { multipartBody } from '../net/multipart-body.ts';
import type { AnswerFacts } from '../http/answer-facts.ts';
import type { AnswerKeeper, RateRule, Sales, SoldAnswer } from '../billing/sale.ts';
import { type RefusalCodes, mediaEngineFault } from '../engines/media-engine-fault.ts';
import { dataUrlBytes } from '../documents/media-files.ts';
import { requireModel, requireSold } from '../catalog/model-access.ts';

export interface RemoveBackgroundParts {
  readonly catalog: Catalog;
  readonly engines: Engines;
  readonly sales: Sales;
  readonly guard: Guard;
  readonly documents: Documents;
  readonly log: Log;
  readonly fetchTimeoutMs: number;
  readonly rateOf: (caller: Caller, model: CatalogModel) => RateRule;
}

export interface RemoveBackgroundCall {
  readonly requestId: string;
  readonly caller: Caller;
  /** Missing for the default model. */
  readonly model: string | undefined;
  readonly image: { readonly bytes: Buffer } | { readonly url: string };
  readonly signal: AbortSignal;
  readonly note: (notes: { model?: string; replica?: string; costUsd?: string }) => void;
  /** Set when the answer is kept for retries. */
  readonly keeper: AnswerKeeper | undefined;
  /** Sets the headers of the answer. */
  readonly answered: (facts: AnswerFacts) => void;
}

export interface CutOut extends SoldAnswer {
  readonly body: Buffer;
}

// decisions.md 9 and 11.
export const MAX_IMAGE_BYTES = 25_000_000;
const MIN_PIXELS = 65_536;
const MAX_PIXELS = 33_177_600;
/** Four bytes a pixel, should nothing of it compress. */
const MAX_PNG_BYTES = MAX_PIXELS * 4 + 1_000_000;
const MAX_REDIRECTS = 5;
/**
 * Of all pixels, the least that a cutout shows and the least that it clears: a disc of 24 pixels in
 * one megapixel.
 */
const MIN_SHARE = 0.000_5;
const PNG_TYPE = 'image/png';
const PERSON_ABILITY = 'Cuts out people in photographs, and nothing else';
const REFUSALS: RefusalCodes = {
  byStatus: {
    413: 'PAYLOAD_TOO_LARGE',
    415: 'INVALID_CONTENT_TYPE',
    422: 'IMAGE_TOO_LARGE',
  },
  refused: 'CORRUPTED_IMAGE',
  failed: 'INFERENCE_FAILED',
};

/** Cuts one image out; `undefined` when the caller has left. Throws a Fault for every refusal. */
export async function removeBackground(
  parts: RemoveBackgroundParts,
  call: RemoveBackgroundCall,
): Promise<CutOut | undefined> {
  const { model, deprecation } = requireModel(parts.catalog, 'inpaint', {
    name: call.model,
    work: 'background removal',
  });
  call.note({ model: model.id });
  const price = requireSold(model, call.caller);
  const costNano = chargeFor({ images: 1 }, price);
  const given = 'bytes' in call.image ? call.image.bytes : await dataUrlBytes(call.image.url);
  if (given !== undefined) checkImage(given);
  const rate = parts.rateOf(call.caller, model);
  const wanted = {
    requestId: call.requestId,
    caller: call.caller,
    kind: 'cutout',
    modelId: model.id,
    tier: model.tier,
    rate,
    tokensEstimate: 0,
    priceVersion: price.version,
    signal: call.signal,
    keeper: call.keeper,
  };
  return await parts.sales.sell(wanted, async (admission) => {
    const image = given ?? (await fetchImage(parts, call, costNano));
    await admission.reserve({ minNano: costNano, maxNano: costNano });
    const { body, replica, attempts } = await cutOut(parts, call, model, image);
    const facts = { model, deprecation, rate, admission, replica: replica.engine, attempts };
    const cut = await admission.answer(
      { costNano, status: 'completed', attempts, replica: replica.engine, extras: { images: 1 } },
      ({ after }) => {
        call.answered({ ...facts, remainingNano: after.usdNano });
        return { type: PNG_TYPE, body };
      },
    );
    call.note({ replica: replica.engine, costUsd: formatUsd(costNano) });
    return cut;
  });
}

/** Fetched for those who can pay: the price is known, the image is not here yet. */
async function fetchImage(
  parts: RemoveBackgroundParts,
  call: RemoveBackgroundCall,
  costNano: Nano,
): Promise<Buffer> {
  if (costNano > 0n) await parts.sales.requireCredit(call.caller);
  const url = 'url' in call.image ? call.image.url : '';
  const { bytes } = await parts.guard.fetch(url, {
    maxBytes: MAX_IMAGE_BYTES - 1,
    timeoutMs: parts.fetchTimeoutMs,
    maxRedirects: MAX_REDIRECTS,
    signal: call.signal,
  });
  checkImage(bytes);
  return bytes;
}

/** Size and format by the header. Faults: 400, 413, 415, 422 as decisions.md 9 has them. */
function checkImage(bytes: Buffer): void {
  if (bytes.length === 0) {
    throw new Fault('CORRUPTED_IMAGE', { message: 'The image is empty' });
  }
  if (bytes.length >= MAX_IMAGE_BYTES) {
    throw new Fault('PAYLOAD_TOO_LARGE', {
      message: 'The image must have less than 25 MB',
    });
  }
  const format = imageFormat(bytes);
  if (format === undefined) {
    throw new Fault('INVALID_CONTENT_TYPE', {
      message: 'The file is not a JPEG, PNG, WebP, AVIF, TIFF or GIF image',
    });
  }
  const size = imageSize(bytes);
  if (size === undefined) return;
  const { width, height } = size;
  const pixels = width * height;
  const message = `The image has ${width}x${height} pixels: send ${MIN_PIXELS} to ${MAX_PIXELS} pixels`;
  const options = { message, fields: { width, height }, canRetry: false };
  if (pixels < MIN_PIXELS) throw new Fault('IMAGE_TOO_SMALL', options);
  if (pixels > MAX_PIXELS) throw new Fault('IMAGE_TOO_LARGE', options);
}

async function cutOut(
  parts: RemoveBackgroundParts,
  call: RemoveBackgroundCall,
  model: CatalogModel,
  image: Buffer,
) {
  const boundary = `farebox-${call.requestId}`;
  const file = { filename: 'image', contentType: 'application/octet-stream' };
  const body = multipartBody(boundary, [{ name: 'file', file, data: image }]);
  let png: PngFacts | undefined;
  const answer = await parts.engines.collect({
    work: 'cutout',
    replicas: model.replicas,
    method: 'POST',
    path: '/api/remove',
    contentType: `multipart/form-data; boundary=${boundary}`,
    buildBody: () => body,
    maxResponseBytes: MAX_PNG_BYTES,
    isUsable: async (bytes) => {
      png = await readCutout(parts, call, bytes);
      return png?.alpha !== undefined && isOfSize(png, image);
    },
    caller: call.caller.accountId,
    signal: call.signal,
  });
  if (!answer.ok) throw mediaEngineFault(answer, model.id, REFUSALS);
  const problem = png?.alpha && uselessness(png.alpha);
  if (problem !== undefined) throw nothingToCutOut(model, answer, problem);
  return answer;
}

/** The facts of what an engine gave; `undefined` for what is no whole PNG. */
async function readCutout(
  { documents, log }: RemoveBackgroundParts,
  { caller, signal, requestId }: RemoveBackgroundCall,
  bytes: Buffer,
): Promise<PngFacts | undefined> {
  const reading = await documents.readPng({ bytes, signal, caller: caller.accountId });
  if (reading.ok) return reading.png;
  log.warn({ requestId, reason: `It ${reading.reason}` }, 'A cutout is not sold');
  return undefined;
}

/** Whether it has the size of the image; an orientation tag may have turned it. */
function isOfSize(got: PngFacts, image: Buffer): boolean {
  const given = imageSize(image);
  if (given === undefined) return true;
  const isSame = got.width === given.width && got.height === given.height;
  return isSame || (got.width === given.height && got.height === given.width);
}

/** What is wrong with a cutout that is whole; `undefined` for one that can be used. */
function uselessness({ seen, clear }: AlphaShares): string | undefined {
  if (seen < MIN_SHARE) return 'kept nothing of this image';
  return clear < MIN_SHARE ? 'removed nothing from this image' : undefined;
}

/** A mask without a subject is the model's honest answer, and of no use to the caller. */
function nothingToCutOut(model: CatalogModel, { head }: EngineAnswer, problem: string): Fault {
  // The embedded engine tells which of its models has worked.
  const isForPeople = head.headers['x-model'] === 'person';
  const ability = isForPeople ? PERSON_ABILITY : (model.description ?? '').replace(/\.$/, '');
  const told = ability === '' ? '' : `. What it does: ${ability}`;
  const message = `The model ${model.id} ${problem}${told}`;
  return new Fault('SUBJECT_NOT_FOUND', { message });
}
