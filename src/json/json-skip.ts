/**
 * Finds the end of a JSON string, number or word in bytes, without decoding it.
 *
 * The functions reject what `JSON.parse` rejects, except `skipLooseString`, which only finds the
 * closing quote. All return the index after the value, or `~position` of the invalid byte: a
 * negative number, so that hot loops allocate nothing.
 */

/** Strings up to a 32-byte word in hex are read byte by byte, which is faster than `indexOf`. */
const SHORT_STRING_BYTES = 80;

/** Text of a string after this many bytes is read in words. */
const LONG_STRING_BYTES = 1_024;

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

export function skipStrictString(bytes: Buffer, from: number): number {
  let at = from + 1;
  let longFrom = at + LONG_STRING_BYTES;
  for (;;) {
    const byte = bytes[at] ?? 0;
    if (byte === QUOTE) return at + 1;
    if (byte < 0x20) return ~at;
    if (byte !== BACKSLASH) {
      at += 1;
      // Words begin at a multiple of four.
      if (at >= longFrom && (bytes.byteOffset + at) % 4 === 0) {
        at = skipPlainWords(bytes, at);
        longFrom = at + LONG_STRING_BYTES;
      }
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

/**
 * Skips text of a string in words of four bytes, several times as fast as byte by byte, until a word
 * may contain a quote, a backslash or a control character.
 */
function skipPlainWords(bytes: Buffer, from: number): number {
  const count = (bytes.length - from) >> 2;
  if (count <= 0) return from;
  const words = new Int32Array(bytes.buffer, bytes.byteOffset + from, count);
  let index = 0;
  for (; index < count; index += 1) {
    const word = words[index] ?? 0;
    const quote = word ^ 0x22222222;
    const escape = word ^ 0x5c5c5c5c;
    // The highest bit of a byte is set if it is below 0x20, or zero in the other two.
    const found =
      ((word - 0x20202020) & ~word) |
      ((quote - 0x01010101) & ~quote) |
      ((escape - 0x01010101) & ~escape);
    if ((found & 0x80808080) !== 0) break;
  }
  return from + 4 * index;
}

/** The bytes that may follow a backslash, except `u`; and the digits of `\u`. */
const SIMPLE_ESCAPES = Buffer.from('"\\/bfnrt');
const HEX_DIGITS = Buffer.from('0123456789abcdefABCDEF');

export function skipScalar(bytes: Buffer, at: number): number {
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
