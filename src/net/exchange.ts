/**
 * One request to an upstream and its response, as the handler object that undici calls.
 *
 * Invariants: it ends exactly once, by `onEnd` or by one `onFailure`; nothing is called after that. Its
 * pool calls `checkLimits` regularly. A failure names its kind; whether to repeat is up to the caller.
 */
import type { Socket } from 'node:net';
import type { Dispatcher } from 'undici';
import type { Clock } from '../core/clock.ts';
import type { InFlight, Placed } from '../core/in-flight.ts';

/** How often a pool checks the limits: a limit may be overrun by this much. */
export const SWEEP_MS = 50;
/**
 * A server that has closed an idle connection reports it within one round trip, one second at most.
 * A connection that closes later failed on the request, which is then not repeated as unread.
 * Counted in sweeps, so that a pause of this process does not age a connection.
 */
const STALE_SWEEPS = 1_000 / SWEEP_MS;
/** Several idle connections may be stale at once, after a restart or a lost NAT entry. */
export const MAX_STALE_RETRIES = 3;
/** Larger request bodies are written in pieces of this size. */
const LARGE_REQUEST_BYTES = 262_144;
/** Maximum total pause of a reader, because the server keeps the work in memory meanwhile. */
const MAX_PAUSED_MS = 1_800_000;
/** A chunk below this share of its read buffer is copied, so that the buffer can be released. */
const SPARSE_PART = 16;
const AMBIGUOUS = 'The response may belong to an earlier request of the connection';

/** Response headers, names in lower case; a repeated header is a list. */
export type ReceivedHeaders = Readonly<Record<string, string | string[] | undefined>>;

/** Limits in milliseconds, each counted from the event that its name implies. */
export interface TimeLimits {
  /** From the call until a connection is open and the request is written to it. */
  readonly connectMs: number;
  /** From there until the first byte of the response body. */
  readonly firstByteMs: number;
  /** Between two pieces of the body, excluding pauses of the reader. */
  readonly idleMs: number;
  /** From the call until the last byte, excluding pauses of the reader. */
  readonly totalMs: number;
}

/** A body that is streamed from its source, so that it is never in memory as a whole. */
export interface StreamedBody {
  readonly sizeBytes: number;
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

export type UpstreamFailureKind =
  | 'connect' // no connection: refused, unknown host, TLS, proxy, time limit
  | 'stale' // the server closed an idle connection as we reused it; it never saw the request
  | 'reset' // the connection closed before the first body byte
  | 'unread' // the same, before a large request was written: the server may have rejected it early
  | 'cut' // the connection closed inside the body
  | 'garbage' // the response is not HTTP/1.1
  | 'ambiguous' // the response may belong to an earlier request of the connection
  | 'first-byte-timeout' // a time limit, as the next two
  | 'idle-timeout'
  | 'total-timeout'
  | 'paused-timeout' // the reader paused for too long
  | 'too-large' // more bytes than allowed
  | 'aborted' // the client disconnected
  | 'closed'; // the pool is closed

interface ExchangePool {
  readonly clock: Clock;
  readonly running: InFlight<Exchange>;
  send(exchange: Exchange): void;
  strayed(): void;
}

interface ExchangeConnection {
  readonly socket: Socket | null;
  served: number;
  isIdle: boolean;
}

/** One request and its response on a pooled connection; subclasses process the response. */
export abstract class Exchange implements Dispatcher.DispatchHandler, Placed {
  place = -1;
  readonly request: UpstreamRequest;
  /** The size of a body that is written in pieces; `null` for any other. */
  readonly piecesBytes: number | null;
  /** Set by the connection that sends it. */
  connection: ExchangeConnection | null = null;
  /** May be replaced while it runs. */
  limits: TimeLimits;
  /** Set once the whole request was written; no server acts on an incomplete one. */
  isWritten = false;
  isPaused = false;
  hasEnded = false;
  readonly #pool: ExchangePool;
  readonly #startedMs: number;
  #controller: Dispatcher.DispatchController | null = null;
  #phase: 'waiting' | 'sent' | 'body' = 'waiting';
  /** Start of the phase; in the body, the time of the last sweep that saw progress. */
  #markMs: number;
  #hasMoved = false;
  /** Number of sweeps since it was sent. */
  #sweeps = 0;
  /** Start of the current pause of the reader, and the total of the earlier ones. */
  #pausedAtMs: number | null = null;
  #pausedMs = 0;
  #hasByte = false;
  /** The connection has served another request before. */
  #isReused = false;
  #bytes = 0;
  #bodyBytes = Infinity;
  /** Set if the response ended while the reader paused. */
  #endWaits: { readonly isAmbiguous: boolean } | null = null;

