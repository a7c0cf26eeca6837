/**
 * Finds the spans of members and elements in the bytes of a JSON document.
 *
 * The scanner trusts its input to be valid JSON (parse first, or check what it finds); it never
 * reads past the end. Offsets are bytes. Each document is held twice, as bytes and as the same
 * bytes in a one-byte string: the string's search is what makes long texts cheap to skip.
 */
import { isAscii } from 'node:buffer';
import { Fault } from '../core/faults.ts';

/** A document: `latin1[i]` is byte `i`. */
export interface JsonBytes {
  readonly bytes: Buffer;
  readonly latin1: string;
}

/** One member of an object: `key` decoded, offsets in bytes; `start` is the key's quote. */
export interface MemberSpan {
  readonly key: string;
  readonly start: number;
  readonly valueStart: number;
  readonly end: number;
}

export interface Span {
  readonly start: number;
  readonly end: number;
}

export type JsonObject = Readonly<Record<string, unknown>>;

/** Deeper documents are refused: engines and `JSON.stringify` recurse. */
export const MAX_JSON_DEPTH = 256;

/**
 * What is parsed costs the event loop by its pieces, not by its bytes: 30 MB of one string take
 * 10 ms, 30 MB of empty objects 3 s. The most messages with a part each stay below the first bound,
 * the longest lists of token ids below the second.
 */
export const MAX_JSON_NODES = 150_000;
export const MAX_JSON_ELEMENTS = 2_000_000;

/** Up to here a byte loop beats the native search for the closing quote. */
const SHORT_STRING_BYTES = 16;

const QUOTE = 0x22;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_BRACE = 0x7b;
const CLOSE_BRACE = 0x7d;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** Whether a value is a JSON object (not an array, not null). */
export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** The document for the scanner, and the text for `JSON.parse`: one string when it is ASCII. */
export function jsonBytes(bytes: Buffer): { readonly json: JsonBytes; readonly text: string } {
  const latin1 = bytes.toString('latin1');
  return { json: { bytes, latin1 }, text: isAscii(bytes) ? latin1 : bytes.toString('utf8') };
}

/** The offset of the first byte at or after `at` that is not JSON white space. */
export function skipSpace(bytes: Buffer, at: number): number {
  let index = at;
  while (index < bytes.length) {
    const byte = bytes[index];
    if (byte !== 0x20 && byte !== 0x0a && byte !== 0x0d && byte !== 0x09) break;
    index += 1;
  }
  return index;
}

/** The offset after the string whose opening quote is at `at`. */
export function skipString(json: JsonBytes, at: number): number {
  const { bytes, latin1 } = json;
  let index = at + 1;
  while (index < bytes.length) {
    const shortEnd = Math.min(bytes.length, index + SHORT_STRING_BYTES);
    while (index < shortEnd) {
      const byte = bytes[index];
      if (byte === QUOTE) return index + 1;
      index += byte === BACKSLASH ? 2 : 1;
    }
    const quote = latin1.indexOf('"', index);
    if (quote === -1) return bytes.length;
    let run = quote - 1;
    while (run >= index && bytes[run] === BACKSLASH) run -= 1;
    // An even run of backslashes escapes itself, so the quote closes the string.
    if ((quote - run) % 2 === 1) return quote + 1;
    // Where one quote is escaped, the next is rarely far.
    index = quote + 1;
  }
  return bytes.length;
}

function skipScalar(bytes: Buffer, at: number): number {
  let index = at;
  while (index < bytes.length) {
    const byte = bytes[index];
    if (byte === COMMA || byte === CLOSE_BRACE || byte === CLOSE_BRACKET) break;
    if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) break;
    index += 1;
  }
  return index;
}

/** The offset after the JSON value that starts at `at`. Refuses more than 256 levels. */
export function skipValue(json: JsonBytes, at: number): number {
  const { bytes } = json;
  const first = bytes[at];
  if (first === QUOTE) return skipString(json, at);
  if (first !== OPEN_BRACE && first !== OPEN_BRACKET) return skipScalar(bytes, at);
  let depth = 0;
  let index = at;
  while (index < bytes.length) {
    const byte = bytes[index];
    if (byte === QUOTE) {
      index = skipString(json, index);
      continue;
    }
    index += 1;
    if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      depth += 1;
      if (depth >= MAX_JSON_DEPTH) throw tooDeep();
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) {
      depth -= 1;
      if (depth === 0) return index;
    }
  }
  return bytes.length;
}

