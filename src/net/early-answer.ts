/**
 * Hearing a server that answers before it has read the whole request, and closes.
 *
 * Such a server resets the connection while we still write. Node then destroys the socket for the
 * failed write, although the answer (413, 401, ...) lies in it unread. Here a failed write waits:
 * after a reset the read side always ends by itself, and what was sent before that is read first.
 * It does not judge the answer.
 */
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';

/** Requests from this size on are written in pieces of it. */
export const LARGE_REQUEST_BYTES = 262_144;
const RESET_CODES: ReadonlySet<unknown> = new Set(['EPIPE', 'ECONNRESET']);

type WriteEnd = (error?: Error | null) => void;

/** Lets failed writes of a socket wait for its read side; nothing without a socket. */
export function readBeforeReset(socket: Socket | null | undefined): void {
  if (socket === null || socket === undefined) return;
  const write = socket._write.bind(socket);
  const writev = socket._writev?.bind(socket);
  // A stream has one write on its way, so that one function ends them all.
  let done: WriteEnd = () => undefined;
  const end: WriteEnd = (error) => {
    if (!isReset(error)) done(error);
  };
  socket._write = (chunk, encoding, callback) => {
    done = callback;
    write(chunk, encoding, end);
  };
  if (writev === undefined) return;
  socket._writev = (chunks, callback) => {
    done = callback;
    writev(chunks, end);
  };
}

/** A write that failed by a reset never ends: the read side does, and closes the socket. */
function isReset(error: Error | null | undefined): boolean {
  return error instanceof Error && RESET_CODES.has(Reflect.get(error, 'code'));
}

/**
 * A body in pieces. A connection whose server answered before it took all of them is closed by
 * undici, where one with a whole buffer on its way would be used again.
 */
export class BodyPieces implements Iterable<Buffer> {
  readonly #body: Buffer;
  #taken = 0;

  constructor(body: Buffer) {
    this.#body = body;
  }

  /** Whether all of it was written: before that no server can have acted on it. */
  get isWritten(): boolean {
    return this.#taken >= this.#body.length;
  }

  /** For undici, which takes every iterable though its types name streams only. */
  asBody(): Readable {
    // The only members of a stream that undici asks an iterable for are those of an iterable.
    return this as unknown as Readable;
  }

  *[Symbol.iterator](): Generator<Buffer> {
    while (this.#taken < this.#body.length) {
      const from = this.#taken;
      this.#taken = Math.min(this.#body.length, from + LARGE_REQUEST_BYTES);
      yield this.#body.subarray(from, this.#taken);
    }
  }
}
