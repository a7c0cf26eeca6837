/**
 * A forward scanner that finds the members of JSON-RPC requests and replies as byte spans.
 *
 * Params, results and ids are never parsed, so no number or string can be damaged on its way.
 * Requests are read strictly: what `JSON.parse` refuses is refused, and so is every spelling that
 * two parsers could read differently (duplicate members, members that differ only in case).
 * Replies are read for structure: balanced, complete, with their strings closed; the inside of a
 * result is the node's affair. It knows nothing of methods or networks.
 */
import { isUtf8 } from 'node:buffer';
import { plainReply, plainRequest } from './json-plain.ts';
import {
  BACKSLASH,
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  DEPTH_EXCEEDED,
  isDense,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
  skipLoose,
  skipLooseString,
  skipSpace,
  skipStrict,
  skipStrictString,
} from './json-skip.ts';
import type { ReplySpan, RequestSpan } from './json-span.ts';

export interface ScanFailure {
  readonly ok: false;
  /** Byte offset of the first byte that does not fit. */
  readonly position: number;
  readonly reason: 'syntax' | 'depth' | 'encoding' | 'member' | 'item' | 'count';
  /** The member that appears twice or in another case, for `member`. */
  readonly member?: string;
}

/** A body that was scanned elsewhere, and what was found. */
export interface ScannedBody {
  readonly body: Buffer;
  readonly scanned: RequestScan | ScanFailure;
}

export interface RequestScan {
  readonly ok: true;
  readonly isBatch: boolean;
  readonly items: readonly RequestSpan[];
}

export interface ReplyScan {
  readonly ok: true;
  readonly isBatch: boolean;
  readonly items: readonly ReplySpan[];
}

/** What the first bytes of a long reply tell. */
export interface ReplyPeek {
  /** Which member came first; `none` when neither began within the bytes given. */
  readonly first: 'result' | 'error' | 'none';
  readonly idStart: number;
  readonly idEnd: number;
}

const MEMBERS = ['jsonrpc', 'method', 'params', 'id', 'result', 'error'] as const;
type Member = (typeof MEMBERS)[number];
const MEMBER_BYTES: Readonly<Record<Member, Buffer>> = {
  jsonrpc: Buffer.from('jsonrpc'),
  method: Buffer.from('method'),
  params: Buffer.from('params'),
  id: Buffer.from('id'),
  result: Buffer.from('result'),
  error: Buffer.from('error'),
};
const REQUEST_MEMBERS = new Set<string>(['jsonrpc', 'method', 'params', 'id']);

/** Finds the items of a request: one object, or an array of at most `maxItems` objects. */
export function scanRequest(bytes: Buffer, maxItems: number): RequestScan | ScanFailure {
  if (!isUtf8(bytes)) return failure(0, 'encoding');
  let at = skipSpace(bytes, 0);
  const items: RequestSpan[] = [];
  const isBatch = bytes[at] === OPEN_ARRAY;
  if (!isBatch) {
    const item = scanRequestItem(bytes, at);
    if ('ok' in item) return item;
    items.push(item);
    at = item.end;
  } else {
    const text = plainText(bytes);
    at = skipSpace(bytes, at + 1);
    while (bytes[at] !== CLOSE_ARRAY || items.length > 0) {
      if (items.length === maxItems) return failure(at, 'count');
      const item = plainRequest(text, at) ?? scanRequestItem(bytes, at);
      if ('ok' in item) return item;
      items.push(item);
      at = skipSpace(bytes, item.end);
      if (bytes[at] === CLOSE_ARRAY) break;
      if (bytes[at] !== COMMA) return failure(at, 'syntax');
      at = skipSpace(bytes, at + 1);
    }
    at += 1;
  }
  at = skipSpace(bytes, at);
  return at === bytes.length ? { ok: true, isBatch, items } : failure(at, 'syntax');
}

/** Finds the items of a reply: one object, or an array of objects. */
export function scanReply(bytes: Buffer): ReplyScan | ScanFailure {
  let at = skipSpace(bytes, 0);
  const items: ReplySpan[] = [];
  const isBatch = bytes[at] === OPEN_ARRAY;
  if (!isBatch) {
    const item = scanReplyItem(bytes, at);
    if ('ok' in item) return item;
    items.push(item);
    at = item.end;
  } else {
    const text = plainText(bytes);
    at = skipSpace(bytes, at + 1);
    while (bytes[at] !== CLOSE_ARRAY || items.length > 0) {
      const item = plainReply(text, at) ?? scanReplyItem(bytes, at);
      if ('ok' in item) return item;
      items.push(item);
      at = skipSpace(bytes, item.end);
      if (bytes[at] === CLOSE_ARRAY) break;
      if (bytes[at] !== COMMA) return failure(at, 'syntax');
      at = skipSpace(bytes, at + 1);
    }
    at += 1;
  }
  at = skipSpace(bytes, at);
  return at === bytes.length ? { ok: true, isBatch, items } : failure(at, 'syntax');
}

