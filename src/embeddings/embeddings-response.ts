/**
 * Reads the vectors of engine responses and writes them in the requested encoding.
 *
 * Invariant: vector i belongs to input i, has the declared length, and contains float32 numbers. A
 * vector that needs no conversion is copied as bytes. base64 is little-endian float32.
 */
import { nextTurn } from '../core/event-loop.ts';
import { floatsToBase64, unitVector } from '../core/vectors.ts';
import { Fault } from '../core/faults.ts';
import type { EmbeddingEncoding } from './embeddings-request.ts';
import { childrenOf } from '../json/json-scan.ts';
import { parsedJsonObject } from '../json/json-text.ts';
import {
  CLOSE_ARRAY,
  COMMA,
  OPEN_ARRAY,
  OPEN_OBJECT,
  QUOTE,
  skipLooseString,
  skipSpace,
} from '../json/json-skip.ts';
import type { Cost } from '../engines/usage.ts';

/** Position of a vector in an engine's response: a list of numbers or a base64 string. */
interface RawVector {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  readonly encoding: EmbeddingEncoding;
  readonly length: number;
}

export interface EngineEmbeddings {
  readonly vectors: readonly RawVector[];
  /** `undefined` if any response reports no usage. */
  readonly promptTokens: number | undefined;
}

const SPACE = 0x20;
const MINUS = 0x2d;
const PLUS = 0x2b;
const DOT = 0x2e;
const FLOAT_BYTES = 4;

function garbage(what: string): Fault {
  const message = 'The engine returned something that is not a list of embeddings';
  return new Fault('INFERENCE_FAILED', { message, cause: what });
}

/** Bytes read between two turns of the event loop: about a millisecond. */
const TURN_BYTES = 256 * 1024;

/**
 * Reads an engine's response to `count` inputs, in pieces between which other requests run. Each
 * vector has `dimensions` numbers; without a declared length all must have the same. Throws
 * `INFERENCE_FAILED` for anything else.
 */
export async function readEmbeddings(
  bytes: Buffer,
  count: number,
  dimensions?: number,
): Promise<EngineEmbeddings> {
  if (bytes[skipSpace(bytes, 0)] !== OPEN_OBJECT) throw garbage('no object');
  const starts: number[] = [];
  let read = 0;
  const readItem = (_key: string, start: number): number => {
    if (bytes[start] !== OPEN_OBJECT) throw garbage('an item that is no object');
    let vectorAt: number | undefined;
    const item = childrenOf(bytes, start, {
      read: (key, at) => {
        if (key !== 'embedding') return undefined;
        vectorAt = at;
        return endOfVector(bytes, at);
      },
    });
    if (vectorAt === undefined) throw garbage('an item without embedding');
    const given = item.spans.findLast((member) => member.key === 'index');
    const index =
      given === undefined ? read : Number(bytes.toString('latin1', given.valueStart, given.end));
    if (!Number.isSafeInteger(index) || index < 0) throw garbage('an index that is no number');
    if (index >= count || starts[index] !== undefined) throw garbage('an index out of range');
    starts[index] = vectorAt;
    read += 1;
    return item.end;
  };
  const { spans } = childrenOf(bytes, 0, {
    read: (key, at) =>
      key === 'data' && bytes[at] === OPEN_ARRAY
        ? childrenOf(bytes, at, { read: readItem }).end
        : undefined,
  });
  if (read !== count) throw garbage(`${read} vectors for ${count} inputs`);
  const vectors: RawVector[] = [];
  let readBytes = 0;
  for (const start of starts) {
    const vector = readVector(bytes, start);
    vectors.push(vector);
    readBytes += vector.end - start;
    if (readBytes < TURN_BYTES) continue;
    readBytes = 0;
    await nextTurn();
  }
  const length = dimensions ?? vectors[0]?.length;
  const odd = vectors.find((vector) => vector.length !== length);
  if (odd !== undefined) throw garbage(`a vector of ${odd.length} numbers, not ${length}`);
  const usage = spans.findLast((member) => member.key === 'usage');
  return { vectors, promptTokens: usage && promptTokensOf(bytes, usage.valueStart, usage.end) };
}

/** Returns the end without reading the numbers. */
function endOfVector(bytes: Buffer, start: number): number {
  if (bytes[start] !== QUOTE) return bytes.indexOf(CLOSE_ARRAY, start) + 1 || bytes.length;
  const after = skipLooseString(bytes, start);
  return after < 0 ? bytes.length : after;
}

function readVector(bytes: Buffer, start: number): RawVector {
  if (bytes[start] !== QUOTE) return readNumbers(bytes, start);
  const after = skipLooseString(bytes, start);
  const end = after < 0 ? bytes.length : after;
  const length = base64Length(bytes.toString('latin1', start + 1, end - 1));
  return { bytes, start, end, encoding: 'base64', length };
}

function noVector(): Fault {
  return garbage('an embedding that is no vector');
}

/** Numbers with at most this many digits before the point are below the largest float32. */
const SURE_DIGITS = 38;
const LARGEST_FLOAT = 3.4028234663852886e38;

