/**
 * Outgoing HTTP to one origin over keep-alive connections: `undici.Pool.dispatch`, no streams.
 *
 * Invariants: every exchange ends exactly once, by `onEnd` or by one `onFailure`; every bound
 * (connect, first byte, idle, total, bytes) is explicit at the call; an abort closes the
 * connection at once. Time limits are checked by one sweep of all running exchanges, so that a
 * chunk costs one field write and no timer.
 * It does not retry, and it does not know what is fetched: it names the way an exchange failed.
 * Callers bound how many run at once.
 */
import { Readable } from 'node:stream';
import { Pool } from 'undici';
import type { Dispatcher } from 'undici';
import type { Clock } from '../core/clock.ts';
import { InFlight, type Placed } from '../core/in-flight.ts';
import { BodyPieces, Connector, LARGE_REQUEST_BYTES } from './connector.ts';
import { parseUpstreamUrl } from '../core/upstream-url.ts';

/** How often the time limits are looked at: a limit may be overrun by this much. */
const SWEEP_MS = 50;
/** A sweep that comes later than this finds a process that stood still, and judges nobody by it. */
const LATE_SWEEP_MS = 2 * SWEEP_MS;
/** uvicorn and node:http drop idle connections after 5 s and often do not say so. */
const KEEP_ALIVE_HTTP_MS = 4_000;
/** A TLS handshake is dear, and public edges keep idle connections for a minute or more. */
const KEEP_ALIVE_TLS_MS = 30_000;
/** Ceiling for a keep-alive time that the server itself names. */
const KEEP_ALIVE_MAX_MS = 600_000;
const MAX_HEADER_BYTES = 64 * 1024;
/** What a reader may pause in all, however slowly it reads: a server keeps work in memory for it. */
const MAX_PAUSED_MS = 1_800_000;

/** Headers of an answer as undici gives them: one that came twice is a list. */
export type AnsweredHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** Limits in milliseconds, each counted from the event that its name implies. */
export interface TimeLimits {
  /** From the call until a connection stands and the request is written to it. */
  readonly connectMs: number;
  /** From there until the first byte of the response body. */
  readonly firstByteMs: number;
  /** Between two pieces of the body; time in which the reader paused does not count. */
  readonly idleMs: number;
  /**
   * From the call until the last byte. Time in which the reader paused does not count; it has a
   * limit of its own.
   */
  readonly totalMs: number;
}

/** A body that is read while it is written, so that its size costs no memory. */
export interface StreamedBody {
  readonly sizeBytes: number;
  /** Called once for each try. */
  open(): AsyncIterable<Buffer>;
}

export interface UpstreamRequest {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Appended to the base path of the pool. */
  readonly path: string;
  /** Flat: name, value, name, value. */
  readonly headers: readonly string[];
  readonly body: Buffer | StreamedBody | null;
  readonly limits: TimeLimits;
  readonly maxResponseBytes: number;
}

/** How an exchange failed. */
export type UpstreamFailureKind =
  | 'connect' // no connection: refused, unknown host, TLS, time limit
  | 'stale' // the server closed an idle connection as we reused it; it never saw the request
  | 'reset' // the connection died before the first body byte
  | 'unread' // the same, before a large request was written: the server may not want all of it
  | 'first-byte-timeout' // a time limit, as the next two
  | 'idle-timeout'
  | 'total-timeout'
  | 'paused-timeout' // the reader paused for too long
  | 'cut' // the connection died inside the body
  | 'too-large' // more bytes than allowed
  | 'garbage' // the answer is not HTTP
  | 'aborted' // the caller left
  | 'closed'; // the pool is closed

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
  readonly clock: Clock;
  /** Exchanges that have not ended. */
  readonly running = new InFlight<Exchange>();
  readonly #pool: Pool;
  readonly #basePath: string;
  readonly #connector: Connector;
  #stopSweep: (() => void) | undefined;
  #sweptMs = 0;
  #wasLate = false;

  constructor(options: UpstreamPoolOptions) {
    const target = parseUpstreamUrl(options.url);
    const isTls = target.origin.startsWith('https:');
    this.clock = options.clock;
    this.#basePath = target.basePath;
    this.#connector = new Connector(options.connectMs, target.socketPath);
    this.#pool = new Pool(target.origin, {
      connections: options.maxConnections,
      pipelining: 1,
      connect: this.#connector.open,
      // The sweep keeps the limits; undici's own timers are coarser and would be a second truth.
      headersTimeout: 0,
      bodyTimeout: 0,
      keepAliveTimeout: options.keepAliveMs ?? (isTls ? KEEP_ALIVE_TLS_MS : KEEP_ALIVE_HTTP_MS),
      keepAliveMaxTimeout: KEEP_ALIVE_MAX_MS,
      maxHeaderSize: MAX_HEADER_BYTES,
      allowH2: false,
    });
  }

  /** Sockets and requests that the client library holds, for tests and status pages. */
  get stats(): Pool['stats'] {
    return this.#pool.stats;
  }

  /** Starts an exchange. A closed pool fails it at once, all else is heard later. */
  dispatch(exchange: Exchange): void {
    const { body, headers, method, path } = exchange.request;
    this.running.add(exchange);
    if (this.#stopSweep === undefined) this.#startSweep();
    const isWhole = body === null || Buffer.isBuffer(body);
    const { pieces } = exchange;
    const sent = pieces?.asBody() ?? (isWhole ? body : Readable.from(body.open(), BYTES));
    // What is written in pieces has a length all the same.
    const sizeBytes = pieces?.sizeBytes ?? (isWhole ? undefined : body.sizeBytes);
    this.#pool.dispatch(
      {
        method,
        path: this.#basePath + path,
        // undici reads the flat list and never writes to it.
        headers:
          sizeBytes === undefined
            ? (headers as string[])
            : [...headers, 'content-length', String(sizeBytes)],
        body: sent,
      },
      exchange,
    );
  }

  /** Of an error before the first byte of an answer: whether its connection had served another. */
  isStale(error: Error): boolean {
    return this.#connector.isStale(error);
  }

  /** Ends without cutting: running exchanges finish, idle sockets close. New ones fail. */
  async close(): Promise<void> {
    if (!this.#pool.closed && !this.#pool.destroyed) await this.#pool.close();
    this.#stop();
  }

  /** Ends at once: running exchanges fail as `closed`. */
  async destroy(): Promise<void> {
    for (const exchange of this.running.all()) exchange.fail('closed', 'The pool was closed');
    await this.#pool.destroy();
    this.#stop();
  }

  #startSweep(): void {
    this.#sweptMs = this.clock.monotonicMs();
    this.#stopSweep = this.clock.every(SWEEP_MS, () => this.#sweep());
  }

  #sweep(): void {
    if (this.running.size === 0) return this.#stop();
    const nowMs = this.clock.monotonicMs();
    // What came meanwhile is read before the next sweep, which judges however late it is.
    this.#wasLate = !this.#wasLate && nowMs - this.#sweptMs > LATE_SWEEP_MS;
    this.#sweptMs = nowMs;
    if (this.#wasLate) return;
    for (const exchange of this.running.all()) exchange.checkLimits(nowMs);
  }

  #stop(): void {
    this.#stopSweep?.();
    this.#stopSweep = undefined;
  }
}