/**
 * Batches up to this size are offered to the expressions of the plain spellings: what they have to
 * give up at its last byte takes them several times as long as the scanner.
 */
const PLAIN_BATCH_BYTES = 131_072;

function plainText(bytes: Buffer): string {
  return bytes.length > PLAIN_BATCH_BYTES ? '' : bytes.toString('latin1');
}

/** Reads the envelope of a reply whose end is not there yet; never throws. */
export function peekReply(bytes: Buffer): ReplyPeek {
  let at = skipSpace(bytes, 0);
  let idStart = -1;
  let idEnd = -1;
  if (bytes[at] !== OPEN_OBJECT) return { first: 'none', idStart, idEnd };
  at = skipSpace(bytes, at + 1);
  while (bytes[at] === QUOTE) {
    const keyEnd = skipLooseString(bytes, at);
    if (keyEnd < 0) break;
    const name = memberName(bytes, at, keyEnd);
    at = skipSpace(bytes, keyEnd);
    if (bytes[at] !== COLON) break;
    const start = skipSpace(bytes, at + 1);
    if (start >= bytes.length) break;
    if (name === 'result' || name === 'error') return { first: name, idStart, idEnd };
    const end = skipLoose(bytes, start);
    if (end < 0 || end >= bytes.length) break;
    if (name === 'id') {
      idStart = start;
      idEnd = end;
    }
    at = skipSpace(bytes, end);
    if (bytes[at] !== COMMA) break;
    at = skipSpace(bytes, at + 1);
  }
  return { first: 'none', idStart, idEnd };
}

/** The text of a span that holds a JSON string, unescaped; `undefined` for any other value. */
export function spanString(bytes: Buffer, start: number, end: number): string | undefined {
  if (start < 0 || bytes[start] !== QUOTE) return undefined;
  const text = bytes.toString('utf8', start + 1, end - 1);
  if (!text.includes('\\')) return text;
  // The scanner accepted the span as one JSON string.
  return JSON.parse(`"${text}"`) as string;
}

function scanRequestItem(bytes: Buffer, from: number): RequestSpan | ScanFailure {
  if (bytes[from] !== OPEN_OBJECT) {
    const end = skipStrict(bytes, from, 0);
    return end < 0 ? strictFailure(end) : failure(from, 'item');
  }
  let versionStart = -1;
  let versionEnd = -1;
  let methodStart = -1;
  let methodEnd = -1;
  let paramsStart = -1;
  let paramsEnd = -1;
  let idStart = -1;
  let idEnd = -1;
  let at = skipSpace(bytes, from + 1);
  let isFirst = true;
  while (bytes[at] !== CLOSE_OBJECT || !isFirst) {
    const keyStart = at;
    const keyEnd = bytes[at] === QUOTE ? skipStrictString(bytes, at) : ~at;
    if (keyEnd < 0) return strictFailure(keyEnd);
    const colon = bytes[keyEnd] === COLON ? keyEnd : skipSpace(bytes, keyEnd);
    if (bytes[colon] !== COLON) return failure(colon, 'syntax');
    const start = isDense(bytes[colon + 1]) ? colon + 1 : skipSpace(bytes, colon + 1);
    const end = skipStrict(bytes, start, 1);
    if (end < 0) return strictFailure(end);
    const name = memberName(bytes, keyStart, keyEnd);
    if (name === 'jsonrpc' && versionStart < 0) {
      versionStart = start;
      versionEnd = end;
    } else if (name === 'method' && methodStart < 0) {
      methodStart = start;
      methodEnd = end;
    } else if (name === 'params' && paramsStart < 0) {
      paramsStart = start;
      paramsEnd = end;
    } else if (name === 'id' && idStart < 0) {
      idStart = start;
      idEnd = end;
    } else {
      // Some nodes match member names without regard to case and let the last one win.
      const folded = foldedMember(bytes, keyStart, keyEnd);
      if (folded !== undefined) return failure(keyStart, 'member', folded);
    }
    isFirst = false;
    at = isDense(bytes[end]) ? end : skipSpace(bytes, end);
    if (bytes[at] === CLOSE_OBJECT) break;
    if (bytes[at] !== COMMA) return failure(at, 'syntax');
    at = bytes[at + 1] === QUOTE ? at + 1 : skipSpace(bytes, at + 1);
  }
  return {
    start: from,
    end: at + 1,
    versionStart,
    versionEnd,
    methodStart,
    methodEnd,
    paramsStart,
    paramsEnd,
    idStart,
    idEnd,
  };
}

