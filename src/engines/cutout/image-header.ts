/**
 * Tells an image's format, width and height by its header, without decoding a pixel, so that the
 * limits hold for every engine before it is asked. The file name and the declared type are not
 * asked: only these formats ever reach the decoder, so that text formats which can name other files
 * (SVG, PDF) never do.
 */

export type ImageFormat = 'jpeg' | 'png' | 'webp' | 'gif' | 'tiff' | 'avif' | 'heic';

/** Brands of the ISO box format that are AVIF and HEIC images. */
const AVIF_BRANDS = new Set(['avif', 'avis']);
const HEIC_BRANDS = new Set(['heic', 'heix', 'heim', 'heis', 'hevc', 'hevx', 'mif1', 'msf1']);

function isoBrand(bytes: Buffer): ImageFormat | undefined {
  if (bytes.toString('latin1', 4, 8) !== 'ftyp') return undefined;
  const size = Math.min(bytes.readUInt32BE(0), bytes.length, 128);
  const brands = [bytes.toString('latin1', 8, 12)];
  for (let at = 16; at + 4 <= size; at += 4) brands.push(bytes.toString('latin1', at, at + 4));
  // AVIF files list `mif1` too, so that the sharper brand decides.
  if (brands.some((brand) => AVIF_BRANDS.has(brand))) return 'avif';
  if (brands.some((brand) => HEIC_BRANDS.has(brand))) return 'heic';
  return undefined;
}

/** The format, or `undefined` for anything that is not one of them. */
export function imageFormat(bytes: Buffer): ImageFormat | undefined {
  if (bytes.length < 16) return undefined;
  const head = bytes.toString('latin1', 0, 12);
  if (head.startsWith('\xff\xd8\xff')) return 'jpeg';
  if (head.startsWith('\x89PNG\r\n\x1a\n')) return 'png';
  if (head.startsWith('GIF87a') || head.startsWith('GIF89a')) return 'gif';
  if (head.startsWith('RIFF') && head.endsWith('WEBP')) return 'webp';
  if (head.startsWith('II*\0') || head.startsWith('MM\0*')) return 'tiff';
  return isoBrand(bytes);
}

export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

/** Boxes and segments looked at before giving up on a header. */
const MAX_STEPS = 4_096;

/**
 * The size as stored; an orientation tag may turn it. `undefined` when the header does not say: the
 * engine then decides.
 */
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
