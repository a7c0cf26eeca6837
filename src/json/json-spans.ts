/**
 * A forward scanner that finds the members of JSON-RPC requests and replies as byte spans. It is
 * independent of methods and networks.
 *
 * Params, results and ids are never parsed, so numbers and strings are forwarded unchanged.
 * Everything that `JSON.parse` rejects is rejected (in replies except invalid UTF-8), and in requests
 * also everything that two parsers could read differently (duplicate members, members that differ
 * only in case).
 */
import { isUtf8 } from 'node:buffer';
import {
  BACKSLASH,
  CLOSE_ARRAY,
  CLOSE_OBJECT,
  COLON,
  COMMA,
  DEPTH_EXCEEDED,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
  skipSpace,
  skipStrictString,
} from './json-skip.ts';
import { skipValue } from './json-checker.ts';

/** Deepest nesting of a request; the limits of Node's JSON.parse and of clients are higher. */
const REQUEST_MAX_DEPTH = 256;
/** Deepest nesting of a reply: call traces nest two levels for each of 1,024 EVM frames. */
export const REPLY_MAX_DEPTH = 8192;

/** Half-open byte ranges; a start of -1 means that the member is absent. */
export interface RequestSpan {
  readonly start: number;
  readonly end: number;
  readonly versionStart: number;
  readonly versionEnd: number;
  readonly methodStart: number;
  readonly methodEnd: number;
  readonly paramsStart: number;
  readonly paramsEnd: number;
  readonly idStart: number;
  readonly idEnd: number;
  /** True if the call has members that JSON-RPC does not define. */
  readonly hasMore: boolean;
}

export interface ReplySpan {
  readonly start: number;
  readonly end: number;
  readonly idStart: number;
  readonly idEnd: number;
  readonly resultStart: number;
  readonly resultEnd: number;
  readonly errorStart: number;
  readonly errorEnd: number;
}

export interface ScanFailure {
  readonly ok: false;
  readonly position: number;
  readonly reason: 'syntax' | 'depth' | 'encoding' | 'member' | 'item' | 'count';
  /** The duplicate member, or the one in another case; for the reason `member`. */
  readonly member?: string;
}

export interface ScannedBody {
  readonly body: Buffer;
  readonly scanned: RequestScan | ScanFailure;
}

interface Scan<Item> {
  readonly ok: true;
  readonly isBatch: boolean;
  readonly items: readonly Item[];
}
/** The items before the position of the failure. */
type PartScan<Item> = ScanFailure & Pick<Scan<Item>, 'isBatch' | 'items'>;
export type RequestScan = Scan<RequestSpan>;

interface ReplyPeek {
  /** The member that came first; `none` if neither begins within the given bytes. */
  readonly first: 'result' | 'error' | 'none';
  readonly idStart: number;
  readonly idEnd: number;
}

const STRING = String.raw`"[^"\\\x00-\x1f]*"`;
const NUMBER = String.raw`-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`;
const WORD = 'true|false|null';
/** A number must be complete; otherwise the scanner decides. */
const ENDS = '(?=[,}])';
/** Params of calls, logs and proofs; each further level doubles the expression. */
const PARAMS_DEPTH = 3;

/** Matches a value of at most `depth` nested containers, without backtracking. */
function valueSource(depth: number): string {
  const scalar = `${STRING}|${NUMBER}|${WORD}`;
  if (depth === 0) return `(?:${scalar})`;
  const inner = valueSource(depth - 1);
  const items = String.raw`\[(?:${inner}(?:,(?!\])|(?=\])))*\]`;
  const members = String.raw`\{(?:${STRING}:${inner}(?:,(?!\})|(?=\})))*\}`;
  return `(?:${scalar}|${items}|${members})`;
}

interface ItemKind {
  readonly members: readonly string[];
  readonly initials: string;
  /**
   * Matches a member as common clients and nodes write it, at `lastIndex`, without spaces or
   * escapes. It is several times as fast as the scanner, which handles all other members.
   */
  readonly plain: RegExp;
  readonly maxDepth: number;
}

const REQUEST: ItemKind = {
  members: ['jsonrpc', 'method', 'params', 'id'],
  initials: 'jmpi',
  plain: new RegExp(`"(?:jsonrpc|method|params|id)":${valueSource(PARAMS_DEPTH)}${ENDS}`, 'y'),
  maxDepth: REQUEST_MAX_DEPTH,
};
const REPLY: ItemKind = {
  members: ['id', 'result', 'error'],
  initials: 'ire',
  plain: new RegExp(`"(?:jsonrpc|id|result)":(?:${STRING}|${NUMBER}|${WORD})${ENDS}`, 'y'),
  maxDepth: REPLY_MAX_DEPTH,
};