function scanReplyItem(bytes: Buffer, from: number): ReplySpan | ScanFailure {
  if (bytes[from] !== OPEN_OBJECT) return failure(from, 'item');
  let idStart = -1;
  let idEnd = -1;
  let resultStart = -1;
  let resultEnd = -1;
  let errorStart = -1;
  let errorEnd = -1;
  let at = skipSpace(bytes, from + 1);
  let isFirst = true;
  while (bytes[at] !== CLOSE_OBJECT || !isFirst) {
    const keyStart = at;
    const keyEnd = bytes[at] === QUOTE ? skipLooseString(bytes, at) : ~at;
    if (keyEnd < 0) return failure(~keyEnd, 'syntax');
    const colon = bytes[keyEnd] === COLON ? keyEnd : skipSpace(bytes, keyEnd);
    if (bytes[colon] !== COLON) return failure(colon, 'syntax');
    const start = isDense(bytes[colon + 1]) ? colon + 1 : skipSpace(bytes, colon + 1);
    const end = skipLoose(bytes, start);
    if (end < 0) return failure(~end, 'syntax');
    const name = memberName(bytes, keyStart, keyEnd);
    if (name === 'id') {
      if (idStart >= 0) return failure(keyStart, 'member', name);
      idStart = start;
      idEnd = end;
    } else if (name === 'result') {
      if (resultStart >= 0) return failure(keyStart, 'member', name);
      resultStart = start;
      resultEnd = end;
    } else if (name === 'error') {
      if (errorStart >= 0) return failure(keyStart, 'member', name);
      errorStart = start;
      errorEnd = end;
    }
    isFirst = false;
    at = isDense(bytes[end]) ? end : skipSpace(bytes, end);
    if (bytes[at] === CLOSE_OBJECT) break;
    if (bytes[at] !== COMMA) return failure(at, 'syntax');
    at = bytes[at + 1] === QUOTE ? at + 1 : skipSpace(bytes, at + 1);
  }
  return { start: from, end: at + 1, idStart, idEnd, resultStart, resultEnd, errorStart, errorEnd };
}

function failure(position: number, reason: ScanFailure['reason'], member?: string): ScanFailure {
  return member === undefined
    ? { ok: false, position, reason }
    : { ok: false, position, reason, member };
}

function strictFailure(code: number): ScanFailure {
  return code === DEPTH_EXCEEDED ? failure(0, 'depth') : failure(~code, 'syntax');
}

/** The JSON-RPC member that a key names, escapes included; `undefined` for any other key. */
function memberName(bytes: Buffer, start: number, end: number): Member | undefined {
  const likely = likelyMember(bytes[start + 1], end - start - 2);
  if (likely !== undefined && isSame(bytes, start + 1, MEMBER_BYTES[likely])) return likely;
  for (let at = start + 1; at < end; at += 1) {
    if (bytes[at] !== BACKSLASH) continue;
    const decoded = looseText(bytes, start, end);
    return MEMBERS.find((name) => name === decoded);
  }
  return undefined;
}

/** The only member with this first byte and length. */
function likelyMember(first: number | undefined, size: number): Member | undefined {
  if (size === 2) return 'id';
  if (size === 5) return 'error';
  if (size === 7) return 'jsonrpc';
  if (size !== 6) return undefined;
  if (first === 0x6d) return 'method';
  return first === 0x70 ? 'params' : 'result';
}

function isSame(bytes: Buffer, from: number, expected: Buffer): boolean {
  for (let offset = 0; offset < expected.length; offset += 1) {
    if (bytes[from + offset] !== expected[offset]) return false;
  }
  return true;
}

/** The request member that a key equals when case is ignored, as Unicode folds it. */
function foldedMember(bytes: Buffer, start: number, end: number): string | undefined {
  const folded = looseText(bytes, start, end).toUpperCase().toLowerCase();
  return REQUEST_MEMBERS.has(folded) ? folded : undefined;
}

function looseText(bytes: Buffer, start: number, end: number): string {
  try {
    return JSON.parse(bytes.toString('utf8', start, end)) as string; // the span is in quotes
  } catch {
    // A reply's key with a bad escape names no member; requests never get here with one.
    return '';
  }
}
