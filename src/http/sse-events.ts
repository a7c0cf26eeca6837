/**
 * Finds the events of a server-sent event stream in bytes that are cut anywhere; lines end with LF,
 * CRLF or CR. Bytes of an unfinished event are kept, up to a bound. Only `data:` lines are read:
 * the protocols here carry everything in them.
 */
import type { Span } from '../json/json-scan.ts';

/** The data of one event: bytes `start` to `end` of `bytes`. */
export interface SseData extends Span {
  readonly bytes: Buffer;
  /** The whole event in the same bytes, blank line included; none when its data was joined. */
  readonly event: Span | undefined;
}

/** A whole tool call or image can come as one event; more than this is not a chat stream. */
const MAX_EVENT_BYTES = 8 * 1024 * 1024;

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const EMPTY = Buffer.alloc(0);
const DATA_FIELD = Buffer.from('data:');

export class SseEvents {
  readonly #maxEventBytes: number;
  #bytes: Buffer = EMPTY;
  /** What those bytes begin, with room behind them; empty where they are the engine's own. */
  #store: Buffer = EMPTY;
  /** Where the unfinished event begins. */
  #at = 0;
  /** Where its unfinished line begins, and where the search for the end of it goes on. */
  #line = 0;
  #sought = 0;
  /** The last byte was a CR, taken for a whole line end: an LF that follows belongs to it. */
  #endsInReturn = false;
  /**
   * The first data line of the unfinished event, counted from its first byte; -1 before it came.
   */
  #dataStart = -1;
  #dataEnd = -1;
  /** Those that follow: nearly no event has any. */
  #further: Span[] | undefined;

  constructor(maxEventBytes = MAX_EVENT_BYTES) {
    this.#maxEventBytes = maxEventBytes;
  }

  /** Whether no event has begun: the next bytes are the first of one. */
  get isBetween(): boolean {
    return this.#bytes.length === this.#at;
  }

  /** Takes bytes; then call `next` until it returns `undefined`. `false` for a too long event. */
  push(given: Buffer): boolean {
    const chunk = this.#endsInReturn || given.includes(CR) ? this.#withLineFeeds(given) : given;
    const keptBytes = this.#bytes.length - this.#at;
    if (keptBytes > this.#maxEventBytes) return false;
    if (keptBytes > 0) this.#append(chunk, keptBytes);
    else this.#begin(chunk);
    return true;
  }

  #begin(bytes: Buffer): void {
    this.#bytes = bytes;
    this.#store = EMPTY;
    this.#at = 0;
    this.#line = 0;
    this.#sought = 0;
  }

  /**
   * Kept bytes are copied when they double or when most are done: an engine may send byte by byte.
   */
  #append(chunk: Buffer, keptBytes: number): void {
    let from = this.#bytes.length;
    if (from + chunk.length > this.#store.length || this.#at > keptBytes) {
      this.#store = Buffer.allocUnsafe(2 * (keptBytes + chunk.length));
      this.#bytes.copy(this.#store, 0, this.#at);
      this.#line -= this.#at;
      this.#sought -= this.#at;
      this.#at = 0;
      from = keptBytes;
    }
    chunk.copy(this.#store, from);
    this.#bytes = this.#store.subarray(0, from + chunk.length);
  }

  /** Each CR without its LF is a line end of its own (HTML, server-sent events). */
  #withLineFeeds(given: Buffer): Buffer {
    let bytes = this.#endsInReturn && given[0] === LF ? given.subarray(1) : given;
    let isCopy = false;
    if (given.length > 0) this.#endsInReturn = false;
    for (let at = bytes.indexOf(CR); at !== -1; at = bytes.indexOf(CR, at + 1)) {
      if (bytes[at + 1] === LF) continue;
      // The engine's bytes are not ours to change.
      if (!isCopy) bytes = Buffer.from(bytes);
      isCopy = true;
      bytes[at] = LF;
      this.#endsInReturn = at === bytes.length - 1;
    }
    return bytes;
  }

  /** The data of the next complete event; `undefined` when more bytes are needed. */
  next(): SseData | undefined {
    const bytes = this.#bytes;
    for (;;) {
      const start = this.#line;
      const lineFeed = bytes.indexOf(LF, this.#sought);
      if (lineFeed === -1) break;
      this.#line = lineFeed + 1;
      this.#sought = this.#line;
      const end = bytes[lineFeed - 1] === CR && lineFeed > start ? lineFeed - 1 : lineFeed;
      const first = this.#at;
      if (end > start) {
        const from = start + DATA_FIELD.length;
        let at = start;
        while (at < from && bytes[at] === DATA_FIELD[at - start]) at += 1;
        if (at < from) continue;
        const valueStart = (bytes[from] === SPACE ? from + 1 : from) - first;
        if (this.#dataStart === -1) {
          this.#dataStart = valueStart;
          this.#dataEnd = end - first;
        } else (this.#further ??= []).push({ start: valueStart, end: end - first });
        continue;
      }
      this.#at = this.#line;
      const dataStart = this.#dataStart;
      if (dataStart === -1) continue;
      this.#dataStart = -1;
      const further = this.#further;
      if (further !== undefined) {
        this.#further = undefined;
        further.unshift({ start: dataStart, end: this.#dataEnd });
        return joinLines(bytes.subarray(first), further);
      }
      const event = { start: first, end: this.#line };
      return { bytes, start: first + dataStart, end: first + this.#dataEnd, event };
    }
    // A stream that waits between two events holds no bytes.
    if (this.isBetween) this.#begin(EMPTY);
    else this.#sought = bytes.length;
    return undefined;
  }

  /** The event that the stream ended in without its blank line, if it has data. */
  finish(): SseData | undefined {
    this.push(Buffer.from('\n\n'));
    return this.next();
  }
}

/** Several `data:` lines of one event are one text with line feeds between. */
function joinLines(event: Buffer, lines: readonly Span[]): SseData {
  const text = lines.map((line) => event.toString('utf8', line.start, line.end)).join('\n');
  const bytes = Buffer.from(text);
  return { bytes, start: 0, end: bytes.length, event: undefined };
}
