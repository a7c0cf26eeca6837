/**
 * Embeddings on their way back: the vectors of one or several engine answers, put in order and
 * written in the encoding that the caller asked for.
 *
 * Invariant: vector i belongs to input i. A vector that needs no conversion is copied as the
 * bytes that the engine sent, neither parsed nor rounded. base64 is little-endian float32.
 */
import { endianness } from 'node:os';
import { Fault } from '../../kernel/faults.ts';
import type { EmbeddingEncoding } from './embeddings-request.ts';
import { elementSpans, isJsonObject, memberSpans, skipSpace } from './json-splice.ts';
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
const FLOAT_BYTES = 4;

function garbage(what: string): Fault {
  return new Fault('INFERENCE_FAILED', {
    message: 'The engine answered with something that is not a list of embeddings',
    cause: what,
  });
}

/** Reads an engine's answer to `count` inputs. Throws `INFERENCE_FAILED` for anything else. */
export function readEmbeddings(bytes: Buffer, count: number): EngineEmbeddings {
  const members = bytes[skipSpace(bytes, 0)] === 0x7b ? memberSpans(bytes) : [];
  const data = members.find((member) => member.key === 'data');
  if (data === undefined || bytes[data.valueStart] !== 0x5b) throw garbage('no data');
  const vectors: (RawVector | undefined)[] = Array.from({ length: count }, () => undefined);
  for (const [position, item] of elementSpans(bytes, data.valueStart).entries()) {
    const { index, vector } = readItem(bytes, item.start, position);
    if (index >= count || vectors[index] !== undefined) throw garbage('an index out of range');
    vectors[index] = vector;
  }
  const complete = vectors.filter((vector) => vector !== undefined);
  if (complete.length !== count) throw garbage(`${complete.length} vectors for ${count} inputs`);
  const usage = members.find((member) => member.key === 'usage');
  const promptTokens =
    usage === undefined ? undefined : promptTokensOf(bytes, usage.valueStart, usage.end);
  return { vectors: complete, promptTokens };
}

function readItem(
  bytes: Buffer,
  at: number,
  position: number,
): { readonly index: number; readonly vector: RawVector } {
  if (bytes[at] !== 0x7b) throw garbage('an item that is no object');
  const members = memberSpans(bytes, at);
  const embedding = members.find((member) => member.key === 'embedding');
  const named = members.find((member) => member.key === 'index');
  if (embedding === undefined) throw garbage('an item without embedding');
  const index =
    named === undefined ? position : Number(bytes.toString('latin1', named.valueStart, named.end));
  if (!Number.isSafeInteger(index) || index < 0) throw garbage('an index that is no number');
  const { valueStart: start, end } = embedding;
  const encoding = bytes[start] === QUOTE ? 'base64' : 'float';
  const isSound =
    encoding === 'base64' ? isBase64(bytes, start, end) : isNumbers(bytes, start, end);
  if (!isSound) throw garbage('an embedding that is no vector');
  return { index, vector: { bytes, start, end, encoding } };
}

/** Whether the bytes are `[` numbers, commas, white space `]`: enough to pass them on. */
function isNumbers(bytes: Buffer, start: number, end: number): boolean {
  if (bytes[start] !== 0x5b || bytes[end - 1] !== 0x5d) return false;
  let digits = 0;
  for (let at = start + 1; at < end - 1; at += 1) {
    const byte = bytes[at] ?? 0;
    if (byte >= 0x30 && byte <= 0x39) digits += 1;
    // Space, tab, line feed, carriage return, `+ , - .`, `E`, `e`.
    else if (byte > 0x20 && (byte < 0x2b || byte > 0x2e) && byte !== 0x45 && byte !== 0x65) {
      return false;
    }
  }
  return digits > 0;
}

function isBase64(bytes: Buffer, start: number, end: number): boolean {
  const text = bytes.toString('latin1', start + 1, end - 1);
  if (text.length === 0 || !/^[A-Za-z0-9+/]+={0,2}$/.test(text)) return false;
  return Math.floor((text.replace(/=+$/, '').length * 3) / 4) % FLOAT_BYTES === 0;
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

export interface EmbeddingsFrame {
  /** The resolved model id. */
  readonly model: string;
  readonly encoding: EmbeddingEncoding;
  /** Longer vectors are cut to this length and brought back to length 1. */
  readonly dimensions: number | undefined;
  readonly promptTokens: number;
  readonly cost: Cost;
}

/**
 * The caller's body in pieces, one a vector: large answers that need conversion are long work,
 * and the caller of this can let other requests run between two pieces.
 */
export function* embeddingsPieces(
  embeddings: EngineEmbeddings,
  frame: EmbeddingsFrame,
): Generator<Buffer, void, undefined> {
  let before = '{"object":"list","data":[';
  for (const [index, vector] of embeddings.vectors.entries()) {
    yield Buffer.concat([
      Buffer.from(`${before}{"object":"embedding","index":${index},"embedding":`),
      vectorJson(vector, frame),
      CLOSING_BRACE,
    ]);
    before = ',';
  }
  const { promptTokens } = frame;
  const usage = { prompt_tokens: promptTokens, total_tokens: promptTokens };
  const rest = JSON.stringify({ model: frame.model, usage, cost: frame.cost });
  yield Buffer.from(`],${rest.slice(1)}`);
}

/** The caller's body in one buffer. */
export function writeEmbeddings(embeddings: EngineEmbeddings, frame: EmbeddingsFrame): Buffer {
  return Buffer.concat([...embeddingsPieces(embeddings, frame)]);
}

const CLOSING_BRACE = Buffer.from('}');

function vectorJson(vector: RawVector, frame: EmbeddingsFrame): Buffer {
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