/** Validates a list of JSON numbers (RFC 8259 §6) as float32, byte by byte without parsing. */
function readNumbers(bytes: Buffer, start: number): RawVector {
  if (bytes[start] !== OPEN_ARRAY) throw noVector();
  let length = 0;
  let at = start;
  do {
    at = (bytes[at + 1] ?? 0) > SPACE ? at + 1 : skipSpace(bytes, at + 1);
    const number = at;
    if (bytes[at] === MINUS) at += 1;
    const hasZero = bytes[at] === 0x30;
    let digits = 0;
    // Digits before the point, once it was read.
    let whole = -1;
    let hasExponent = false;
    let isSure = true;
    for (; ; at += 1) {
      const byte = bytes[at] ?? 0;
      if (byte >= 0x30 && byte <= 0x39) {
        digits += 1;
        continue;
      }
      const isExponent = (byte | 0x20) === 0x65;
      if (digits === 0 || hasExponent || !(isExponent || (byte === DOT && whole === -1))) break;
      if (whole === -1) whole = digits;
      digits = 0;
      if (!isExponent) continue;
      hasExponent = true;
      isSure = bytes[at + 1] === MINUS;
      if (isSure || bytes[at + 1] === PLUS) at += 1;
    }
    if (whole === -1) whole = digits;
    if (digits === 0 || (hasZero && whole > 1)) throw noVector();
    if (!isSure || whole > SURE_DIGITS) {
      if (Math.abs(Number(bytes.toString('latin1', number, at))) > LARGEST_FLOAT) throw noVector();
    }
    length += 1;
    if ((bytes[at] ?? 0) <= SPACE) at = skipSpace(bytes, at);
  } while (bytes[at] === COMMA);
  if (bytes[at] !== CLOSE_ARRAY) throw noVector();
  return { bytes, start, end: at + 1, encoding: 'float', length };
}

const BASE64_TEXT = /^[A-Za-z0-9+/]+={0,2}$/;

/** The number of floats in base64 text; NaN and infinities (all exponent bits set) are rejected. */
function base64Length(text: string): number {
  if (!BASE64_TEXT.test(text)) throw noVector();
  const bytes = Buffer.from(text, 'base64');
  if (bytes.length % FLOAT_BYTES !== 0) throw noVector();
  for (let at = FLOAT_BYTES - 1; at < bytes.length; at += FLOAT_BYTES) {
    if (((bytes[at] ?? 0) & 0x7f) === 0x7f && (bytes[at - 1] ?? 0) >= 0x80) throw noVector();
  }
  return bytes.length / FLOAT_BYTES;
}

function promptTokensOf(bytes: Buffer, start: number, end: number): number | undefined {
  const usage = parsedJsonObject(bytes.toString('utf8', start, end));
  const tokens = usage?.['prompt_tokens'] ?? usage?.['total_tokens'];
  return typeof tokens === 'number' && Number.isSafeInteger(tokens) && tokens >= 0
    ? tokens
    : undefined;
}

export function joinEmbeddings(batches: readonly EngineEmbeddings[]): EngineEmbeddings {
  let promptTokens: number | undefined = 0;
  for (const batch of batches) {
    if (promptTokens === undefined || batch.promptTokens === undefined) promptTokens = undefined;
    else promptTokens += batch.promptTokens;
  }
  return { vectors: batches.flatMap((batch) => batch.vectors), promptTokens };
}

export interface VectorFormat {
  readonly encoding: EmbeddingEncoding;
  /** Longer vectors are truncated and scaled to length 1. */
  readonly dimensions: number | undefined;
}

export interface EmbeddingsEnd {
  readonly model: string;
  readonly promptTokens: number;
  readonly cost: Cost;
}

/**
 * The caller's body up to its last vector, one piece per vector, so that other requests can run
 * between two pieces.
 */
export function* vectorPieces(
  embeddings: EngineEmbeddings,
  format: VectorFormat,
): Generator<Buffer, void, undefined> {
  let before = '{"object":"list","data":[';
  for (const [index, vector] of embeddings.vectors.entries()) {
    yield Buffer.concat([
      Buffer.from(`${before}{"object":"embedding","index":${index},"embedding":`),
      vectorJson(vector, format),
      CLOSING_BRACE,
    ]);
    before = ',';
  }
}

export function embeddingsEnd({ model, promptTokens, cost }: EmbeddingsEnd): Buffer {
  const usage = { prompt_tokens: promptTokens, total_tokens: promptTokens };
  return Buffer.from(`],${JSON.stringify({ model, usage, cost }).slice(1)}`);
}

const CLOSING_BRACE = Buffer.from('}');

function vectorJson(vector: RawVector, frame: VectorFormat): Buffer {
  const raw = vector.bytes.subarray(vector.start, vector.end);
  if (frame.dimensions === undefined && vector.encoding === frame.encoding) return raw;
  const values = decodeVector(vector);
  const cap = frame.dimensions ?? values.length;
  if (values.length <= cap && vector.encoding === frame.encoding) return raw;
  const cut = values.length > cap ? unitVector(values.subarray(0, cap)) : values;
  const json = frame.encoding === 'base64' ? `"${floatsToBase64(cut)}"` : `[${cut.join(',')}]`;
  return Buffer.from(json);
}

function decodeVector(vector: RawVector): Float32Array {
  const text = vector.bytes.toString('latin1', vector.start, vector.end);
  if (vector.encoding === 'base64') return base64ToFloats(text.slice(1, -1));
  return Float32Array.from(JSON.parse(text) as readonly number[]); // only numbers passed the check
}

/** An incomplete float at the end is dropped. */
export function base64ToFloats(text: string): Float32Array {
  // A copy is aligned; a slice of the buffer pool may not be.
  const bytes = Uint8Array.from(Buffer.from(text, 'base64'));
  return new Float32Array(bytes.buffer, 0, Math.floor(bytes.length / FLOAT_BYTES));
}
