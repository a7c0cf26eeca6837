/**
 * Server-sent events as bytes: cutting a stream after whole events, wherever the chunks are cut
 * (inside a character or a line end too), and finding the data of an event.
 * Lines end in LF or CRLF; a lone CR, which no engine sends, does not end a line here.
 */
import { skipSpace } from './json-scan.ts';

const LF = 0x0a;
const CR = 0x0d;
const COLON = 0x3a;

/** A single event beyond this is not chat: an image of a few megabytes may be. */
const MAX_EVENT_BYTES = 16 * 1024 * 1024;

/** One event with the JSON text as its data. */
export function encodeSseEvent(json: string): string {
  return `data: ${json}\n\n`;
}

/** The event that ends a chat stream. */
export const SSE_DONE = 'data: [DONE]\n\n';

/** Cuts a byte stream after whole events. */
export class SseCutter {
  readonly #pending: Buffer[] = [];
  #pendingBytes = 0;
  /** How the line at the end of the pending bytes stands: empty, only a CR, or begun. */
  #line: 'empty' | 'cr' | 'begun' = 'empty';

  /** The whole events that end in this chunk, with what was pending before, or null. */
  push(chunk: Buffer): Buffer | null {
    const end = this.#lastEnd(chunk);
    this.#line = lineAfter(chunk, this.#line);
    if (end === chunk.length && this.#pendingBytes === 0) return chunk;
    if (end === -1) {
      this.#keep(chunk);
      return null;
    }
    const whole = this.#take(chunk.subarray(0, end));
    if (end < chunk.length) this.#keep(chunk.subarray(end));
    return whole;
  }

  /** What is left after the last whole event; empties the cutter. */
  rest(): Buffer {
    this.#line = 'empty';
    return this.#take(Buffer.alloc(0));
  }

  #keep(bytes: Buffer): void {
    this.#pending.push(bytes);
    this.#pendingBytes += bytes.length;
    if (this.#pendingBytes > MAX_EVENT_BYTES) {
      throw new RangeError(`An event of the stream is larger than ${MAX_EVENT_BYTES} bytes`);
    }
  }

  #take(last: Buffer): Buffer {
    if (this.#pendingBytes === 0) return last;
    this.#pending.push(last);
    const whole = Buffer.concat(this.#pending, this.#pendingBytes + last.length);
    this.#pending.length = 0;
    this.#pendingBytes = 0;
    return whole;
  }

  /** One past the last empty line of the chunk, or -1. */
  #lastEnd(chunk: Buffer): number {
    const { length } = chunk;
    // Nearly every chunk of nearly every engine ends like this.
    if (chunk[length - 1] === LF && chunk[length - 2] === LF) return length;
    for (
      let at = chunk.lastIndexOf(LF);
      at !== -1;
      at = at === 0 ? -1 : chunk.lastIndexOf(LF, at - 1)
    ) {
      if (this.#endsEmptyLine(chunk, at)) return at + 1;
    }
    return -1;
  }

  #endsEmptyLine(chunk: Buffer, at: number): boolean {
    if (at === 0) return this.#line !== 'begun';
    if (chunk[at - 1] === LF) return true;
    if (chunk[at - 1] !== CR) return false;
    return at === 1 ? this.#line === 'empty' : chunk[at - 2] === LF;
  }
}

function lineAfter(chunk: Buffer, before: 'empty' | 'cr' | 'begun'): 'empty' | 'cr' | 'begun' {
  const { length } = chunk;
  if (length === 0) return before;
  if (chunk[length - 1] === LF) return 'empty';
  if (chunk[length - 1] !== CR) return 'begun';
  const isAlone = length === 1 ? before === 'empty' : chunk[length - 2] === LF;
  return isAlone ? 'cr' : 'begun';
}

/** One past the event that starts at `start` in whole events. */
export function eventEnd(events: Buffer, start: number): number {
  let line = start;
  for (;;) {
    const feed = events.indexOf(LF, line);
    if (feed === -1) return events.length;
    if (feed === line || (feed === line + 1 && events[line] === CR)) return feed + 1;
    line = feed + 1;
  }
}

/** Where the data of an event begins, when the event begins with it; else -1. */
export function dataStart(events: Buffer, start: number, end: number): number {
  const isData =
    events[start] === 0x64 &&
    events[start + 1] === 0x61 &&
    events[start + 2] === 0x74 &&
    events[start + 3] === 0x61 &&
    events[start + 4] === COLON;
  return isData ? Math.min(skipSpace(events, start + 5), end) : -1;
}

/** The data of one event as text, its lines joined; empty for comments. */
export function sseData(event: string): string {
  const data: string[] = [];
  for (const line of event.split(/\r?\n/)) {
    if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5));
  }
  return data.join('\n');
}

/** Splits whole events, for streams whose content is rewritten. */
export function* splitEvents(events: Buffer): Generator<string> {
  for (let start = 0; start < events.length;) {
    const end = eventEnd(events, start);
    yield events.toString('utf8', start, end);
    start = end;
  }
}

/** The JSON of an event that begins with its data, without white space around. */
export function payloadOf(event: Buffer): Buffer {
  const start = Math.max(0, dataStart(event, 0, event.length));
  let end = event.length;
  while (end > start && (event[end - 1] === LF || event[end - 1] === CR)) end -= 1;
  return event.subarray(start, end);
}