/** Size limits for the expressions, which are slower than the scanner on large input. */
const PLAIN_BATCH_BYTES = 131_072;
const PLAIN_ITEM_BYTES = 4_096;

/** Finds the items of a request: one object, or an array of at most `maxItems` objects. */
export function scanRequest(bytes: Buffer, maxItems: number): RequestScan | ScanFailure {
  return isUtf8(bytes) ? scanItems(bytes, maxItems, requestItem) : failure(0, 'encoding');
}

/** Ten times the largest batch in use; each item takes about fifty times its bytes. */
const MAX_REPLY_ITEMS = 1_000;

export function scanReply(bytes: Buffer): Scan<ReplySpan> | PartScan<ReplySpan> {
  return scanItems(bytes, MAX_REPLY_ITEMS, replyItem);
}

function scanItems<Item extends { readonly end: number }>(
  bytes: Buffer,
  maxItems: number,
  scanItem: (bytes: Buffer, text: string, from: number, found: number[]) => Item | ScanFailure,
): Scan<Item> | PartScan<Item> {
  const items: Item[] = [];
  const found: number[] = [];
  let at = skipSpace(bytes, 0);
  const isBatch = bytes[at] === OPEN_ARRAY;
  // One latin1 character per byte, so that string positions equal byte positions.
  const isPlain = bytes.length <= (isBatch ? PLAIN_BATCH_BYTES : PLAIN_ITEM_BYTES);
  const text = isPlain ? bytes.toString('latin1') : '';
  if (isBatch) at = skipSpace(bytes, at + 1);
  for (;;) {
    if (isBatch && bytes[at] === CLOSE_ARRAY && items.length === 0) break;
    if (isBatch && items.length === maxItems) return { ...failure(at, 'count'), isBatch, items };
    const item = scanItem(bytes, text, at, found);
    if ('ok' in item) return { ...item, isBatch, items };
    items.push(item);
    at = bytes[item.end] === COMMA ? item.end : skipSpace(bytes, item.end);
    if (!isBatch || bytes[at] === CLOSE_ARRAY) break;
    if (bytes[at] !== COMMA) return { ...failure(at, 'syntax'), isBatch, items };
    at = bytes[at + 1] === OPEN_OBJECT ? at + 1 : skipSpace(bytes, at + 1);
  }
  if (isBatch) at = skipSpace(bytes, at + 1);
  return at === bytes.length
    ? { ok: true, isBatch, items }
    : { ...failure(at, 'syntax'), isBatch, items };
}

