/**
 * What a file is by its first bytes, and the size of a picture by its header: nothing is decoded.
 * What the sender or a file name claims plays no part here.
 */

export interface SniffedMedia {
  readonly kind: 'image' | 'audio' | 'video' | 'pdf' | 'zip';
  readonly mediaType: string;
}

/** How much of a file `sniffMedia` wants to see. */
export const SNIFF_BYTES = 4_096;

/** The kind of media, or `undefined` for text and everything unknown. */
export function sniffMedia(bytes: Buffer): SniffedMedia | undefined {
  return sniffFixed(bytes) ?? sniffContainer(bytes) ?? sniffMpeg(bytes);
}

const FIXED: readonly (readonly [string, SniffedMedia])[] = [
  ['89504e470d0a1a0a', { kind: 'image', mediaType: 'image/png' }],
  ['ffd8ff', { kind: 'image', mediaType: 'image/jpeg' }],
  ['474946383761', { kind: 'image', mediaType: 'image/gif' }],
  ['474946383961', { kind: 'image', mediaType: 'image/gif' }],
  ['49492a00', { kind: 'image', mediaType: 'image/tiff' }],
  ['4d4d002a', { kind: 'image', mediaType: 'image/tiff' }],
  ['ff0a', { kind: 'image', mediaType: 'image/jxl' }],
  ['4f676753', { kind: 'audio', mediaType: 'audio/ogg' }],
  ['664c6143', { kind: 'audio', mediaType: 'audio/flac' }],
  ['494433', { kind: 'audio', mediaType: 'audio/mpeg' }],
  ['000001ba', { kind: 'video', mediaType: 'video/mpeg' }],
  ['000001b3', { kind: 'video', mediaType: 'video/mpeg' }],
  ['255044462d', { kind: 'pdf', mediaType: 'application/pdf' }],
  ['504b0304', { kind: 'zip', mediaType: 'application/zip' }],
];

function sniffFixed(bytes: Buffer): SniffedMedia | undefined {
  const head = bytes.toString('hex', 0, 8);
  return FIXED.find(([magic]) => head.startsWith(magic))?.[1];
}

function sniffContainer(bytes: Buffer): SniffedMedia | undefined {
  const form = bytes.toString('latin1', 8, 12);
  switch (bytes.toString('latin1', 0, 4)) {
    case 'RIFF':
      if (form === 'WEBP') return { kind: 'image', mediaType: 'image/webp' };
      if (form === 'WAVE') return { kind: 'audio', mediaType: 'audio/wav' };
      if (form === 'AVI ') return { kind: 'video', mediaType: 'video/x-msvideo' };
      return undefined;
    case 'FORM':
      return /^AIF[FC]$/.test(form) ? { kind: 'audio', mediaType: 'audio/aiff' } : undefined;
    case '\x1aE\xdf\xa3': {
      const isWebm = bytes.subarray(0, 64).includes('webm');
      return { kind: 'video', mediaType: isWebm ? 'video/webm' : 'video/x-matroska' };
    }
    default:
      return bytes.toString('latin1', 4, 8) === 'ftyp' ? sniffBrand(bytes) : undefined;
  }
}

/** The brands of an ISO base media file say whether it is a picture, a song or a film. */
function sniffBrand(bytes: Buffer): SniffedMedia {
  const end = Math.min(bytes.length, Math.max(16, bytes.readUInt32BE(0)), 256);
  const brands = [bytes.toString('latin1', 8, 12)];
  for (let at = 16; at + 4 <= end; at += 4) brands.push(bytes.toString('latin1', at, at + 4));
  const has = (pattern: RegExp): boolean => brands.some((brand) => pattern.test(brand));
  if (has(/^avi[fs]$/)) return { kind: 'image', mediaType: 'image/avif' };
  if (has(/^(?:hei[cxms]|hev[cxms])$/)) return { kind: 'image', mediaType: 'image/heic' };
  if (/^(?:mif1|msf1)$/.test(brands[0] ?? '')) return { kind: 'image', mediaType: 'image/heif' };
  if (/^M4[ABP] $/.test(brands[0] ?? '')) return { kind: 'audio', mediaType: 'audio/mp4' };
  if (brands[0] === 'qt  ') return { kind: 'video', mediaType: 'video/quicktime' };
  return { kind: 'video', mediaType: 'video/mp4' };
}

