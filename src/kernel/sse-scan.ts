/**
 * The scan of a chat stream on the hot path: passes the events on as bytes and notes what a bill
 * needs (usage, counted output, errors, whether it ended).
 *
 * Invariants: what `push` returns is whole events in their order; the closing usage, `[DONE]` and
 * errors are held back, so that the caller can put a cost into the usage before the last byte
 * leaves. An event is parsed only when it has a usage object or an error in it.
 */
import { isRecord, parseObject } from './json-object.ts';
import { skipSpace, stringEnd } from './json-scan.ts';
import { SseRewriter } from './sse-rewriter.ts';
import { SseCutter, dataStart, eventEnd, payloadOf, sseData } from './sse.ts';

const QUOTE = 0x22;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const OPEN_BRACE = 0x7b;

export interface SseScanOptions {
  /**
   * Top-level string members that every chunk gets another value for, such as `model`. They are
   * learned from the first chunk and then replaced as bytes.
   */
  readonly rewrite?: Readonly<Record<string, string>>;
}

/** What came last, held back. */
export interface SseTail {
  /** JSON bytes of the closing usage chunk, or null when none closed the stream. */
  readonly usageChunk: Buffer | null;
  /** Bytes to forward first: an event that the engine did not end with an empty line. */
  readonly rest: Buffer | null;
}

/** Names of the members that carry output; `content"` also ends `"reasoning_content"`. */
const OUTPUT_KEYS = ['content"', 'arguments"', 'reasoning"'] as const;

/** Scans one chat stream. Make one for each. */
export class SseScan {
  readonly #cutter = new SseCutter();
  readonly #rewriter: SseRewriter | null;
  #heldUsage: Buffer | null = null;
  #usage: Readonly<Record<string, unknown>> | null = null;
  #error: unknown = null;
  #isDone = false;
  #deltas = 0;
  #outputBytes = 0;

  constructor(options: SseScanOptions = {}) {
    const { rewrite } = options;
    this.#rewriter = rewrite === undefined ? null : new SseRewriter(rewrite);
  }

  /** The newest top-level `usage` object of the stream. */
  get usage(): Readonly<Record<string, unknown>> | null {
    return this.#usage;
  }

  /** The `error` of an error event; null when there was none. */
  get error(): unknown {
    return this.#error;
  }

  /** Whether `[DONE]` came. A stream that ends without it was cut. */
  get isDone(): boolean {
    return this.#isDone;
  }

  /** Events that carried output: content, reasoning or tool arguments. */
  get deltas(): number {
    return this.#deltas;
  }

  /** Bytes of that output, as JSON encodes it. */
  get outputBytes(): number {
    return this.#outputBytes;
  }

  /**
   * The bytes that may be forwarded now, or null. Throws a RangeError when one event is larger
   * than 16 MiB.
   */
  push(chunk: Buffer): Buffer | null {
    const events = this.#cutter.push(chunk);
    if (events === null) return null;
    const passed = this.#sift(events);
    return passed === null || this.#rewriter === null ? passed : this.#rewriter.apply(passed);
  }

  /** Ends the scan: what was held back. */
  finish(): SseTail {
    const left = this.#cutter.rest();
    const passed =
      skipSpace(left, 0) >= left.length
        ? null
        : this.#sift(Buffer.concat([left, Buffer.from('\n\n')]));
    const held = this.#heldUsage;
    this.#heldUsage = null;
    const usageEvent = held === null || this.#rewriter === null ? held : this.#rewriter.apply(held);
    return {
      usageChunk: usageEvent === null ? null : payloadOf(usageEvent),
      rest: passed === null || this.#rewriter === null ? passed : this.#rewriter.apply(passed),
    };
  }

  /** Notes what the events say and gives those that pass. */
  #sift(events: Buffer): Buffer | null {
    const finder = new Finder(events);
    let parts: Buffer[] | null = null;
    let runStart = 0;
    for (let start = 0; start < events.length;) {
      const end = eventEnd(events, start);
      const held = this.#heldUsage;
      const stays = this.#isDone || this.#holdsBack(events, start, end, finder);
      if (held !== null && !this.#isDone) {
        // The stream goes on: that usage was not the closing one.
        (parts ??= []).push(held);
        if (this.#heldUsage === held) this.#heldUsage = null;
      }
      if (stays) {
        if (runStart < start) (parts ??= []).push(events.subarray(runStart, start));
        runStart = end;
      }
      start = end;
    }
    if (runStart === 0 && parts === null) return events;
    if (runStart < events.length) (parts ??= []).push(events.subarray(runStart));
    if (parts === null) return null;
    return parts.length === 1 ? (parts[0] ?? null) : Buffer.concat(parts);
  }

