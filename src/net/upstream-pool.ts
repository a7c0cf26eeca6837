/**
 * Outgoing HTTP to one origin over the keep-alive connections of an `undici.Pool`. It does not
 * retry; failures are classified for the caller. Callers limit the number of concurrent exchanges.
 *
 * Invariants: every exchange ends exactly once, by `onEnd` or by one `onFailure`; every limit
 * (connect, first byte, idle, total, bytes) is explicit at the call; an abort closes the connection
 * at once. One periodic sweep checks the time limits of all exchanges, so that a chunk costs one
 * field write and no timer.
 *
 * An origin that sends bytes that belong to no request loses keep-alive (`origins.ts`).
 */
import { Socket } from 'node:net';
import { Client, type Dispatcher, Pool } from 'undici';
import { BodyPieces } from '../core/body-pieces.ts';
import type { Clock } from '../core/clock.ts';
import { InFlight } from '../core/in-flight.ts';
import { parseUpstreamUrl } from '../core/upstream-url.ts';
import { connectorOf, type Route } from './connector.ts';
import {
  Exchange,
  isUnexpectedResponse,
  type ReceivedHeaders,
  SWEEP_MS,
  type UpstreamFailureKind,
  type UpstreamRequest,
} from './exchange.ts';
import { type Origin, Origins } from './origins.ts';

/** A sweep later than this means that the process was paused; it fails no exchange. */
const LATE_SWEEP_MS = 2 * SWEEP_MS;
/** uvicorn and node:http close idle connections after 5 s, often without announcing it. */
const KEEP_ALIVE_HTTP_MS = 4_000;
/** A TLS handshake is expensive, and public servers keep idle connections for a minute or more. */
const KEEP_ALIVE_TLS_MS = 30_000;
/** Upper bound of a keep-alive time sent by the server. */
const KEEP_ALIVE_MAX_MS = 600_000;
const MAX_HEADER_BYTES = 64 * 1024;

export interface UpstreamPoolOptions extends Route {
  /** `http(s)://host[:port][/base]` or `unix:/path/to.sock[:/base]`. */
  readonly url: string;
  readonly maxConnections: number;
  /** Limit of one TCP and TLS handshake. A call can set a lower one. */
  readonly connectMs: number;
  readonly keepAliveMs?: number;
  readonly clock: Clock;
  /** Tracks which origins have lost keep-alive; default: for this pool only. */
  readonly origins?: Origins;
}

/** The connections to one origin. Close it, or its sockets stay open until their idle timeout. */
export class UpstreamPool {
  readonly clock: Clock;
  readonly running = new InFlight<Exchange>();
  readonly #origin: Origin;
  readonly #stopWatching: () => void;
  readonly #basePath: string;
  readonly #query: string;
  readonly #open: () => Pool;
  #pool: Pool;
  /** Resolves when the connections from before the loss of keep-alive have closed. */
  #oldClosed: Promise<void> | undefined;
  #stopSweep: (() => void) | undefined;
  #sweptMs = 0;
  #wasLate = false;

  constructor(options: UpstreamPoolOptions) {
    const { clock, connectMs, keepAliveMs, maxConnections, url } = options;
    const target = parseUpstreamUrl(url);
    const isTls = target.origin.startsWith('https:');
    this.clock = clock;
    this.#origin = (options.origins ?? new Origins(() => undefined)).of(target);
    this.#stopWatching = this.#origin.watch(() => this.#dropReused());
    this.#basePath = target.basePath;
    this.#query = target.query;
    const connect = connectorOf(options, connectMs, target.socketPath);
    this.#open = () => {
      const pool = new Pool(target.origin, {
        connections: maxConnections,
        connect,
        factory: connectionTo,
        // The sweep checks the limits; the timers of undici are coarser.
        headersTimeout: 0,
        bodyTimeout: 0,
        keepAliveTimeout: keepAliveMs ?? (isTls ? KEEP_ALIVE_TLS_MS : KEEP_ALIVE_HTTP_MS),
        keepAliveMaxTimeout: KEEP_ALIVE_MAX_MS,
        maxHeaderSize: MAX_HEADER_BYTES,
      });
      return pool.on('disconnect', (_origin, [, connection], error) => {
        const isIdle = connection instanceof Connection && connection.isIdle;
        if (isIdle && isUnexpectedResponse(error)) this.strayed();
      });
    };
    this.#pool = this.#open();
  }

  get connected(): number {
    return this.#pool.stats.connected;
  }

  /** True if connections serve more than one request; permanently `false` after stray bytes. */
  get keepsAlive(): boolean {
    return this.#origin.keepsAlive;
  }

  /** Starts an exchange. Fails it at once if it cannot be sent or the pool is closed. */
  dispatch(exchange: Exchange): void {
    this.running.add(exchange);
    if (this.#stopSweep === undefined) this.#startSweep();
    this.send(exchange);
  }

  /** Gives a running exchange to undici, again if its connection was lost before it was written. */
  send(exchange: Exchange): void {
    const { body, headers, method, path } = exchange.request;
    const { piecesBytes } = exchange;
    const options: ExchangeOptions = {
      method,
      path: this.#query === '' ? this.#basePath + path : this.#withQuery(path),
      // undici reads the flat list and never writes to it.
      headers:
        piecesBytes === null
          ? (headers as string[])
          : [...headers, 'content-length', String(piecesBytes)],
      // undici takes every iterable although its types name streams only.
      body: piecesBytes === null ? (body as Buffer | null) : exchange.bodyPieces(),
      reset: !this.#origin.keepsAlive,
      exchange,
    };
    this.#pool.dispatch(options as Dispatcher.DispatchOptions, exchange);
  }

  #withQuery(path: string): string {
    return `${this.#basePath}${path}${path.includes('?') ? '&' : '?'}${this.#query}`;
  }

  strayed(): void {
    this.#origin.loseKeepAlive();
  }

  /** Closes gracefully: running exchanges finish, idle sockets close, new exchanges fail. */
  async close(): Promise<void> {
    if (!this.#pool.closed && !this.#pool.destroyed) await this.#pool.close();
    await this.#oldClosed;
    this.#stop();
  }

  /** Closes immediately: running exchanges fail as `closed`. */
  async destroy(): Promise<void> {
    for (const exchange of this.running.all()) exchange.fail('closed', 'The pool was closed');
    await this.#pool.destroy();
    await this.#oldClosed;
    this.#stop();
  }

  /**
   * Closes idle connections, and fails exchanges that wait for their first byte on a reused
   * connection. A response that has started continues, since part of it was delivered.
   */
  #dropReused(): void {
    for (const exchange of this.running.all()) exchange.failIfAmbiguous();
    if (this.#pool.closed || this.#pool.destroyed) return;
    this.#oldClosed = this.#pool.close();
    this.#pool = this.#open();
  }

  #startSweep(): void {
    this.#sweptMs = this.clock.monotonicMs();
    this.#stopSweep = this.clock.every(SWEEP_MS, () => this.#sweep());
  }

  #sweep(): void {
    if (this.running.size === 0) return this.#stopSweeping();
    const nowMs = this.clock.monotonicMs();
    // Data that arrived during the pause is read before the next sweep, which always checks.
    this.#wasLate = !this.#wasLate && nowMs - this.#sweptMs > LATE_SWEEP_MS;
    this.#sweptMs = nowMs;
    if (this.#wasLate) return;
    for (const exchange of this.running.all()) exchange.checkLimits(nowMs);
  }

  #stopSweeping(): void {
    this.#stopSweep?.();
    this.#stopSweep = undefined;
  }

  #stop(): void {
    this.#stopWatching();
    this.#stopSweeping();
  }
}

