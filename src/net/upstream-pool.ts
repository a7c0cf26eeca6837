/**
 * Outgoing HTTP to one origin over keep-alive connections (`upstream-connection.ts`).
 *
 * Invariants: every exchange ends exactly once, by `onEnd` or by one `onFailure`; every bound
 * (connect, first byte, idle, total, bytes) is explicit at the call; an abort closes the
 * connection at once. Time limits are checked by one sweep of all running exchanges, so that a
 * chunk costs one field write and no timer.
 * It does not retry, and it does not know what is fetched: it names the way an exchange failed.
 * Callers bound how many run at once.
 */
import type { Clock } from '../core/clock.ts';
import { InFlight, type Placed } from '../core/in-flight.ts';
import { parseUpstreamUrl } from '../core/upstream-url.ts';
import { Connector } from './connector.ts';
import { type Origin, Origins } from './origins.ts';
import {
  type ReceivedHeaders,
  type BrokenKind,
  type ConnectionHolder,
  type ConnectionUser,
  type StreamedBody,
  UpstreamConnection,
} from './upstream-connection.ts';

/** Idle connections that die together (a restart, a lost NAT entry) are no failures of the server. */
export const MAX_STALE_RETRIES = 3;
/** How often the time limits are looked at: a limit may be overrun by this much. */
const SWEEP_MS = 50;
/** A sweep that comes later than this finds a process that stood still, and judges nobody by it. */
const LATE_SWEEP_MS = 2 * SWEEP_MS;
/**
 * An idle connection that the server closed says so within a way there and back, a second at most.
 * What dies later died on the request: a server that it ends is not asked again and again without a
 * word. Sweeps are counted, so that a pause of this process makes nothing late.
 */
const STALE_SWEEPS = 1_000 / SWEEP_MS;
/** uvicorn and node:http drop idle connections after 5 s and often do not say so. */
const KEEP_ALIVE_HTTP_MS = 4_000;
/** A TLS handshake is dear, and public edges keep idle connections for a minute or more. */
const KEEP_ALIVE_TLS_MS = 30_000;
/** Ceiling for a keep-alive time that the server itself names. */
const KEEP_ALIVE_MAX_MS = 600_000;
/** So much before that time a request may be too late. */
const KEEP_ALIVE_MARGIN_MS = 2_000;
/** How often connections that were idle for too long are looked for. */
const IDLE_SWEEP_MS = 1_000;
/** What a reader may pause in all, however slowly it reads: a server keeps work in memory for it. */
const MAX_PAUSED_MS = 1_800_000;

/** RFC 9110 §5.6.2 and §5.5: nothing else may come into the head of a request. */
const PATH = /^[\x21-\x7e]+$/;
const NAME = /^[\w!#$%&'*+.^`|~-]+$/;
const VALUE = /^[\t\x20-\x7e\x80-\xff]*$/;
const CLOSE_FIELD = 'connection: close\r\n';
/** What says where a request ends is ours to say. */
const FRAMING = /^(?:connection|content-length|expect|keep-alive|transfer-encoding|upgrade)$/i;

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

export interface UpstreamRequest {
  readonly method: 'GET' | 'POST' | 'DELETE';
  /** Appended to the base path of the pool. */
  readonly path: string;
  /** Flat: name, value, name, value. A list that is sent again and again is read once. */
  readonly headers: readonly string[];
  readonly body: Buffer | StreamedBody | null;
  readonly limits: TimeLimits;
  readonly maxResponseBytes: number;
}

/** How an exchange failed. */
export type UpstreamFailureKind =
  | BrokenKind
  | 'first-byte-timeout' // a time limit, as the next two
  | 'idle-timeout'
  | 'total-timeout'
  | 'paused-timeout' // the reader paused for too long
  | 'too-large' // more bytes than allowed
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
  /** Which origins have lost keep-alive; by default those of this pool alone. */
  readonly origins?: Origins;
}

