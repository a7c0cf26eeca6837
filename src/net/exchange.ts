/**
 * One request and its response on a pooled connection: the state between undici's callbacks and
 * the caller's. It names the way an exchange failed; what to do about it is the caller's matter.
 */
import type { IncomingHttpHeaders } from 'node:http';

import type { Dispatcher } from 'undici';

import type { InFlight, Placed } from '../core/in-flight.ts';

import type { BodyPieces } from './early-answer.ts';

/** What a reader may pause in all, however slowly it reads: a server keeps work in memory for it. */
const MAX_PAUSED_MS = 1_800_000;

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

/**
 * - `connect`: no connection (refused, unknown host, TLS, time limit)
 * - `stale`: the server closed an idle connection as we reused it; it never saw the request
 * - `reset`: the connection died before the first body byte
 * - `unread`: the same, before a large request was written: the server may not want all of it
 * - `first-byte-timeout`, `idle-timeout`, `total-timeout`: a time limit
 * - `paused-timeout`: the reader paused for too long
 * - `cut`: the connection died inside the body
 * - `too-large`: more bytes than allowed
 * - `garbage`: the answer is not HTTP
 * - `aborted`: the caller left
 * - `closed`: the pool is closed
 */
export type UpstreamFailureKind =
  | 'connect'
  | 'stale'
  | 'reset'
  | 'unread'
  | 'first-byte-timeout'
  | 'idle-timeout'
  | 'total-timeout'
  | 'paused-timeout'
  | 'cut'
  | 'too-large'
  | 'garbage'
  | 'aborted'
  | 'closed';

export interface UpstreamFailure {
  readonly kind: UpstreamFailureKind;
  /** For the log; it can hold addresses, so it is never shown to a caller. */
  readonly message: string;
}

/** The caller's side. `onEnd` and `onFailure` exclude each other, and each comes at most once. */
export interface UpstreamHandler {
  onHead(status: number, headers: IncomingHttpHeaders): void;
  onData(chunk: Buffer): void;
  onEnd(): void;
  onFailure(failure: UpstreamFailure): void;
  /** Nothing of the exchange is held any more: the connection or the queue place is free. */
  onReleased(): void;
}

/** What the caller can do with a running exchange. All three are harmless after its end. */
export interface RunningExchange {
  pause(): void;
  resume(): void;
  /** Closes the connection at once; the handler hears `aborted` before this returns. */
  abort(): void;
}

export interface ExchangeOwner {
  readonly running: InFlight<Exchange>;
  isStale(error: Error): boolean;
  monotonicMs(): number;
}

type Phase = 'waiting' | 'sent' | 'head' | 'body' | 'ended';

export class Exchange implements RunningExchange, Dispatcher.DispatchHandler, Placed {
  place = -1;
  readonly #owner: ExchangeOwner;
  readonly #request: UpstreamRequest;
  readonly #handler: UpstreamHandler;
  readonly #startedMs: number;
  /** Of a large request. */
  readonly #pieces: BodyPieces | undefined;
  #controller: Dispatcher.DispatchController | null = null;
  #phase: Phase = 'waiting';
  #isDispatched = false;
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

  constructor(
    owner: ExchangeOwner,
    request: UpstreamRequest,
    handler: UpstreamHandler,
    pieces: BodyPieces | undefined,
  ) {
    this.#owner = owner;
    this.#pieces = pieces;
    this.#request = request;
    this.#handler = handler;
    this.#startedMs = owner.monotonicMs();
    this.#markMs = this.#startedMs;
  }

  dispatched(): void {
    this.#isDispatched = true;
  }

  pause(): void {
    this.#pausedAtMs ??= this.#owner.monotonicMs();
    this.#controller?.pause();
  }

  resume(): void {
    this.#hasMoved = true;
    this.#pausedMs = this.#pausedUntil(this.#owner.monotonicMs());
    this.#pausedAtMs = null;
    this.#controller?.resume();
  }