  /** Whether the event must not pass: `[DONE]`, the closing usage, an error. */
  #holdsBack(events: Buffer, start: number, end: number, finder: Finder): boolean {
    const data = dataStart(events, start, end);
    if (data === -1) return this.#isOddError(events, start, end);
    if (events[data] === OPEN_BRACKET) {
      this.#isDone = events.toString('latin1', data, data + 6) === '[DONE]';
      return this.#isDone;
    }
    if (events[data] !== OPEN_BRACE) return false;
    if (finder.isErrorAt(data)) return this.#noteError(events.toString('utf8', data, end));
    const bytes = finder.outputBytes(data, end);
    if (bytes > 0) {
      this.#deltas += 1;
      this.#outputBytes += bytes;
    }
    return finder.hasUsage(data, end) && this.#noteUsage(events, start, data, end);
  }

  #noteUsage(events: Buffer, start: number, data: number, end: number): boolean {
    const chunk = parseObject(events.toString('utf8', data, end));
    const usage = chunk?.['usage'];
    if (chunk === null || !isRecord(usage)) return false;
    this.#usage = usage;
    if (!isClosing(chunk['choices'])) return false;
    this.#heldUsage = events.subarray(start, end);
    return true;
  }

  #noteError(json: string): boolean {
    const error = parseObject(json)?.['error'];
    if (error === undefined || error === null) return false;
    this.#error = error;
    return true;
  }

  /** `event: error` with data after it, and llama.cpp's old `error: {…}`. */
  #isOddError(events: Buffer, start: number, end: number): boolean {
    if (events[start] !== 0x65) return false;
    const text = events.toString('utf8', start, end);
    if (text.startsWith('error:')) {
      this.#error = parseObject(text.slice(6)) ?? text.slice(6).trim();
      return true;
    }
    if (!/^event: ?error\b/.test(text)) return false;
    const data = sseData(text);
    if (!this.#noteError(data)) this.#error = parseObject(data) ?? data;
    return true;
  }
}

/** Searches one buffer for several needles, each only once, however many events it holds. */
class Finder {
  readonly #events: Buffer;
  /** Next occurrence of each output key; then of `"usage"`. */
  readonly #next: number[] = [-2, -2, -2, -2];

  constructor(events: Buffer) {
    this.#events = events;
  }

  isErrorAt(data: number): boolean {
    const at = skipSpace(this.#events, data + 1);
    return (
      this.#events[at + 1] === 0x65 && this.#events.toString('latin1', at, at + 7) === '"error"'
    );
  }

  /** Whether a `"usage"` with an object as its value stands in the range. */
  hasUsage(from: number, end: number): boolean {
    for (let at = this.#find(3, '"usage"', from); at !== -1 && at < end;) {
      const value = this.#valueAfter(at + 7);
      if (value !== -1 && this.#events[value] === OPEN_BRACE) return true;
      at = this.#find(3, '"usage"', at + 7);
    }
    return false;
  }

  /** Bytes of the first output string in the range that is not empty. */
  outputBytes(from: number, end: number): number {
    for (const [slot, key] of OUTPUT_KEYS.entries()) {
      for (let at = this.#find(slot, key, from); at !== -1 && at < end;) {
        const value = this.#valueAfter(at + key.length);
        if (value !== -1 && this.#events[value] === QUOTE && this.#events[value + 1] !== QUOTE) {
          return Math.max(0, stringEnd(this.#events, value) - value - 2);
        }
        at = this.#find(slot, key, at + key.length);
      }
    }
    return 0;
  }

  /** Where the value of a key begins whose closing quote is before `from`, or -1. */
  #valueAfter(from: number): number {
    const colon = skipSpace(this.#events, from);
    return this.#events[colon] === COLON ? skipSpace(this.#events, colon + 1) : -1;
  }

  #find(slot: number, needle: string, from: number): number {
    const known = this.#next[slot] ?? -2;
    if (known === -1 || known >= from) return known;
    const at = this.#events.indexOf(needle, from, 'latin1');
    this.#next[slot] = at;
    return at;
  }
}

/** Usage comes last: in a chunk without choices, or with choices that are all finished. */
function isClosing(choices: unknown): boolean {
  if (!Array.isArray(choices)) return true;
  return choices.every((choice) => isRecord(choice) && typeof choice['finish_reason'] === 'string');
}
