/**
 * Validates a generated image before it is sold: its type and size, and that it decodes completely.
 * A PNG is decoded by the document workers, which start faster than the media process for JPEG and
 * WebP.
 */
import { Fault } from '../core/faults.ts';
import { imageSize, imageType } from '../core/media-type.ts';
import type { Documents } from '../documents/documents.ts';
import { MAX_IMAGE_PIXELS, type MediaFiles } from '../documents/media-files.ts';
import type { Media } from '../engines/media/media.ts';

export const IMAGE_FORMATS = ['png', 'jpeg', 'webp'] as const;
export type ImageFormat = (typeof IMAGE_FORMATS)[number];

export interface GeneratedImage {
  readonly bytes: Buffer;
  readonly format: ImageFormat;
  readonly size: string;
}

export interface Validation {
  readonly documents: Documents;
  readonly files: MediaFiles;
  readonly media: () => Promise<Media>;
  readonly signal: AbortSignal;
  readonly caller: string;
}

/**
 * Resolves to the image in `bytes`; `undefined` if it is not valid. Faults: SERVICE_UNAVAILABLE if
 * this machine cannot decode it now.
 */
export async function validImage(
  bytes: Buffer,
  { documents, files, media, signal, caller }: Validation,
): Promise<GeneratedImage | undefined> {
  const image = imageByHeader(bytes);
  if (image === undefined) return undefined;
  if (image.format === 'png') {
    return (await documents.readPng({ bytes, signal, caller })).ok ? image : undefined;
  }
  if (!hasWholeFrame(bytes, image.format)) return undefined;
  try {
    await files.within(caller, async (workspace) => {
      const { path } = await workspace.writeResult(bytes);
      await (await media()).checkImage(path, { signal, caller });
    });
    return image;
  } catch (error) {
    if (error instanceof Fault && error.code === 'INVALID_VIDEO_FORMAT') return undefined;
    throw error;
  }
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
