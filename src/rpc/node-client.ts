/**
 * One HTTP exchange with a node: a POST out, bytes back.
 *
 * Invariant: at most `HEAD_BYTES` of a streamed reply and `maxBytes` of a buffered one are in
 * memory, decoded; a compressed reply counts as what it unpacks to. Redirects are not followed.
 * No failure carries an address. It does not read JSON.
 */
import type { Cancelling } from '../core/cancellation.ts';
import { unescape } from 'node:querystring';
import { Readable } from 'node:stream';
import { createGunzip, type Gunzip } from 'node:zlib';
import type { Clock } from '../core/clock.ts';
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
/** Longest silence inside a reply, and the longest that a stream may take as a whole. */
const IDLE_MS = 30_000;
const STREAM_TOTAL_MS = 600_000;
/** A stream ends by a timer of its own, which also runs while its reader pauses. */
const STREAM_LIMITS: TimeLimits = {
  connectMs: Infinity,
  firstByteMs: Infinity,
  idleMs: IDLE_MS,
  totalMs: Infinity,
};
/** Trap of the specification: the credits header precedes the body, so this much is looked at. */
const HEAD_BYTES = 1_048_576;
/** Replies below this size are not counted against the budget: there are never enough of them. */
const UNCOUNTED_BYTES = 65_536;
/** Ways in which the connection itself ends an answer that has begun. */
const BROKEN: ReadonlySet<UpstreamFailureKind> = new Set(['cut', 'reset', 'garbage']);

/** What is more than that no answer came over the connection. */
const FAULT_OF_KIND: ReadonlyMap<UpstreamFailureKind, NodeFailure['fault']> = new Map([
  ['too-large', 'too-large'],
  ['first-byte-timeout', 'timeout'],
  ['idle-timeout', 'timeout'],
  ['total-timeout', 'timeout'],
]);

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
}

/** A large request is written in pieces. */
export type RequestBody = Buffer | StreamedBody;

export function sizeOf(body: RequestBody): number {
  return Buffer.isBuffer(body) ? body.length : body.sizeBytes;
}

export interface Question {
  readonly body: RequestBody;
  readonly timeoutMs: number;
  readonly maxBytes: number;
  /** Whether a reply longer than `HEAD_BYTES` becomes a stream. */
  readonly canStream: boolean;
  /** Whether it does no harm when the node gets it twice. */
  readonly mayRepeat: boolean;
  /** Whose share of the budget the reply takes. */
  readonly caller: string;
  readonly budget: ByteBudget;
  readonly signal: Cancelling | undefined;
}

export interface NodeReply {
  readonly ok: true;
  readonly status: number;
  /** The whole reply, or its first bytes when `rest` is there. */
  readonly body: Buffer;
  readonly rest: Readable | undefined;
  /** What of the budget is held for `body`; whoever drops the body gives it back. */
  readonly heldBytes: number;
  /** From the question to the reply, or to its first bytes. */
  readonly tookMs: number;
}

export interface NodeFailure {
  readonly ok: false;
  readonly fault: 'timeout' | 'too-large' | 'transport' | 'unread';
  /** Whether the node may have acted on the request. */
  readonly isSent: boolean;
  /** The caller left. */
  readonly isAborted: boolean;
  /**
   * A caller that left, our own memory limit, and a large request that the node closed on say
   * nothing about the node.
   */
  readonly isBlameless: boolean;
  /** From the question to the failure. */
  readonly tookMs: number;
}

/** The connections to one node. */
export interface NodeClient {
  /** Never rejects. */
  post(question: Question): Promise<NodeReply | NodeFailure>;
  /** Ends keep-alive: the node has sent a reply that belongs to no call of its connection. */
  loseKeepAlive(): void;
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
    post: (question) =>
      new Promise((resolve) => ask(node, question, question.timeoutMs, 0, resolve)),
    loseKeepAlive: () => pool.strayed(),
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
    // A percent sign that escapes nothing stands for itself.
    const pair = `${unescape(url.username)}:${unescape(url.password)}`;
    headers['authorization'] = `Basic ${Buffer.from(pair).toString('base64')}`;
  }
  for (const [name, value] of Object.entries(own)) headers[name.toLowerCase()] = value;
  return Object.entries(headers).flat();
}

type Settle = (reply: NodeReply | NodeFailure) => void;

function ask(
  node: Node,
  question: Question,
  timeoutMs: number,
  repeats: number,
  settle: Settle,
): void {
  const exchange = new NodeExchange(node, question, timeoutMs, repeats, settle);
  const { signal } = question;
  if (signal?.aborted === true) return exchange.abort();
  signal?.addEventListener('abort', exchange.onLeave);
  node.pool.dispatch(exchange);
}