/**
 * Refuses a document of too many pieces, or too deep a one, before it is parsed (400). Any bytes
 * will do: what is no JSON is left to the parser.
 */
export function refuseExcess(json: JsonBytes): void {
  const { bytes } = json;
  let nodes = 0;
  let elements = 0;
  let depth = 0;
  let index = 0;
  while (index < bytes.length) {
    const byte = bytes[index];
    if (byte === QUOTE) {
      index = skipString(json, index);
      continue;
    }
    index += 1;
    if (byte === COMMA) elements += 1;
    else if (byte === COLON) nodes += 1;
    else if (byte === OPEN_BRACE || byte === OPEN_BRACKET) {
      nodes += 1;
      depth += 1;
      if (depth > MAX_JSON_DEPTH) throw tooDeep();
    } else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) depth -= 1;
    if (nodes > MAX_JSON_NODES || elements > MAX_JSON_ELEMENTS) throw tooMany();
  }
}

function tooMany(): Fault {
  return new Fault('INVALID_JSON', {
    message: `The JSON has too many pieces: at most ${MAX_JSON_NODES} objects, arrays and members and ${MAX_JSON_ELEMENTS} elements are taken`,
  });
}

function tooDeep(): Fault {
  return new Fault('INVALID_JSON', {
    message: `The JSON is nested too deeply: at most ${MAX_JSON_DEPTH} levels are taken`,
  });
}

/** The members of the object whose brace is at or after `at`, in order of the document. */
export function memberSpans(json: JsonBytes, at = 0): MemberSpan[] {
  const members: MemberSpan[] = [];
  visitMembers(json, at, (key, start, valueStart) => {
    const end = skipValue(json, valueStart);
    members.push({ key, start, valueStart, end });
    return end;
  });
  return members;
}

/**
 * Calls `visit` for each member; it gives back the offset after the value, so that it can read
 * the value while it skips it. Gives back the offset after the object.
 */
export function visitMembers(
  json: JsonBytes,
  at: number,
  visit: (key: string, start: number, valueStart: number) => number,
): number {
  const { bytes } = json;
  let index = skipSpace(bytes, skipSpace(bytes, at) + 1);
  while (index < bytes.length && bytes[index] === QUOTE) {
    const keyEnd = skipString(json, index);
    const valueStart = skipSpace(bytes, skipSpace(bytes, keyEnd) + 1);
    index = skipSpace(bytes, visit(decodeKey(json, index, keyEnd), index, valueStart));
    if (bytes[index] === COMMA) index = skipSpace(bytes, index + 1);
  }
  return index + 1;
}

function decodeKey({ bytes, latin1 }: JsonBytes, start: number, end: number): string {
  const raw = latin1.slice(start + 1, end - 1);
  if (isPlain(bytes, start + 1, end - 1)) return raw;
  try {
    const key: unknown = JSON.parse(bytes.toString('utf8', start, end));
    return typeof key === 'string' ? key : raw;
  } catch {
    // Only where the document is no JSON after all: then no key of ours is meant.
    return raw;
  }
}

/** Whether the bytes are ASCII without an escape: then they are the key as they stand. */
function isPlain(bytes: Buffer, start: number, end: number): boolean {
  for (let at = start; at < end; at += 1) {
    const byte = bytes[at] ?? BACKSLASH;
    if (byte === BACKSLASH || byte > 0x7e) return false;
  }
  return true;
}

/** The elements of the array whose bracket is at or after `at`. */
export function elementSpans(json: JsonBytes, at: number): Span[] {
  const elements: Span[] = [];
  visitElements(json, at, (start) => {
    const end = skipValue(json, start);
    elements.push({ start, end });
    return end;
  });
  return elements;
}

/** `visitMembers` for the elements of an array. */
export function visitElements(
  json: JsonBytes,
  at: number,
  visit: (start: number) => number,
): number {
  const { bytes } = json;
  let index = skipSpace(bytes, skipSpace(bytes, at) + 1);
  while (index < bytes.length && bytes[index] !== CLOSE_BRACKET) {
    // A visit that does not move on would never end.
    index = skipSpace(bytes, Math.max(visit(index), index + 1));
    if (bytes[index] === COMMA) index = skipSpace(bytes, index + 1);
  }
  return index + 1;
}
