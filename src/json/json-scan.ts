/**
 * Turns bytes into a JSON value, finds the spans of members and elements in them, and refuses a
 * document of too many pieces before it is parsed.
 *
 * What is found is true of valid JSON only: parse too, or check what was found. Any bytes will do,
 * and nothing past their end is read.
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
 * One member of an object, or one element of an array: `key` decoded and empty for an element,
 * offsets in bytes; `start` is the key's quote, or the element's first byte.
 */
export interface ChildSpan extends Span {
  readonly key: string;
  readonly valueStart: number;
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

/** Known bodies have some fifty members; each unknown one is looked at by itself. */
const MAX_TOP_MEMBERS = 1_000;

/** Longer strings are left to the native search for their quote. */
const SHORT_STRING_BYTES = 32;

export function isJsonObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export interface Children {
  readonly spans: readonly ChildSpan[];
  readonly end: number;
}

export interface ChildOptions {
  /** The document is not parsed yet: it is read to its end, and refused when it is too much (400). */
  readonly isUnchecked?: boolean;
  /** Reads the value at `at` and gives the offset after it; `undefined` leaves it to the scanner. */
  readonly read?: (key: string, at: number) => number | undefined;
}

const UNCHECKED = { isUnchecked: true };

/** Where a document was parsed from: `body` is `JSON.parse(bytes)`, `members` its spans. */
export interface ParsedObject {
  readonly bytes: Buffer;
  readonly body: JsonObject;
  readonly members: readonly ChildSpan[];
}

/** Parses a body that must be one JSON object in UTF-8. Throws the 400 for anything else. */
export function parseJsonObject(bytes: Buffer): ParsedObject {
  if (!isUtf8(bytes)) throw new Fault('INVALID_JSON', { message: 'The body is not valid UTF-8' });
  const members = childrenOf(bytes, 0, UNCHECKED).spans;
  let body: unknown;
  try {
    body = JSON.parse(bytes.toString());
  } catch (cause) {
    // The parser's sentence quotes the body, so only ours goes out.
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

/** The JSON value of a body, of whatever kind it is; 400 with a sentence when it is not JSON. */
export function parseJsonBody(bytes: Buffer): unknown {
  childrenOf(bytes, 0, UNCHECKED);
  try {
    return JSON.parse(bytes.toString());
  } catch (error) {
    // The parser's sentence names the position and holds a snippet of the caller's own body.
    const reason = error instanceof Error ? error.message : 'unknown';
    throw new Fault('INVALID_JSON', { message: `The body is not valid JSON: ${reason}` });
  }
}

/** The members or elements of the container whose bracket is at or after `from`, in order. */
export function childrenOf(bytes: Buffer, from = 0, options: ChildOptions = {}): Children {
  const { isUnchecked = false, read } = options;
  const spans: ChildSpan[] = [];
  let nodes = 0;
  let elements = 0;
  let depth = 0;
  let isObject = false;
  // Of the child that has begun; `end` is where its last token ended.
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
          // A reader that does not move on would never end.
          index = end = Math.max(valueEnd, index + 1);
          continue;
        }
      }
    }
    if (byte === QUOTE) {
      const from = index;
      // Keys and other short texts without an escape end here already.
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
      if (depth > MAX_JSON_DEPTH) throw tooDeep();
    } else if (byte === COLON) {
      nodes += 1;
      if (depth === 1 && start !== -1) {
        key = bytes.toString('latin1', start + 1, end - 1);
        if (/[\\\x7f-\xff]/.test(key)) key = decodedKey(bytes, start, end);
      }
    } else if (byte === COMMA || isClosing) {
      // Elements of a list that nobody has looked at can be millions.
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
    // Only where the document is no JSON after all: then no key of ours is meant.
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
