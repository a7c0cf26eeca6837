/**
 * One HTTP exchange with a node: a POST out, bytes back.
 *
 * Invariant: at most `headBytes` of a streamed reply and `maxBytes` of a buffered one are in
 * memory, decoded; a compressed reply counts as what it unpacks to. Redirects are not followed.
 * No error carries an address. It does not read JSON.
 */
import { Readable } from 'node:stream';
import { createGunzip } from 'node:zlib';
import type { Gunzip } from 'node:zlib';
import { Pool } from 'undici';
import type { Dispatcher } from 'undici';
import type { Clock } from '../core/clock.ts';
import { BodyPieces, Connector, LARGE_REQUEST_BYTES, MAX_STALE_RETRIES } from '../net/connector.ts';

/** `unread`: the node closed the connection before it had the whole request, and said nothing. */
export type TransportProblem =
  | 'connect'
  | 'unread'
  | 'timeout'
  | 'broken'
  | 'too-large'
  | 'memory'
  | 'aborted'
  | 'encoding';

/** A failed exchange. `isSent` says whether the node may have seen the request. */
export class TransportError extends Error {
  override readonly name = 'TransportError';
  readonly problem: TransportProblem;
  readonly isSent: boolean;

  constructor(problem: TransportProblem, isSent: boolean) {
    super(`The node could not be asked: ${problem}`);
    this.problem = problem;
    this.isSent = isSent;
  }
}

/** Bytes that all replies in memory may take together; a caller at most as many as it leaves. */
export class ByteBudget {
  readonly #limitBytes: number;
  /** By caller; only replies that are counted at all come in here. */
  readonly #held = new Map<string, number>();
  #usedBytes = 0;

  constructor(limitBytes: number) {
    this.#limitBytes = limitBytes;
  }

