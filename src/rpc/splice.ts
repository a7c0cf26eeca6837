/**
 * Bytes out of bytes: requests with another id, answers with the caller's id, and the items that
 * Farebox itself has to answer. Nothing is parsed; everything but the id span is copied as it is.
 */
import type { ReplySpan, RequestSpan } from '../json/json-spans.ts';

/** Pieces up to this size are copied in a loop: cheaper than a native call for a few bytes. */
const LOOP_COPY_BYTES = 40;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;

/** A growing list of slices, joined once. */
export class Slices {
  readonly #sources: Buffer[] = [];
  readonly #bounds: number[] = [];
  #sizeBytes = 0;

  add(source: Buffer, start = 0, end: number = source.length): void {
    this.#sources.push(source);
    this.#bounds.push(start, end);
    this.#sizeBytes += end - start;
  }

  join(): Buffer {
    const target = Buffer.allocUnsafe(this.#sizeBytes);
    let at = 0;
    for (const [index, source] of this.#sources.entries()) {
      const start = this.#bounds[2 * index] ?? 0;
      const end = this.#bounds[2 * index + 1] ?? 0;
      if (end - start > LOOP_COPY_BYTES) source.copy(target, at, start, end);
      else
        for (let from = start, to = at; from < end; from += 1, to += 1)
          target[to] = source[from] ?? 0;
      at += end - start;
    }
    return target;
  }
}

const OPEN_BATCH = Buffer.of(OPEN_ARRAY);
const CLOSE_BATCH = Buffer.of(CLOSE_ARRAY);
const BETWEEN_ITEMS = Buffer.of(COMMA);

/** A batch of parts: `write` adds each part, this adds what stands around them. */
export function joinBatch(count: number, write: (slices: Slices, index: number) => void): Buffer {
  const slices = new Slices();
  slices.add(OPEN_BATCH);
  for (let index = 0; index < count; index += 1) {
    if (index > 0) slices.add(BETWEEN_ITEMS);
    write(slices, index);
  }
  slices.add(CLOSE_BATCH);
  return slices.join();
}

/** Adds a request with `id` in place of its own; a request without an id gets one. */
export function addRequest(slices: Slices, body: Buffer, span: RequestSpan, id: Buffer): void {
  addWithId(slices, body, span, id);
}

/** Adds an answer under the caller's id, whatever id the node gave it. */
export function addReply(slices: Slices, bytes: Buffer, span: ReplySpan, id: Buffer): void {
  addWithId(slices, bytes, span, id);
}

const ID_MEMBER = Buffer.from('"id":');

interface IdSpan {
  readonly start: number;
  readonly end: number;
  readonly idStart: number;
  readonly idEnd: number;
}

function addWithId(slices: Slices, bytes: Buffer, span: IdSpan, id: Buffer): void {
  if (span.idStart < 0) {
    // After the opening brace; a request and a judged reply have at least one member more.
    slices.add(bytes, span.start, span.start + 1);
    slices.add(ID_MEMBER);
    slices.add(id);
    slices.add(BETWEEN_ITEMS);
    slices.add(bytes, span.start + 1, span.end);
    return;
  }
  slices.add(bytes, span.start, span.idStart);
  slices.add(id);
  slices.add(bytes, span.idEnd, span.end);
}

/** Whether the bytes of a span are exactly `expected`. */
export function isSpan(bytes: Buffer, start: number, end: number, expected: Buffer): boolean {
  if (start < 0 || end - start !== expected.length) return false;
  for (let offset = 0; offset < expected.length; offset += 1) {
    if (bytes[start + offset] !== expected[offset]) return false;
  }
  return true;
}

/** Longest id that is surely a safe integer. */
const PLAIN_ID_DIGITS = 15;

/** The value of an id that is digits alone; -1 for an id of any other kind, and for none. */
export function plainId(bytes: Buffer, start: number, end: number): number {
  if (start < 0 || end - start > PLAIN_ID_DIGITS) return -1;
  let value = 0;
  for (let at = start; at < end; at += 1) {
    const digit = (bytes[at] ?? 0) - 0x30;
    if (digit < 0 || digit > 9) return -1;
    value = value * 10 + digit;
  }
  return value;
}

const ITEM_HEAD = Buffer.from('{"jsonrpc":"2.0","id":');
const RESULT_HEAD = Buffer.from(',"result":');
const ITEM_END = Buffer.from('}');

/** Adds a success with the given result bytes. */
export function addResult(slices: Slices, id: Buffer, result: Buffer): void {
  slices.add(ITEM_HEAD);
  slices.add(id);
  slices.add(RESULT_HEAD);
  slices.add(result);
  slices.add(ITEM_END);
}

/** Adds an error object of our own. */
export function addError(slices: Slices, id: Buffer, code: number, message: string): void {
  slices.add(ITEM_HEAD);
  slices.add(id);
  slices.add(Buffer.from(`,"error":${JSON.stringify({ code, message })}}`));
}