class NodeExchange extends Exchange {
  readonly #node: Node;
  readonly #question: Question;
  readonly #settle: Settle;
  readonly #repeats: number;
  #status = 0;
  #chunks: Buffer[] = [];
  #sizeBytes = 0;
  #heldBytes = 0;
  #gunzip: Gunzip | undefined;
  #stream: Readable | undefined;
  #cancelTimer: (() => void) | undefined;
  /** Of a stream: whether its reader takes what comes. */
  #isRead = false;
  #isOutOfMemory = false;
  #isOver = false;
  /** A function: an object as a listener keeps what it has finished alive (bench/README.md). */
  readonly onLeave = (): void => this.#stop('aborted');

  constructor(node: Node, question: Question, timeoutMs: number, repeats: number, settle: Settle) {
    super(node.pool, {
      method: 'POST',
      path: node.path,
      headers: node.headers,
      body: question.body,
      limits: { connectMs: timeoutMs, firstByteMs: timeoutMs, idleMs: IDLE_MS, totalMs: timeoutMs },
      // What it unpacks to is counted here.
      maxResponseBytes: Infinity,
    });
    this.#node = node;
    this.#question = question;
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
    const mayRepeat = this.#question.mayRepeat || isUnread;
    const isOfConnection = kind === 'stale' || kind === 'doubtful';
    if (isOfConnection && mayRepeat && this.#repeats < MAX_STALE_RETRIES) return this.#repeat();
    // The status of a refusal says enough, however little of its text came.
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
    this.#question.budget.give(this.#question.caller, this.#heldBytes);
    this.#chunks = [];
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
    // The connection that died is given up first.
    queueMicrotask(() => ask(this.#node, this.#question, leftMs, this.#repeats + 1, this.#settle));
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
    const { budget, caller, canStream, maxBytes } = this.#question;
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes > maxBytes) return this.#stop('too-large');
    if (this.#stream !== undefined) {
      if (!this.#stream.push(chunk)) this.#hold();
      return;
    }
    this.#chunks.push(chunk);
    if (this.#sizeBytes > UNCOUNTED_BYTES) {
      if (!budget.take(caller, this.#sizeBytes - this.#heldBytes)) {
        this.#isOutOfMemory = true;
        return this.#stop('closed');
      }
      this.#heldBytes = this.#sizeBytes;
    }
    if (canStream && this.#sizeBytes > HEAD_BYTES) this.#startStream();
  }

  #startStream(): void {
    const stream = new Readable({
      highWaterMark: 262_144,
      read: () => this.#flow(),
      destroy: (error, done) => {
        this.#leave();
        done(error);
      },
    });
    // Its reader hears of an error whenever it comes; before that nobody else does.
    stream.on('error', () => undefined);
    this.limits = STREAM_LIMITS;
    this.#cancelTimer = this.#node.pool.clock.after(STREAM_TOTAL_MS, () => {
      // The node waits for the reader: that is the slow one, and ends as one that has left.
      if (this.#isRead) this.#stop('total-timeout');
      else stream.destroy();
    });
    this.#stream = stream;
    this.#answer(stream);
    this.#hold();
  }

  #hold(): void {
    this.#isRead = false;
    if (this.#gunzip === undefined) this.pause();
    else this.#gunzip.pause();
  }

  #flow(): void {
    this.#isRead = true;
    if (this.#gunzip === undefined) this.resume();
    else this.#gunzip.resume();
  }

  /** The reader of a stream wants no more of it. */
  #leave(): void {
    if (this.#isOver) return;
    this.#close();
    this.#gunzip?.destroy();
    this.abort();
  }

  #finish(): void {
    if (this.#isOver) return;
    this.#close();
    if (this.#stream === undefined) this.#answer(undefined);
    else this.#stream.push(null);
  }

  #answer(rest: Readable | undefined): void {
    const [first] = this.#chunks;
    const isWhole = first !== undefined && this.#chunks.length === 1;
    const body = isWhole ? first : Buffer.concat(this.#chunks);
    this.#chunks = [];
    const heldBytes = this.#heldBytes;
    this.#settle({ ok: true, status: this.#status, body, rest, heldBytes, tookMs: this.tookMs });
  }

  /** Ends it from our side, also while what has come is still unpacked. */
  #stop(kind: UpstreamFailureKind): void {
    this.fail(kind, '');
    this.onFailure(kind);
  }

  #close(): void {
    this.#isOver = true;
    this.#cancelTimer?.();
    this.#question.signal?.removeEventListener('abort', this.onLeave);
  }
}