/** The connections to one origin. Close it, or its sockets live until they are idle. */
export class UpstreamPool implements ConnectionHolder {
  readonly clock: Clock;
  /** Exchanges that have not ended. */
  readonly running = new InFlight<Exchange>();
  readonly #origin: Origin;
  readonly #stopWatching: () => void;
  readonly #basePath: string;
  readonly #connector: Connector;
  readonly #maxConnections: number;
  readonly #keepAliveMs: number;
  readonly #connections = new Set<UpstreamConnection>();
  /** The one that was used last at the end. */
  readonly #idle: UpstreamConnection[] = [];
  /** Freed in this turn of the event loop, in which a server that closes all the same may be heard. */
  readonly #resting: UpstreamConnection[] = [];
  /** For a connection, in the order in which they came. */
  readonly #waiting: Exchange[] = [];
  /** Of the request before: most have the headers of their engine alone. */
  #headers: readonly string[] | undefined;
  #fields: string | undefined;
  #closed: PromiseWithResolvers<void> | undefined;
  #stopSweep: (() => void) | undefined;
  #stopIdleSweep: (() => void) | undefined;
  #sweptMs = 0;
  #wasLate = false;

  constructor(options: UpstreamPoolOptions) {
    const target = parseUpstreamUrl(options.url);
    const isTls = target.origin.startsWith('https:');
    this.clock = options.clock;
    this.#origin = (options.origins ?? new Origins(() => undefined)).of(target);
    this.#stopWatching = this.#origin.watch(() => this.#dropReused());
    this.#basePath = target.basePath;
    this.#connector = new Connector(target, options.connectMs, options.clock);
    this.#maxConnections = options.maxConnections;
    this.#keepAliveMs = options.keepAliveMs ?? (isTls ? KEEP_ALIVE_TLS_MS : KEEP_ALIVE_HTTP_MS);
  }

