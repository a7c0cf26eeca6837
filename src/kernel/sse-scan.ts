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
import type { ByteSpan } from './json-scan.ts';
import { SseRewriter } from './sse-rewriter.ts';
import { EventTemplate } from './sse-template.ts';
import { SseCutter, dataStart, eventEnd, payloadOf, sseData } from './sse.ts';

const QUOTE = 0x22;
const COLON = 0x3a;
const OPEN_BRACKET = 0x5b;
const OPEN_BRACE = 0x7b;
const LETTER_E = 0x65;

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
const OUTPUT_KEYS = ['content"', 'arguments"', 'reasoning"'].map((key) => Buffer.from(key));
const USAGE_KEY = Buffer.from('usage"');

/** Scans one chat stream. Make one for each. */
export class SseScan {
  readonly #cutter = new SseCutter();
  readonly #rewriter: SseRewriter | null;
  readonly #template = new EventTemplate();
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
    let parts: Buffer[] | null = null;
    let runStart = 0;
    for (let start = 0; start < events.length;) {
      const likeEnd =
        this.#heldUsage === null && !this.#isDone ? this.#passLike(events, start) : -1;
      if (likeEnd !== -1) {
        start = likeEnd;
        continue;
      }
      const end = eventEnd(events, start);
      const held = this.#heldUsage;
      const stays = this.#isDone || this.#holdsBack(events.subarray(start, end));
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

  /** The end of an event that differs from an earlier one in its output only, or -1. */
  #passLike(events: Buffer, start: number): number {
    const end = this.#template.match(events, start);
    if (end !== -1 && this.#template.outputBytes > 0) {
      this.#deltas += 1;
      this.#outputBytes += this.#template.outputBytes;
    }
    return end;
  }

  /** Whether the event must not pass: `[DONE]`, the closing usage, an error. */
  #holdsBack(event: Buffer): boolean {
    const data = dataStart(event, 0, event.length);
    if (data === -1) return this.#isOddError(event);
    if (event[data] === OPEN_BRACKET) {
      this.#isDone = event.toString('latin1', data, data + 6) === '[DONE]';
      return this.#isDone;
    }
    if (event[data] !== OPEN_BRACE) return false;
    if (beginsWithError(event, data)) return this.#noteError(event.toString('utf8', data));
    const output = findOutput(event, data);
    if (output !== null) {
      this.#deltas += 1;
      this.#outputBytes += output.end - output.start;
    }
    if (hasUsage(event, data)) return this.#noteUsage(event, data);
    if (output !== null) this.#template.learn(event, output);
    return false;
  }

  #noteUsage(event: Buffer, data: number): boolean {
    const chunk = parseObject(event.toString('utf8', data));
    const usage = chunk?.['usage'];
    if (chunk === null || !isRecord(usage)) return false;
    this.#usage = usage;
    if (!isClosing(chunk['choices'])) return false;
    this.#heldUsage = event;
    return true;
  }

  #noteError(json: string): boolean {
    const error = parseObject(json)?.['error'];
    if (error === undefined || error === null) return false;
    this.#error = error;
    return true;
  }

  /** `event: error` with data after it, and llama.cpp's old `error: {…}`. */
  #isOddError(event: Buffer): boolean {
    if (event[0] !== LETTER_E) return false;
    const text = event.toString('utf8');
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

/** Whether the object at `data` begins with the member `error`. */
function beginsWithError(event: Buffer, data: number): boolean {
  const at = skipSpace(event, data + 1);
  return event[at + 1] === LETTER_E && event.toString('latin1', at, at + 7) === '"error"';
}

/** Whether a key that ends in `usage` has an object as its value: then a parse decides. */
function hasUsage(event: Buffer, from: number): boolean {
  for (let at = event.indexOf(USAGE_KEY, from); at !== -1; at = event.indexOf(USAGE_KEY, at + 1)) {
    const value = valueAfter(event, at + USAGE_KEY.length);
    if (value !== -1 && event[value] === OPEN_BRACE) return true;
  }
  return false;
}

/** The inside of the first output string that is not empty. */
function findOutput(event: Buffer, from: number): ByteSpan | null {
  for (const key of OUTPUT_KEYS) {
    for (let at = event.indexOf(key, from); at !== -1; at = event.indexOf(key, at + 1)) {
      const value = valueAfter(event, at + key.length);
      if (value === -1 || event[value] !== QUOTE || event[value + 1] === QUOTE) continue;
      const close = stringEnd(event, value) - 1;
      return close > value ? { start: value + 1, end: close } : null;
    }
  }
  return null;
}

/** Where the value of a key begins whose closing quote is before `from`, or -1. */
function valueAfter(event: Buffer, from: number): number {
  const colon = skipSpace(event, from);
  return event[colon] === COLON ? skipSpace(event, colon + 1) : -1;
}

/** Usage comes last: in a chunk without choices, or with choices that are all finished. */
function isClosing(choices: unknown): boolean {
  if (!Array.isArray(choices)) return true;
  return choices.every((choice) => isRecord(choice) && typeof choice['finish_reason'] === 'string');
}
