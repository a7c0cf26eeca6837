/**
 * Changes a JSON document by copying the bytes of everything that did not change.
 *
 * Invariant: the result parses to exactly `target`. Changes are detected by identity: a value of
 * `target` that is the same object as in the parsed document keeps its bytes.
 */
import { childrenOf, type JsonObject, type ParsedObject, type Span } from './json-scan.ts';
import {
  BACKSLASH,
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COMMA,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
} from './json-skip.ts';

/**
 * Returns the bytes of `target`. Copies from `source` every top-level value, and every element of a
 * top-level array, that `target` shares with `source.body` by identity. Leaves out members that are
 * `undefined`. Returns the source's own bytes if nothing changed.
 */
export function spliceObject(source: ParsedObject, target: JsonObject): Buffer {
  const { bytes, body, members } = source;
  if (members.length !== Object.keys(body).length) {
    // Parsers disagree on duplicate keys, so write each key once.
    return Buffer.from(JSON.stringify(target));
  }
  const pieces: (string | Span)[] = [];
  let text = '{';
  let separator = '';
  let isSame = true;
  // Copies runs of unchanged neighbours with the comma and white space between them.
  let keptStart = -1;
  let keptEnd = -1;
  for (const { key, start, valueStart, end } of members) {
    const value = Object.hasOwn(target, key) ? target[key] : undefined;
    if (value !== undefined && value === body[key]) {
      if (keptStart === -1) {
        keptStart = start;
        text += separator;
        separator = ',';
      }
      keptEnd = end;
      continue;
    }
    isSame = false;
    if (keptStart !== -1) {
      pieces.push(text, { start: keptStart, end: keptEnd });
      text = '';
      keptStart = -1;
    }
    if (value === undefined) continue;
    text += `${separator}${JSON.stringify(key)}:`;
    separator = ',';
    const before = body[key];
    if (Array.isArray(before) && Array.isArray(value)) {
      text = pushList(pieces, text, childrenOf(bytes, valueStart).spans, before, value);
    } else {
      text += JSON.stringify(value);
    }
  }
  if (keptStart !== -1) {
    pieces.push(text, { start: keptStart, end: keptEnd });
    text = '';
  }
  for (const key in target) {
    const value = target[key];
    if (value === undefined || Object.hasOwn(body, key)) continue;
    isSame = false;
    text += `${separator}${JSON.stringify(key)}:${JSON.stringify(value)}`;
    separator = ',';
  }
  if (isSame) return bytes;
  pieces.push(`${text}}`);
  return joined(pieces, bytes);
}

/**
 * Returns the document with these members replaced, each given as complete JSON (`"name":value`) by
 * name. `undefined` removes a member, new ones follow in the order of `texts`, and all others keep
 * their bytes. For known changes: nothing is compared.
 */
export function withMembers(
  { bytes, body, members }: ParsedObject,
  texts: Readonly<Record<string, string | undefined>>,
): Buffer {
  let names = 0;
  for (const _name in body) names += 1;
  // A duplicate key would have to be found in both places.
  if (names !== members.length) return writtenWith(body, texts);
  let mostBytes = bytes.length + 2;
  for (const key in texts) mostBytes += 1 + MOST_UTF8_BYTES * (texts[key]?.length ?? 0);
  const out = Buffer.allocUnsafe(mostBytes);
  out[0] = OPEN_OBJECT;
  let size = 1;
  // Copies runs of unchanged neighbours with the comma and white space between them.
  let keptStart = -1;
  let keptEnd = -1;
  for (const { key, start, end } of members) {
    if (!Object.hasOwn(texts, key)) {
      if (keptStart === -1) {
        if (size > 1) out[size++] = COMMA;
        keptStart = start;
      }
      keptEnd = end;
      continue;
    }
    if (keptStart !== -1) size += bytes.copy(out, size, keptStart, keptEnd);
    keptStart = -1;
    const changed = texts[key];
    if (changed === undefined) continue;
    if (size > 1) out[size++] = COMMA;
    size += out.write(changed, size);
  }
  if (keptStart !== -1) size += bytes.copy(out, size, keptStart, keptEnd);
  for (const key in texts) {
    const added = texts[key];
    if (added === undefined || Object.hasOwn(body, key)) continue;
    if (size > 1) out[size++] = COMMA;
    size += out.write(added, size);
  }
  out[size++] = CLOSE_OBJECT;
  return out.subarray(0, size);
}

/** As `withMembers`, with values; those that are `undefined` are removed. */
export function withValues(bytes: Buffer, body: JsonObject, values: JsonObject): Buffer {
  const texts = Object.entries(values).map(([name, value]) => [
    name,
    value === undefined ? undefined : `${JSON.stringify(name)}:${JSON.stringify(value)}`,
  ]);
  return withMembers({ bytes, body, members: childrenOf(bytes).spans }, Object.fromEntries(texts));
}

