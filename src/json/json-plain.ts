/**
 * Batch items in the spellings of the common clients and nodes: no space, no escape, an id of
 * digits, the members in one of few orders. An expression finds the end of such an item several
 * times as fast as the scanner of `json-spans.ts`, which reads every other item.
 *
 * Invariant: what is found here is what that scanner finds. A text has one character for each byte
 * of its document (`latin1`), so its positions are those of the bytes.
 */
import type { ReplySpan, RequestSpan } from './json-span.ts';

const STRING = String.raw`"[^"\\\x00-\x1f]*"`;
const NUMBER = String.raw`-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?`;
const SCALAR = `${STRING}|${NUMBER}|true|false|null`;
/** Params of calls, logs and proofs; each level more doubles the expression. */
const PARAMS_DEPTH = 3;

/** A value of at most `depth` containers; every byte has one meaning, so nothing is tried twice. */
function valueSource(depth: number): string {
  if (depth === 0) return `(?:${SCALAR})`;
  const inner = valueSource(depth - 1);
  const items = String.raw`\[(?:${inner}(?:,(?!\])|(?=\])))*\]`;
  const members = String.raw`\{(?:${STRING}:${inner}(?:,(?!\})|(?=\})))*\}`;
  return `(?:${SCALAR}|${items}|${members})`;
}

const VERSION = '"jsonrpc":"2.0"';
const VERSION_SOURCE = VERSION.replace('.', String.raw`\.`);
const ID = String.raw`"id":(?:0|[1-9]\d*)`;
const CALL = String.raw`"method":"\w+","params":${valueSource(PARAMS_DEPTH)}`;
/** A node's strings are not checked inside. */
const RESULT = String.raw`"result":(?:"[^"\\]*"|${NUMBER}|true|false|null)`;

// Sticky: each is asked at `lastIndex`, and says there where its match ended.
const ID_FIRST_REQUEST = new RegExp(String.raw`\{${VERSION_SOURCE},${ID},${CALL}\}`, 'y');
const ID_LAST_REQUEST = new RegExp(String.raw`\{${VERSION_SOURCE},${CALL},${ID}\}`, 'y');
const VERSION_LAST_REQUEST = new RegExp(String.raw`\{${CALL},${ID},${VERSION_SOURCE}\}`, 'y');
const ID_FIRST_REPLY = new RegExp(String.raw`\{${VERSION_SOURCE},${ID},${RESULT}\}`, 'y');
const ID_LAST_REPLY = new RegExp(String.raw`\{${VERSION_SOURCE},${RESULT},${ID}\}`, 'y');

const VERSION_VALUE = '{"jsonrpc":'.length;
const VERSION_SIZE = '"2.0"'.length;
const AFTER_VERSION = `{${VERSION},`.length;

/** The request at `start` when it has a plain spelling. */
export function plainRequest(text: string, start: number): RequestSpan | undefined {
  let end = matchEnd(ID_FIRST_REQUEST, text, start);
  if (end > 0) return idFirstRequest(text, start, end);
  end = matchEnd(VERSION_LAST_REQUEST, text, start);
  if (end > 0) {
    const idEnd = end - `,${VERSION}}`.length;
    return idLastRequest(text, {
      start,
      end,
      call: start + 1,
      idEnd,
      version: idEnd + ',"jsonrpc":'.length,
    });
  }
  end = matchEnd(ID_LAST_REQUEST, text, start);
  if (end < 0) return undefined;
  const call = start + AFTER_VERSION;
  return idLastRequest(text, { start, end, call, idEnd: end - 1, version: start + VERSION_VALUE });
}

function idFirstRequest(text: string, start: number, end: number): RequestSpan {
  const versionStart = start + VERSION_VALUE;
  const idStart = start + AFTER_VERSION + '"id":'.length;
  const idEnd = text.indexOf(',', idStart);
  const methodStart = idEnd + ',"method":'.length;
  const methodEnd = text.indexOf('"', methodStart + 1) + 1;
  return {
    start,
    end,
    versionStart,
    versionEnd: versionStart + VERSION_SIZE,
    methodStart,
    methodEnd,
    paramsStart: methodEnd + ',"params":'.length,
    paramsEnd: end - 1,
    idStart,
    idEnd,
  };
}

/** Where the parts of a request are whose id follows its params. */
interface IdLast {
  readonly start: number;
  readonly end: number;
  readonly call: number;
  readonly idEnd: number;
  readonly version: number;
}

function idLastRequest(text: string, { start, end, call, idEnd, version }: IdLast): RequestSpan {
  const methodStart = call + '"method":'.length;
  const methodEnd = text.indexOf('"', methodStart + 1) + 1;
  const idStart = text.lastIndexOf(':', idEnd) + 1;
  return {
    start,
    end,
    versionStart: version,
    versionEnd: version + VERSION_SIZE,
    methodStart,
    methodEnd,
    paramsStart: methodEnd + ',"params":'.length,
    paramsEnd: idStart - ',"id":'.length,
    idStart,
    idEnd,
  };
}

/** The reply at `start` when it is a result in a plain spelling. */
export function plainReply(text: string, start: number): ReplySpan | undefined {
  const idFirst = matchEnd(ID_FIRST_REPLY, text, start);
  if (idFirst > 0) {
    const idStart = start + AFTER_VERSION + '"id":'.length;
    const idEnd = text.indexOf(',', idStart);
    const resultStart = idEnd + ',"result":'.length;
    return resultSpan(start, idFirst, { idStart, idEnd, resultStart, resultEnd: idFirst - 1 });
  }
  const end = matchEnd(ID_LAST_REPLY, text, start);
  if (end < 0) return undefined;
  const idStart = text.lastIndexOf(':', end - 1) + 1;
  const resultStart = start + AFTER_VERSION + '"result":'.length;
  const resultEnd = idStart - ',"id":'.length;
  return resultSpan(start, end, { idStart, idEnd: end - 1, resultStart, resultEnd });
}

type ResultParts = Pick<ReplySpan, 'idStart' | 'idEnd' | 'resultStart' | 'resultEnd'>;

function resultSpan(start: number, end: number, parts: ResultParts): ReplySpan {
  const { idStart, idEnd, resultStart, resultEnd } = parts;
  return { start, end, idStart, idEnd, resultStart, resultEnd, errorStart: -1, errorEnd: -1 };
}

/** Where a match that begins at `start` ends; -1 when there is none. */
function matchEnd(expression: RegExp, text: string, start: number): number {
  expression.lastIndex = start;
  return expression.test(text) ? expression.lastIndex : -1;
}
