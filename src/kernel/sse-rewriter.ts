/**
 * Replaces top-level string members of every chunk of a chat stream, such as `model`, as bytes.
 * How the engine writes them is learned from a parsed chunk, so look-alikes inside strings (where
 * every quote is escaped) are never touched.
 */
import { parseJson, parseObject } from './json-object.ts';
import { skipSpace, stringEnd } from './json-scan.ts';
import { dataStart, eventEnd } from './sse.ts';

const QUOTE = 0x22;
const COLON = 0x3a;

/** Chunks looked into until each member was learned; an engine may not send them at all. */
const MAX_LESSONS = 4;

interface Member {
  readonly key: string;
  readonly value: string;
  readonly put: Buffer;
  /** How the engine writes it; null until learned. */
  find: Buffer | null;
  /** Where in an event it was found last: nearly always the place in the next one. */
  offset: number;
}

export class SseRewriter {
  readonly #members: Member[];
  #lessons = 0;

  constructor(rewrite: Readonly<Record<string, string>>) {
    this.#members = Object.entries(rewrite).map(([key, value]) => ({
      key,
      value,
      put: Buffer.from(`${JSON.stringify(key)}:${JSON.stringify(value)}`),
      find: null,
      offset: 0,
    }));
  }

  /** Whole events with the members replaced. */
  apply(events: Buffer): Buffer {
    let result = events;
    for (const member of this.#members) {
      let next = replaceInEvents(result, member);
      if (next === null && this.#lessons < MAX_LESSONS) {
        this.#learn(events);
        next = replaceInEvents(result, member);
      }
      result = next ?? result;
    }
    return result;
  }

  /** Finds how the engine writes the members, in the first chunk of the buffer. */
  #learn(events: Buffer): void {
    for (let start = 0; start < events.length;) {
      const end = eventEnd(events, start);
      const data = dataStart(events, start, end);
      const chunk = data === -1 ? null : parseObject(events.toString('utf8', data, end));
      if (chunk !== null) {
        this.#lessons += 1;
        for (const member of this.#members) {
          member.find = rawMember(events, data, end, member.key, chunk[member.key]);
        }
        return;
      }
      start = end;
    }
  }
}

/** The bytes `"key": "value"` as they stand in a chunk, or null when the value is no string. */
function rawMember(
  events: Buffer,
  from: number,
  end: number,
  key: string,
  value: unknown,
): Buffer | null {
  if (typeof value !== 'string') return null;
  const needle = JSON.stringify(key);
  for (let at = events.indexOf(needle, from); at !== -1 && at < end;) {
    const colon = skipSpace(events, at + needle.length);
    const start = skipSpace(events, colon + 1);
    if (events[colon] === COLON && events[start] === QUOTE) {
      const close = stringEnd(events, start);
      const raw = events.toString('utf8', start, close);
      if (close !== -1 && parseJson(raw) === value) return Buffer.from(events.subarray(at, close));
    }
    at = events.indexOf(needle, at + needle.length);
  }
  return null;
}

/** The events with the member replaced, or null when none has it. */
function replaceInEvents(events: Buffer, member: Member): Buffer | null {
  const { find, put } = member;
  if (find === null) return null;
  const places: number[] = [];
  for (let start = 0; start < events.length; start = eventEnd(events, start)) {
    const at = placeIn(events, start, find, member);
    if (at === -1) break;
    places.push(at);
    start = at;
  }
  if (places.length === 0) return null;
  const result = Buffer.allocUnsafe(events.length + places.length * (put.length - find.length));
  let from = 0;
  let to = 0;
  for (const at of places) {
    to += events.copy(result, to, from, at);
    to += put.copy(result, to);
    from = at + find.length;
  }
  events.copy(result, to, from);
  return result;
}

/** The next place of the member at or after the event at `start`, or -1. */
function placeIn(events: Buffer, start: number, find: Buffer, member: Member): number {
  const guess = start + member.offset;
  const end = guess + find.length;
  if (end <= events.length && events.compare(find, 0, find.length, guess, end) === 0) return guess;
  const at = events.indexOf(find, start);
  if (at !== -1) member.offset = at - start;
  return at;
}
