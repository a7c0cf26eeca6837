/**
 * Writes the body of a streamed response: what is written in one tick leaves as one buffer and one
 * chunk (RFC 9112 §7.1). `node:http` would pass four buffers to the socket for each piece. The
 * response does the rest: head, pipelining, end and keep-alive.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

const RETURN = 0x0d;
const LINE_FEED = 0x0a;
const HEX_DIGITS = Buffer.from('0123456789abcdef');
const LAST_CHUNK = '0\r\n\r\n';
/** Before the bytes of a frame: their number in hex and a line end. */
const HEAD_BYTES = 10;
/** Behind them: a line end, and the last chunk. */
const TAIL_BYTES = 2 + LAST_CHUNK.length;
const EMPTY = Buffer.alloc(0);

/** Bytes that leave together, with capacity for the frame of a chunk, so that they are not copied. */
export class Frame {
  /** The caller that writes into it at `end` has called `reserve` for it, and moves `end` on. */
  bytes: Buffer = EMPTY;
  end = HEAD_BYTES;

  get isEmpty(): boolean {
    return this.end === HEAD_BYTES;
  }

  /** Makes the buffer large enough for so many bytes more. */
  reserve(sizeBytes: number): void {
    const neededBytes = this.end + sizeBytes + TAIL_BYTES;
    const { bytes } = this;
    if (neededBytes <= bytes.length) return;
    // Mostly one piece comes in a tick; where more come, many may.
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

  /** What was added since `end` was `from`; from the beginning without it. */
  since(from = HEAD_BYTES): Buffer {
    return this.bytes.subarray(from, this.end);
  }

  /** Everything, as a chunk (RFC 9112 §7.1), and begins anew; `isLast`: the body ends with it. */
  takeChunk(isLast: boolean): Buffer {
    const { bytes } = this;
    let { end } = this;
    let start = HEAD_BYTES;
    // An empty chunk would end the body, so nothing has no frame.
    if (end > HEAD_BYTES) {
      bytes[end] = RETURN;
      bytes[end + 1] = LINE_FEED;
      start -= 2;
      bytes[start] = RETURN;
      bytes[start + 1] = LINE_FEED;
      // By hand: this is done for each tick of each stream.
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

  /** Everything, and begins anew. */
  take(): Buffer {
    const bytes = this.since();
    this.bytes = EMPTY;
    this.end = HEAD_BYTES;
    return bytes;
  }
}

export class StreamWriter {
  /** What was written in this tick: who adds to it calls `written`. */
  readonly frame = new Frame();
  readonly #response: ServerResponse;
  /** Not for HTTP/1.0, where the end of the connection is the end of the stream. */
  readonly #isChunked: boolean;
  /** The response until the head has left with the first piece, then its socket. */
  #target: ServerResponse | Socket;
  #isFull = false;
  /** The frame leaves at the end of this tick. */
  #isDue = false;

  /** The head of the response is made, and nothing of its body is written. */
  constructor(response: ServerResponse) {
    this.#response = response;
    this.#target = response;
    this.#isChunked = response.chunkedEncoding;
    response.chunkedEncoding = false;
  }

  /** `false` when the caller reads slower than we write; `onDrain` says when to go on. */
  write(piece: Buffer): boolean {
    this.frame.add(piece);
    return this.written();
  }

  /** The same for what was added to the frame. */
  written(): boolean {
    if (!this.#isDue && this.frame.end > HEAD_BYTES) {
      this.#isDue = true;
      process.nextTick(StreamWriter.#flush, this);
    }
    if (this.#isFull) this.#isFull = this.#target.writableNeedDrain;
    return !this.#isFull;
  }

  /** Runs once when more can be written, or when nobody reads any more. */
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

  /** Sends what was written in this tick, unless the end has taken it along. */
  static #flush(this: void, writer: StreamWriter): void {
    writer.#isDue = false;
    const { frame } = writer;
    const target = writer.#target;
    if (frame.end === HEAD_BYTES) return;
    const piece = writer.#isChunked ? frame.takeChunk(false) : frame.take();
    if (!target.writable) return;
    writer.#isFull = !target.write(piece);
    if (target === writer.#response) writer.#target = writer.#response.socket ?? target;
  }
}
