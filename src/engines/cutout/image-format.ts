/**
 * Tells an image's format by its first bytes. The file name and the declared type are not asked:
 * only these formats ever reach the decoder, so that text formats which can name other files (SVG,
 * PDF) never do.
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
