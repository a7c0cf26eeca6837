/**
 * Opens the connections of an undici pool: it knows which of them died idle, and hears a server
 * that answers before it has read the whole request, and closes.
 *
 * Such a server resets the connection while we still write. Node then destroys the socket for the
 * failed write, although the answer (413, 401, ...) lies in it unread. Here a failed write waits:
 * after a reset the read side always ends by itself, and what was sent before that is read first.
 *
 * A server may also close a connection that it thinks idle while we write to it: then the request
 * was most likely never read. Whether it may be sent again is the caller's to decide.
 */
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { buildConnector } from 'undici';

/** Idle connections that die together (a restart, a lost NAT entry) are no failures of the server. */
export const MAX_STALE_RETRIES = 3;
/** Requests from this size on are written in pieces of it. */
export const LARGE_REQUEST_BYTES = 262_144;

/** One for each pool. */
export class Connector {
  readonly open: buildConnector.connector;
  /** Errors of sockets that had served an answer before. */
  readonly #errors = new WeakSet<Error>();

  /** `socketPath`: of a Unix socket in place of host and port. */
  constructor(timeoutMs: number, socketPath: string | null) {
    const connect = buildConnector({
      timeout: timeoutMs,
      allowH2: false,
      ...(socketPath === null ? {} : { socketPath }),
    });
    this.open = (options, callback) => {
      connect(options, (...result) => {
        const [error, socket] = result;
        if (error === null) {
          readBeforeReset(socket);
          socket.on('error', (late) => {
            if (socket.bytesRead > 0) this.#errors.add(late);
          });
        }
        callback(...result);
      });
    };
  }

  /** Of an error before the first byte of an answer: whether its connection had served another. */
  isStale(error: Error): boolean {
    // What is not HTTP was sent by somebody who is there.
    if (error.name === 'HTTPParserError') return false;
    return this.#errors.has(error) || bytesReadOf(error) > 0;
  }
}

/** undici's SocketError says how much its socket had read: more than nothing means reused. */
function bytesReadOf(error: Error): number {
  if (!('socket' in error) || typeof error.socket !== 'object' || error.socket === null) return 0;
  const { socket } = error;
  return 'bytesRead' in socket && typeof socket.bytesRead === 'number' ? socket.bytesRead : 0;
}

type WriteEnd = (error?: Error | null) => void;

/** Lets failed writes of a socket wait for its read side. */
function readBeforeReset(socket: Socket): void {
  const write = socket._write.bind(socket);
  const writev = socket._writev?.bind(socket);
  // A stream has one write on its way, so that one function ends them all.
  let done: WriteEnd = () => undefined;
  const end: WriteEnd = (error) => {
    // A write that failed by a reset never ends: the read side does, and closes the socket.
    const code: unknown = error instanceof Error ? Reflect.get(error, 'code') : undefined;
    if (code !== 'EPIPE' && code !== 'ECONNRESET') done(error);
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

  get sizeBytes(): number {
    return this.#body.length;
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
