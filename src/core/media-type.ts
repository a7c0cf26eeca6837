/** Detects the type of a file and the size of an image by their bytes, without decoding. */

export const SNIFF_BYTES = 4_096;

export function sniffMedia(bytes: Buffer): string | undefined {
  const [head, form] = [bytes.toString('latin1', 0, 8), bytes.toString('latin1', 8, 12)];
  const known = SIGNATURES.find(([start, , inside = form]) => {
    return head.startsWith(start) && form === inside;
  });
  if (known !== undefined) return known[1];
  if (head.startsWith('\x1aE\xdf\xa3')) {
    return bytes.subarray(0, 64).includes('webm') ? 'video/webm' : 'video/x-matroska';
  }
  return head.slice(4) === 'ftyp' ? sniffBrand(bytes) : sniffMpeg(bytes);
}

/** No valid image is shorter. */
const MIN_IMAGE_BYTES = 16;

/** Returns the type of a decodable image. Excludes SVG and PDF, which can reference files. */
export function imageType(bytes: Buffer): string | undefined {
  const type = bytes.length < MIN_IMAGE_BYTES ? undefined : sniffMedia(bytes);
  return type?.startsWith('image/') === true && type !== 'image/jxl' ? type : undefined;
}

/** First bytes, media type, and the text at the ninth byte. */
const SIGNATURES: readonly (readonly [string, string, string?])[] = [
  ['\x89PNG\r\n\x1a\n', 'image/png'],
  ['\xff\xd8\xff', 'image/jpeg'],
  ['GIF87a', 'image/gif'],
  ['GIF89a', 'image/gif'],
  ['II*\0', 'image/tiff'],
  ['MM\0*', 'image/tiff'],
  ['\xff\x0a', 'image/jxl'],
  ['OggS', 'audio/ogg'],
  ['fLaC', 'audio/flac'],
  ['ID3', 'audio/mpeg'],
  ['\0\0\x01\xba', 'video/mpeg'],
  ['\0\0\x01\xb3', 'video/mpeg'],
  ['%PDF-', 'application/pdf'],
  ['PK\x03\x04', 'application/zip'],
  ['RIFF', 'image/webp', 'WEBP'],
  ['RIFF', 'audio/wav', 'WAVE'],
  ['RIFF', 'video/x-msvideo', 'AVI '],
  ['FORM', 'audio/aiff', 'AIFF'],
  ['FORM', 'audio/aiff', 'AIFC'],
];

/** The brands of an ISO base media file tell images, audio and video apart. */
function sniffBrand(bytes: Buffer): string {
  const end = Math.min(bytes.length, Math.max(16, bytes.readUInt32BE(0)), 256);
  const brands = [bytes.toString('latin1', 8, 12)];
  for (let at = 16; at + 4 <= end; at += 4) brands.push(bytes.toString('latin1', at, at + 4));
  const has = (pattern: RegExp): boolean => brands.some((brand) => pattern.test(brand));
  // AVIF files also list `mif1`, so check the more specific brand first.
  if (has(/^avi[fs]$/)) return 'image/avif';
  if (has(/^(?:hei[cxms]|hev[cxms])$/)) return 'image/heic';
  if (has(/^(?:mif1|msf1)$/)) return 'image/heif';
  if (/^M4[ABP] $/.test(brands[0] ?? '')) return 'audio/mp4';
  if (brands[0] === 'qt  ') return 'video/quicktime';
  return 'video/mp4';
}

/** Raw MPEG audio has no magic number, only a sync word and fields with valid values. */
function sniffMpeg(bytes: Buffer): string | undefined {
  const [first = 0, second = 0, third = 0] = bytes;
  if (first !== 0xff || (second & 0xe0) !== 0xe0) return undefined;
  if ((second & 0xf6) === 0xf0) return 'audio/aac';
  // Layer I is excluded: it is unused, and UTF-16 text begins like it.
  const layer = second & 0x06;
  const isLayer = (layer === 0x02 || layer === 0x04) && (second & 0x18) !== 0x08;
  const isRate = (third & 0xf0) !== 0xf0 && (third & 0x0c) !== 0x0c;
  return isLayer && isRate ? 'audio/mpeg' : undefined;
}

/** In pixels as stored; an orientation tag may rotate it. */
export interface ImageSize {
  readonly width: number;
  readonly height: number;
}

const MAX_STEPS = 65_536;

/** Returns `undefined` if the header is incomplete or invalid. */
export function imageSize(bytes: Buffer): ImageSize | undefined {
  try {
    const size = sizeFor(bytes);
    return size !== undefined && size.width > 0 && size.height > 0 ? size : undefined;
  } catch {
    return undefined; // a read past the end: the header is truncated or has wrong lengths
  }
}

function sizeFor(bytes: Buffer): ImageSize | undefined {
  switch (sniffMedia(bytes)) {
    case 'image/png':
      return { width: bytes.readUInt32BE(16), height: bytes.readUInt32BE(20) };
    case 'image/gif':
      return { width: bytes.readUInt16LE(6), height: bytes.readUInt16LE(8) };
    case 'image/jpeg':
      return jpegSize(bytes);
    case 'image/webp':
      return webpSize(bytes);
    case 'image/tiff':
      return tiffSize(bytes);
    case 'image/avif':
    case 'image/heic':
    case 'image/heif':
      return heifSize(bytes);
    default:
      return undefined;
  }
}

function jpegSize(bytes: Buffer): ImageSize | undefined {
  for (let at = 2, step = 0; at + 9 < bytes.length && step < MAX_STEPS; step += 1) {
    if (bytes[at] !== 0xff) return undefined;
    const marker = bytes.readUInt8(at + 1);
    if (marker === 0xff) {
      at += 1; // fill byte
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) {
      return { width: bytes.readUInt16BE(at + 7), height: bytes.readUInt16BE(at + 5) };
    }
    at += 2 + Math.max(2, bytes.readUInt16BE(at + 2));
  }
  return undefined;
}

function webpSize(bytes: Buffer): ImageSize | undefined {
  switch (bytes.toString('latin1', 12, 16)) {
    case 'VP8X':
      return { width: bytes.readUIntLE(24, 3) + 1, height: bytes.readUIntLE(27, 3) + 1 };
    case 'VP8L': {
      const bits = bytes.readUInt32LE(21);
      return { width: (bits & 0x3fff) + 1, height: ((bits >>> 14) & 0x3fff) + 1 };
    }
    case 'VP8 ':
      return {
        width: bytes.readUInt16LE(26) & 0x3fff,
        height: bytes.readUInt16LE(28) & 0x3fff,
      };
    default:
      return undefined;
  }
}

/** Uses the largest `ispe` property: tiles and thumbnails have smaller ones. */
function heifSize(bytes: Buffer): ImageSize | undefined {
  let best: ImageSize | undefined;
  let at = bytes.indexOf('ispe');
  for (let step = 0; at !== -1 && step < MAX_STEPS; step += 1) {
    const isWhole = at + 16 <= bytes.length && bytes.readUInt32BE(at + 4) === 0;
    const size = { width: 0, height: 0 };
    if (isWhole) {
      size.width = bytes.readUInt32BE(at + 8);
      size.height = bytes.readUInt32BE(at + 12);
    }
    if (size.width * size.height > (best?.width ?? 0) * (best?.height ?? 0)) best = size;
    at = bytes.indexOf('ispe', at + 4);
  }
  return best;
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