interface ExchangeOptions extends Omit<Dispatcher.DispatchOptions, 'body'> {
  readonly body: Buffer | AsyncIterable<Buffer> | null;
  readonly exchange: Exchange;
}

/** An undici client (one connection at a time) that tracks the use of its connection. */
class Connection extends Client {
  socket: Socket | null = null;
  served = 0;
  isIdle = true;

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler) {
    // The pool passes on the options that it was called with.
    const { exchange } = options as ExchangeOptions;
    if (exchange.hasEnded) return true; // it ended while waiting for a connection
    exchange.connection = this;
    // Otherwise the pool waits for a client that took no request.
    return super.dispatch(options, handler) || exchange.hasEnded;
  }
}

function connectionTo(origin: URL, options: object): Connection {
  const { connect, ...others } = options as Client.Options & { connect: Connect }; // as the pool gives them
  const connection = new Connection(origin, {
    ...others,
    connect: (to, callback) => {
      connect(to, (...result) => {
        const [, socket] = result;
        if (socket instanceof Socket) {
          readBeforeReset(socket);
          // A destroyed socket would keep its unread bytes in memory.
          socket.once('close', () => {
            if (connection.socket === socket) connection.socket = null;
          });
        }
        connection.socket = socket;
        connection.served = 0;
        connection.isIdle = true;
        callback(...result);
      });
    },
  });
  return connection;
}

type Connect = ReturnType<typeof connectorOf>;

type WriteEnd = (error?: Error | null) => void;

/**
 * Lets failed writes of a socket wait for its read side. A server that responds before it has read
 * the whole request, and closes, resets the connection while the request is still being written.
 * Node then destroys the socket for the failed write, with the response (413, 401, ...) unread in it.
 */
function readBeforeReset(socket: Socket): void {
  const write = socket._write.bind(socket);
  const writev = socket._writev?.bind(socket);
  // A stream has one write in flight, so that one function ends them all.
  let done: WriteEnd = () => undefined;
  const end: WriteEnd = (error) => {
    // After a reset the read side ends by itself, and closes the socket.
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

/** A complete response, or why it failed. */
export type Fetched =
  | {
      readonly ok: true;
      readonly status: number;
      readonly headers: ReceivedHeaders;
      readonly body: Buffer;
    }
  | {
      readonly ok: false;
      readonly kind: UpstreamFailureKind;
      /** 0 if no response head arrived. */
      readonly status: number;
      readonly message: string;
    };

/** Reads a complete response of any status. Never rejects. */
export function fetchWhole(pool: UpstreamPool, request: UpstreamRequest): Promise<Fetched> {
  return new Promise((resolve) => pool.dispatch(new WholeExchange(pool, request, resolve)));
}

class WholeExchange extends Exchange {
  readonly #resolve: (fetched: Fetched) => void;
  readonly #body = new BodyPieces();
  #status = 0;
  #headers: ReceivedHeaders = {};

  constructor(pool: UpstreamPool, request: UpstreamRequest, resolve: (fetched: Fetched) => void) {
    super(pool, request);
    this.#resolve = resolve;
  }

  protected override onHead(status: number, headers: ReceivedHeaders): void {
    this.#status = status;
    this.#headers = headers;
  }

  protected override onChunk(chunk: Buffer): void {
    this.#body.add(chunk);
  }

  protected override onEnd(): void {
    const body = this.#body.joinedAtOnce();
    this.#resolve({ ok: true, status: this.#status, headers: this.#headers, body });
  }

  protected override onFailure(kind: UpstreamFailureKind, message: string): void {
    this.#resolve({ ok: false, kind, status: this.#status, message });
  }
}
