/**
 * One HTTP exchange with a node: sends a POST request and returns the reply's bytes.
 *
 * Invariant: at most `HEAD_BYTES` of a streamed reply and `maxBytes` of a buffered one are in
 * memory; a compressed reply counts with its decompressed size. Redirects are not followed.
 * Failures contain no URL. A streamed reply is checked to be one JSON object while it arrives, so
 * that an invalid or incomplete one fails.
 */
import type { Cancelling } from '../core/cancellation.ts';
import { unescape } from 'node:querystring';
import { Readable } from 'node:stream';
import { createGunzip, type Gunzip } from 'node:zlib';
import { BodyPieces } from '../core/body-pieces.ts';
import type { Clock } from '../core/clock.ts';
import { isLongSecret } from '../core/known-secrets.ts';
import { JsonChecker } from '../json/json-checker.ts';
import { REPLY_MAX_DEPTH } from '../json/json-spans.ts';
import type { Route } from '../net/connector.ts';
import type { Origins } from '../net/origins.ts';
import {
  Exchange,
  MAX_STALE_RETRIES,
  type ReceivedHeaders,
  type StreamedBody,
  type TimeLimits,
  type UpstreamFailureKind,
  headerText,
} from '../net/exchange.ts';
import { UpstreamPool } from '../net/upstream-pool.ts';

const CONNECT_TIMEOUT_MS = 5_000;
const KEEP_ALIVE_MS = 30_000;
/** Longest pause between two pieces of a reply. */
const IDLE_MS = 30_000;
/** Longest duration of a reply that is streamed to the caller. */
const STREAM_TOTAL_MS = 600_000;
/** A stream has a timer of its own, which also runs while its reader pauses. */
const STREAM_LIMITS: TimeLimits = {
  connectMs: Infinity,
  firstByteMs: Infinity,
  idleMs: IDLE_MS,
  totalMs: Infinity,
};
/** The credits header must precede the body, so this many bytes are read before it is sent. */
const HEAD_BYTES = 1_048_576;
/** Smaller replies do not count for the budget, because few exist at the same time. */
const UNCOUNTED_BYTES = 65_536;
/** Failures of the connection after a reply has begun. */
const BROKEN: ReadonlySet<UpstreamFailureKind> = new Set(['cut', 'reset', 'garbage']);

/** Failures with a fault more specific than `transport`. */
const FAULT_OF_KIND: ReadonlyMap<UpstreamFailureKind, NodeFailure['fault']> = new Map([
  ['too-large', 'too-large'],
  ['first-byte-timeout', 'timeout'],
  ['idle-timeout', 'timeout'],
  ['total-timeout', 'timeout'],
]);

