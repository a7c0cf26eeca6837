/**
 * Checks JSON in chunks, without decoding it: it rejects what `JSON.parse` rejects, except invalid
 * UTF-8. The memory depends on the depth only.
 */
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
  skipScalar,
  skipSpace,
  skipStrictString,
} from './json-skip.ts';

/** Returned instead of a position if the value does not end in the bytes so far. */
const INCOMPLETE = -0x7ffffffe;
/** Longer numbers that are split between two chunks are rejected, since they are read again. */
const MAX_SPLIT_SCALAR_BYTES = 1_024;

/** The expected token; `rest-of-key` and `rest-of-string` continue a string of the last chunk. */
type State =
  | 'value'
  | 'first-item'
  | 'first-key'
  | 'key'
  | 'colon'
  | 'next'
  | 'rest-of-key'
  | 'rest-of-string'
  | 'done';

export class JsonChecker {
  readonly #maxDepth: number;
  /** The closing bracket of each open container. */
  readonly #open: number[] = [];
  #state: State = 'value';
  /** Bytes of the last chunk that are read again: the start of a scalar or of an escape. */
  #tail: Buffer | undefined;

  constructor(maxDepth: number) {
    this.#maxDepth = maxDepth;
  }

  /**
   * Reads the next bytes from `from`. Returns the position after the value, `INCOMPLETE`,
   * `DEPTH_EXCEEDED`, or `~position` of the invalid byte. After the value, only spaces are valid.
   */
  push(chunk: Buffer, from = 0): number {
    const tail = this.#tail;
    if (tail === undefined) return this.#scan(chunk, from);
    this.#tail = undefined;
    const end = this.#scan(Buffer.concat([tail, chunk.subarray(from)]), 0);
    return end < 0 ? end : end - tail.length + from;
  }

  /** Reads the next chunk of a document; `false` if the document is invalid. */
  accepts(chunk: Buffer): boolean {
    const end = this.push(chunk);
    return end === INCOMPLETE || (end >= 0 && this.push(chunk, end) === INCOMPLETE);
  }

  /** Whether the value has ended. */
  get isDone(): boolean {
    return this.#state === 'done';
  }

  #scan(bytes: Buffer, from: number): number {
    const open = this.#open;
    let state = this.#state;
    let at = from;
    for (;;) {
      const isRest = state === 'rest-of-key' || state === 'rest-of-string';
      at = isRest ? at - 1 : skipSpace(bytes, at);
      if (at >= bytes.length || (isRest && at + 1 === bytes.length)) {
        this.#state = state;
        return INCOMPLETE;
      }
      const byte = bytes[at];
      const isKey = state === 'key' || state === 'first-key' || state === 'rest-of-key';
      if (isRest || (byte === QUOTE && state !== 'next' && state !== 'colon' && state !== 'done')) {
        const end = skipStrictString(bytes, at);
        if (end < 0) return this.#splitString(bytes, at + 1, end, isKey);
        at = end;
        state = isKey ? 'colon' : 'next';
      } else if (state === 'next' || state === 'first-item' || state === 'first-key') {
        const close = open[open.length - 1];
        if (byte === close) {
          open.pop();
          state = 'next';
          at += 1;
        } else if (state === 'first-item') {
          state = 'value';
          continue;
        } else if (state === 'next' && byte === COMMA) {
          state = close === CLOSE_OBJECT ? 'key' : 'value';
          at += 1;
        } else return ~at;
      } else if (state === 'colon') {
        if (byte !== COLON) return ~at;
        state = 'value';
        at += 1;
      } else if (state !== 'value') return ~at;
      else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) {
        if (open.length === this.#maxDepth) return DEPTH_EXCEEDED;
        open.push(byte === OPEN_OBJECT ? CLOSE_OBJECT : CLOSE_ARRAY);
        state = byte === OPEN_OBJECT ? 'first-key' : 'first-item';
        at += 1;
      } else {
        const end = skipScalar(bytes, at);
        if (end === bytes.length || ~end === bytes.length) return this.#splitScalar(bytes, at);
        if (end < 0) return end;
        at = end;
        state = 'next';
      }
      if (state === 'next' && open.length === 0) {
        this.#state = 'done';
        return at;
      }
    }
  }

  #splitScalar(bytes: Buffer, from: number): number {
    if (bytes.length - from > MAX_SPLIT_SCALAR_BYTES) return ~from;
    this.#state = 'value';
    this.#tail = bytes.subarray(from);
    return INCOMPLETE;
  }

  /** `end` is the negative result of reading the string, whose text begins at `from`. */
  #splitString(bytes: Buffer, from: number, end: number, isKey: boolean): number {
    if (~end !== bytes.length) return end;
    this.#state = isKey ? 'rest-of-key' : 'rest-of-string';
    const escape = bytes.lastIndexOf(BACKSLASH);
    if (escape < from || escape < bytes.length - '\\u000'.length) return INCOMPLETE;
    let run = escape;
    while (run > from && bytes[run - 1] === BACKSLASH) run -= 1;
    const isEscape = (escape - run) % 2 === 0;
    const isCut = bytes[escape + 1] === undefined || bytes[escape + 1] === 0x75;
    if (isEscape && isCut) this.#tail = bytes.subarray(escape);
    return INCOMPLETE;
  }
}

/** Returns the position after the value at `at`, or a negative code as `push` does. */
export function skipValue(bytes: Buffer, at: number, maxDepth: number): number {
  const byte = bytes[at];
  if (byte === QUOTE) return skipStrictString(bytes, at);
  if (byte !== OPEN_OBJECT && byte !== OPEN_ARRAY) return skipScalar(bytes, at);
  const end = new JsonChecker(maxDepth).push(bytes, at);
  return end === INCOMPLETE ? ~bytes.length : end;
}