/** UTF-8 bytes of one UTF-16 unit. */
const MOST_UTF8_BYTES = 3;

/**
 * Like `withMembers`, for a short document as a string, in one pass without a copy. `text` and the
 * result have one latin1 character per byte; `texts` are ASCII. Returns `undefined` if the keys of
 * `text` are not exactly those of `body` in order: one is a duplicate or escaped.
 */
export function textWithMembers(
  text: string,
  body: JsonObject,
  texts: Readonly<Record<string, string | undefined>>,
): string | undefined {
  let written = '{';
  let separator = '';
  let keptStart = -1;
  let keptEnd = -1;
  let at = 0;
  // A key, its value up to a comma or the last bracket, and the next key.
  for (const key in body) {
    const start = text.indexOf('"', at);
    at = start + key.length + 1;
    if (!text.startsWith(key, start + 1) || text.charCodeAt(at) !== QUOTE) return undefined;
    let depth = 0;
    let end = at;
    for (at += 1; at < text.length; at += 1) {
      const code = text.charCodeAt(at);
      if (code === QUOTE) {
        // The native search is faster than a loop, and few strings have escapes.
        const quote = text.indexOf('"', at + 1);
        at = text.charCodeAt(quote - 1) === BACKSLASH ? closingQuote(text, at) : quote;
      } else if (code === OPEN_OBJECT || code === OPEN_ARRAY) depth += 1;
      else if (depth === 0 && (code === COMMA || code === CLOSE_OBJECT)) break;
      else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) depth -= 1;
      if (code > SPACE) end = at + 1;
    }
    if (!Object.hasOwn(texts, key)) {
      if (keptStart === -1) {
        written += separator;
        separator = ',';
        keptStart = start;
      }
      keptEnd = end;
      continue;
    }
    if (keptStart !== -1) written += text.slice(keptStart, keptEnd);
    keptStart = -1;
    const changed = texts[key];
    if (changed === undefined) continue;
    written += separator + changed;
    separator = ',';
  }
  if (text.charCodeAt(at) !== CLOSE_OBJECT) return undefined;
  if (keptStart !== -1) written += text.slice(keptStart, keptEnd);
  for (const key in texts) {
    const added = texts[key];
    if (added === undefined || Object.hasOwn(body, key)) continue;
    written += separator + added;
    separator = ',';
  }
  return `${written}}`;
}

const SPACE = 0x20;

/** Returns the index of the string's closing quote: one after an even number of backslashes. */
function closingQuote(text: string, from: number): number {
  for (let quote = text.indexOf('"', from + 1); ; quote = text.indexOf('"', quote + 1)) {
    let run = quote;
    while (run > from + 1 && text.charCodeAt(run - 1) === BACKSLASH) run -= 1;
    if ((quote - run) % 2 === 0) return quote;
  }
}

function writtenWith(
  body: JsonObject,
  texts: Readonly<Record<string, string | undefined>>,
): Buffer {
  const target: Record<string, unknown> = { ...body };
  for (const key in texts) {
    const text = texts[key];
    if (text === undefined) target[key] = undefined;
    else Object.assign(target, JSON.parse(`{${text}}`));
  }
  return Buffer.from(JSON.stringify(target));
}

/** Adds the pieces of a list whose elements partly stay; returns the pending text. */
function pushList(
  pieces: (string | Span)[],
  opening: string,
  spans: readonly Span[],
  before: readonly unknown[],
  after: readonly unknown[],
): string {
  const spanOf = new Map<unknown, Span>();
  for (const [index, element] of before.entries()) {
    const span = spans[index];
    // Only objects have an identity; equal scalars are short and written again.
    if (span !== undefined && typeof element === 'object' && element !== null) {
      spanOf.set(element, span);
    }
  }
  let text = `${opening}[`;
  for (const [index, element] of after.entries()) {
    if (index > 0) text += ',';
    const span = spanOf.get(element);
    if (span === undefined) {
      text += JSON.stringify(element);
    } else {
      pieces.push(text, span);
      text = '';
    }
  }
  return `${text}]`;
}

function joined(pieces: readonly (string | Span)[], bytes: Buffer): Buffer {
  let size = 0;
  for (const piece of pieces) {
    size += typeof piece === 'string' ? Buffer.byteLength(piece) : piece.end - piece.start;
  }
  const out = Buffer.allocUnsafe(size);
  let at = 0;
  for (const piece of pieces) {
    if (typeof piece === 'string') at += out.write(piece, at);
    else at += bytes.copy(out, at, piece.start, piece.end);
  }
  return out;
}
