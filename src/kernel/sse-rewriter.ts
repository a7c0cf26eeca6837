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

export class SseRewriter {
  readonly #members: { key: string; value: string; find: Buffer | null; put: Buffer }[];
  #lessons = 0;

  constructor(rewrite: Readonly<Record<string, string>>) {
    this.#members = Object.entries(rewrite).map(([key, value]) => ({
      key,
      value,
      find: null,
      put: Buffer.from(`${JSON.stringify(key)}:${JSON.stringify(value)}`),
    }));
  }

  apply(events: Buffer): Buffer {
    let result = events;
    for (const member of this.#members) {
      let next = member.find === null ? null : replaceAll(result, member.find, member.put);
      if (next === null && this.#lessons < MAX_LESSONS) {
        this.#learn(events);
        next = member.find === null ? null : replaceAll(result, member.find, member.put);
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

/** The bytes with every `find` replaced, or null when there is none. */
function replaceAll(bytes: Buffer, find: Buffer, put: Buffer): Buffer | null {
  let at = bytes.indexOf(find);
  if (at === -1) return null;
  const parts: Buffer[] = [];
  let from = 0;
  for (; at !== -1; at = bytes.indexOf(find, from)) {
    parts.push(bytes.subarray(from, at), put);
    from = at + find.length;
  }
  parts.push(bytes.subarray(from));
  return Buffer.concat(parts);
}
