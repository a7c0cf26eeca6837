/**
 * Data URLs (RFC 2397) in chat content. The payload stays text until its bytes are needed, so that
 * an image of 25 MB is forwarded without decoding.
 */

export interface DataUrl {
  /** Lower case, without parameters; `text/plain` if missing. */
  readonly mediaType: string;
  readonly sizeBytes: number;
  head(count: number): Buffer;
  bytes(): Buffer;
}

const MAX_PREFIX_CHARS = 512;
/** Decoding percent-encoding is slow, so its length is limited. */
const MAX_PERCENT_CHARS = 1_000_000;

export function isDataUrl(text: string): boolean {
  return /^data:/i.test(text.slice(0, 5));
}

/** Parses a data URL; `undefined` if it is invalid. */
export function parseDataUrl(url: string): DataUrl | undefined {
  const comma = url.slice(0, MAX_PREFIX_CHARS).indexOf(',');
  if (comma === -1 || !isDataUrl(url)) return undefined;
  const [type = '', ...parameters] = url.slice(5, comma).split(';');
  const mediaType = type.trim().toLowerCase() || 'text/plain';
  if (!/^[\w.+-]+\/[\w.+*-]+$/.test(mediaType)) return undefined;
  const isBase64 = parameters.at(-1)?.trim().toLowerCase() === 'base64';
  return isBase64
    ? fromBase64(mediaType, url, comma + 1)
    : percentUrl(mediaType, url.slice(comma + 1));
}

export function fromBytes(mediaType: string, bytes: Buffer): DataUrl {
  return {
    mediaType,
    sizeBytes: bytes.length,
    head: (count) => bytes.subarray(0, count),
    bytes: () => bytes,
  };
}

export function fromBase64(mediaType: string, text: string, start = 0): DataUrl | undefined {
  // Only the start is checked: scanning 30 MB would block the event loop, and the engine rejects
  // invalid data anyway.
  if (!/^[A-Za-z0-9+/_=\s-]*$/.test(text.slice(start, start + MAX_PREFIX_CHARS))) return undefined;
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const sizeBytes = Math.floor(((text.length - start) * 3) / 4) - padding;
  return {
    mediaType,
    sizeBytes: Math.max(0, sizeBytes),
    head: (count) => {
      const chars = Math.ceil(count / 3) * 4 + 256; // allows for line breaks
      return Buffer.from(text.slice(start, start + chars), 'base64').subarray(0, count);
    },
    bytes: () => Buffer.from(text.slice(start), 'base64'),
  };
}

function percentUrl(mediaType: string, text: string): DataUrl | undefined {
  if (text.length > MAX_PERCENT_CHARS) return undefined;
  try {
    return fromBytes(mediaType, Buffer.from(decodeURIComponent(text)));
  } catch {
    return undefined; // malformed percent-encoding
  }
}
