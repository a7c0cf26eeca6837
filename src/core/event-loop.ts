/** Splits long work, such as hashing and base64, to keep the event loop responsive. */
import { createHash, type Hash } from 'node:crypto';

/** About a millisecond of work. */
const HASHED_AT_ONCE_BYTES = 512 * 1024;

/** Resolves in a later turn of the event loop, after everything that is queued now. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}

/** Runs a generator to its end, with a turn of the event loop at each `yield`. */
export async function inTurns<T>(work: Generator<undefined, T>): Promise<T> {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
    await nextTurn();
  }
}

export function atOnce<T>(work: Generator<undefined, T>): T {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}

export async function updateInTurns(hash: Hash, bytes: Buffer): Promise<void> {
  for (let at = 0; at < bytes.length; at += HASHED_AT_ONCE_BYTES) {
    if (at > 0) await nextTurn();
    hash.update(bytes.subarray(at, at + HASHED_AT_ONCE_BYTES));
  }
}

/** About a millisecond of work. */
const JOINED_AT_ONCE_BYTES = 512 * 1024;
/** Each piece takes as long as this many bytes. */
const PIECE_BYTES = 512;

/**
 * The bytes of `pieces`, which have `sizeBytes` together; a promise if they are joined in turns of
 * the event loop. Joining 20 MB at once takes 30 ms, most of it for new memory, which the system
 * allocates when it is written.
 */
export function joinBytes(pieces: readonly Buffer[], sizeBytes: number): Buffer | Promise<Buffer> {
  const only = pieces.length === 1 ? pieces[0] : undefined;
  if (only !== undefined) return only;
  const work = sizeBytes + pieces.length * PIECE_BYTES;
  return work > JOINED_AT_ONCE_BYTES
    ? joinInTurns(pieces, sizeBytes)
    : Buffer.concat(pieces, sizeBytes);
}

async function joinInTurns(pieces: readonly Buffer[], sizeBytes: number): Promise<Buffer> {
  const joined = Buffer.allocUnsafeSlow(sizeBytes);
  let at = 0;
  let work = 0;
  for (const piece of pieces) {
    at += piece.copy(joined, at);
    work += piece.length + PIECE_BYTES;
    if (work < JOINED_AT_ONCE_BYTES) continue;
    work = 0;
    await nextTurn();
  }
  return joined;
}

/** The SHA-256 of `bytes` in hexadecimal. */
export async function sha256InTurns(bytes: Buffer): Promise<string> {
  const hash = createHash('sha256');
  await updateInTurns(hash, bytes);
  return hash.digest('hex');
}

/** A multiple of three; about a millisecond of work. */
const ENCODED_AT_ONCE_BYTES = 384 * 1024;

/** Encodes `bytes` as base64 in pieces. */
export async function* base64Of(bytes: Buffer): AsyncGenerator<string> {
  for (let at = 0; at < bytes.length; at += ENCODED_AT_ONCE_BYTES) {
    if (at > 0) await nextTurn();
    yield bytes.toString('base64', at, Math.min(at + ENCODED_AT_ONCE_BYTES, bytes.length));
  }
}

/** A multiple of four; some milliseconds of work. */
const DECODED_AT_ONCE_CHARACTERS = 2 * 1024 * 1024;
const CHARACTERS_PER_GROUP = 4;

/** Decodes `text` from `start` on in pieces; line breaks are skipped. */
export async function* base64Pieces(text: string, start = 0): AsyncGenerator<Buffer> {
  let left = '';
  for (let at = start; at < text.length; at += DECODED_AT_ONCE_CHARACTERS) {
    if (at > start) await nextTurn();
    const piece = left + text.slice(at, at + DECODED_AT_ONCE_CHARACTERS);
    const packed = /\s/.test(piece) ? piece.replaceAll(/\s+/g, '') : piece;
    const whole = packed.length - (packed.length % CHARACTERS_PER_GROUP);
    left = packed.slice(whole);
    yield Buffer.from(packed.slice(0, whole), 'base64');
  }
  if (left !== '') yield Buffer.from(left, 'base64');
}

export async function decodeBase64(text: string, start = 0): Promise<Buffer> {
  if (text.length - start <= DECODED_AT_ONCE_CHARACTERS) {
    return Buffer.from(text.slice(start), 'base64');
  }
  const bytes = Buffer.allocUnsafe(Math.ceil(((text.length - start) * 3) / 4));
  let size = 0;
  for await (const piece of base64Pieces(text, start)) size += piece.copy(bytes, size);
  return bytes.subarray(0, size);
}
