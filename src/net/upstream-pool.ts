/**
 * Outgoing HTTP to one origin over the keep-alive connections of an `undici.Pool`.
 *
 * Invariants: every exchange ends exactly once, by `onEnd` or by one `onFailure`; every bound
 * (connect, first byte, idle, total, bytes) is explicit at the call; an abort closes the
 * connection at once. Time limits are checked by one sweep of all running exchanges, so that a
 * chunk costs one field write and no timer.
 *
 * An origin that sends bytes that belong to no request loses keep-alive (`origins.ts`). It does not
 * retry: it names the way an exchange failed. Callers bound how many run at once.
 */
import { Socket } from 'node:net';
import { Client, type Dispatcher, Pool } from 'undici';
import type { Clock } from '../core/clock.ts';
import { InFlight } from '../core/in-flight.ts';
import { parseUpstreamUrl } from '../core/upstream-url.ts';
import { connectorOf, readBeforeReset, type Route } from './connector.ts';
import {
  Exchange,
  isUnexpectedResponse,
  SWEEP_MS,
  type UpstreamFailureKind,
  type UpstreamRequest,
} from './exchange.ts';
import { type Origin, Origins } from './origins.ts';

/** A sweep that comes later than this finds a process that was stopped, and fails no exchange. */
const LATE_SWEEP_MS = 2 * SWEEP_MS;
/** uvicorn and node:http drop idle connections after 5 s and often do not say so. */
const KEEP_ALIVE_HTTP_MS = 4_000;
/** A TLS handshake is expensive, and public servers keep idle connections for a minute or more. */
const KEEP_ALIVE_TLS_MS = 30_000;
/** Upper bound of a keep-alive time that the server itself names. */
const KEEP_ALIVE_MAX_MS = 600_000;
const MAX_HEADER_BYTES = 64 * 1024;

export interface UpstreamPoolOptions extends Route {
  /** `http(s)://host[:port][/base]` or `unix:/path/to.sock[:/base]`. */
  readonly url: string;
  readonly maxConnections: number;
  /** Bound of one TCP and TLS handshake. A call can ask for less, never for more. */
  readonly connectMs: number;
  readonly keepAliveMs?: number;
  readonly clock: Clock;
  /** Which origins have lost keep-alive; by default those of this pool alone. */
  readonly origins?: Origins;
}

/** The connections to one origin. Close it, or its sockets live until they are idle. */
export class UpstreamPool {
  readonly clock: Clock;
  /** Exchanges that have not ended. */
  readonly running = new InFlight<Exchange>();
  readonly #origin: Origin;
  readonly #stopWatching: () => void;
  readonly #basePath: string;
  readonly #open: () => Pool;
  #pool: Pool;
  /** Of connections that were open when keep-alive was lost: resolves when they have closed. */
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

  /** Open connections, busy or idle. */
  get connected(): number {
    return this.#pool.stats.connected;
  }

  /** Whether connections serve more than one request; `false` for good after bytes of no request. */
  get keepsAlive(): boolean {
    return this.#origin.keepsAlive;
  }

  /** Starts an exchange. What cannot be sent, and any exchange of a closed pool, fails at once. */
  dispatch(exchange: Exchange): void {
    const { body, headers, method, path } = exchange.request;
    const { piecesBytes } = exchange;
    this.running.add(exchange);
    if (this.#stopSweep === undefined) this.#startSweep();
    const options: ExchangeOptions = {
      method,
      path: this.#basePath + path,
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

  /** The server sent bytes that belong to no request. */
  strayed(): void {
    this.#origin.loseKeepAlive();
  }

  /** Ends without cutting: running exchanges finish, idle sockets close. New ones fail. */
  async close(): Promise<void> {
    if (!this.#pool.closed && !this.#pool.destroyed) await this.#pool.close();
    await this.#oldClosed;
    this.#stop();
  }

  /** Ends at once: running exchanges fail as `closed`. */
  async destroy(): Promise<void> {
    for (const exchange of this.running.all()) exchange.fail('closed', 'The pool was closed');
    await this.#pool.destroy();
    await this.#oldClosed;
    this.#stop();
  }

  /**
   * Closes idle connections, and fails what waits for its first byte on a connection that was used
   * before. A response whose first byte has arrived stays: it cannot be taken back.
   */
  #dropReused(): void {
    for (const exchange of this.running.all()) exchange.doubt();
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
    // What has arrived meanwhile is read before the next sweep, which checks however late it is.
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

/** A client of undici (one connection at a time) that knows what its connection has done. */
class Connection extends Client {
  /** The open socket. */
  socket: Socket | null = null;
  /** Responses that came on it. */
  served = 0;
  isIdle = true;

  override dispatch(options: Dispatcher.DispatchOptions, handler: Dispatcher.DispatchHandler) {
    // The pool passes on the options that it was called with.
    const { exchange } = options as ExchangeOptions;
    if (exchange.hasEnded) return true; // while it waited for a connection
    exchange.connection = this;
    // The pool waits for a client that took no request, unless this says that it takes another.
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
        if (socket instanceof Socket) readBeforeReset(socket);
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

/** A whole response, or why there is none. */
export type Fetched =
  | { readonly ok: true; readonly status: number; readonly body: Buffer }
  | {
      readonly ok: false;
      readonly kind: UpstreamFailureKind;
      /** 0 when not even a head came. */
      readonly status: number;
      readonly message: string;
    };

/** Reads a whole response of any status. Never rejects. */
export function fetchWhole(pool: UpstreamPool, request: UpstreamRequest): Promise<Fetched> {
  return new Promise((resolve) => pool.dispatch(new WholeExchange(pool, request, resolve)));
}

class WholeExchange extends Exchange {
  readonly #resolve: (fetched: Fetched) => void;
  readonly #chunks: Buffer[] = [];
  #status = 0;

  constructor(pool: UpstreamPool, request: UpstreamRequest, resolve: (fetched: Fetched) => void) {
    super(pool, request);
    this.#resolve = resolve;
  }

  protected override onHead(status: number): void {
    this.#status = status;
  }

  protected override onChunk(chunk: Buffer): void {
    this.#chunks.push(chunk);
  }

  protected override onEnd(): void {
    this.#resolve({ ok: true, status: this.#status, body: Buffer.concat(this.#chunks) });
  }

  protected override onFailure(kind: UpstreamFailureKind, message: string): void {
    this.#resolve({ ok: false, kind, status: this.#status, message });
  }
}