/** Reads the envelope of an incomplete reply; never throws. */
export function peekReply(bytes: Buffer): ReplyPeek {
  let at = skipSpace(bytes, 0);
  let idStart = -1;
  let idEnd = -1;
  if (bytes[at] !== OPEN_OBJECT) return { first: 'none', idStart, idEnd };
  at = skipSpace(bytes, at + 1);
  while (bytes[at] === QUOTE) {
    const keyEnd = skipStrictString(bytes, at);
    if (keyEnd < 0) break;
    const name = REPLY.members[memberAt(bytes, at, keyEnd, REPLY.members)];
    at = skipSpace(bytes, keyEnd);
    if (bytes[at] !== COLON) break;
    const start = skipSpace(bytes, at + 1);
    if (start >= bytes.length) break;
    if (name === 'result' || name === 'error') return { first: name, idStart, idEnd };
    const end = skipValue(bytes, start, REPLY_MAX_DEPTH);
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

/** Returns the unescaped text of a span that holds a JSON string; `undefined` for other values. */
export function spanString(bytes: Buffer, start: number, end: number): string | undefined {
  if (start < 0 || bytes[start] !== QUOTE) return undefined;
  const text = bytes.toString('utf8', start + 1, end - 1);
  if (!text.includes('\\')) return text;
  // The scanner accepted the span as one JSON string.
  return JSON.parse(`"${text}"`) as string;
}

function requestItem(
  bytes: Buffer,
  text: string,
  from: number,
  found: number[],
): RequestSpan | ScanFailure {
  if (bytes[from] !== OPEN_OBJECT) {
    const end = skipValue(bytes, from, REQUEST_MAX_DEPTH);
    return end < 0 ? broken(end) : failure(from, 'item');
  }
  const end = scanMembers(bytes, text, from, REQUEST, found);
  if (typeof end === 'object') return end;
  return {
    start: from,
    end,
    versionStart: found[0] ?? -1,
    versionEnd: found[1] ?? -1,
    methodStart: found[2] ?? -1,
    methodEnd: found[3] ?? -1,
    paramsStart: found[4] ?? -1,
    paramsEnd: found[5] ?? -1,
    idStart: found[6] ?? -1,
    idEnd: found[7] ?? -1,
    hasMore: found[8] === 1,
  };
}

function replyItem(
  bytes: Buffer,
  text: string,
  from: number,
  found: number[],
): ReplySpan | ScanFailure {
  if (bytes[from] !== OPEN_OBJECT) return failure(from, 'item');
  const end = scanMembers(bytes, text, from, REPLY, found);
  if (typeof end === 'object') return end;
  return {
    start: from,
    end,
    idStart: found[0] ?? -1,
    idEnd: found[1] ?? -1,
    resultStart: found[2] ?? -1,
    resultEnd: found[3] ?? -1,
    errorStart: found[4] ?? -1,
    errorEnd: found[5] ?? -1,
  };
}

/**
 * Writes start and end of each known member to twice its index, -1 if absent, followed by 1 if
 * there are unknown members; returns the offset after the object.
 */
function scanMembers(
  bytes: Buffer,
  text: string,
  from: number,
  kind: ItemKind,
  found: number[],
): number | ScanFailure {
  const { members, plain } = kind;
  for (let index = 0; index <= 2 * members.length; index += 1) found[index] = -1;
  let at = bytes[from + 1] === QUOTE ? from + 1 : skipSpace(bytes, from + 1);
  if (bytes[at] === CLOSE_OBJECT) return at + 1;
  for (;;) {
    let member: number;
    let start: number;
    let end: number;
    const keyStart = at;
    plain.lastIndex = at;
    if (plain.test(text)) {
      member = kind.initials.indexOf(text.charAt(at + 1));
      start = at + '"":'.length + (members[member]?.length ?? 0);
      end = plain.lastIndex;
    } else {
      const keyEnd = bytes[at] === QUOTE ? skipStrictString(bytes, at) : ~at;
      if (keyEnd < 0) return broken(keyEnd);
      const colon = skipSpace(bytes, keyEnd);
      if (bytes[colon] !== COLON) return failure(colon, 'syntax');
      start = skipSpace(bytes, colon + 1);
      end = skipValue(bytes, start, kind.maxDepth - 1);
      if (end < 0) return broken(end);
      member = memberAt(bytes, at, keyEnd, members);
      if (member < 0 && kind === REQUEST) {
        // Some nodes ignore the case of member names and use the last one.
        const folded = looseText(bytes, at, keyEnd).toUpperCase().toLowerCase();
        if (members.includes(folded)) return failure(at, 'member', folded);
      }
    }
    if (member >= 0) {
      if ((found[2 * member] ?? -1) >= 0) return failure(keyStart, 'member', members[member]);
      found[2 * member] = start;
      found[2 * member + 1] = end;
    } else found[2 * members.length] = 1;
    at = end;
    if (bytes[at] !== COMMA && bytes[at] !== CLOSE_OBJECT) at = skipSpace(bytes, at);
    if (bytes[at] === CLOSE_OBJECT) return at + 1;
    if (bytes[at] !== COMMA) return failure(at, 'syntax');
    at = bytes[at + 1] === QUOTE ? at + 1 : skipSpace(bytes, at + 1);
  }
}

function failure(position: number, reason: ScanFailure['reason'], member?: string): ScanFailure {
  return member === undefined
    ? { ok: false, position, reason }
    : { ok: false, position, reason, member };
}

function broken(code: number): ScanFailure {
  return code === DEPTH_EXCEEDED ? failure(0, 'depth') : failure(~code, 'syntax');
}

/** Returns the index of the member that a key names, escapes included; -1 for other keys. */
function memberAt(bytes: Buffer, start: number, end: number, members: readonly string[]): number {
  const first = bytes[start + 1];
  for (let member = 0; member < members.length; member += 1) {
    const name = members[member] ?? '';
    if (name.length !== end - start - 2 || name.charCodeAt(0) !== first) continue;
    let same = 1;
    while (same < name.length && bytes[start + 1 + same] === name.charCodeAt(same)) same += 1;
    if (same === name.length) return member;
  }
  for (let at = start + 1; at < end; at += 1) {
    if (bytes[at] === BACKSLASH) return members.indexOf(looseText(bytes, start, end));
  }
  return -1;
}

function looseText(bytes: Buffer, start: number, end: number): string {
  try {
    return JSON.parse(bytes.toString('utf8', start, end)) as string; // the span is in quotes
  } catch {
    // Only a reply can have a key with an invalid escape: requests are validated before. No member
    // is named ''.
    return '';
  }
}
