/**
 * Decodes a foreign image into 8-bit RGBA as a person sees it: orientation applied, colours in
 * sRGB, first frame of an animation. Encodes the result as PNG.
 *
 * Size is checked on the header, before a pixel is decoded.
 */
import type sharpModule from 'sharp';
import { Fault } from '../../core/faults.ts';
import { imageFormat } from './image-header.ts';
import { GUIDE_SIDE, type Rgba } from './matte.ts';

export type Sharp = typeof sharpModule;

// decisions.md 9, background removal.
export const MIN_PIXELS = 65_536;
export const MAX_PIXELS = 33_177_600;
/** `< 25 MB`. */
export const MAX_IMAGE_BYTES = 25 * 1000 * 1000 - 1;

const DECODE_TIMEOUT_SECONDS = 20;
/** Level 6 costs three times as much for a few percent. */
const PNG_COMPRESSION = 4;

/** The loaders that foreign bytes may reach; everything else in the library is switched off. */
const LOADERS = [
  'VipsForeignLoadJpegBuffer',
  'VipsForeignLoadPngBuffer',
  'VipsForeignLoadWebpBuffer',
  'VipsForeignLoadNsgifBuffer',
  'VipsForeignLoadTiffBuffer',
  'VipsForeignLoadHeifBuffer',
];

/** Bounds the library for this process: formats, threads, no cache. Call it once per process. */
export function restrictSharp(sharp: Sharp, threads: number): void {
  sharp.block({ operation: ['VipsForeignLoad'] });
  sharp.unblock({ operation: LOADERS });
  sharp.concurrency(threads);
  sharp.cache(false);
}

function corrupted(cause: unknown): Fault {
  return new Fault('CORRUPTED_IMAGE', {
    message: 'The image cannot be decoded: it is damaged or cut off',
    cause,
  });
}

function checkFormat(bytes: Buffer): void {
  if (bytes.length === 0) {
    throw new Fault('CORRUPTED_IMAGE', { message: 'The image is empty' });
  }
  const format = imageFormat(bytes);
  if (format === 'heic') {
    throw new Fault('INVALID_CONTENT_TYPE', {
      message: 'HEIC images are not supported: send JPEG, PNG, WebP, AVIF, TIFF or GIF',
    });
  }
  if (format === undefined) {
    throw new Fault('INVALID_CONTENT_TYPE', {
      message: 'The file is not a JPEG, PNG, WebP, AVIF, TIFF or GIF image',
    });
  }
}

function checkSize(width: number, height: number): void {
  const pixels = width * height;
  const limits = `send ${MIN_PIXELS} to ${MAX_PIXELS} pixels`;
  const fields = { width, height };
  const size = `The image has ${width}x${height} pixels`;
  if (pixels < MIN_PIXELS) {
    throw new Fault('IMAGE_TOO_SMALL', { message: `${size}: ${limits}`, fields });
  }
  if (pixels > MAX_PIXELS) {
    throw new Fault('IMAGE_TOO_LARGE', { message: `${size}: ${limits}`, fields });
  }
}

/** Faults: INVALID_CONTENT_TYPE, CORRUPTED_IMAGE, IMAGE_TOO_SMALL, IMAGE_TOO_LARGE. */
export async function decodePhoto(sharp: Sharp, bytes: Buffer): Promise<Rgba> {
  checkFormat(bytes);
  const open = (): ReturnType<Sharp> =>
    sharp(bytes, { failOn: 'error', limitInputPixels: false, animated: false });
  const facts = await open()
    .metadata()
    .catch((error: unknown) => {
      throw corrupted(error);
    });
  checkSize(facts.width, facts.height);
  const decoded = await open()
    .autoOrient()
    .toColourspace('srgb')
    .ensureAlpha()
    .timeout({ seconds: DECODE_TIMEOUT_SECONDS })
    .raw({ depth: 'uchar' })
    .toBuffer({ resolveWithObject: true })
    .catch((error: unknown) => {
      throw corrupted(error);
    });
  const { width, height, channels } = decoded.info;
  if (channels !== 4) throw corrupted(new Error(`${channels} channels after decoding`));
  return { width, height, data: decoded.data };
}

function fromRgba(sharp: Sharp, image: Rgba): ReturnType<Sharp> {
  const { width, height } = image;
  return sharp(image.data, { raw: { width, height, channels: 4 }, limitInputPixels: false });
}

/** A small opaque copy on white, stretched to a square: what a model looks at. 8-bit RGB. */
export async function squareCopy(sharp: Sharp, image: Rgba, side: number): Promise<Buffer> {
  return await fromRgba(sharp, image)
    .flatten({ background: '#ffffff' })
    .resize(side, side, { fit: 'fill', kernel: 'linear' })
    .raw()
    .toBuffer();
}

/** A copy whose longer side is at most `GUIDE_SIDE`, for the edges. */
export async function guideCopy(sharp: Sharp, image: Rgba): Promise<Rgba> {
  const { data, info } = await fromRgba(sharp, image)
    .flatten({ background: '#ffffff' })
    .ensureAlpha()
    .resize(GUIDE_SIDE, GUIDE_SIDE, { fit: 'inside', withoutEnlargement: true })
    .raw()
    .toBuffer({ resolveWithObject: true });
  return { width: info.width, height: info.height, data };
}

export async function encodePng(sharp: Sharp, image: Rgba): Promise<Buffer> {
  return await fromRgba(sharp, image).png({ compressionLevel: PNG_COMPRESSION }).toBuffer();
}