/** Memory limit for all buffered replies; one caller may use at most as much as it leaves free. */
export class ByteBudget {
  readonly #limitBytes: number;
  readonly #usedByCaller = new Map<string, number>();
  #usedBytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  take(caller: string, sizeBytes: number): boolean {
    const ownBytes = (this.#usedByCaller.get(caller) ?? 0) + sizeBytes;
    const usedBytes = this.#usedBytes + sizeBytes;
    if (ownBytes > this.#limitBytes - usedBytes) return false;
    this.#usedByCaller.set(caller, ownBytes);
    this.#usedBytes = usedBytes;
    return true;
  }

  give(caller: string, sizeBytes: number): void {
    const ownBytes = (this.#usedByCaller.get(caller) ?? 0) - sizeBytes;
    if (ownBytes > 0) this.#usedByCaller.set(caller, ownBytes);
    else this.#usedByCaller.delete(caller);
    this.#usedBytes -= sizeBytes;
  }
}

export type RequestBody = Buffer | StreamedBody;

export function sizeOf(body: RequestBody): number {
  return Buffer.isBuffer(body) ? body.length : body.sizeBytes;
}

export interface PostRequest {
  readonly body: RequestBody;
  readonly timeoutMs: number;
  readonly maxBytes: number;
  /** Whether a reply longer than `HEAD_BYTES` becomes a stream. */
  readonly canStream: boolean;
  readonly mayRepeat: boolean;
  readonly caller: string;
  readonly budget: ByteBudget;
  readonly signal: Cancelling | undefined;
}

export interface NodeReply {
  readonly ok: true;
  readonly status: number;
  /** All bytes, or the first ones if `rest` is set. */
  readonly body: Buffer;
  readonly rest: Readable | undefined;
  /** Bytes of the budget used by `body`; release them when dropping the body. */
  readonly budgetBytes: number;
  /** Milliseconds from the request to the reply, or to its first bytes. */
  readonly tookMs: number;
}

export interface NodeFailure {
  readonly ok: false;
  readonly fault: 'timeout' | 'too-large' | 'transport' | 'unread';
  readonly isSent: boolean;
  readonly isAborted: boolean;
  /**
   * The failure is not a fault of the node: the caller disconnected, the memory limit of Farebox was
   * reached, or the node closed the connection on a large request.
   */
  readonly isBlameless: boolean;
  readonly tookMs: number;
}

export interface NodeClient {
  /** The credentials in the URL and the headers of the node. */
  readonly secrets: readonly string[];
  /** Never rejects. */
  post(request: PostRequest): Promise<NodeReply | NodeFailure>;
  /** Disables keep-alive, after a reply that belongs to no call of its connection. */
  disableKeepAlive(): void;
  close(): Promise<void>;
}

export interface NodeClientOptions extends Route {
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly connections: number;
  readonly clock: Clock;
  readonly origins: Origins;
}

export function nodeClient(options: NodeClientOptions): NodeClient {
  const { headers = {}, connections, clock, origins, proxy, tls } = options;
  const url = new URL(options.url);
  const pool = new UpstreamPool({
    url: url.origin,
    proxy,
    tls,
    maxConnections: connections,
    connectMs: CONNECT_TIMEOUT_MS,
    keepAliveMs: KEEP_ALIVE_MS,
    clock,
    origins,
  });
  const node = { pool, path: `${url.pathname}${url.search}`, headers: headerList(url, headers) };
  return {
    secrets: secretsOf(url, headers),
    post: (request) => new Promise((resolve) => send(node, request, request.timeoutMs, 0, resolve)),
    disableKeepAlive: () => pool.strayed(),
    close: () => pool.destroy(),
  };
}

interface Node {
  readonly pool: UpstreamPool;
  readonly path: string;
  readonly headers: readonly string[];
}

function headerList(url: URL, own: Readonly<Record<string, string>>): string[] {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    accept: 'application/json',
    'accept-encoding': 'gzip',
  };
  if (url.username !== '') {
    // An invalid percent escape is used literally.
    const pair = `${unescape(url.username)}:${unescape(url.password)}`;
    headers['authorization'] = `Basic ${Buffer.from(pair).toString('base64')}`;
  }
  for (const [name, value] of Object.entries(own)) headers[name.toLowerCase()] = value;
  return Object.entries(headers).flat();
}

/** Shorter texts, and words such as the name of a network, are no access keys. */
const ACCESS_KEY = /^(?=.*\d).{16,}$/;

function secretsOf(url: URL, headers: Readonly<Record<string, string>>): string[] {
  const keys = [...url.pathname.split('/'), ...url.searchParams.values()];
  const named = [unescape(url.password), ...Object.values(headers)];
  return [...keys.filter((text) => ACCESS_KEY.test(text)), ...named.filter(isLongSecret)];
}

type Settle = (reply: NodeReply | NodeFailure) => void;

function send(
  node: Node,
  request: PostRequest,
  timeoutMs: number,
  repeats: number,
  settle: Settle,
): void {
  const exchange = new NodeExchange(node, request, timeoutMs, repeats, settle);
  const { signal } = request;
  if (signal?.aborted === true) return exchange.abort();
  signal?.addEventListener('abort', exchange.onLeave);
  node.pool.dispatch(exchange);
}

class NodeExchange extends Exchange {
  readonly #node: Node;
  readonly #request: PostRequest;
  readonly #settle: Settle;
  readonly #repeats: number;
  #status = 0;
  /** The first chunk of a buffered reply; most have only this one. */
  #first: Buffer | undefined;
  #pieces: BodyPieces | undefined;
  #sizeBytes = 0;
  #budgetBytes = 0;
  /** Set for a stream. */
  #checker: JsonChecker | undefined;
  #gunzip: Gunzip | undefined;
  #stream: Readable | undefined;
  #cancelTimer: (() => void) | undefined;
  /** Whether the reader of a stream is consuming data. */
  #isRead = false;
  #isOutOfMemory = false;
  #isOver = false;
  /** A closure, because a listener object would keep finished state alive (bench/README.md). */
  readonly onLeave = (): void => this.#stop('aborted');

  constructor(
    node: Node,
    request: PostRequest,
    timeoutMs: number,
    repeats: number,
    settle: Settle,
  ) {
    super(node.pool, {
      method: 'POST',
      path: node.path,
      headers: node.headers,
      body: request.body,
      limits: { connectMs: timeoutMs, firstByteMs: timeoutMs, idleMs: IDLE_MS, totalMs: timeoutMs },
      // The decompressed size is limited below.
      maxResponseBytes: Infinity,
    });
    this.#node = node;
    this.#request = request;
    this.#settle = settle;
    this.#repeats = repeats;
  }

  protected override onHead(status: number, headers: ReceivedHeaders): void {
    this.#status = status;
    const encoding = headerText(headers, 'content-encoding')?.trim().toLowerCase() ?? '';
    if (encoding === 'gzip' || encoding === 'x-gzip') this.#openGunzip();
    else if (encoding !== '' && encoding !== 'identity') this.#stop('closed');
  }

