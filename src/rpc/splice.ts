/**
 * Builds bodies from bytes: requests with our ids, responses with the caller's ids, and the items
 * that Farebox itself returns. Params, results and errors are never parsed; everything except the
 * id is copied unchanged.
 */

/** Largest synchronous copy in bytes; a larger one would block other requests. */
export const MAX_COPY_BYTES = 2_097_152;
const PIECE_BYTES = 262_144;
/** Pieces up to this size are copied in a loop, which is faster than a native call. */
const LOOP_COPY_BYTES = 40;
const COMMA = Buffer.from(',');
const OPEN_BATCH = Buffer.from('[');
const CLOSE_BATCH = Buffer.from(']');
const ID_MEMBER = Buffer.from('"id":');
const ITEM_HEAD = Buffer.from('{"jsonrpc":"2.0","id":');
const RESULT_HEAD = Buffer.from(',"result":');
const ITEM_END = Buffer.from('}');
const NO_BYTES = Buffer.alloc(0);
const BRACKET_OPEN = 0x5b;
const BRACKET_CLOSE = 0x5d;

/** Span of a request or a reply; `idStart` is -1 without an id. */
interface IdSpan {
  readonly start: number;
  readonly end: number;
  readonly idStart: number;
  readonly idEnd: number;
}

const NO_SPAN: IdSpan = { start: 0, end: 0, idStart: 0, idEnd: 0 };

export class Slices {
  readonly #sources: Buffer[] = [];
  readonly #bounds: number[] = [];
  #sizeBytes = 0;

  add(source: Buffer, start = 0, end: number = source.length): void {
    this.#sources.push(source);
    this.#bounds.push(start, end);
    this.#sizeBytes += end - start;
  }

  /** Adds a request or a reply with `id` in place of its own; inserts it if there is none. */
  addWithId(bytes: Buffer, span: IdSpan, id: Buffer): void {
    if (span.idStart < 0) {
      // After the opening brace; a request and a classified reply have at least one more member.
      this.add(bytes, span.start, span.start + 1);
      this.add(ID_MEMBER);
      this.add(id);
      this.add(COMMA);
      this.add(bytes, span.start + 1, span.end);
      return;
    }
    this.add(bytes, span.start, span.idStart);
    this.add(id);
    this.add(bytes, span.idEnd, span.end);
  }

  addResult(id: Buffer, result: Buffer): void {
    this.add(ITEM_HEAD);
    this.add(id);
    this.add(RESULT_HEAD);
    this.add(result);
    this.add(ITEM_END);
  }

  addError(id: Buffer, code: number, message: string): void {
    this.add(ITEM_HEAD);
    this.add(id);
    this.add(Buffer.from(`,"error":${JSON.stringify({ code, message })}}`));
  }

  get sizeBytes(): number {
    return this.#sizeBytes;
  }

  /** All bytes in slices of a bounded size, without copying. */
  *pieces(): Generator<Buffer> {
    for (let index = 0; index < this.#sources.length; index += 1) {
      const source = this.#sources[index] ?? NO_BYTES;
      const end = this.#bounds[2 * index + 1] ?? 0;
      for (let at = this.#bounds[2 * index] ?? 0; at < end; at += PIECE_BYTES)
        yield source.subarray(at, Math.min(end, at + PIECE_BYTES));
    }
  }

  join(): Buffer {
    const target = Buffer.allocUnsafe(this.#sizeBytes);
    let at = 0;
    for (let index = 0; index < this.#sources.length; index += 1) {
      const source = this.#sources[index] ?? NO_BYTES;
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

/** A copy of `bytes` from `start` to `end`, with `id` in place of the id of the span. */
export function copyWithId(
  bytes: Buffer,
  start: number,
  end: number,
  { idStart, idEnd }: Pick<IdSpan, 'idStart' | 'idEnd'>,
  id: Buffer | string,
): Buffer {
  const before = idStart - start;
  const target = Buffer.allocUnsafe(end - start - (idEnd - idStart) + id.length);
  bytes.copy(target, 0, start, idStart);
  if (typeof id === 'string') target.write(id, before, 'latin1');
  else target.set(id, before);
  bytes.copy(target, before + id.length, idEnd, end);
  return target;
}

export function sliced(write: (slices: Slices) => void): Slices {
  const slices = new Slices();
  write(slices);
  return slices;
}

/** A batch of items: `write` adds each item, this function adds the brackets and commas. */
export function slicedBatch<T>(
  items: readonly T[],
  write: (slices: Slices, item: T, index: number) => void,
): Slices {
  return sliced((slices) => {
    let index = 0;
    for (const item of items) {
      slices.add(index === 0 ? OPEN_BATCH : COMMA);
      write(slices, item, index);
      index += 1;
    }
    slices.add(CLOSE_BATCH);
  });
}

/** Writes the new id of an item to `target` at `at`; returns the end position. */
type WriteId = (target: Buffer, at: number, index: number) => number;

/**
 * A batch of items that are adjacent in `bytes`, each with a new id; `idsBytes` is the total size
 * of the new ids. Copies all bytes between two ids at once. Returns `undefined` if the items are
 * not adjacent or too large to copy; use `slicedBatch` then.
 */
export function spliceBatch(
  bytes: Buffer,
  spans: readonly IdSpan[],
  idsBytes: number,
  writeId: WriteId,
): Buffer | undefined {
  let sizeBytes = idsBytes + 1;
  let from = spans[0]?.start ?? 0;
  for (const { start, end, idStart, idEnd } of spans) {
    if (start !== from || idStart < 0) return undefined;
    sizeBytes += end - start - (idEnd - idStart) + 1;
    from = end + 1;
  }
  if (sizeBytes > MAX_COPY_BYTES) return undefined;
  const target = Buffer.allocUnsafe(sizeBytes);
  target[0] = BRACKET_OPEN;
  let at = 1;
  from = spans[0]?.start ?? 0;
  for (let index = 0; index < spans.length; index += 1) {
    const { idStart, idEnd } = spans[index] ?? NO_SPAN;
    target.set(bytes.subarray(from, idStart), at);
    at = writeId(target, at + idStart - from, index);
    from = idEnd;
  }
  target.set(bytes.subarray(from, spans.at(-1)?.end), at);
  target[sizeBytes - 1] = BRACKET_CLOSE;
  return target;
}

export function isSpan(bytes: Buffer, start: number, end: number, expected: Buffer): boolean {
  if (start < 0 || end - start !== expected.length) return false;
  for (let offset = 0; offset < expected.length; offset += 1) {
    if (bytes[start + offset] !== expected[offset]) return false;
  }
  return true;
}

/** Number of digits up to which an id is always a safe integer. */
const PLAIN_ID_DIGITS = 15;

/** The value of an id that only has digits; -1 for any other id, or none. */
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
