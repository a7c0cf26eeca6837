/**
 * Finds the events of a server-sent event stream in chunks that are cut anywhere; lines end with
 * LF, CRLF or CR. Keeps the bytes of an unfinished event, up to a bound. Reads `data:` lines only,
 * because the protocols here use no others.
 */
import type { Span } from '../json/json-scan.ts';

/** The data of one event: bytes `start` to `end` of `bytes`. */
export interface SseData extends Span {
  readonly bytes: Buffer;
  /** The event in the same bytes, with its blank line; `undefined` if data lines were joined. */
  readonly event: Span | undefined;
}

/** Allows a complete tool call or image in one event. */
const MAX_EVENT_BYTES = 8 * 1024 * 1024;

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const EMPTY = Buffer.alloc(0);
const DATA_FIELD = Buffer.from('data:');

export class SseEvents {
  readonly #maxEventBytes: number;
  #bytes: Buffer = EMPTY;
  /** The buffer behind `#bytes`, with free space; empty if `#bytes` is a chunk of the engine. */
  #store: Buffer = EMPTY;
  /** Start of the unfinished event. */
  #at = 0;
  /** Start of its unfinished line, and where the search for the line end continues. */
  #line = 0;
  #sought = 0;
  /** The last byte was a CR and was read as a line end; a following LF belongs to it. */
  #endsInReturn = false;
  /** The first data line, relative to the start of the event; -1 if there is none yet. */
  #dataStart = -1;
  #dataEnd = -1;
  /** Further data lines, which are rare. */
  #further: Span[] | undefined;

  constructor(maxEventBytes = MAX_EVENT_BYTES) {
    this.#maxEventBytes = maxEventBytes;
  }

  /** Whether the next bytes begin an event. */
  get isBetween(): boolean {
    return this.#bytes.length === this.#at;
  }

  /** Adds a chunk; then call `next` until it returns `undefined`. Returns `false` if an event is too long. */
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

  /** Copies kept bytes only when they double or most are done, for engines that send single bytes. */
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

  /** Replaces each CR that is a line end of its own by LF (HTML, server-sent events). */
  #withLineFeeds(given: Buffer): Buffer {
    let bytes = this.#endsInReturn && given[0] === LF ? given.subarray(1) : given;
    let isCopy = false;
    if (given.length > 0) this.#endsInReturn = false;
    for (let at = bytes.indexOf(CR); at !== -1; at = bytes.indexOf(CR, at + 1)) {
      if (bytes[at + 1] === LF) continue;
      // The chunk belongs to the engine call.
      if (!isCopy) bytes = Buffer.from(bytes);
      isCopy = true;
      bytes[at] = LF;
      this.#endsInReturn = at === bytes.length - 1;
    }
    return bytes;
  }

  /** Returns the data of the next complete event; `undefined` if it needs more bytes. */
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
    // Frees the bytes between two events.
    if (this.isBetween) this.#begin(EMPTY);
    else this.#sought = bytes.length;
    return undefined;
  }

  /** Returns the data of a last event without a blank line. */
  finish(): SseData | undefined {
    this.push(Buffer.from('\n\n'));
    return this.next();
  }
}

/** Joins the `data:` lines of one event with line feeds. */
function joinLines(event: Buffer, lines: readonly Span[]): SseData {
  const text = lines.map((line) => event.toString('utf8', line.start, line.end)).join('\n');
  const bytes = Buffer.from(text);
  return { bytes, start: 0, end: bytes.length, event: undefined };
}