  protected override onChunk(chunk: Buffer): void {
    if (this.#gunzip === undefined) this.#take(chunk);
    else if (!this.#gunzip.write(chunk)) this.pause();
  }

  protected override onEnd(): void {
    if (this.#gunzip === undefined) this.#finish();
    else this.#gunzip.end();
  }

  protected override onFailure(kind: UpstreamFailureKind): void {
    if (this.#isOver) return;
    const isUnread = !this.isWritten && (kind === 'stale' || kind === 'unread');
    const mayRepeat = this.#request.mayRepeat || isUnread;
    const isOfConnection = kind === 'stale' || kind === 'ambiguous';
    if (isOfConnection && mayRepeat && this.#repeats < MAX_STALE_RETRIES) return this.#repeat();
    // The status of an error response suffices, even if its body is incomplete.
    if (this.#status >= 400 && this.#stream === undefined && BROKEN.has(kind)) {
      this.#gunzip?.destroy();
      return this.#finish();
    }
    this.#close();
    this.#gunzip?.destroy();
    if (this.#stream !== undefined) {
      this.#stream.destroy(new Error('The node did not send its reply to the end'));
      return;
    }
    this.#request.budget.give(this.#request.caller, this.#budgetBytes);
    this.#pieces = undefined;
    this.#settle({
      ok: false,
      fault: isUnread && kind === 'unread' ? kind : (FAULT_OF_KIND.get(kind) ?? 'transport'),
      isSent: (this.isSent || this.#status > 0) && !isUnread,
      isAborted: kind === 'aborted',
      isBlameless: kind === 'aborted' || isUnread || this.#isOutOfMemory,
      tookMs: this.tookMs,
    });
  }

  #repeat(): void {
    this.#close();
    const leftMs = this.limits.totalMs - this.tookMs;
    // Deferred, so that the dead connection is released first.
    queueMicrotask(() => send(this.#node, this.#request, leftMs, this.#repeats + 1, this.#settle));
  }

  #openGunzip(): void {
    const gunzip = createGunzip();
    this.#gunzip = gunzip;
    gunzip.on('data', (chunk: Buffer) => this.#take(chunk));
    gunzip.on('drain', () => this.resume());
    gunzip.on('end', () => this.#finish());
    gunzip.on('error', () => this.#stop('closed'));
  }

  #take(chunk: Buffer): void {
    if (this.#isOver) return;
    const { budget, caller, canStream, maxBytes } = this.#request;
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes > maxBytes) return this.#stop('too-large');
    if (this.#stream !== undefined) {
      if (this.#checker?.accepts(chunk) === false) return this.#stop('garbage');
      if (!this.#stream.push(chunk)) this.#pauseReading();
      return;
    }
    if (this.#first === undefined) this.#first = chunk;
    else (this.#pieces ??= new BodyPieces(this.#first)).add(chunk);
    if (this.#sizeBytes > UNCOUNTED_BYTES) {
      if (!budget.take(caller, this.#sizeBytes - this.#budgetBytes)) {
        this.#isOutOfMemory = true;
        return this.#stop('closed');
      }
      this.#budgetBytes = this.#sizeBytes;
    }
    if (canStream && this.#sizeBytes > HEAD_BYTES) this.#startStream();
  }

  #startStream(): void {
    const checker = new JsonChecker(REPLY_MAX_DEPTH);
    this.#first = this.#pieces?.joinedAtOnce() ?? this.#first;
    this.#pieces = undefined;
    if (this.#first !== undefined && !checker.accepts(this.#first)) return this.#stop('garbage');
    this.#checker = checker;
    const stream = new Readable({
      highWaterMark: 262_144,
      read: () => this.#resumeReading(),
      destroy: (error, done) => {
        this.#leave();
        done(error);
      },
    });
    // The error reaches the reader; this listener only prevents an unhandled error before.
    stream.on('error', () => undefined);
    this.limits = STREAM_LIMITS;
    this.#cancelTimer = this.#node.pool.clock.after(STREAM_TOTAL_MS, () => {
      // If the reader is slow, end the stream as if the caller had disconnected.
      if (this.#isRead) this.#stop('total-timeout');
      else stream.destroy();
    });
    this.#stream = stream;
    this.#respond(stream);
    this.#pauseReading();
  }

  #pauseReading(): void {
    this.#isRead = false;
    if (this.#gunzip === undefined) this.pause();
    else this.#gunzip.pause();
  }

  #resumeReading(): void {
    this.#isRead = true;
    if (this.#gunzip === undefined) this.resume();
    else this.#gunzip.resume();
  }

  #leave(): void {
    if (this.#isOver) return;
    this.#close();
    this.#gunzip?.destroy();
    this.abort();
  }

  #finish(): void {
    if (this.#isOver) return;
    if (this.#checker?.isDone === false) return this.#stop('garbage');
    this.#close();
    if (this.#stream === undefined) this.#respond(undefined);
    else this.#stream.push(null);
  }

  #respond(rest: Readable | undefined): void {
    const body = this.#pieces?.joinedAtOnce() ?? this.#first ?? Buffer.alloc(0);
    this.#first = undefined;
    this.#pieces = undefined;
    const budgetBytes = this.#budgetBytes;
    this.#settle({ ok: true, status: this.#status, body, rest, budgetBytes, tookMs: this.tookMs });
  }

  /** Ends the exchange, even while received data is being decompressed. */
  #stop(kind: UpstreamFailureKind): void {
    this.fail(kind, '');
    this.onFailure(kind);
  }

  #close(): void {
    this.#isOver = true;
    this.#cancelTimer?.();
    this.#request.signal?.removeEventListener('abort', this.onLeave);
  }
}
