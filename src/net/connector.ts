/**
 * Opens the connections of an undici pool, and knows which of them died idle.
 *
 * A server may close a connection that it thinks idle while we write to it: then the request was
 * most likely never read. Whether it may be sent again is the caller's to decide.
 */
import { buildConnector } from 'undici';
import { readBeforeReset } from './early-answer.ts';

/** Idle connections that die together (a restart, a lost NAT entry) are no failures of the server. */
export const MAX_STALE_RETRIES = 3;

export interface ConnectorOptions {
  readonly timeoutMs: number;
  /** Of a Unix socket in place of host and port. */
  readonly socketPath?: string | null;
}

/** One for each pool. */
export class Connector {
  readonly open: buildConnector.connector;
  /** Errors of sockets that had served an answer before. */
  readonly #errors = new WeakSet<Error>();

  constructor({ timeoutMs, socketPath = null }: ConnectorOptions) {
    const connect = buildConnector({
      timeout: timeoutMs,
      allowH2: false,
      ...(socketPath === null ? {} : { socketPath }),
    });
    this.open = (options, callback) => {
      connect(options, (...result) => {
        const [, socket] = result;
        readBeforeReset(socket);
        socket?.on('error', (error) => {
          if (socket.bytesRead > 0) this.#errors.add(error);
        });
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