  constructor(pool: ExchangePool, request: UpstreamRequest) {
    const { body, limits } = request;
    const sizeBytes = Buffer.isBuffer(body) ? body.length : (body?.sizeBytes ?? 0);
    const isWhole = body === null || (Buffer.isBuffer(body) && sizeBytes < LARGE_REQUEST_BYTES);
    this.request = request;
    this.piecesBytes = isWhole ? null : sizeBytes;
    this.limits = limits;
    this.#pool = pool;
    this.#startedMs = pool.clock.monotonicMs();
    this.#markMs = this.#startedMs;
  }

  protected abstract onHead(status: number, headers: ReceivedHeaders): void;
  protected abstract onChunk(chunk: Buffer): void;
  protected abstract onEnd(): void;
  /** `message` is for the log; it can contain addresses, so it is never shown to a caller. */
  protected abstract onFailure(kind: UpstreamFailureKind, message: string): void;

  /** Whether the server may have read part of the request. */
  protected get isSent(): boolean {
    return this.#controller !== null;
  }

  protected get tookMs(): number {
    return this.#pool.clock.monotonicMs() - this.#startedMs;
  }

  /** Yields the body in pieces; sets `isWritten` after the last one. */
  async *bodyPieces(): AsyncGenerator<Buffer> {
    const { body } = this.request;
    if (body === null) return;
    let leftBytes = this.piecesBytes ?? 0;
    for await (const piece of Buffer.isBuffer(body) ? piecesOf(body) : body.open()) {
      leftBytes -= piece.length;
      this.isWritten = leftBytes === 0;
      yield piece;
    }
  }

  pause(): void {
    this.isPaused = true;
    this.#pausedAtMs ??= this.#pool.clock.monotonicMs();
    this.#controller?.pause();
  }

  resume(): void {
    this.#hasMoved = true;
    this.#pausedMs = this.#pausedUntil(this.#pool.clock.monotonicMs());
    this.#pausedAtMs = null;
    this.isPaused = false;
    this.#controller?.resume();
    if (this.#endWaits !== null) this.complete(this.#endWaits.isAmbiguous);
  }

  #pausedUntil(nowMs: number): number {
    return this.#pausedMs + (this.#pausedAtMs === null ? 0 : nowMs - this.#pausedAtMs);
  }

