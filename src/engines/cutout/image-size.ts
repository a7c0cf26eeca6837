/**
 * Reads the width and height out of an image's header without decoding a pixel, so that the size
 * limits hold for every engine before it is asked. `undefined` when the header does not say; the
 * engine then decides.
 */
import { imageFormat } from './image-format.ts';

export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** Boxes and segments looked at before giving up on a header. */
const MAX_STEPS = 4_096;

/** The size as stored; an orientation tag may turn it. */
export function imageSize(bytes: Buffer): ImageSize | undefined {
  try {
    const size = sizeIn(bytes);
    return size !== undefined && size.width > 0 && size.height > 0 ? size : undefined;
  } catch {
    // The header ends early: the decoder will call the image damaged.
    return undefined;
  }
}

function sizeIn(bytes: Buffer): ImageSize | undefined {
  switch (imageFormat(bytes)) {
    case 'png':
      return { width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) };
    case 'gif':
      return { width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
    case 'jpeg':
      return jpegSize(bytes);
    case 'webp':
      return webpSize(bytes);
    case 'tiff':
      return tiffSize(bytes);
    case 'avif':
    case 'heic':
      return isoSize(bytes);
    case undefined:
      return undefined;
  }
}

/** Start-of-frame markers hold the size; the other markers are stepped over. */
function jpegSize(bytes: Buffer): ImageSize | undefined {
  let at = 2;
  for (let step = 0; step < MAX_STEPS; step += 1) {
    while (bytes.readUInt8(at) === 0xff && bytes.readUInt8(at + 1) === 0xff) at += 1;
    if (bytes.readUInt8(at) !== 0xff) return undefined;
    const marker = bytes.readUInt8(at + 1);
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) return { height: bytes.readUInt16BE(at + 5), width: bytes.readUInt16BE(at + 7) };
    at += 2 + bytes.readUInt16BE(at + 2);
  }
  return undefined;
}

function webpSize(bytes: Buffer): ImageSize | undefined {
  switch (bytes.toString('latin1', 12, 16)) {
    case 'VP8X':
      return { width: 1 + bytes.readUIntLE(24, 3), height: 1 + bytes.readUIntLE(27, 3) };
    case 'VP8 ':
      return {
        width: bytes.readUInt16LE(26) & 0x3fff,
        height: bytes.readUInt16LE(28) & 0x3fff,
      };
    case 'VP8L': {
      const bits = bytes.readUInt32LE(21);
      return { width: 1 + (bits & 0x3fff), height: 1 + ((bits >>> 14) & 0x3fff) };
    }
    default:
      return undefined;
  }
}

const TIFF_WIDTH = 256;
const TIFF_HEIGHT = 257;
const TIFF_SHORT = 3;

function tiffSize(bytes: Buffer): ImageSize | undefined {
  const isLittle = bytes.toString('latin1', 0, 2) === 'II';
  const short = (at: number): number =>
    isLittle ? bytes.readUInt16LE(at) : bytes.readUInt16BE(at);
  const long = (at: number): number => (isLittle ? bytes.readUInt32LE(at) : bytes.readUInt32BE(at));
  const directory = long(4);
  const entries = Math.min(short(directory), MAX_STEPS);
  const found = new Map<number, number>();
  for (let index = 0; index < entries; index += 1) {
    const at = directory + 2 + index * 12;
    const value = short(at + 2) === TIFF_SHORT ? short(at + 8) : long(at + 8);
    found.set(short(at), value);
  }
  const width = found.get(TIFF_WIDTH);
  const height = found.get(TIFF_HEIGHT);
  return width === undefined || height === undefined ? undefined : { width, height };
}

/** The `ispe` boxes of AVIF and HEIC; the largest is the image, the others are its thumbnails. */
function isoSize(bytes: Buffer): ImageSize | undefined {
  let best: ImageSize | undefined;
  let at = bytes.indexOf('ispe', 0, 'latin1');
  for (let step = 0; at >= 0 && step < MAX_STEPS; step += 1) {
    const size = { width: bytes.readUInt32BE(at + 8), height: bytes.readUInt32BE(at + 12) };
    if (best === undefined || size.width * size.height > best.width * best.height) best = size;
    at = bytes.indexOf('ispe', at + 4, 'latin1');
  }
  return best;
}
