/**
 * Changes a JSON document without writing it again: finds the spans of members and elements in
 * the original bytes, and copies the bytes of everything that did not change.
 *
 * Invariant: the result parses to exactly `target`. What changed is told by identity: a value of
 * `target` that is the very value of the parsed document keeps its bytes.
 * The scanner trusts its input to be valid JSON (parse first); it never reads past the end.
 */
import { Fault } from '../kernel/faults.ts';

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

/** Up to here a byte loop beats the native search for the closing quote. */
const SHORT_STRING_BYTES = 32;

const QUOTE = 0x22;
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
export function skipString(bytes: Buffer, at: number): number {
  let index = at + 1;
  const shortEnd = Math.min(bytes.length, index + SHORT_STRING_BYTES);
  while (index < shortEnd) {
    const byte = bytes[index];
    if (byte === QUOTE) return index + 1;
    index += byte === BACKSLASH ? 2 : 1;
  }
  return skipLongString(bytes, index);
}

function skipLongString(bytes: Buffer, from: number): number {
  let quote = bytes.indexOf(QUOTE, from);
  while (quote !== -1) {
    let run = quote - 1;
    while (run >= from && bytes[run] === BACKSLASH) run -= 1;
    // An even run of backslashes escapes itself, so the quote closes the string.
    if ((quote - run) % 2 === 1) return quote + 1;
    quote = bytes.indexOf(QUOTE, quote + 1);
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
export function skipValue(bytes: Buffer, at: number): number {
  const first = bytes[at];
  if (first === QUOTE) return skipString(bytes, at);
  if (first !== OPEN_BRACE && first !== OPEN_BRACKET) return skipScalar(bytes, at);
  let depth = 0;
  let index = at;
  while (index < bytes.length) {
    const byte = bytes[index];
    if (byte === QUOTE) {
      index = skipString(bytes, index);
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

function tooDeep(): Fault {
  return new Fault('INVALID_JSON', {
    message: `The JSON is nested too deeply: at most ${MAX_JSON_DEPTH} levels are taken`,
  });
}

/** The members of the object whose brace is at or after `at`, in order of the document. */
export function memberSpans(bytes: Buffer, at = 0): MemberSpan[] {
  const members: MemberSpan[] = [];
  let index = skipSpace(bytes, skipSpace(bytes, at) + 1);
  while (index < bytes.length && bytes[index] === QUOTE) {
    const keyEnd = skipString(bytes, index);
    const valueStart = skipSpace(bytes, skipSpace(bytes, keyEnd) + 1);
    const end = skipValue(bytes, valueStart);
    members.push({ key: decodeKey(bytes, index, keyEnd), start: index, valueStart, end });
    index = skipSpace(bytes, end);
    if (bytes[index] === COMMA) index = skipSpace(bytes, index + 1);
  }
  return members;
}

function decodeKey(bytes: Buffer, start: number, end: number): string {
  const raw = bytes.toString('utf8', start + 1, end - 1);
  if (!raw.includes('\\')) return raw;
  return JSON.parse(`"${raw}"`) as string; // a JSON string parses to a string
}

/** The elements of the array whose bracket is at or after `at`. */
export function elementSpans(bytes: Buffer, at: number): Span[] {
  const elements: Span[] = [];
  let index = skipSpace(bytes, skipSpace(bytes, at) + 1);
  while (index < bytes.length && bytes[index] !== CLOSE_BRACKET) {
    const end = skipValue(bytes, index);
    elements.push({ start: index, end });
    index = skipSpace(bytes, end);
    if (bytes[index] === COMMA) index = skipSpace(bytes, index + 1);
  }
  return elements;
}

/** Where a document was parsed from: `body` is `JSON.parse(bytes)`, `members` its spans. */
export interface ParsedObject {
  readonly bytes: Buffer;
  readonly body: JsonObject;
  readonly members: readonly MemberSpan[];
}

/**
 * The bytes of `target`, taking from `source` the bytes of every top-level value, and of every
 * element of a top-level array, that `target` shares with `source.body` by identity. A member
 * whose value is `undefined` is left out. Returns `source.bytes` itself when nothing changed.
 */
export function spliceObject(source: ParsedObject, target: JsonObject): Buffer {
  if (source.members.length !== Object.keys(source.body).length) {
    // A key is there twice: whoever reads it next may take the other one. Write it once.
    return Buffer.from(JSON.stringify(target));
  }
  const writer = new SpliceWriter(source.bytes);
  let changed = false;
  for (const member of source.members) {
    const value = ownValue(target, member.key);
    if (value === undefined) {
      changed = true;
      writer.drop();
    } else if (value === source.body[member.key]) {
      writer.keep(member.start, member.end);
    } else {
      changed = true;
      writer.member(member.key, memberText(source, member, value));
    }
  }
  for (const [key, value] of Object.entries(target)) {
    if (value === undefined || Object.hasOwn(source.body, key)) continue;
    changed = true;
    writer.member(key, [JSON.stringify(value)]);
  }
  return changed ? writer.finish() : source.bytes;
}

function ownValue(object: JsonObject, key: string): unknown {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

type Piece = string | Buffer;

function memberText(source: ParsedObject, member: MemberSpan, value: unknown): Piece[] {
  const before = source.body[member.key];
  if (!Array.isArray(before) || !Array.isArray(value)) return [JSON.stringify(value)];
  return arrayPieces(source.bytes, member.valueStart, before, value);
}

function arrayPieces(
  bytes: Buffer,
  at: number,
  before: readonly unknown[],
  after: readonly unknown[],
): Piece[] {
  const spans = elementSpans(bytes, at);
  const spanOf = new Map<unknown, Span>();
  for (const [index, element] of before.entries()) {
    const span = spans[index];
    // Only objects have an identity; equal scalars are short and written again.
    if (span !== undefined && typeof element === 'object' && element !== null) {
      spanOf.set(element, span);
    }
  }
  const pieces: Piece[] = ['['];
  for (const [index, element] of after.entries()) {
    if (index > 0) pieces.push(',');
    const span = spanOf.get(element);
    pieces.push(
      span === undefined ? JSON.stringify(element) : bytes.subarray(span.start, span.end),
    );
  }
  pieces.push(']');
  return pieces;
}

/** Joins kept spans and new texts with commas; neighbouring kept spans become one copy. */
class SpliceWriter {
  readonly #bytes: Buffer;
  readonly #pieces: Buffer[] = [];
  #pending = '{';
  #first = true;
  #keptStart = -1;
  #keptEnd = -1;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  keep(start: number, end: number): void {
    if (this.#keptStart !== -1) {
      // The bytes between two kept neighbours are a comma and white space: copied along.
      this.#keptEnd = end;
      return;
    }
    this.#separate();
    this.#flushText();
    this.#keptStart = start;
    this.#keptEnd = end;
  }

  member(key: string, value: readonly Piece[]): void {
    this.#flushKept();
    this.#separate();
    this.#pending += `${JSON.stringify(key)}:`;
    for (const piece of value) {
      if (typeof piece === 'string') this.#pending += piece;
      else {
        this.#flushText();
        this.#pieces.push(piece);
      }
    }
  }

  /** A member of the source is left out: what was kept before it ends here. */
  drop(): void {
    this.#flushKept();
  }

  finish(): Buffer {
    this.#flushKept();
    this.#pending += '}';
    this.#flushText();
    return Buffer.concat(this.#pieces);
  }

  #separate(): void {
    if (!this.#first) this.#pending += ',';
    this.#first = false;
  }

  #flushText(): void {
    if (this.#pending === '') return;
    this.#pieces.push(Buffer.from(this.#pending));
    this.#pending = '';
  }

  #flushKept(): void {
    if (this.#keptStart === -1) return;
    this.#pieces.push(this.#bytes.subarray(this.#keptStart, this.#keptEnd));
    this.#keptStart = -1;
  }
}