const BYTES = { objectMode: false };

/**
 * One request and its response on a pooled connection. Whoever sends extends it by what it does
 * with the response. `onEnd` and `onFailure` exclude each other, and each comes at most once.
 */
export abstract class Exchange implements Dispatcher.DispatchHandler, Placed {
  place = -1;
  readonly request: UpstreamRequest;
  /** Of a large request. */
  readonly pieces: BodyPieces | undefined;
  /** May be replaced while it runs. */
  limits: TimeLimits;
  readonly #pool: UpstreamPool;
  readonly #startedMs: number;
  #controller: Dispatcher.DispatchController | null = null;
  #phase: 'waiting' | 'sent' | 'head' | 'body' | 'ended' = 'waiting';
  #isReleased = false;
  /** When the phase began; in the body, when the sweep last saw it move. */
  #markMs: number;
  #hasMoved = false;
  /** Since when the reader pauses, and how long it has before. */
  #pausedAtMs: number | null = null;
  #pausedMs = 0;
  /** Whether any byte of a response came, be it half a head. */
  #hasByte = false;
  #bytes = 0;

  constructor(pool: UpstreamPool, request: UpstreamRequest) {
    const { body } = request;
    const isLarge = Buffer.isBuffer(body) && body.length >= LARGE_REQUEST_BYTES;
    this.request = request;
    this.limits = request.limits;
    this.pieces = isLarge ? new BodyPieces(body) : undefined;
    this.#pool = pool;
    this.#startedMs = pool.clock.monotonicMs();
    this.#markMs = this.#startedMs;
  }

  protected abstract onHead(status: number, headers: AnsweredHeaders): void;
  protected abstract onData(chunk: Buffer): void;
  protected abstract onEnd(): void;
  /** `message` is for the log; it can hold addresses, so it is never shown to a caller. */
  protected abstract onFailure(kind: UpstreamFailureKind, message: string): void;

  /** Nothing of the exchange is held any more: the connection or the queue place is free. */
  protected onReleased(): void {
    // Most have nothing to give back.
  }

  /** Whether any of the request may have been read. */
  protected get isSent(): boolean {
    return this.#controller !== null;
  }

  /** Since the call. */
  protected get tookMs(): number {
    return this.#pool.clock.monotonicMs() - this.#startedMs;
  }

  pause(): void {
    this.#pausedAtMs ??= this.#pool.clock.monotonicMs();
    this.#controller?.pause();
  }

  resume(): void {
    this.#hasMoved = true;
    this.#pausedMs = this.#pausedUntil(this.#pool.clock.monotonicMs());
    this.#pausedAtMs = null;
    this.#controller?.resume();
  }