  take(caller: string, sizeBytes: number): boolean {
    const held = (this.#held.get(caller) ?? 0) + sizeBytes;
    const usedBytes = this.#usedBytes + sizeBytes;
    if (held > this.#limitBytes - usedBytes) return false;
    this.#held.set(caller, held);
    this.#usedBytes = usedBytes;
    return true;
  }

  give(caller: string, sizeBytes: number): void {
    const held = (this.#held.get(caller) ?? 0) - sizeBytes;
    if (held > 0) this.#held.set(caller, held);
    else this.#held.delete(caller);
    this.#usedBytes -= sizeBytes;
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }
}

export interface PostOptions {
  readonly timeoutMs: number;
  /** A longer reply than this becomes a stream when `canStream`. */
  readonly headBytes: number;
  readonly maxBytes: number;
  readonly canStream: boolean;
  /** Whether it does no harm when the node gets it twice. */
  readonly mayRepeat: boolean;
  readonly budget: ByteBudget;
  /** Whose share of the budget the reply takes. */
  readonly caller: string;
  readonly signal?: AbortSignal | undefined;
}

export interface PostReply {
  readonly status: number;
  /** The whole reply, or its first bytes when `rest` is there. */
  readonly body: Buffer;
  readonly rest: Readable | undefined;
  /** What of the budget is held for `body`; whoever drops the body gives it back. */
  readonly heldBytes: number;
}

export interface RpcTransport {
  post(body: Buffer, options: PostOptions): Promise<PostReply>;
  close(): Promise<void>;
}

export interface TransportOptions {
  readonly url: URL;
  readonly headers: Readonly<Record<string, string>>;
  readonly connections: number;
}

const CONNECT_TIMEOUT_MS = 5_000;
const KEEP_ALIVE_MS = 30_000;
/** Longest silence inside a stream, and the longest that a stream may take as a whole. */
const STREAM_IDLE_MS = 30_000;
const STREAM_TOTAL_MS = 600_000;
/** Replies below this size are not counted against the budget: there are never enough of them. */
const UNCOUNTED_BYTES = 65_536;

/** A keep-alive pool to one node on undici's dispatch, the cheapest way that Node has. */
export function undiciTransport(options: TransportOptions, clock: Clock): RpcTransport {
  const { url } = options;
  const connector = new Connector(CONNECT_TIMEOUT_MS, null);
  const pool = new Pool(url.origin, {
    connections: options.connections,
    pipelining: 1,
    keepAliveTimeout: KEEP_ALIVE_MS,
    bodyTimeout: STREAM_IDLE_MS,
    connect: connector.open,
    allowH2: false,
  });
  const node: Node = {
    pool,
    connector,
    path: `${url.pathname}${url.search}`,
    headers: headerList(url, options.headers),
  };
  return {
    post(body, postOptions) {
      return new Promise((resolve, reject) => {
        new Exchange(node, body, postOptions, clock, resolve, reject).start();
      });
    },
    close: () => pool.destroy(),
  };
}

/** What all exchanges with a node share. */
interface Node {
  readonly pool: Pool;
  readonly connector: Connector;
  readonly path: string;
  readonly headers: string[];
}

function headerList(url: URL, own: Readonly<Record<string, string>>): string[] {
  const headers: Record<string, string> = {
    'content-type': 'application/json',
    accept: 'application/json',
    'accept-encoding': 'gzip',
  };
  if (url.username !== '') {
    const pair = `${decodeURIComponent(url.username)}:${decodeURIComponent(url.password)}`;
    headers['authorization'] = `Basic ${Buffer.from(pair).toString('base64')}`;
  }
  for (const [name, value] of Object.entries(own)) headers[name.toLowerCase()] = value;
  return Object.entries(headers).flat();
}

/** The life of one exchange; settles its promise once, whatever happens after. */
class Exchange implements Dispatcher.DispatchHandler {
  readonly #options: PostOptions;
  readonly #resolve: (reply: PostReply) => void;
  readonly #reject: (error: TransportError) => void;
  readonly #onAbort = (): void => this.#fail('aborted');
  readonly #clock: Clock;
  readonly #node: Node;
  /** The request, as long as no byte of an answer came. */
  #body: Buffer | undefined;
  /** Of a large request. */
  #pieces: BodyPieces | undefined;
  #repeats = 0;
  #cancelTimer: () => void;
  #controller: Dispatcher.DispatchController | undefined;
  #chunks: Buffer[] = [];
  #sizeBytes = 0;
  #heldBytes = 0;
  #status = 0;
  #isSent = false;
  #isOver = false;
  #isEnding = false;
  #gunzip: Gunzip | undefined;
  #stream: Readable | undefined;
  #isPaused = false;

  constructor(
    node: Node,
    body: Buffer,
    options: PostOptions,
    clock: Clock,
    resolve: (reply: PostReply) => void,
    reject: (error: TransportError) => void,
  ) {
    this.#node = node;
    this.#body = body;
    this.#options = options;
    this.#clock = clock;
    this.#resolve = resolve;
    this.#reject = reject;
    this.#cancelTimer = clock.after(options.timeoutMs, () => this.#fail('timeout'));
    if (options.signal?.aborted === true) this.#fail('aborted');
    else options.signal?.addEventListener('abort', this.#onAbort, { once: true });
  }

  start(): void {
    const body = this.#body;
    if (body === undefined || this.#isOver) return;
    const { pool, path, headers } = this.#node;
    const headersTimeout = this.#options.timeoutMs;
    if (body.length < LARGE_REQUEST_BYTES) {
      pool.dispatch({ path, method: 'POST', headers, body, headersTimeout }, this);
      return;
    }
    const pieces = new BodyPieces(body);
    this.#pieces = pieces;
    const sized = [...headers, 'content-length', String(body.length)];
    const options = { path, method: 'POST' as const, headers: sized, headersTimeout };
    pool.dispatch({ ...options, body: pieces.asBody() }, this);
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    this.#controller = controller;
    // Given up while it waited for a connection: nothing has left yet.
    if (this.#isOver) controller.abort(new TransportError('aborted', false));
    else this.#isSent = true;
  }

  onResponseStarted(): void {
    this.#body = undefined;
  }

  onResponseStart(
    controller: Dispatcher.DispatchController,
    statusCode: number,
    headers: Readonly<Record<string, string | string[] | undefined>>,
  ): void {
    // An informational answer comes before the real one.
    if (statusCode < 200) return;
    this.#status = statusCode;
    const encoding = headers['content-encoding'];
    if (encoding === 'gzip' || encoding === 'x-gzip') this.#openGunzip(controller);
    else if (encoding !== undefined && encoding !== 'identity' && encoding !== '')
      this.#fail('encoding');
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    if (this.#gunzip === undefined) this.#take(chunk);
    else if (!this.#gunzip.write(chunk)) controller.pause();
  }

  onResponseEnd(): void {
    if (this.#gunzip === undefined) this.#finish();
    else this.#gunzip.end();
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    const problem = problemOf(error);
    if (problem !== 'broken' || this.#stream !== undefined || this.#isOver)
      return this.#fail(problem);
    // The status of a refusal says enough, however little of its text came.
    if (this.#status >= 400) {
      this.#gunzip?.destroy();
      return this.#finish();
    }
    const isUnread = this.#status === 0 && this.#pieces?.isWritten === false;
    if (isUnread) this.#isSent = false;
    const mayRepeat = isUnread || this.#options.mayRepeat;
    if (mayRepeat && this.#repeats < MAX_STALE_RETRIES && this.#isStale(error))
      return this.#repeat();
    this.#fail(isUnread ? 'unread' : 'broken');
  }

  /** Whether the node closed a connection as idle while we wrote to it. */
  #isStale(error: Error): boolean {
    return this.#body !== undefined && this.#node.connector.isStale(error);
  }

  #repeat(): void {
    this.#repeats += 1;
    this.#controller = undefined;
    // Not from inside undici, which is still busy with the connection that died.
    queueMicrotask(() => this.start());
  }

  #openGunzip(controller: Dispatcher.DispatchController): void {
    const gunzip = createGunzip();
    this.#gunzip = gunzip;
    gunzip.on('data', (chunk: Buffer) => this.#take(chunk));
    gunzip.on('drain', () => controller.resume());
    gunzip.on('end', () => this.#finish());
    gunzip.on('error', () => this.#fail('broken'));
  }

  #take(chunk: Buffer): void {
    if (this.#isOver && this.#stream === undefined) return;
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes > this.#options.maxBytes) return this.#fail('too-large');
    if (this.#stream !== undefined) {
      if (!this.#stream.push(chunk)) this.#pause();
      return;
    }
    this.#chunks.push(chunk);
    if (this.#sizeBytes > UNCOUNTED_BYTES) {
      const missing = this.#sizeBytes - this.#heldBytes;
      if (!this.#options.budget.take(this.#options.caller, missing)) return this.#fail('memory');
      this.#heldBytes = this.#sizeBytes;
    }
    if (this.#options.canStream && this.#sizeBytes > this.#options.headBytes) this.#startStream();
  }

  #startStream(): void {
    const stream = new Readable({
      highWaterMark: 262_144,
      read: () => this.#flow(),
      destroy: (error, done) => {
        this.#abandon();
        done(error);
      },
    });
    this.#cancelTimer();
    this.#cancelTimer = this.#clock.after(STREAM_TOTAL_MS, () => {
      // The node waits for the reader: that is the slow one, and ends as one that has left.
      if (this.#isPaused) stream.destroy();
      else this.#fail('timeout');
    });
    this.#settle(stream);
    this.#stream = stream;
    this.#pause();
  }

  #pause(): void {
    this.#isPaused = true;
    if (this.#gunzip === undefined) this.#controller?.pause();
    else this.#gunzip.pause();
  }

  #flow(): void {
    this.#isPaused = false;
    if (this.#gunzip === undefined) this.#controller?.resume();
    else this.#gunzip.resume();
  }

  #finish(): void {
    this.#isEnding = true;
    this.#cancelTimer();
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
    if (this.#stream !== undefined) this.#stream.push(null);
    else this.#settle(undefined);
  }

  #settle(rest: Readable | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    const [first] = this.#chunks;
    const body =
      first !== undefined && this.#chunks.length === 1 ? first : Buffer.concat(this.#chunks);
    this.#chunks = [];
    this.#resolve({ status: this.#status, body, rest, heldBytes: this.#heldBytes });
  }

  #fail(problem: TransportProblem): void {
    this.#cancelTimer();
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
    const error = new TransportError(problem, this.#isSent);
    if (this.#stream !== undefined) {
      this.#stream.destroy(error);
    } else if (!this.#isOver) {
      this.#isOver = true;
      this.#options.budget.give(this.#options.caller, this.#heldBytes);
      this.#chunks = [];
      this.#reject(error);
    }
    this.#abandon();
  }

  #abandon(): void {
    this.#cancelTimer();
    this.#options.signal?.removeEventListener('abort', this.#onAbort);
    if (this.#isEnding) return;
    this.#isEnding = true;
    this.#gunzip?.destroy();
    this.#controller?.abort(new TransportError('aborted', this.#isSent));
  }
}

const CONNECT_CODES = new Set([
  'ECONNREFUSED',
  'ENOTFOUND',
  'EAI_AGAIN',
  'EHOSTUNREACH',
  'ENETUNREACH',
  'UND_ERR_CONNECT_TIMEOUT',
]);
const TIMEOUT_CODES = new Set(['UND_ERR_HEADERS_TIMEOUT', 'UND_ERR_BODY_TIMEOUT']);

function problemOf(error: Error): TransportProblem {
  const code: unknown = Reflect.get(error, 'code');
  if (typeof code !== 'string') return 'broken';
  if (CONNECT_CODES.has(code)) return 'connect';
  return TIMEOUT_CODES.has(code) ? 'timeout' : 'broken';
}
