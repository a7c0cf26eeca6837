/**
 * Finds the end of a JSON value in bytes, without decoding it.
 *
 * The strict functions reject what `JSON.parse` rejects. The loose ones check structure only:
 * matching brackets and closed strings. All return the index after the value, or `~position` of the
 * invalid byte: a negative number, so that hot loops allocate nothing.
 */

/** Deepest nesting of a request; the limits of Node's JSON.parse and of clients are higher. */
const REQUEST_MAX_DEPTH = 256;
/** Deepest nesting of a reply: call traces nest two levels for each of 1,024 EVM frames. */
const REPLY_MAX_DEPTH = 8192;
/** Strings up to a 32-byte word in hex are read byte by byte, which is faster than `indexOf`. */
const SHORT_STRING_BYTES = 80;

export const QUOTE = 0x22;
export const BACKSLASH = 0x5c;
export const COMMA = 0x2c;
export const COLON = 0x3a;
export const OPEN_OBJECT = 0x7b;
export const CLOSE_OBJECT = 0x7d;
export const OPEN_ARRAY = 0x5b;
export const CLOSE_ARRAY = 0x5d;

/** Returned instead of a position if a request is nested too deeply. */
export const DEPTH_EXCEEDED = -0x7fffffff;

export function skipSpace(bytes: Buffer, from: number): number {
  let at = from;
  for (; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) break;
  }
  return at;
}

export function skipStrict(bytes: Buffer, at: number, depth: number): number {
  const byte = bytes[at];
  if (byte === QUOTE) return skipStrictString(bytes, at);
  if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
    return depth >= REQUEST_MAX_DEPTH ? DEPTH_EXCEEDED : skipStrictContainer(bytes, at, depth + 1);
  }
  return skipScalar(bytes, at);
}

function skipStrictContainer(bytes: Buffer, from: number, depth: number): number {
  const isObject = bytes[from] === OPEN_OBJECT;
  const close = isObject ? CLOSE_OBJECT : CLOSE_ARRAY;
  let at = skipSpace(bytes, from + 1);
  if (bytes[at] === close) return at + 1;
  for (;;) {
    if (isObject) {
      const keyEnd = bytes[at] === QUOTE ? skipStrictString(bytes, at) : ~at;
      if (keyEnd < 0) return keyEnd;
      at = skipSpace(bytes, keyEnd);
      if (bytes[at] !== COLON) return ~at;
      at = skipSpace(bytes, at + 1);
    }
    const end = skipStrict(bytes, at, depth);
    if (end < 0) return end;
    at = skipSpace(bytes, end);
    if (bytes[at] === close) return at + 1;
    if (bytes[at] !== COMMA) return ~at;
    at = skipSpace(bytes, at + 1);
  }
}

export function skipStrictString(bytes: Buffer, from: number): number {
  let at = from + 1;
  for (;;) {
    const byte = bytes[at] ?? 0;
    if (byte === QUOTE) return at + 1;
    if (byte < 0x20) return ~at;
    if (byte !== BACKSLASH) {
      at += 1;
      continue;
    }
    const escaped = bytes[at + 1] ?? 0;
    if (escaped === 0x75) {
      for (let offset = 2; offset < 6; offset += 1) {
        if (!HEX_DIGITS.includes(bytes[at + offset] ?? 0)) return ~(at + offset);
      }
      at += 6;
    } else if (SIMPLE_ESCAPES.includes(escaped)) at += 2;
    else return ~(at + 1);
  }
}

/** The bytes that may follow a backslash, except `u`; and the digits of `\u`. */
const SIMPLE_ESCAPES = Buffer.from('"\\/bfnrt');
const HEX_DIGITS = Buffer.from('0123456789abcdefABCDEF');

function skipScalar(bytes: Buffer, at: number): number {
  const byte = bytes[at];
  if (byte === 0x74) return skipWord(bytes, at, 'true');
  if (byte === 0x66) return skipWord(bytes, at, 'false');
  if (byte === 0x6e) return skipWord(bytes, at, 'null');
  return skipNumber(bytes, at);
}

function skipWord(bytes: Buffer, at: number, word: string): number {
  for (let offset = 0; offset < word.length; offset += 1) {
    if (bytes[at + offset] !== word.charCodeAt(offset)) return ~(at + offset);
  }
  return at + word.length;
}

function skipNumber(bytes: Buffer, from: number): number {
  const whole = bytes[from] === 0x2d ? from + 1 : from;
  let at = bytes[whole] === 0x30 ? whole + 1 : skipDigits(bytes, whole);
  if (at > 0 && bytes[at] === 0x2e) at = skipDigits(bytes, at + 1);
  if (at > 0 && (bytes[at] === 0x65 || bytes[at] === 0x45)) {
    const hasSign = bytes[at + 1] === 0x2b || bytes[at + 1] === 0x2d;
    at = skipDigits(bytes, hasSign ? at + 2 : at + 1);
  }
  return at;
}

function skipDigits(bytes: Buffer, from: number): number {
  let at = from;
  for (; ; at += 1) {
    const byte = bytes[at] ?? 0;
    if (byte < 0x30 || byte > 0x39) return at > from ? at : ~at;
  }
}

export function skipLoose(bytes: Buffer, at: number): number {
  const byte = bytes[at];
  if (byte === QUOTE) return skipLooseString(bytes, at);
  if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) return skipBalanced(bytes, at);
  return skipScalar(bytes, at);
}

/** Returns the end of a string, at a quote after an even number of backslashes. */
export function skipLooseString(bytes: Buffer, from: number): number {
  let at = from + 1;
  for (;;) {
    const nearEnd = Math.min(bytes.length, at + SHORT_STRING_BYTES);
    for (; at < nearEnd; at += 1) {
      const byte = bytes[at];
      if (byte === QUOTE) return at + 1;
      if (byte === BACKSLASH) at += 1;
    }
    const quote = bytes.indexOf(QUOTE, at);
    if (quote < 0) return ~bytes.length;
    // The byte at `at` is not escaped, so the backslashes before the quote start at or after it.
    let run = quote;
    while (run > at && bytes[run - 1] === BACKSLASH) run -= 1;
    if ((quote - run) % 2 === 0) return quote + 1;
    // After one escaped quote, the next is usually near.
    at = quote + 1;
  }
}

/** Returns the end of a container with matching brackets; its content is not checked. */
function skipBalanced(bytes: Buffer, from: number): number {
  const open: number[] = [];
  for (let at = from; at < bytes.length; at += 1) {
    const byte = bytes[at];
    if (byte === QUOTE) {
      const end = skipLooseString(bytes, at);
      if (end < 0) return end;
      at = end - 1;
    } else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      if (open.length === REPLY_MAX_DEPTH) return ~at;
      open.push(byte + 2); // each closing bracket is two code points after its opening one
    } else if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) {
      if (open.pop() !== byte) return ~at;
      if (open.length === 0) return at + 1;
    }
  }
  return ~bytes.length;
}
