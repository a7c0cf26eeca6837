/**
 * Writes the body of a streamed response: all pieces of one tick are sent as one buffer and one
 * chunk (RFC 9112 §7.1), where `node:http` would write four buffers per piece. The response of
 * `node:http` does the rest: head, pipelining, end and keep-alive.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

const RETURN = 0x0d;
const LINE_FEED = 0x0a;
const HEX_DIGITS = Buffer.from('0123456789abcdef');
const LAST_CHUNK = '0\r\n\r\n';
/** Space before the bytes of a chunk for the line with their number in hex (up to 8 digits). */
const HEAD_BYTES = 10;
/** Space after the bytes for a line end and the last chunk. */
const TAIL_BYTES = 2 + LAST_CHUNK.length;
const EMPTY = Buffer.alloc(0);

/** Bytes that are sent together, with space for the frame of a chunk, so that they are not copied. */
export class Frame {
  /** To write at `end`, first call `reserve`, then increase `end`. */
  bytes: Buffer = EMPTY;
  end = HEAD_BYTES;

  get isEmpty(): boolean {
    return this.end === HEAD_BYTES;
  }

  reserve(sizeBytes: number): void {
    const neededBytes = this.end + sizeBytes + TAIL_BYTES;
    const { bytes } = this;
    if (neededBytes <= bytes.length) return;
    // Most ticks have one piece; with a second one, many may follow.
    const isFirst = bytes.length === 0;
    this.bytes = Buffer.allocUnsafe(
      isFirst ? neededBytes : Math.max(neededBytes, 2 * bytes.length),
    );
    if (!isFirst) bytes.copy(this.bytes, 0, 0, this.end);
  }

  add(piece: Buffer): void {
    this.reserve(piece.length);
    this.bytes.set(piece, this.end);
    this.end += piece.length;
  }

  addText(text: string): void {
    this.reserve(Buffer.byteLength(text));
    this.end += this.bytes.write(text, this.end);
  }

  /** Returns the bytes from `from`; default: all. */
  since(from = HEAD_BYTES): Buffer {
    return this.bytes.subarray(from, this.end);
  }

  /** Returns all bytes as a chunk and clears the frame; `isLast` appends the last chunk. */
  takeChunk(isLast: boolean): Buffer {
    const { bytes } = this;
    let { end } = this;
    let start = HEAD_BYTES;
    // An empty chunk would end the body.
    if (end > HEAD_BYTES) {
      bytes[end] = RETURN;
      bytes[end + 1] = LINE_FEED;
      start -= 2;
      bytes[start] = RETURN;
      bytes[start + 1] = LINE_FEED;
      // Without `toString`, because this runs for each tick of each stream.
      for (let size = end - HEAD_BYTES; size > 0; size >>>= 4) {
        start -= 1;
        bytes[start] = HEX_DIGITS[size & 15] ?? 0;
      }
      end += 2;
    }
    if (isLast) end += bytes.write(LAST_CHUNK, end, 'latin1');
    this.bytes = EMPTY;
    this.end = HEAD_BYTES;
    return bytes.subarray(start, end);
  }

  /** Returns all bytes and clears the frame. */
  take(): Buffer {
    const bytes = this.since();
    this.bytes = EMPTY;
    this.end = HEAD_BYTES;
    return bytes;
  }
}

export class StreamWriter {
  /** The bytes of this tick; call `written` after adding to it. */
  readonly frame = new Frame();
  readonly #response: ServerResponse;
  /** `false` for HTTP/1.0, where the end of the connection ends the stream. */
  readonly #isChunked: boolean;
  /** The response until the head was sent with the first piece, then its socket. */
  #target: ServerResponse | Socket;
  #isFull = false;
  /** The frame will be sent at the end of this tick. */
  #isDue = false;

  /** `response`: with a head, and without any byte of the body. */
  constructor(response: ServerResponse) {
    this.#response = response;
    this.#target = response;
    this.#isChunked = response.chunkedEncoding;
    response.chunkedEncoding = false;
  }

  /** Returns `false` if the caller reads too slowly; then wait for `onDrain`. */
  write(piece: Buffer): boolean {
    this.frame.add(piece);
    return this.written();
  }

  /** As `write`, for bytes that were added to the frame. */
  written(): boolean {
    if (!this.#isDue && this.frame.end > HEAD_BYTES) {
      this.#isDue = true;
      process.nextTick(StreamWriter.#flush, this);
    }
    if (this.#isFull) this.#isFull = this.#target.writableNeedDrain;
    return !this.#isFull;
  }

  /** Calls `resume` once, when more can be written or the connection has closed. */
  onDrain(resume: () => void): void {
    const target = this.#target;
    const once = (): void => {
      target.off('drain', once).off('close', once);
      resume();
    };
    target.on('drain', once).on('close', once);
  }

  end(last: Buffer): void {
    const { frame } = this;
    frame.add(last);
    const body = this.#isChunked ? frame.takeChunk(true) : frame.take();
    if (!this.#response.destroyed) this.#response.end(body);
  }

  /** Sends the bytes of this tick, unless `end` has sent them. */
  static #flush(this: void, writer: StreamWriter): void {
    writer.#isDue = false;
    const { frame } = writer;
    const target = writer.#target;
    if (frame.end === HEAD_BYTES) return;
    const piece = writer.#isChunked ? frame.takeChunk(false) : frame.take();
    // After the end of the response its connection belongs to the next one.
    if (!target.writable || writer.#response.writableEnded) return;
    writer.#isFull = !target.write(piece);
    if (target === writer.#response) writer.#target = writer.#response.socket ?? target;
  }
}
