/**
 * Outgoing HTTP to one origin over keep-alive connections: `undici.Pool.dispatch`, no streams.
 *
 * Invariants: every exchange ends exactly once, by `onEnd` or by one `onFailure`; every bound
 * (connect, first byte, idle, total, bytes) is explicit at the call; an abort closes the
 * connection at once. Time limits are checked by one sweep of all running exchanges, so that a
 * chunk costs one field write and no timer.
 * It does not retry, and it does not know what is fetched. Callers bound how many run at once.
 */
import { Readable } from 'node:stream';
import { Pool } from 'undici';
import type { Dispatcher } from 'undici';

import type { Clock } from '../core/clock.ts';
import { InFlight } from '../core/in-flight.ts';
import { Connector } from './connector.ts';
import { BodyPieces, LARGE_REQUEST_BYTES } from './early-answer.ts';
import { Exchange } from './exchange.ts';
import type {
  ExchangeOwner,
  RunningExchange,
  UpstreamHandler,
  UpstreamRequest,
} from './exchange.ts';
import { parseUpstreamUrl } from './upstream-url.ts';

/** How often the time limits are looked at: a limit may be overrun by this much. */
const SWEEP_MS = 50;
/** uvicorn and node:http drop idle connections after 5 s and often do not say so. */
const KEEP_ALIVE_HTTP_MS = 4_000;
/** A TLS handshake is dear, and public edges keep idle connections for a minute or more. */
const KEEP_ALIVE_TLS_MS = 30_000;
/** Ceiling for a keep-alive time that the server itself names. */
const KEEP_ALIVE_MAX_MS = 600_000;
const MAX_HEADER_BYTES = 64 * 1024;

export interface UpstreamPoolOptions {
  /** `http(s)://host[:port][/base]` or `unix:/path/to.sock[:/base]`. */
  readonly url: string;
  readonly maxConnections: number;
  /** Bound of one TCP and TLS handshake. A call can ask for less, never for more. */
  readonly connectMs: number;
  readonly keepAliveMs?: number;
  readonly clock: Clock;
}

/** The connections to one origin. Close it, or its sockets live until they are idle. */
export class UpstreamPool {
  readonly #pool: Pool;
  readonly #clock: Clock;
  readonly #basePath: string;
  readonly #running = new InFlight<Exchange>();
  readonly #owner: ExchangeOwner;
  #stopSweep: (() => void) | undefined;

  constructor(options: UpstreamPoolOptions) {
    const target = parseUpstreamUrl(options.url);
    const isTls = target.origin.startsWith('https:');
    this.#clock = options.clock;
    this.#basePath = target.basePath;
    const connector = new Connector({
      timeoutMs: options.connectMs,
      socketPath: target.socketPath,
    });
    this.#pool = new Pool(target.origin, {
      connections: options.maxConnections,
      pipelining: 1,
      connect: connector.open,
      // The sweep keeps the limits; undici's own timers are coarser and would be a second truth.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: options.keepAliveMs ?? (isTls ? KEEP_ALIVE_TLS_MS : KEEP_ALIVE_HTTP_MS),
      keepAliveMaxTimeout: KEEP_ALIVE_MAX_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
      allowH2: false,
    });
    this.#owner = {
      running: this.#running,
      isStale: (error) => connector.isStale(error),
      monotonicMs: () => this.#clock.monotonicMs(),
    };
  }

  /** The path of the URL, without a trailing slash: put before each request path. */
  get basePath(): string {
    return this.#basePath;
  }

  /** Exchanges that have not ended. */
  get running(): number {
    return this.#running.size;
  }

  /** Sockets and requests that the client library holds, for tests and status pages. */
  stats(): { connected: number; free: number; running: number; queued: number } {
    const { connected, free, running, queued } = this.#pool.stats;
    return { connected, free, running, queued };
  }

  /** Starts an exchange; its handler is called later, never before `send` has returned. */
  send(request: UpstreamRequest, handler: UpstreamHandler): RunningExchange {
    const { body } = request;
    const isWhole = body === null || Buffer.isBuffer(body);
    const isLarge = isWhole && body !== null && body.length >= LARGE_REQUEST_BYTES;
    const pieces = isLarge ? new BodyPieces(body) : undefined;
    // What is written in pieces has a length all the same.
    const sizeBytes = isWhole ? (isLarge ? body.length : undefined) : body.sizeBytes;
    const exchange = new Exchange(this.#owner, request, handler, pieces);
    this.#running.add(exchange);
    this.#stopSweep ??= this.#clock.every(SWEEP_MS, () => this.#sweep());
    const options: Dispatcher.DispatchOptions = {
      method: request.method,
      path: this.#basePath + request.path,
      // undici reads the flat list and never writes to it.
      headers:
        sizeBytes === undefined
          ? (request.headers as string[])
          : [...request.headers, 'content-length', String(sizeBytes)],
      body:
        pieces?.asBody() ?? (isWhole ? body : Readable.from(body.open(), { objectMode: false })),
    };
    this.#pool.dispatch(options, exchange);
    exchange.dispatched();
    return exchange;
  }

  /** Ends without cutting: running exchanges finish, idle sockets close. New ones fail. */
  async close(): Promise<void> {
    if (!this.#pool.closed && !this.#pool.destroyed) await this.#pool.close();
    this.#stop();
  }

  /** Ends at once: running exchanges fail as `closed`. */
  async destroy(): Promise<void> {
    for (const exchange of this.#running.all()) exchange.close();
    await this.#pool.destroy();
    this.#stop();
  }

  #sweep(): void {
    if (this.#running.size === 0) return this.#stop();
    const nowMs = this.#clock.monotonicMs();
    for (const exchange of this.#running.all()) exchange.checkLimits(nowMs);
  }

  #stop(): void {
    this.#stopSweep?.();
    this.#stopSweep = undefined;
  }
}
