/**
 * Decodes an untrusted image into 8-bit RGBA as it is displayed: orientation applied, colours in
 * sRGB, first frame of an animation.
 *
 * The size is checked on the header, before any pixel is decoded.
 */
import type sharpModule from 'sharp';
import { Fault } from '../../src/core/faults.ts';
import { imageType } from '../../src/core/media-type.ts';
import { GUIDE_SIDE, type Rgba } from './matte.ts';

export type Sharp = typeof sharpModule;

// From 256 × 256 pixels to 33 megapixels: the limits of the background removal endpoint.
const MIN_PIXELS = 65_536;
const MAX_PIXELS = 33_177_600;
/** The documented limit is `< 25 MB`. */
export const MAX_IMAGE_BYTES = 25 * 1000 * 1000 - 1;

const DECODE_TIMEOUT_SECONDS = 20;

/** Loaders allowed for untrusted bytes; all others are disabled. */
const LOADERS = [
  'VipsForeignLoadJpegBuffer',
  'VipsForeignLoadPngBuffer',
  'VipsForeignLoadWebpBuffer',
  'VipsForeignLoadNsgifBuffer',
  'VipsForeignLoadTiffBuffer',
  'VipsForeignLoadHeifBuffer',
];

/** Image operations. Create one per process: the constructor sets global limits of sharp. */
export class PhotoEditor {
  readonly #sharp: Sharp;

  constructor(sharp: Sharp, threads: number) {
    this.#sharp = sharp;
    sharp.block({ operation: ['VipsForeignLoad'] });
    sharp.unblock({ operation: LOADERS });
    sharp.concurrency(threads);
    sharp.cache(false);
  }

  /** Faults: INVALID_CONTENT_TYPE, CORRUPTED_IMAGE, IMAGE_TOO_SMALL, IMAGE_TOO_LARGE. */
  async decode(bytes: Buffer): Promise<Rgba> {
    checkFormat(bytes);
    const open = (): ReturnType<Sharp> =>
      this.#sharp(bytes, { failOn: 'error', limitInputPixels: false, animated: false });
    const facts = await open().metadata().catch(rejectCorrupted);
    checkSize(facts.width, facts.height);
    const { data, info } = await open()
      .autoOrient()
      .toColourspace('srgb')
      .ensureAlpha()
      .timeout({ seconds: DECODE_TIMEOUT_SECONDS })
      .raw({ depth: 'uchar' })
      .toBuffer({ resolveWithObject: true })
      .catch(rejectCorrupted);
    const { width, height, channels } = info;
    if (channels !== 4) rejectCorrupted(new Error(`${channels} channels after decoding`));
    return { width, height, data };
  }

  /** A small opaque copy on white, stretched to a square, as model input. 8-bit RGB. */
  async squareCopy(image: Rgba, side: number): Promise<Buffer> {
    return await this.#from(image)
      .flatten({ background: '#ffffff' })
      .resize(side, side, { fit: 'fill', kernel: 'linear' })
      .raw()
      .toBuffer();
  }

  /** A copy whose longer side is at most `GUIDE_SIDE`, as guide of the matte. */
  async guideCopy(image: Rgba): Promise<Rgba> {
    const { data, info } = await this.#from(image)
      .flatten({ background: '#ffffff' })
      .ensureAlpha()
      .resize(GUIDE_SIDE, GUIDE_SIDE, { fit: 'inside', withoutEnlargement: true })
      .raw()
      .toBuffer({ resolveWithObject: true });
    return { width: info.width, height: info.height, data };
  }

  #from({ data, width, height }: Rgba): ReturnType<Sharp> {
    return this.#sharp(data, { raw: { width, height, channels: 4 }, limitInputPixels: false });
  }
}

function rejectCorrupted(cause: unknown): never {
  const message = 'The image cannot be decoded: it is damaged or cut off';
  throw new Fault('CORRUPTED_IMAGE', { message, cause });
}

function checkFormat(bytes: Buffer): void {
  if (bytes.length === 0) {
    throw new Fault('CORRUPTED_IMAGE', { message: 'The image is empty' });
  }
  const type = imageType(bytes);
  const isHeif = type === 'image/heic' || type === 'image/heif';
  if (type !== undefined && !isHeif) return;
  const message = isHeif
    ? 'HEIC images are not supported: send JPEG, PNG, WebP, AVIF, TIFF or GIF'
    : 'The file is not a JPEG, PNG, WebP, AVIF, TIFF or GIF image';
  throw new Fault('INVALID_CONTENT_TYPE', { message });
}

function checkSize(width: number, height: number): void {
  const pixels = width * height;
  if (pixels >= MIN_PIXELS && pixels <= MAX_PIXELS) return;
  throw new Fault(pixels < MIN_PIXELS ? 'IMAGE_TOO_SMALL' : 'IMAGE_TOO_LARGE', {
    message: `The image has ${width}x${height} pixels: send ${MIN_PIXELS} to ${MAX_PIXELS} pixels`,
    fields: { width, height },
  });
}
