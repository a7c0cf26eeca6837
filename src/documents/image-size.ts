/**
 * How many pixels a picture of a caller may have, by what its header says: a small file can unpack
 * to gigabytes, so it is refused before anything decodes it.
 */
import { open } from 'node:fs/promises';
import { Fault } from '../core/faults.ts';
import { type ImageSize, imageSize } from '../core/media-type.ts';

/** 8K: the most that the specification lets an image have. */
export const MAX_IMAGE_PIXELS = 33_177_600;
/** Where a camera's header, with its preview and colour profile, has come to the size. */
const HEADER_BYTES = 1_048_576;

/** Throws 422 for too many pixels and 400 for too few; a size that is not told is none of either. */
export function requirePixels(size: ImageSize | undefined, minPixels = 1): void {
  if (size === undefined) return;
  const { width, height } = size;
  const pixels = width * height;
  const message = `The image has ${width}x${height} pixels: send ${minPixels} to ${MAX_IMAGE_PIXELS} pixels`;
  const options = { message, fields: { width, height }, canRetry: false };
  if (pixels < minPixels) throw new Fault('IMAGE_TOO_SMALL', options);
  if (pixels > MAX_IMAGE_PIXELS) throw new Fault('IMAGE_TOO_LARGE', options);
}

/** The size that the header of a file states; `undefined` when it states none. */
export async function imageSizeOf(path: string): Promise<ImageSize | undefined> {
  const file = await open(path);
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(HEADER_BYTES), 0, HEADER_BYTES, 0);
    return imageSize(buffer.subarray(0, bytesRead));
  } finally {
    await file.close();
  }
}
