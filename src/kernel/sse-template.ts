/**
 * The chunks of a stream differ from one another in one string: the output. Knowing the bytes
 * before and after it, an event is recognised by two comparisons instead of a search for each key.
 *
 * Invariant: a match means that the event is, byte for byte outside the one JSON string, an event
 * that was looked into before. Anything else is no match, and is looked into.
 */
import type { ByteSpan } from './json-scan.ts';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** Chunks in a row that were learned in vain; then this stream has no template. */
const MAX_VAIN_LESSONS = 16;

export class EventTemplate {
  /** From the start of the event to the opening quote of its output. */
  #before: Buffer = Buffer.alloc(0);
  /** From the closing quote to the end of the event. */
  #after: Buffer = Buffer.alloc(0);
  #vainLessons = 0;
  #outputBytes = 0;

  /** Bytes of the output of the event that matched last. */
  get outputBytes(): number {
    return this.#outputBytes;
  }

  /** The end of the event at `start` when it is like the learned one, else -1. */
  match(events: Buffer, start: number): number {
    const before = this.#before;
    const after = this.#after;
    const value = start + before.length;
    if (before.length === 0 || value + after.length > events.length) return -1;
    if (events.compare(before, 0, before.length, start, value) !== 0) return -1;
    const close = closingQuote(events, value);
    const end = close + after.length;
    if (end > events.length || events.compare(after, 0, after.length, close, end) !== 0) return -1;
    this.#outputBytes = close - value;
    this.#vainLessons = 0;
    return end;
  }

  /** Takes an event that passes as the pattern of the next ones; `output` is inside its quotes. */
  learn(event: Buffer, output: ByteSpan): void {
    if (this.#vainLessons > MAX_VAIN_LESSONS) return;
    this.#vainLessons += 1;
    // Copies: a view would keep the whole chunk in memory.
    this.#before = Buffer.from(event.subarray(0, output.start));
    this.#after = Buffer.from(event.subarray(output.end));
  }
}

/** The place of the quote that ends the string whose inside begins at `from`; else the end. */
function closingQuote(events: Buffer, from: number): number {
  let at = from;
  while (at < events.length && events[at] !== QUOTE) at += events[at] === BACKSLASH ? 2 : 1;
  return at;
}
