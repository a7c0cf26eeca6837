/**
 * Parses JSON bytes, finds the byte spans of members and elements, and rejects documents with too
 * many parts before they are parsed.
 *
 * Spans are correct for valid JSON only, so parse the document too, or validate the spans. Any
 * input is safe: the scanner stays within the bytes.
 */
import { isUtf8 } from 'node:buffer';
import { Fault } from '../core/faults.ts';
import {
  BACKSLASH,
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
  skipLooseString,
} from './json-skip.ts';
import { refuseIssues } from './validation.ts';

export interface Span {
  readonly start: number;
  readonly end: number;
}

/**
 * A member of an object or an element of an array. `key` is decoded, and empty for an element.
 * Offsets are in bytes; `start` is the key's quote, or the element's first byte.
 */
export interface ChildSpan extends Span {
  readonly key: string;
  readonly valueStart: number;
}

export type JsonObject = Readonly<Record<string, unknown>>;

/** Deeper documents of callers are rejected, because engines recurse. */
const MAX_JSON_DEPTH = 256;

/**
 * Limits on parsed documents: parse time depends on the number of parts, not bytes. 30 MB of one
 * string take 10 ms, 30 MB of empty objects 3 s. The first limit allows the maximum number of
 * messages with a part each, the second the longest lists of token ids.
 */
const MAX_JSON_NODES = 150_000;
const MAX_JSON_ELEMENTS = 2_000_000;

/** Known bodies have some fifty members; each unknown one costs time. */
const MAX_TOP_MEMBERS = 1_000;

/** Longer strings use the native search for their closing quote. */
const SHORT_STRING_BYTES = 32;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export interface Children {
  readonly spans: readonly ChildSpan[];
  readonly end: number;
}

interface ChildOptions {
  /** Not parsed yet: scan the document to its end, and reject it (400) above the limits. */
  readonly isUnchecked?: boolean;
  /** Reads a value and returns the offset after it; `undefined` leaves it to the scanner. */
  readonly read?: (key: string, at: number) => number | undefined;
}

const UNCHECKED = { isUnchecked: true };

/** A parsed document: `body` is `JSON.parse(bytes)`, `members` its spans. */
export interface ParsedObject {
  readonly bytes: Buffer;
  readonly body: JsonObject;
  readonly members: readonly ChildSpan[];
}

/** Parses a body that must be one JSON object in UTF-8. Throws a 400 otherwise. */
export function parseJsonObject(bytes: Buffer): ParsedObject {
  if (!isUtf8(bytes)) throw new Fault('INVALID_JSON', { message: 'The body is not valid UTF-8' });
  const members = childrenOf(bytes, 0, UNCHECKED).spans;
  let body: unknown;
  try {
    body = JSON.parse(bytes.toString());
  } catch (cause) {
    // The parser's message quotes the body, so use our own.
    const message = bytes.length === 0 ? 'The body is empty; send a JSON object' : undefined;
    throw new Fault('INVALID_JSON', message === undefined ? { cause } : { message, cause });
  }
  if (!isJsonObject(body)) {
    throw new Fault('INVALID_REQUEST', {
      message: 'The body must be a JSON object',
      details: { _errors: ['Expected a JSON object'] },
      fields: { issues: [{ code: 'invalid_type', path: [], message: 'Expected a JSON object' }] },
    });
  }
  if (members.length > MAX_TOP_MEMBERS) {
    const message = `At most ${MAX_TOP_MEMBERS} members are taken, got ${members.length}`;
    throw refuseIssues([{ code: 'too_big', path: [], message }]);
  }
  return { bytes, body, members };
}

/** Parses a body with any JSON value. Throws a 400 if it is not JSON. */
export function parseJsonBody(bytes: Buffer): unknown {
  childrenOf(bytes, 0, UNCHECKED);
  try {
    return JSON.parse(bytes.toString());
  } catch (error) {
    // The parser's message contains the position and a snippet of the caller's own body.
    const reason = error instanceof Error ? error.message : 'unknown';
    throw new Fault('INVALID_JSON', { message: `The body is not valid JSON: ${reason}` });
  }
}

/** Returns the members or elements of the first container at or after `from`, in order. */
export function childrenOf(bytes: Buffer, from = 0, options: ChildOptions = {}): Children {
  const { isUnchecked = false, read } = options;
  const spans: ChildSpan[] = [];
  let nodes = 0;
  let elements = 0;
  let depth = 0;
  let isObject = false;
  // The current child; `end` is the end of its last token.
  let key = '';
  let start = -1;
  let valueStart = -1;
  let end = -1;
  let index = from;
  while (index < bytes.length) {
    const byte = bytes[index] ?? 0;
    if (byte === 0x20 || byte === 0x0a || byte === 0x0d || byte === 0x09) {
      index += 1;
      continue;
    }
    const isClosing = byte === CLOSE_OBJECT || byte === CLOSE_ARRAY;
    if (depth === 1 && valueStart === -1 && byte !== COMMA && byte !== COLON && !isClosing) {
      const isKey = isObject && start === -1;
      if (start === -1) start = index;
      if (!isKey) {
        valueStart = index;
        const valueEnd = read?.(key, index);
        if (valueEnd !== undefined) {
          // Always advance, even if `read` does not, to avoid an endless loop.
          index = end = Math.max(valueEnd, index + 1);
          continue;
        }
      }
    }
    if (byte === QUOTE) {
      const from = index;
      // Keys and other short texts without an escape usually end here.
      const nearEnd = Math.min(bytes.length, from + SHORT_STRING_BYTES);
      do index += 1;
      while (index < nearEnd && bytes[index] !== QUOTE && bytes[index] !== BACKSLASH);
      const quote = bytes[index] === QUOTE ? index : bytes.indexOf(QUOTE, index);
      if (quote > 0 && bytes[quote - 1] !== BACKSLASH) {
        index = quote + 1;
      } else {
        const after = skipLooseString(bytes, from);
        index = after < 0 ? bytes.length : after;
      }
      end = index;
      continue;
    }
    index += 1;
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
      if (depth === 0) isObject = byte === OPEN_OBJECT;
      nodes += 1;
      depth += 1;
      if (isUnchecked && depth > MAX_JSON_DEPTH) throw tooDeep();
    } else if (byte === COLON) {
      nodes += 1;
      if (depth === 1 && start !== -1) {
        key = bytes.toString('latin1', start + 1, end - 1);
        if (/[\\\x7f-\xff]/.test(key)) key = decodedKey(bytes, start, end);
      }
    } else if (byte === COMMA || isClosing) {
      // An unchecked list can have millions of elements.
      if (depth === 1 && valueStart !== -1 && (isObject || !isUnchecked)) {
        spans.push({ key, start, valueStart, end });
      }
      if (depth === 1) {
        key = '';
        start = -1;
        valueStart = -1;
      }
      if (byte === COMMA) elements += 1;
      else depth -= 1;
      if (isClosing && depth === 0 && !isUnchecked) break;
    }
    end = index;
    if (isUnchecked && (nodes > MAX_JSON_NODES || elements > MAX_JSON_ELEMENTS)) throw tooMany();
  }
  return { spans, end: index };
}

function decodedKey(bytes: Buffer, start: number, end: number): string {
  const raw = bytes.toString('utf8', start, end);
  try {
    return String(JSON.parse(raw));
  } catch {
    // Only for invalid JSON, in which no key matters.
    return raw;
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
