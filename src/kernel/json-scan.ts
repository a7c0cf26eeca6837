/**
 * Looks into a JSON document as bytes, from its end: finds a member near the end without parsing
 * what stands before it, and appends members without encoding anything anew.
 *
 * The documents are objects that an engine sent. Each function gives null (or throws, where it
 * says so) rather than a wrong place: look-alikes inside strings, escapes and nested objects do
 * not deceive it. It does not check that the whole document is valid JSON.
 */

export interface ByteSpan {
  readonly start: number;
  /** One past the last byte. */
  readonly end: number;
}

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COLON = 0x3a;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** Occurrences looked at before giving up; a document full of look-alikes must not cost much. */
const MAX_CANDIDATES = 16;

/**
 * The span of the value of a top-level member, sought from the end; of equal keys the last, as in
 * JSON.parse. `key` is plain ASCII without quotes or backslashes. Null when it is not there.
 */
export function findLastMember(document: Buffer, key: string): ByteSpan | null {
  const close = lastBrace(document);
  if (close === -1) return null;
  const needle = `"${key}"`;
  let at = document.lastIndexOf(needle, close, 'latin1');
  for (let tries = 0; at > 0 && tries < MAX_CANDIDATES; tries += 1) {
    const span = memberAt(document, at, at + needle.length, close);
    if (span !== null) return span;
    at = document.lastIndexOf(needle, at - 1, 'latin1');
  }
  return null;
}

/** Whether the quote at `at` opens a top-level key that ends at `keyEnd`: then its value. */
function memberAt(document: Buffer, at: number, keyEnd: number, close: number): ByteSpan | null {
  // Inside a string every quote has a backslash before it; outside there are no backslashes.
  if (document[at - 1] === BACKSLASH) return null;
  const colon = skipSpace(document, keyEnd);
  if (document[colon] !== COLON) return null;
  const start = skipSpace(document, colon + 1);
  const end = valueEnd(document, start);
  if (end === -1 || end > close) return null;
  // Top level: what follows closes exactly one object, and that is the document.
  return closesAt(document, end, close) ? { start, end } : null;
}

/** Whether, from `from` on, the enclosing object ends at `close` and not before. */
function closesAt(document: Buffer, from: number, close: number): boolean {
  let at = from;
  let depth = 1;
  while (at <= close) {
    const byte = document[at];
    if (byte === QUOTE) {
      at = stringEnd(document, at);
      if (at === -1) return false;
      continue;
    }
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth += 1;
    else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      depth -= 1;
      if (depth === 0) return at === close && byte === CLOSE_BRACE;
    }
    at += 1;
  }
  return false;
}

/** One past the JSON value that starts at `start`, or -1 when the document ends inside it. */
function valueEnd(document: Buffer, start: number): number {
  const first = document[start];
  if (first === QUOTE) return stringEnd(document, start);
  if (first === OPEN_BRACE || first === OPEN_BRACKET) return containerEnd(document, start);
  let at = start;
  while (at < document.length && !endsScalar(document[at])) at += 1;
  return at === start || at === document.length ? -1 : at;
}

function containerEnd(document: Buffer, start: number): number {
  let depth = 0;
  let at = start;
  while (at < document.length) {
    const byte = document[at];
    if (byte === QUOTE) {
      at = stringEnd(document, at);
      if (at === -1) return -1;
      continue;
    }
    at += 1;
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth += 1;
    else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      depth -= 1;
      if (depth === 0) return at;
    }
  }
  return -1;
}

/** One past the closing quote of the string that opens at `start`, or -1 when it has none. */
export function stringEnd(document: Buffer, start: number): number {
  let close = document.indexOf(QUOTE, start + 1);
  while (close !== -1) {
    let slashes = 0;
    while (document[close - 1 - slashes] === BACKSLASH) slashes += 1;
    if (slashes % 2 === 0) return close + 1;
    close = document.indexOf(QUOTE, close + 1);
  }
  return -1;
}

/** The first place at or after `from` that is no JSON white space. */
export function skipSpace(document: Buffer, from: number): number {
  let at = from;
  while (isSpace(document[at])) at += 1;
  return at;
}

/**
 * The document with `members` (JSON text such as `"cost":{"usd":1}`, not empty) put before the
 * brace that ends it. Throws a RangeError when the document is not an object.
 */
export function appendMembers(document: Buffer, members: string): Buffer {
  const close = lastBrace(document);
  let before = close - 1;
  while (isSpace(document[before])) before -= 1;
  if (close === -1 || before < 0) throw new RangeError('The document is not a JSON object');
  const isEmpty = document[before] === OPEN_BRACE && skipSpace(document, 0) === before;
  const addition = isEmpty ? members : `,${members}`;
  const size = Buffer.byteLength(addition);
  const result = Buffer.allocUnsafe(document.length + size);
  document.copy(result, 0, 0, close);
  result.write(addition, close, 'utf8');
  document.copy(result, close + size, close);
  return result;
}

/** The document with the bytes of `span` replaced by `text`. */
export function replaceSpan(document: Buffer, span: ByteSpan, text: string): Buffer {
  const size = Buffer.byteLength(text);
  const result = Buffer.allocUnsafe(document.length - (span.end - span.start) + size);
  document.copy(result, 0, 0, span.start);
  result.write(text, span.start, 'utf8');
  document.copy(result, span.start + size, span.end);
  return result;
}

/** The place of the brace that ends the document, or -1 when something else does. */
function lastBrace(document: Buffer): number {
  let at = document.length - 1;
  while (isSpace(document[at])) at -= 1;
  return document[at] === CLOSE_BRACE ? at : -1;
}

function isSpace(byte: number | undefined): boolean {
  return byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09;
}

function endsScalar(byte: number | undefined): boolean {
  return byte === COMMA || byte === CLOSE_BRACE || byte === CLOSE_BRACKET || isSpace(byte);
}