  #pausedUntil(nowMs: number): number {
    return this.#pausedMs + (this.#pausedAtMs === null ? 0 : nowMs - this.#pausedAtMs);
  }

  abort(): void {
    this.#fail('aborted', 'The caller left');
  }

  close(): void {
    this.#fail('closed', 'The pool was closed');
  }

  checkLimits(nowMs: number): void {
    const { limits } = this.#request;
    const pausedMs = this.#pausedUntil(nowMs);
    if (nowMs - this.#startedMs - pausedMs > limits.totalMs) {
      return this.#fail('total-timeout', `No end within ${limits.totalMs} ms`);
    }
    if (pausedMs > MAX_PAUSED_MS) {
      return this.#fail('paused-timeout', `The reader paused for ${MAX_PAUSED_MS} ms`);
    }
    if (this.#phase === 'body') return this.#checkIdle(nowMs, limits.idleMs);
    const waitedMs = nowMs - this.#markMs;
    if (this.#phase === 'waiting') {
      if (waitedMs > limits.connectMs) {
        this.#fail('connect', `No connection within ${limits.connectMs} ms`);
      }
    } else if (waitedMs > limits.firstByteMs) {
      this.#fail('first-byte-timeout', `No first byte within ${limits.firstByteMs} ms`);
    }
  }

  #checkIdle(nowMs: number, idleMs: number): void {
    if (this.#hasMoved || this.#controller?.paused === true) {
      this.#hasMoved = false;
      this.#markMs = nowMs;
    } else if (nowMs - this.#markMs > idleMs) {
      this.#fail('idle-timeout', `No byte for ${idleMs} ms`);
    }
  }

  // Called by undici from here on.

  onRequestStart(controller: Dispatcher.DispatchController): void {
    if (this.#phase === 'ended') {
      // Thrown, not aborted: an abort would also close the fresh connection.
      throw new Error('The exchange ended before its request was written');
    }
    this.#controller = controller;
    this.#phase = 'sent';
    this.#markMs = this.#owner.monotonicMs();
  }

  onResponseStarted(): void {
    this.#hasByte = true;
  }

  onResponseStart(
    _controller: Dispatcher.DispatchController,
    status: number,
    headers: IncomingHttpHeaders,
  ): void {
    if (this.#phase === 'ended' || status < 200) return;
    const declaredBytes = Number(headers['content-length'] ?? 0);
    if (declaredBytes > this.#request.maxResponseBytes) return this.#tooLarge();
    this.#phase = 'head';
    this.#handler.onHead(status, headers);
  }

  onResponseData(_controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#phase === 'ended') return;
    this.#bytes += chunk.length;
    if (this.#bytes > this.#request.maxResponseBytes) return this.#tooLarge();
    if (this.#phase !== 'body') {
      this.#phase = 'body';
      this.#markMs = this.#owner.monotonicMs();
    }
    this.#hasMoved = true;
    this.#handler.onData(chunk);
  }

  onResponseEnd(): void {
    if (this.#phase !== 'ended') {
      this.#end();
      this.#handler.onEnd();
    }
    this.#release();
  }

  onResponseError(_controller: Dispatcher.DispatchController | null, error: Error): void {
    if (this.#phase === 'ended') return this.#release();
    if (this.#isDispatched) return this.#settleError(error);
    // undici reports a closed pool from inside `dispatch`; the caller has no exchange yet.
    queueMicrotask(() => this.#settleError(error));
  }

  #settleError(error: Error): void {
    if (this.#phase !== 'ended') {
      const kind = this.#kindOf(error);
      this.#end();
      this.#handler.onFailure({ kind, message: `${codeOf(error)} ${error.message}`.trim() });
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
    if (this.#owner.isStale(error)) return 'stale';
    if (this.#pieces?.isWritten === false) return 'unread';
    return 'reset';
  }

  #tooLarge(): void {
    this.#fail('too-large', `More than ${this.#request.maxResponseBytes} bytes`);
  }

  #fail(kind: UpstreamFailureKind, message: string): void {
    if (this.#phase === 'ended') return;
    const controller = this.#controller;
    this.#end();
    this.#handler.onFailure({ kind, message });
    // A request that undici still queues is released when undici lets go of it.
    if (controller === null) return;
    controller.abort(new Error(message));
    this.#release();
  }

  #end(): void {
    this.#phase = 'ended';
    this.#owner.running.delete(this);
  }

  #release(): void {
    if (this.#isReleased) return;
    this.#isReleased = true;
    this.#controller = null;
    this.#handler.onReleased();
  }
}

function codeOf(error: Error): string {
  return 'code' in error && typeof error.code === 'string' ? error.code : '';
}
