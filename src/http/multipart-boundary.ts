/** Finds the boundaries of a multipart body (RFC 2046 §5.1.1) without parsing its parts. */
import { MIMEType } from 'node:util';
import { nextTurn } from '../core/event-loop.ts';

/** Maximum number of parts of a body. */
export const MAX_PARTS = 100;
/** A longer `Content-Type` is not searched for a boundary. */
const MAX_TYPE_CHARACTERS = 1_000;
/** At most 15 ms of work, for a body of nothing but line ends. */
const SEARCHED_AT_ONCE_BYTES = 1024 * 1024;

/** 1 to 70 of the characters that RFC 2046 allows; the last one is not a space. */
const BOUNDARY = /^[\w'()+,./:=? -]{0,69}[\w'()+,./:=?-]$/;

/** Returns the boundary of a `Content-Type`; `undefined` for other types and an invalid boundary. */
export function boundaryOf(contentType: string | undefined): string | undefined {
  if (contentType === undefined || contentType.length > MAX_TYPE_CHARACTERS) return undefined;
  if (!contentType.toLowerCase().startsWith('multipart/')) return undefined;
  try {
    const boundary = new MIMEType(contentType).params.get('boundary') ?? '';
    return BOUNDARY.test(boundary) ? boundary : undefined;
  } catch {
    // Not a media type: the handler rejects it.
    return undefined;
  }
}

/** Returns the offsets of the first `MAX_PARTS + 1` boundaries, in linear time. */
export async function boundariesIn(body: Buffer, boundary: string): Promise<readonly number[]> {
  const opening = `--${boundary}`;
  const delimiter = `\r\n${opening}`;
  const found: number[] = [];
  if (body.subarray(0, opening.length).equals(Buffer.from(opening))) found.push(2);
  let from = 0;
  while (from < body.length && found.length <= MAX_PARTS) {
    if (from > 0) await nextTurn();
    // The overlap finds a delimiter that begins in this slice and ends in the next one.
    const slice = body.subarray(from, from + SEARCHED_AT_ONCE_BYTES + delimiter.length - 1);
    let at = slice.indexOf(delimiter, 0, 'latin1');
    while (at >= 0 && found.length <= MAX_PARTS) {
      found.push(from + at + delimiter.length - boundary.length);
      at = slice.indexOf(delimiter, at + delimiter.length, 'latin1');
    }
    from += SEARCHED_AT_ONCE_BYTES;
  }
  return found;
}