  /** Connections that stand, busy or idle. */
  get connected(): number {
    let count = 0;
    for (const { isOpen } of this.#connections) if (isOpen) count += 1;
    return count;
  }

  /** Whether connections serve more than one request; `false` for good after bytes of no request. */
  get keepsAlive(): boolean {
    return this.#origin.keepsAlive;
  }

  /** Starts an exchange. A closed pool fails it at once, as what cannot be sent; all else is heard later. */
  dispatch(exchange: Exchange): void {
    this.running.add(exchange);
    if (this.#closed !== undefined) return exchange.fail('closed', 'The pool is closed');
    const { headers, method, path } = exchange.request;
    if (headers !== this.#headers) {
      this.#fields = fieldsOf(headers, this.#connector.host);
      this.#headers = headers;
    }
    const target = this.#basePath + path;
    if (this.#fields === undefined || !PATH.test(target)) {
      return exchange.fail('connect', 'Its path or its headers cannot be sent');
    }
    exchange.head = `${method} ${target} HTTP/1.1\r\n${this.#fields}`;
    if (!this.#origin.keepsAlive) exchange.head += CLOSE_FIELD;
    if (this.#stopSweep === undefined) this.#startSweep();
    if (this.#waiting.push(exchange) === 1) setImmediate(this.#connect);
  }

  // Called by its connections.

  strayed(): void {
    this.#origin.loseKeepAlive();
  }

  freed(connection: UpstreamConnection, keepAliveMs: number | undefined): void {
    if (!this.#origin.keepsAlive) return connection.destroy();
    const namedMs = keepAliveMs === undefined ? undefined : keepAliveMs - KEEP_ALIVE_MARGIN_MS;
    const idleMs = Math.min(namedMs ?? this.#keepAliveMs, KEEP_ALIVE_MAX_MS);
    if (idleMs <= 0) return connection.destroy();
    connection.idleUntilMs = this.clock.monotonicMs() + idleMs;
    if (this.#resting.push(connection) === 1) setImmediate(this.#connect);
  }

  closed(connection: UpstreamConnection): void {
    this.#connections.delete(connection);
    const place = this.#idle.indexOf(connection);
    if (place >= 0) this.#idle.splice(place, 1);
    if (this.#waiting.length > 0) setImmediate(this.#connect);
    else this.#endClose();
  }

  /** Ends without cutting: running exchanges finish, idle sockets close. New ones fail. */
  async close(): Promise<void> {
    this.#closed ??= Promise.withResolvers();
    this.#closeIdle(Infinity);
    this.#endClose();
    await this.#closed.promise;
    this.#stopWatching();
  }

  /** Ends at once: running exchanges fail as `closed`. */
  async destroy(): Promise<void> {
    const closed = this.close();
    this.#waiting.length = 0;
    for (const exchange of this.running.all()) exchange.fail('closed', 'The pool was closed');
    for (const connection of this.#connections) connection.destroy();
    await closed;
  }

  /**
   * Closes idle connections, and breaks what waits for its first byte on a connection that was used
   * before. A response whose first byte has come stays: it cannot be taken back.
   */
  #dropReused(): void {
    for (const connection of [...this.#idle, ...this.#resting]) connection.destroy();
    for (const connection of this.#connections) connection.doubt();
  }

  /** Sends what waits at the end of the turn, all of it at once: a server that sleeps wakes up once. */
  readonly #connect = (): void => {
    const nowMs = this.clock.monotonicMs();
    let sent = 0;
    for (const exchange of this.#waiting) {
      let idle = this.#idle.pop();
      while (idle !== undefined && idle.idleUntilMs <= nowMs) {
        idle.destroy();
        idle = this.#idle.pop();
      }
      if (exchange.place < 0) {
        // It has ended meanwhile.
        if (idle !== undefined) this.#idle.push(idle);
      } else if (idle !== undefined) idle.send(exchange);
      else if (this.#connections.size < this.#maxConnections) {
        this.#connections.add(new UpstreamConnection(this.#connector, this, exchange));
      } else break;
      sent += 1;
    }
    this.#waiting.splice(0, sent);
    for (const connection of this.#resting.splice(0)) {
      if (!connection.isClosed) this.#idle.push(connection);
    }
    if (this.#waiting.length > 0 && this.#idle.length > 0) setImmediate(this.#connect);
    else if (this.#closed !== undefined) {
      this.#closeIdle(Infinity);
      this.#endClose();
    } else if (this.#stopIdleSweep === undefined) this.#startIdleSweep();
  };

  #startSweep(): void {
    this.#sweptMs = this.clock.monotonicMs();
    this.#stopSweep = this.clock.every(SWEEP_MS, () => this.#sweep());
  }

  #sweep(): void {
    if (this.running.size === 0) {
      this.#stopSweep?.();
      this.#stopSweep = undefined;
      return;
    }
    const nowMs = this.clock.monotonicMs();
    // What came meanwhile is read before the next sweep, which judges however late it is.
    this.#wasLate = !this.#wasLate && nowMs - this.#sweptMs > LATE_SWEEP_MS;
    this.#sweptMs = nowMs;
    if (this.#wasLate) return;
    for (const exchange of this.running.all()) exchange.checkLimits(nowMs);
  }

  #startIdleSweep(): void {
    this.#stopIdleSweep = this.clock.every(IDLE_SWEEP_MS, () => {
      this.#closeIdle(this.clock.monotonicMs());
      if (this.#idle.length > 0) return;
      this.#stopIdleSweep?.();
      this.#stopIdleSweep = undefined;
    });
  }

  #closeIdle(nowMs: number): void {
    for (const connection of this.#idle.slice()) {
      if (connection.idleUntilMs <= nowMs) connection.destroy();
    }
  }

  /** A pool that closes has closed when nothing runs. */
  #endClose(): void {
    const isBusy = this.#connections.size > 0 || this.#waiting.length > 0;
    if (this.#closed === undefined || isBusy) return;
    this.#stopSweep?.();
    this.#stopIdleSweep?.();
    this.#stopSweep = undefined;
    this.#stopIdleSweep = undefined;
    this.#closed.resolve();
  }
}

/**
 * One request and its response on a pooled connection. Whoever sends extends it by what it does
 * with the response. `onEnd` and `onFailure` exclude each other, and each comes at most once.
 */
export abstract class Exchange implements ConnectionUser, Placed {
  place = -1;
  readonly request: UpstreamRequest;
  /** Its request as text, made by the pool. */
  head = '';
  connection: UpstreamConnection | null = null;
  /** May be replaced while it runs. */
  limits: TimeLimits;
  isWritten = false;
  isPaused = false;
  /** Whether any of the request may have been read. */
  protected isSent = false;
  readonly #pool: UpstreamPool;
  readonly #startedMs: number;
  #phase: 'waiting' | 'sent' | 'body' | 'ended' = 'waiting';
  /** When the phase began; in the body, when the sweep last saw it move. */
  #markMs: number;
  #hasMoved = false;
  /** Since it was sent. */
  #sweeps = 0;
  /** Since when the reader pauses, and how long it has before. */
  #pausedAtMs: number | null = null;
  #pausedMs = 0;
  #bytes = 0;

  constructor(pool: UpstreamPool, request: UpstreamRequest) {
    this.request = request;
    this.limits = request.limits;
    this.#pool = pool;
    this.#startedMs = pool.clock.monotonicMs();
    this.#markMs = this.#startedMs;
  }

  protected abstract onHead(status: number, headers: ReceivedHeaders): void;
  protected abstract onData(chunk: Buffer): void;
  protected abstract onEnd(): void;
  /** `message` is for the log; it can hold addresses, so it is never shown to a caller. */
  protected abstract onFailure(kind: UpstreamFailureKind, message: string): void;

  /** Since the call. */
  protected get tookMs(): number {
    return this.#pool.clock.monotonicMs() - this.#startedMs;
  }

  pause(): void {
    this.isPaused = true;
    this.#pausedAtMs ??= this.#pool.clock.monotonicMs();
    this.connection?.pause();
  }

  resume(): void {
    this.#hasMoved = true;
    this.#pausedMs = this.#pausedUntil(this.#pool.clock.monotonicMs());
    this.#pausedAtMs = null;
    this.isPaused = false;
    this.connection?.resume();
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

  /** Ends it from our side, unless it has ended. */
  fail(kind: UpstreamFailureKind, message: string): void {
    if (this.#phase === 'ended') return;
    const { connection } = this;
    this.connection = null;
    this.broke(kind, message, connection);
  }

  // Called by its connection from here on.

  sent(): void {
    this.isSent = true;
    this.#phase = 'sent';
    this.#markMs = this.#pool.clock.monotonicMs();
  }

  answered(status: number, headers: ReceivedHeaders): void {
    const declaredBytes = Number(headers['content-length'] ?? 0);
    if (declaredBytes > this.request.maxResponseBytes) return this.#failTooLarge();
    this.onHead(status, headers);
  }

  received(bytes: Buffer): void {
    this.#bytes += bytes.length;
    if (this.#bytes > this.request.maxResponseBytes) return this.#failTooLarge();
    this.#phase = 'body';
    // The sweep notes when.
    this.#hasMoved = true;
    this.onData(bytes);
  }

  completed(): void {
    this.#phase = 'ended';
    this.#pool.running.delete(this);
    this.onEnd();
  }

  broke(kind: UpstreamFailureKind, message: string, connection?: UpstreamConnection | null): void {
    this.#phase = 'ended';
    this.#pool.running.delete(this);
    this.onFailure(kind === 'stale' ? this.#staleKind() : kind, message);
    connection?.destroy();
  }

  #staleKind(): BrokenKind {
    if (this.#sweeps < STALE_SWEEPS) return 'stale';
    return this.isWritten ? 'reset' : 'unread';
  }

  #failTooLarge(): void {
    this.fail('too-large', `More than ${this.request.maxResponseBytes} bytes`);
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

/** The headers as text; `undefined` when one of them cannot be sent, or would say where a request ends. */
function fieldsOf(headers: readonly string[], host: string): string | undefined {
  let text = '';
  let hasHost = false;
  for (let at = 0; at < headers.length; at += 2) {
    const [name = '', value = ''] = [headers[at], headers[at + 1]];
    if (!NAME.test(name) || !VALUE.test(value) || FRAMING.test(name)) return undefined;
    hasHost ||= name.toLowerCase() === 'host';
    text += `${name}: ${value}\r\n`;
  }
  return hasHost ? text : `host: ${host}\r\n${text}`;
}

/** The value of a header; those of one that came more than once as the one list that they are (RFC 9110 §5.3). */
export function headerText(headers: ReceivedHeaders, name: string): string | undefined {
  const value = headers[name];
  return Array.isArray(value) ? value.join(', ') : value;
}
