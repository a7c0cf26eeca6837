/**
 * Embeddings on their way back: the vectors of one or several engine answers, put in order and
 * written in the encoding that the caller asked for.
 *
 * Invariant: vector i belongs to input i. A vector that needs no conversion is copied as the
 * bytes that the engine sent, neither parsed nor rounded. base64 is little-endian float32.
 */
import { endianness } from 'node:os';
import { Fault } from '../kernel/faults.ts';
import type { EmbeddingEncoding } from './embeddings-request.ts';
import {
  isJsonObject,
  jsonBytes,
  skipSpace,
  skipString,
  skipValue,
  visitElements,
  visitMembers,
  type JsonBytes,
} from './json-scan.ts';
import type { Cost } from './usage.ts';

/** One vector as its JSON stands in an engine's answer: a list of numbers or a base64 string. */
interface RawVector {
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  readonly encoding: EmbeddingEncoding;
}

export interface EngineEmbeddings {
  /** In order of the inputs. */
  readonly vectors: readonly RawVector[];
  /** What the engine says was used; `undefined` when any answer says nothing. */
  readonly promptTokens: number | undefined;
}

const QUOTE = 0x22;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;
const FLOAT_BYTES = 4;

function garbage(what: string): Fault {
  return new Fault('INFERENCE_FAILED', {
    message: 'The engine answered with something that is not a list of embeddings',
    cause: what,
  });
}

/** Reads an engine's answer to `count` inputs. Throws `INFERENCE_FAILED` for anything else. */
export function readEmbeddings(bytes: Buffer, count: number): EngineEmbeddings {
  const { json } = jsonBytes(bytes);
  if (bytes[skipSpace(bytes, 0)] !== OPEN_BRACE) throw garbage('no object');
  const vectors: (RawVector | undefined)[] = Array.from({ length: count }, () => undefined);
  let promptTokens: number | undefined;
  // One pass: the vectors are read while they are skipped.
  visitMembers(json, 0, (key, _start, at) => {
    if (key === 'data' && bytes[at] === OPEN_BRACKET) return readData(json, at, vectors);
    const end = skipValue(json, at);
    if (key === 'usage') promptTokens = promptTokensOf(bytes, at, end);
    return end;
  });
  const complete = vectors.filter((vector) => vector !== undefined);
  if (complete.length !== count) throw garbage(`${complete.length} vectors for ${count} inputs`);
  return { vectors: complete, promptTokens };
}

/** Puts each item's vector in its place; gives back the offset after the list. */
function readData(json: JsonBytes, at: number, into: (RawVector | undefined)[]): number {
  let position = 0;
  return visitElements(json, at, (start) => {
    const { index, vector, end } = readItem(json, start, position);
    if (index >= into.length || into[index] !== undefined) throw garbage('an index out of range');
    into[index] = vector;
    position += 1;
    return end;
  });
}

interface Item {
  readonly index: number;
  readonly vector: RawVector;
  readonly end: number;
}

function readItem(json: JsonBytes, start: number, position: number): Item {
  const { bytes, latin1 } = json;
  if (bytes[start] !== OPEN_BRACE) throw garbage('an item that is no object');
  let index = position;
  let vector: RawVector | undefined;
  const end = visitMembers(json, start, (key, _start, at) => {
    if (key === 'embedding') {
      vector = readVector(json, at);
      return vector.end;
    }
    const valueEnd = skipValue(json, at);
    if (key === 'index') index = Number(latin1.slice(at, valueEnd));
    return valueEnd;
  });
  if (vector === undefined) throw garbage('an item without embedding');
  if (!Number.isSafeInteger(index) || index < 0) throw garbage('an index that is no number');
  return { index, vector, end };
}

function readVector(json: JsonBytes, start: number): RawVector {
  const { bytes } = json;
  const encoding = bytes[start] === QUOTE ? 'base64' : 'float';
  const end = encoding === 'base64' ? skipString(json, start) : skipNumbers(bytes, start);
  const isSound = encoding === 'float' ? end > start : isBase64(json.latin1, start + 1, end - 1);
  if (!isSound) throw garbage('an embedding that is no vector');
  return { bytes, start, end, encoding };
}

/**
 * The offset after a list that holds digits and what may stand between them, and nothing else;
 * -1 for any other value. That is enough to pass it on.
 */