  #pausedUntil(nowMs: number): number {
    return this.#pausedMs + (this.#pausedAtMs === null ? 0 : nowMs - this.#pausedAtMs);
  }

  /** Closes the connection at once; `onFailure` hears `aborted` before this returns. */
  abort(): void {
    this.fail('aborted', 'The caller left');
  }

  checkLimits(nowMs: number): void {
    const { limits } = this;
    const pausedMs = this.#pausedUntil(nowMs);
    if (nowMs - this.#startedMs - pausedMs > limits.totalMs) {
      return this.fail('total-timeout', `No end within ${limits.totalMs} ms`);
    }
    if (pausedMs > MAX_PAUSED_MS) {
      return this.fail('paused-timeout', `The reader paused for ${MAX_PAUSED_MS} ms`);
    }
    if (this.#phase === 'body') return this.#checkIdle(nowMs, limits.idleMs);
    const waitedMs = nowMs - this.#markMs;
    if (this.#phase === 'waiting') {
      if (waitedMs > limits.connectMs) {
        this.fail('connect', `No connection within ${limits.connectMs} ms`);
      }
    } else if (waitedMs > limits.firstByteMs) {
      this.fail('first-byte-timeout', `No first byte within ${limits.firstByteMs} ms`);
    }
  }

  #checkIdle(nowMs: number, idleMs: number): void {
    if (this.#hasMoved || this.#controller?.paused === true) {
      this.#hasMoved = false;
      this.#markMs = nowMs;
    } else if (nowMs - this.#markMs > idleMs) {
      this.fail('idle-timeout', `No byte for ${idleMs} ms`);
    }
  }

  /** Ends it from our side, unless it has ended. */
  fail(kind: UpstreamFailureKind, message: string): void {
    if (this.#phase === 'ended') return;
    this.#end();
    this.onFailure(kind, message);
    // A request that undici still queues is released when undici lets go of it.
    if (this.#controller === null) return;
    this.#controller.abort(new Error(message));
    this.#release();
  }

  // Called by undici from here on.

  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#phase === 'ended') {
      // Thrown, not aborted: an abort would also close the fresh connection.
      throw new Error('The exchange ended before its request was written');
    }
    this.#controller = controller;
    this.#phase = 'sent';
    this.#markMs = this.#pool.clock.monotonicMs();
  }

  onResponseStarted(): void {
    this.#hasByte = true;
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: AnsweredHeaders,
  ): void {
    if (this.#phase === 'ended' || status < 200) return;
    const declaredBytes = Number(headers['content-length'] ?? 0);
    if (declaredBytes > this.request.maxResponseBytes) return this.#failTooLarge();
    this.#phase = 'head';
    this.onHead(status, headers);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#phase === 'ended') return;
    this.#bytes += chunk.length;
    if (this.#bytes > this.request.maxResponseBytes) return this.#failTooLarge();
    this.#phase = 'body';
    // The sweep notes when.
    this.#hasMoved = true;
    this.onData(chunk);
  }

  onResponseEnd(): void {
    if (this.#phase !== 'ended') {
      this.#end();
      this.onEnd();
    }
    this.#release();
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: Error): void {
    if (this.#phase !== 'ended') {
      const kind = this.#kindOf(error);
      this.#end();
      this.onFailure(kind, messageOf(error));
    }
    this.#release();
  }

  #kindOf(error: Error): UpstreamFailureKind {
    const code = codeOf(error);
    if (code === 'UND_ERR_DESTROYED' || code === 'UND_ERR_CLOSED') return 'closed';
    if (this.#phase === 'waiting') return 'connect';
    if (this.#phase === 'body') return 'cut';
    if (error.name === 'HTTPParserError' || code === 'UND_ERR_HEADERS_OVERFLOW') return 'garbage';
    if (this.#hasByte) return 'reset';
    // An idle connection may close on a large request as on any other.
    if (this.#pool.isStale(error)) return 'stale';
    return this.pieces?.isWritten === false ? 'unread' : 'reset';
  }

  #failTooLarge(): void {
    this.fail('too-large', `More than ${this.request.maxResponseBytes} bytes`);
  }

  #end(): void {
    this.#phase = 'ended';
    this.#pool.running.delete(this);
  }

  #release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#controller = null;
    this.onReleased();
  }
}

/** A whole answer, or why there is none. */
export type Fetched =
  | { readonly ok: true; readonly status: number; readonly body: Buffer }
  | {
      readonly ok: false;
      readonly kind: UpstreamFailureKind;
      /** 0 when not even a head came. */
      readonly status: number;
      readonly message: string;
    };

/** Takes a whole answer of any status. Never rejects. */
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

  protected override onData(chunk: Buffer): void {
    this.#chunks.push(chunk);
  }

  protected override onEnd(): void {
    this.#resolve({ ok: true, status: this.#status, body: Buffer.concat(this.#chunks) });
  }

  protected override onFailure(kind: UpstreamFailureKind, message: string): void {
    this.#resolve({ ok: false, kind, status: this.#status, message });
  }
}

/** With the code in it, once: undici's own messages lack it, those of the system begin with it. */
function messageOf(error: Error): string {
  const code = codeOf(error);
  return error.message.includes(code) ? error.message : `${code} ${error.message}`;
}

function codeOf(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : '';
}

/** The value of a header; those of one that came more than once as the one list that they are (RFC 9110 §5.3). */
export function headerText(headers: AnsweredHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}
