/**
 * Decodes a text file: by its byte order mark, the declared charset, UTF-8 if valid, else
 * Windows-1252, which accepts every byte. Binary data is rejected.
 */
import { ReaderError } from './reader-error.ts';

/** Bytes at the start that are checked for binary data. */
const SAMPLE_BYTES = 8_192;

/** Decodes text; throws `ReaderError` if the bytes are not text. */
export function decodeText(bytes: Uint8Array, charset?: string): string {
  const mark = byteOrderMark(bytes);
  if (mark !== undefined) return new TextDecoder(mark).decode(bytes);
  if (looksBinary(bytes)) throw new ReaderError('is not text');
  const named = charset === undefined ? undefined : decoderFor(charset);
  if (named !== undefined) return named.decode(bytes);
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    // Windows-1252 is the most likely other encoding.
    return new TextDecoder('windows-1252').decode(bytes);
  }
}

export function htmlCharset(bytes: Uint8Array): string | undefined {
  const head = new TextDecoder('latin1').decode(bytes.subarray(0, 2_048));
  for (const [tag] of head.matchAll(/<meta[^<>]*/gi)) {
    const charset = /charset\s{0,9}=\s{0,9}["']?([\w:.-]{2,40})/i.exec(tag)?.[1];
    if (charset !== undefined) return charset;
  }
  return undefined;
}

function decoderFor(charset: string): TextDecoder | undefined {
  try {
    return new TextDecoder(charset);
  } catch {
    return undefined; // an unknown charset is ignored
  }
}

function byteOrderMark(bytes: Uint8Array): string | undefined {
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) return 'utf-8';
  if (bytes[0] === 0xff && bytes[1] === 0xfe) return 'utf-16le';
  if (bytes[0] === 0xfe && bytes[1] === 0xff) return 'utf-16be';
  return undefined;
}

function looksBinary(bytes: Uint8Array): boolean {
  const sample = bytes.subarray(0, SAMPLE_BYTES);
  let controls = 0;
  for (const byte of sample) {
    if (byte === 0) return true;
    if (byte < 8 || (byte > 13 && byte < 32 && byte !== 27)) controls += 1;
  }
  return controls * 20 > sample.length;
}