function skipNumbers(bytes: Buffer, start: number): number {
  if (bytes[start] !== OPEN_BRACKET) return -1;
  let hasDigit = false;
  for (let at = start + 1; at < bytes.length; at += 1) {
    const byte = bytes[at] ?? 0;
    if (byte >= 0x30 && byte <= 0x39) hasDigit = true;
    else if (byte === CLOSE_BRACKET) return hasDigit ? at + 1 : -1;
    // White space, `+ , - .`, `E`, `e`.
    else if (byte > 0x20 && (byte < 0x2b || byte > 0x2e) && byte !== 0x45 && byte !== 0x65) {
      return -1;
    }
  }
  return -1;
}

const BASE64_TEXT = /^[A-Za-z0-9+/]+={0,2}$/;

/** Whether the text is base64 of whole floats. */
function isBase64(latin1: string, start: number, end: number): boolean {
  const text = latin1.slice(start, end);
  if (!BASE64_TEXT.test(text)) return false;
  const padding = text.endsWith('==') ? 2 : Number(text.endsWith('='));
  return Math.floor(((text.length - padding) * 3) / 4) % FLOAT_BYTES === 0;
}

function promptTokensOf(bytes: Buffer, start: number, end: number): number | undefined {
  try {
    const usage: unknown = JSON.parse(bytes.toString('utf8', start, end));
    const tokens = isJsonObject(usage) ? (usage['prompt_tokens'] ?? usage['total_tokens']) : 0;
    return typeof tokens === 'number' && Number.isSafeInteger(tokens) && tokens >= 0
      ? tokens
      : undefined;
  } catch {
    // A broken usage object is no usage: the tokens are counted instead.
    return undefined;
  }
}

/** The answers of consecutive batches as one. */
export function joinEmbeddings(batches: readonly EngineEmbeddings[]): EngineEmbeddings {
  let promptTokens: number | undefined = 0;
  for (const batch of batches) {
    if (promptTokens === undefined || batch.promptTokens === undefined) promptTokens = undefined;
    else promptTokens += batch.promptTokens;
  }
  return { vectors: batches.flatMap((batch) => batch.vectors), promptTokens };
}

/** How the caller wants the vectors. */
export interface VectorFormat {
  readonly encoding: EmbeddingEncoding;
  /** Longer vectors are cut to this length and brought back to length 1. */
  readonly dimensions: number | undefined;
}

export interface EmbeddingsFrame extends VectorFormat {
  /** The resolved model id. */
  readonly model: string;
  readonly promptTokens: number;
  readonly cost: Cost;
}

/**
 * The caller's body up to its last vector, in pieces, one a vector: large answers that need
 * conversion are long work, and the caller of this can let other requests run between two pieces.
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

/** The end of the caller's body: what is known when the charge is. */
export function embeddingsEnd(frame: Omit<EmbeddingsFrame, keyof VectorFormat>): Buffer {
  const { promptTokens } = frame;
  const usage = { prompt_tokens: promptTokens, total_tokens: promptTokens };
  const rest = JSON.stringify({ model: frame.model, usage, cost: frame.cost });
  return Buffer.from(`],${rest.slice(1)}`);
}

/** The caller's body in one buffer. */
export function writeEmbeddings(embeddings: EngineEmbeddings, frame: EmbeddingsFrame): Buffer {
  return Buffer.concat([...vectorPieces(embeddings, frame), embeddingsEnd(frame)]);
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
  try {
    return Float32Array.from(JSON.parse(text) as readonly number[]); // only numbers passed the check
  } catch {
    // Digits in an order that is no number.
    throw garbage('an embedding that is no vector');
  }
}

/** A shortened vector is scaled back to length 1, as models of nested dimensions want it. */
function unitVector(values: Float32Array): Float32Array {
  let sum = 0;
  for (const value of values) sum += value * value;
  const norm = Math.sqrt(sum);
  return norm === 0 ? values : values.map((value) => value / norm);
}

/** base64 of the little-endian float32 of the values. */
export function floatsToBase64(values: Float32Array): string {
  const bytes = Buffer.from(values.buffer, values.byteOffset, values.byteLength);
  return inLittleEndian(bytes).toString('base64');
}

/** The floats of base64 text; a trailing part of a float is left out. */
export function base64ToFloats(text: string): Float32Array {
  const decoded = Buffer.from(text, 'base64');
  const whole = decoded.length - (decoded.length % FLOAT_BYTES);
  // A copy of its own is aligned; a slice of the pool may not be.
  const bytes = Buffer.from(inLittleEndian(decoded.subarray(0, whole)));
  const aligned = new Uint8Array(bytes);
  return new Float32Array(aligned.buffer, 0, whole / FLOAT_BYTES);
}

function inLittleEndian(bytes: Buffer): Buffer {
  return endianness() === 'LE' ? bytes : Buffer.from(bytes).swap32();
}
