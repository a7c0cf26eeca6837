/**
 * Validates a generated image before it is sold: its type, completeness and size. A PNG is decoded
 * completely in the sandbox; of JPEG and WebP only the frame is checked.
 */
import { imageSize, imageType } from '../core/media-type.ts';
import type { Documents } from '../documents/documents.ts';
import { MAX_IMAGE_PIXELS } from '../documents/media-files.ts';

export const IMAGE_FORMATS = ['png', 'jpeg', 'webp'] as const;
export type ImageFormat = (typeof IMAGE_FORMATS)[number];

export interface GeneratedImage {
  readonly bytes: Buffer;
  readonly format: ImageFormat;
  readonly size: string;
}

interface Validation {
  readonly documents: Documents;
  readonly signal: AbortSignal;
  readonly caller: string;
}

/** Resolves to the image in `bytes`; `undefined` if it is not valid. */
export async function validImage(
  bytes: Buffer,
  { documents, signal, caller }: Validation,
): Promise<GeneratedImage | undefined> {
  const image = imageByHeader(bytes);
  if (image === undefined) return undefined;
  const isWhole =
    image.format === 'png'
      ? (await documents.readPng({ bytes, signal, caller })).ok
      : hasWholeFrame(bytes, image.format);
  return isWhole ? image : undefined;
}

/** The image in `bytes` by its header alone, for partial images, which are not sold. */
export function imageByHeader(bytes: Buffer): GeneratedImage | undefined {
  const type = imageType(bytes);
  const format = IMAGE_FORMATS.find((one) => type === `image/${one}`);
  const size = imageSize(bytes);
  if (format === undefined || size === undefined) return undefined;
  if (size.width * size.height > MAX_IMAGE_PIXELS) return undefined;
  return { bytes, format, size: `${size.width}x${size.height}` };
}

const JPEG_END = 0xff_d9;
const RIFF_HEAD_BYTES = 8;

/** A JPEG ends with its end marker; the header of a WebP contains its length, which is even. */
function hasWholeFrame(bytes: Buffer, format: 'jpeg' | 'webp'): boolean {
  if (format === 'jpeg') return bytes.readUInt16BE(bytes.length - 2) === JPEG_END;
  const declared = bytes.readUInt32LE(4) + RIFF_HEAD_BYTES;
  return declared === bytes.length || declared + 1 === bytes.length;
}
