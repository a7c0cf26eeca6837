/**
 * Changes a JSON document without writing it again: copies the bytes of everything that did not
 * change.
 *
 * Invariant: the result parses to exactly `target`. What changed is told by identity: a value of
 * `target` that is the very value of the parsed document keeps its bytes.
 */
import { ByteWriter } from './byte-writer.ts';
import {
  elementSpans,
  type JsonBytes,
  type JsonObject,
  type MemberSpan,
  type Span,
} from './json-scan.ts';

/** Where a document was parsed from: `body` is `JSON.parse(json.bytes)`, `members` its spans. */
export interface ParsedObject {
  readonly json: JsonBytes;
  readonly body: JsonObject;
  readonly members: readonly MemberSpan[];
}

/**
 * The bytes of `target`, taking from `source` the bytes of every top-level value, and of every
 * element of a top-level array, that `target` shares with `source.body` by identity. A member
 * whose value is `undefined` is left out. Gives back the source's own bytes when nothing changed.
 */
export function spliceObject(source: ParsedObject, target: JsonObject): Buffer {
  const { bytes } = source.json;
  if (source.members.length !== Object.keys(source.body).length) {
    // A key is there twice: whoever reads it next may take the other one. Write it once.
    return Buffer.from(JSON.stringify(target));
  }
  const writer = new SpliceWriter(bytes);
  let changed = false;
  for (const member of source.members) {
    const value = ownValue(target, member.key);
    if (value === undefined) {
      changed = true;
      writer.drop();
    } else if (value === source.body[member.key]) {
      writer.keep(member.start, member.end);
    } else {
      changed = true;
      writer.name(member.key);
      writeValue(writer, source, member, value);
    }
  }
  for (const key of Object.keys(target)) {
    const value = target[key];
    if (value === undefined || Object.hasOwn(source.body, key)) continue;
    changed = true;
    writer.name(key);
    writer.text(JSON.stringify(value));
  }
  return changed ? writer.finish() : bytes;
}

function ownValue(object: JsonObject, key: string): unknown {
  return Object.hasOwn(object, key) ? object[key] : undefined;
}

function writeValue(
  writer: SpliceWriter,
  source: ParsedObject,
  member: MemberSpan,
  value: unknown,
): void {
  const before = source.body[member.key];
  if (Array.isArray(before) && Array.isArray(value)) {
    writeArray(writer, elementSpans(source.json, member.valueStart), before, value);
  } else {
    writer.text(JSON.stringify(value));
  }
}

function writeArray(
  writer: SpliceWriter,
  spans: readonly Span[],
  before: readonly unknown[],
  after: readonly unknown[],
): void {
  const spanOf = new Map<unknown, Span>();
  for (const [index, element] of before.entries()) {
    const span = spans[index];
    // Only objects have an identity; equal scalars are short and written again.
    if (span !== undefined && typeof element === 'object' && element !== null) {
      spanOf.set(element, span);
    }
  }
  writer.text('[');
  for (const [index, element] of after.entries()) {
    if (index > 0) writer.text(',');
    const span = spanOf.get(element);
    if (span === undefined) writer.text(JSON.stringify(element));
    else writer.span(span.start, span.end);
  }
  writer.text(']');
}

/** Joins kept spans and new members with commas; neighbouring kept spans become one copy. */
class SpliceWriter {
  readonly #bytes: Buffer;
  readonly #out: ByteWriter;
  #pending = '{';
  #isFirst = true;
  #keptStart = -1;
  #keptEnd = -1;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
    this.#out = new ByteWriter(bytes.length);
  }

  /** A member of the source stays. */
  keep(start: number, end: number): void {
    if (this.#keptStart === -1) {
      this.#separate();
      this.#keptStart = start;
    }
    // Between two kept neighbours stand a comma and white space: copied along.
    this.#keptEnd = end;
  }

  /** A member of the source is left out: what was kept before it ends here. */
  drop(): void {
    if (this.#keptStart === -1) return;
    this.span(this.#keptStart, this.#keptEnd);
    this.#keptStart = -1;
  }

  /** A new member begins; its value follows by `text` and `span`. */
  name(key: string): void {
    this.drop();
    this.#separate();
    this.#pending += `${JSON.stringify(key)}:`;
  }

  text(text: string): void {
    this.#pending += text;
  }

  span(start: number, end: number): void {
    this.#flush();
    this.#out.writeSpan(this.#bytes, start, end);
  }

  finish(): Buffer {
    this.drop();
    this.#pending += '}';
    this.#flush();
    return this.#out.finish();
  }

  #separate(): void {
    if (!this.#isFirst) this.#pending += ',';
    this.#isFirst = false;
  }

  #flush(): void {
    if (this.#pending === '') return;
    this.#out.writeText(this.#pending);
    this.#pending = '';
  }
}