  /** Closes the connection at once; `onFailure` is called with `aborted` before this returns. */
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
      return;
    }
    this.#sweeps += 1;
    if (waitedMs > limits.firstByteMs) {
      this.fail('first-byte-timeout', `No first byte within ${limits.firstByteMs} ms`);
    }
  }

  #checkIdle(nowMs: number, idleMs: number): void {
    if (this.#hasMoved || this.isPaused) {
      this.#hasMoved = false;
      this.#markMs = nowMs;
    } else if (nowMs - this.#markMs > idleMs) {
      this.fail('idle-timeout', `No byte for ${idleMs} ms`);
    }
  }

  /** Fails the exchange from our side, unless it has ended. */
  fail(kind: UpstreamFailureKind, message: string): void {
    if (this.hasEnded) return;
    this.hasEnded = true;
    this.#pool.running.delete(this);
    this.onFailure(kind, message);
    this.#controller?.abort(new Error(message));
  }

  /** Fails an exchange that waits for its first byte on a reused connection. */
  failIfAmbiguous(): void {
    if (this.#isReused && this.#phase === 'sent' && !this.#hasByte)
      this.fail('ambiguous', AMBIGUOUS);
  }

  // Called by undici from here on.

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // Throws instead of aborting, since an abort would also close the new connection.
    if (this.hasEnded) throw new Error('The exchange ended before it was written');
    this.#controller = controller;
    this.#phase = 'sent';
    this.#markMs = this.#pool.clock.monotonicMs();
    this.isWritten = this.piecesBytes === null;
    if (this.connection === null) return;
    this.connection.isIdle = false;
    this.#isReused = this.connection.served > 0;
  }

  onResponseStarted(): void {
    this.#hasByte = true;
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: ReceivedHeaders,
  ): void {
    if (this.hasEnded || status < 200) return;
    // A server cannot have handled a request that it has not received.
    if (this.#isReused && !this.isWritten && status < 300) {
      this.#pool.strayed();
      return this.fail('ambiguous', AMBIGUOUS);
    }
    this.#bodyBytes = Number(headers['content-length'] ?? Infinity);
    const isTooLarge = this.#bodyBytes > this.request.maxResponseBytes;
    if (isTooLarge && this.#bodyBytes !== Infinity) return this.#failTooLarge();
    this.onHead(status, headers);
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.hasEnded) return;
    this.#bytes += chunk.length;
    if (this.#bytes > this.request.maxResponseBytes) return this.#failTooLarge();
    this.#phase = 'body';
    // The next sweep records the time.
    this.#hasMoved = true;
    const isSparse = chunk.length * SPARSE_PART < chunk.buffer.byteLength;
    this.onChunk(isSparse ? Buffer.from(chunk) : chunk);
    // After the last byte the end is delayed here, because undici treats a close during a pause as
    // a truncated response.
    if (this.#bytes === this.#bodyBytes) controller.resume();
  }

  onResponseEnd(): void {
    const { connection } = this;
    if (connection !== null) {
      connection.isIdle = true;
      connection.served += 1;
    }
    // At the end of the turn undici has parsed the whole read, so it is known whether more bytes came
    // with the response. All ends of a turn run in a row (decision 15).
    setImmediate(end, this, this.#isReused ? connection?.socket : null);
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: Error): void {
    if (this.hasEnded) return;
    const kind = this.#kindOf(error);
    if (kind === 'connect' && this.connection?.socket?.destroyed === true)
      return this.#sendElsewhere();
    if (kind === 'ambiguous') this.#pool.strayed();
    this.hasEnded = true;
    this.#pool.running.delete(this);
    this.onFailure(kind, messageOf(error));
  }

  /**
   * undici fails the requests that wait for an idle connection when that connection is reset. They
   * were never written. The microtask runs after the connection is closed.
   */
  #sendElsewhere(): void {
    queueMicrotask(() => {
      if (!this.hasEnded) this.#pool.send(this);
    });
  }

  /** The response is complete. `isAmbiguous`: bytes that belong to no request follow it. */
  complete(isAmbiguous = false): void {
    if (this.hasEnded) return;
    if (this.isPaused) {
      this.#endWaits = { isAmbiguous };
      return;
    }
    this.hasEnded = true;
    this.#pool.running.delete(this);
    if (!isAmbiguous) return this.onEnd();
    this.#pool.strayed();
    this.onFailure('ambiguous', AMBIGUOUS);
  }

  #kindOf(error: Error): UpstreamFailureKind {
    const code = codeOf(error);
    if (code === 'UND_ERR_DESTROYED' || code === 'UND_ERR_CLOSED') return 'closed';
    if (this.#phase === 'waiting') return 'connect';
    if (this.#phase === 'body') return 'cut';
    // For a head that it cannot parse, undici may report a length error first.
    const isBadHead =
      code === 'UND_ERR_HEADERS_OVERFLOW' ||
      (code === 'UND_ERR_RES_CONTENT_LENGTH_MISMATCH' && this.#bodyBytes === Infinity);
    if (isUnexpectedResponse(error) || isBadHead) {
      // Instead of a head, these may be further bytes of the previous response.
      return this.#isReused && error.name === 'HTTPParserError' ? 'ambiguous' : 'garbage';
    }
    if (this.#hasByte) return 'reset';
    // An idle connection may close on a large request like on any other.
    if (this.#isReused && this.#sweeps < STALE_SWEEPS) return 'stale';
    return this.isWritten ? 'reset' : 'unread';
  }

  #failTooLarge(): void {
    this.fail('too-large', `More than ${this.request.maxResponseBytes} bytes`);
  }
}

/** `reused`: the connection, if it has served another request before. */
function end(exchange: Exchange, reused: Socket | null | undefined): void {
  const error = reused?.errored ?? null;
  try {
    exchange.complete(error !== null && isUnexpectedResponse(error));
  } catch (bug) {
    void Promise.reject(bug); // logged and counted as an unhandled rejection; it ends no process
  }
}

/** Whether undici closed the connection because of what the server sent. */
export function isUnexpectedResponse({ name, message }: Error): boolean {
  // undici fails an assertion on an upgrade that was not requested.
  return name === 'HTTPParserError' || name === 'AssertionError' || message === 'bad response';
}

function* piecesOf(body: Buffer): Generator<Buffer> {
  for (let at = 0; at < body.length; at += LARGE_REQUEST_BYTES) {
    yield body.subarray(at, at + LARGE_REQUEST_BYTES);
  }
}

/** Returns the message with the error code once: undici omits it, system errors start with it. */
function messageOf(error: Error): string {
  const code = codeOf(error);
  return error.message.includes(code) ? error.message : `${code} ${error.message}`;
}

function codeOf(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : '';
}

/** Returns the value of a header; a repeated header as one list (RFC 9110 §5.3). */
export function headerText(headers: ReceivedHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}
