/**
 * The body of a streamed answer on its way to the socket: what is written in one tick leaves as one
 * buffer and one chunk (RFC 9112 §7.1), framed here. `node:http` would hand the socket four buffers
 * for each piece, and cork and uncork it around them.
 *
 * The response keeps what it does best: the head, its place in a pipeline, the end and keep-alive.
 */
import type { ServerResponse } from 'node:http';
import type { Socket } from 'node:net';

const LINE_END = '\r\n';
const LAST_CHUNK = `0${LINE_END}${LINE_END}`;

export class StreamWriter {
  readonly #response: ServerResponse;
  /** Not for HTTP/1.0, where the end of the connection is the end of the stream. */
  readonly #isChunked: boolean;
  /**
   * The response until the head has left: with the first piece, when it has a socket by then. In a
   * pipeline it has none as long as an earlier response is on its way.
   */
  #target: ServerResponse | Socket;
  #isFull = false;
  /** What was written in this tick: mostly one piece, so it needs no list. */
  #first: Buffer | undefined;
  #more: Buffer[] = [];

  /** The head of the response is made, and nothing of its body is written. */
  constructor(response: ServerResponse) {
    this.#response = response;
    this.#target = response;
    this.#isChunked = response.chunkedEncoding;
    response.chunkedEncoding = false;
  }

  /** `false` when the caller reads slower than we write; `onDrain` says when to go on. */
  write(piece: Buffer): boolean {
    if (piece.length === 0) return true;
    if (this.#first === undefined) {
      this.#first = piece;
      process.nextTick(flush, this);
    } else this.#more.push(piece);
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
    const before = this.#take();
    if (this.#response.destroyed) return;
    const body = before === undefined ? last : Buffer.concat([before, last]);
    this.#response.end(this.#isChunked ? chunkOf(body, LAST_CHUNK) : body);
  }

  /** Sends what was written in this tick, unless the end has taken it along. */
  flush(): void {
    const piece = this.#take();
    const target = this.#target;
    if (piece === undefined || !target.writable) return;
    this.#isFull = !target.write(this.#isChunked ? chunkOf(piece, '') : piece);
    if (target === this.#response) this.#target = this.#response.socket ?? target;
  }

  #take(): Buffer | undefined {
    const first = this.#first;
    this.#first = undefined;
    if (first === undefined || this.#more.length === 0) return first;
    const pieces = Buffer.concat([first, ...this.#more]);
    this.#more = [];
    return pieces;
  }
}

function flush(writer: StreamWriter): void {
  writer.flush();
}

/** An empty chunk would end the body, so nothing has no frame. */
function chunkOf(body: Buffer, after: string): Buffer {
  if (body.length === 0) return Buffer.from(after);
  const head = body.length.toString(16) + LINE_END;
  const tail = LINE_END + after;
  const framed = Buffer.allocUnsafe(head.length + body.length + tail.length);
  framed.write(head, 'latin1');
  framed.set(body, head.length);
  framed.write(tail, head.length + body.length, 'latin1');
  return framed;
}
