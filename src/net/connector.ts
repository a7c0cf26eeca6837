/** Opens the connections of a pool: TCP, TLS or a Unix socket. */
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import type { Clock } from '../core/clock.ts';
import type { UpstreamTarget } from '../core/upstream-url.ts';

const READ_BYTES = 65_536;
const TCP_KEEP_ALIVE_MS = 60_000;

/** Of all connections: what was read is taken or copied before the next read, in a later callback. */
export const READ_BUFFER = Buffer.allocUnsafeSlow(READ_BYTES);

/** The way to one origin. Of TLS it keeps the session, which makes the next handshake short. */
export class Connector {
  readonly clock: Clock;
  /** Bound of one TCP and TLS handshake. */
  readonly connectMs: number;
  readonly #url: URL;
  readonly #socketPath: string | null;
  #session: Buffer | undefined;

  constructor(target: UpstreamTarget, connectMs: number, clock: Clock) {
    this.clock = clock;
    this.connectMs = connectMs;
    this.#url = new URL(target.origin);
    this.#socketPath = target.socketPath;
  }

  get host(): string {
    return this.#url.host;
  }

  /** `callback` hears how much of `READ_BUFFER` was read; `connected` that a request can be written. */
  open(callback: (size: number) => boolean, connected: () => void): Socket {
    const { hostname, port, protocol } = this.#url;
    const host = hostname.replace(/^\[|\]$/g, '');
    const options = {
      noDelay: true,
      keepAlive: true,
      keepAliveInitialDelay: TCP_KEEP_ALIVE_MS,
      onread: { buffer: READ_BUFFER, callback },
    };
    if (this.#socketPath !== null) {
      return connectTcp({ ...options, path: this.#socketPath }, connected);
    }
    if (protocol === 'http:') {
      return connectTcp({ ...options, host, port: Number(port || 80) }, connected);
    }
    const secure = {
      host,
      port: Number(port || 443),
      ALPNProtocols: ['http/1.1'],
      ...(isIP(host) === 0 && { servername: host }),
      ...(this.#session !== undefined && { session: this.#session }),
    };
    const socket = connectTls({ ...options, ...secure }, connected);
    socket.on('session', (session) => (this.#session = session));
    return socket;
  }
}

type WriteEnd = (error?: Error | null) => void;

/**
 * Lets failed writes of a socket wait for its read side: a server that answers before it has read
 * the whole request, and closes, resets the connection while we still write. Node then destroys the
 * socket for the failed write, although the answer (413, 401, ...) lies in it unread.
 */
export function readBeforeReset(socket: Socket): void {
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