/** Raw MPEG audio has no magic, only a sync word and fields that must make sense. */
function sniffMpeg(bytes: Buffer): SniffedMedia | undefined {
  const [first = 0, second = 0, third = 0] = bytes;
  if (first !== 0xff || (second & 0xe0) !== 0xe0) return undefined;
  if ((second & 0xf6) === 0xf0) return { kind: 'audio', mediaType: 'audio/aac' };
  // Layer I is left out: nobody has such files, and UTF-16 text begins like one.
  const layer = second & 0x06;
  const isLayer = (layer === 0x02 || layer === 0x04) && (second & 0x18) !== 0x08;
  const isRate = (third & 0xf0) !== 0xf0 && (third & 0x0c) !== 0x0c;
  return isLayer && isRate ? { kind: 'audio', mediaType: 'audio/mpeg' } : undefined;
}

export interface ImageSize {
  readonly widthPx: number;
  readonly heightPx: number;
}

/** The size that an image header states; `undefined` when `bytes` end before it or it is broken. */
export function imageSize(bytes: Buffer): ImageSize | undefined {
  try {
    const size = sizeFor(bytes);
    return size !== undefined && size.widthPx > 0 && size.heightPx > 0 ? size : undefined;
  } catch {
    return undefined; // a read past the end: the header is cut or lies about its lengths
  }
}

function sizeFor(bytes: Buffer): ImageSize | undefined {
  const mediaType = sniffMedia(bytes)?.mediaType ?? '';
  switch (mediaType) {
    case 'image/png':
      return { widthPx: bytes.readUInt32BE(16), heightPx: bytes.readUInt32BE(20) };
    case 'image/gif':
      return { widthPx: bytes.readUInt16LE(6), heightPx: bytes.readUInt16LE(8) };
    case 'image/jpeg':
      return jpegSize(bytes);
    case 'image/webp':
      return webpSize(bytes);
    case 'image/avif':
    case 'image/heic':
    case 'image/heif':
      return heifSize(bytes);
    default:
      return undefined;
  }
}

function jpegSize(bytes: Buffer): ImageSize | undefined {
  for (let at = 2; at + 9 < bytes.length;) {
    if (bytes[at] !== 0xff) return undefined;
    const marker = bytes.readUInt8(at + 1);
    if (marker === 0xff) {
      at += 1; // fill byte
      continue;
    }
    const isFrame = marker >= 0xc0 && marker <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(marker);
    if (isFrame) {
      return { widthPx: bytes.readUInt16BE(at + 7), heightPx: bytes.readUInt16BE(at + 5) };
    }
    at += 2 + Math.max(2, bytes.readUInt16BE(at + 2));
  }
  return undefined;
}

function webpSize(bytes: Buffer): ImageSize | undefined {
  switch (bytes.toString('latin1', 12, 16)) {
    case 'VP8X':
      return { widthPx: bytes.readUIntLE(24, 3) + 1, heightPx: bytes.readUIntLE(27, 3) + 1 };
    case 'VP8L': {
      const bits = bytes.readUInt32LE(21);
      return { widthPx: (bits & 0x3fff) + 1, heightPx: ((bits >>> 14) & 0x3fff) + 1 };
    }
    case 'VP8 ':
      return {
        widthPx: bytes.readUInt16LE(26) & 0x3fff,
        heightPx: bytes.readUInt16LE(28) & 0x3fff,
      };
    default:
      return undefined;
  }
}

/** The properties stand in the `meta` box, before the coded pictures. */
const MAX_HEIF_HEADER_BYTES = 262_144;

/** The largest `ispe` property: tiles and thumbnails have smaller ones beside the picture's own. */
function heifSize(whole: Buffer): ImageSize | undefined {
  const bytes = whole.subarray(0, MAX_HEIF_HEADER_BYTES);
  let best: ImageSize | undefined;
  for (let at = bytes.indexOf('ispe'); at !== -1; at = bytes.indexOf('ispe', at + 4)) {
    if (at + 16 > bytes.length || bytes.readUInt32BE(at + 4) !== 0) continue;
    const size = { widthPx: bytes.readUInt32BE(at + 8), heightPx: bytes.readUInt32BE(at + 12) };
    const area = size.widthPx * size.heightPx;
    if (best === undefined || area > best.widthPx * best.heightPx) best = size;
  }
  return best;
}
