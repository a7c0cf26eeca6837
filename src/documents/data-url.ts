/**
 * Data URLs (RFC 2397) as chat content carries them. The payload stays text until somebody needs
 * its bytes: a picture of 25 MB is passed on without being decoded.
 */

export interface DataUrl {
  /** Lowercase, without parameters; `text/plain` when absent. */
  readonly mediaType: string;
  readonly sizeBytes: number;
  head(count: number): Buffer;
  bytes(): Buffer;
}

const MAX_PREFIX_CHARS = 512;
/** Percent-encoding is for short texts: decoding it is slow. */
const MAX_PERCENT_CHARS = 1_000_000;

export function isDataUrl(text: string): boolean {
  return /^data:/i.test(text.slice(0, 5));
}

/** Reads a data URL; `undefined` when the text is none or its payload is not what it says. */
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

/** Base64 from `start` on; `undefined` when it is something else. */
export function fromBase64(mediaType: string, text: string, start = 0): DataUrl | undefined {
  // Only the beginning is looked at: what follows is the engine's to refuse, and scanning 30 MB
  // of it would hold the event loop.
  if (!/^[A-Za-z0-9+/_=\s-]*$/.test(text.slice(start, start + MAX_PREFIX_CHARS))) return undefined;
  const padding = text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0;
  const sizeBytes = Math.floor(((text.length - start) * 3) / 4) - padding;
  return {
    mediaType,
    sizeBytes: Math.max(0, sizeBytes),
    head: (count) => {
      const chars = Math.ceil(count / 3) * 4 + 256; // some room for line breaks
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
