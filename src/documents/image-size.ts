/**
 * Limits the pixels of a caller's image by its header, before it is decoded: a small file can
 * decompress to gigabytes.
 */
import { open } from 'node:fs/promises';
import { Fault } from '../core/faults.ts';
import { type ImageSize, imageSize } from '../core/media-type.ts';

/** 8K, the limit of the specification. */
export const MAX_IMAGE_PIXELS = 33_177_600;
/** Enough for camera headers, which contain a preview and a colour profile before the size. */
const HEADER_BYTES = 1_048_576;

/** Throws 422 for too many pixels and 400 for too few; accepts an unknown size. */
export function requirePixels(size: ImageSize | undefined, minPixels = 1): void {
  if (size === undefined) return;
  const { width, height } = size;
  const pixels = width * height;
  const message = `The image has ${width}x${height} pixels: send ${minPixels} to ${MAX_IMAGE_PIXELS} pixels`;
  const options = { message, fields: { width, height }, canRetry: false };
  if (pixels < minPixels) throw new Fault('IMAGE_TOO_SMALL', options);
  if (pixels > MAX_IMAGE_PIXELS) throw new Fault('IMAGE_TOO_LARGE', options);
}

/** The size in the header of a file; `undefined` if there is none. */
export async function imageSizeOf(path: string): Promise<ImageSize | undefined> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0);
    return imageSize(buffer.subarray(0, bytesRead));
  } finally {
    await file.close();
  }
}
