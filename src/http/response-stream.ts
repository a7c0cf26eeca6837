/**
 * The body of a streamed response that forwards what an engine sends: kept for the retries of its
 * request, and paused where the caller reads slower than the engine writes.
 */
import { MAX_STORED_BYTES } from '../billing/idempotency/idempotency.ts';
import type { Clock } from '../core/clock.ts';
import type { RequestContext } from './request-context.ts';
import type { StreamWriter } from './stream-writer.ts';

/** Silence after which something is sent, so that no proxy takes the connection for dead. */
const KEEP_ALIVE_MS = 10_000;

/** The content type of an answer as events. */
export const EVENT_STREAM = 'text/event-stream; charset=utf-8';
/** A comment of an event stream: keeps the connection open while an engine is silent. */
export const KEEP_ALIVE = Buffer.from(': keep-alive\n\n');

export interface ResponseStreamOptions {
  readonly context: RequestContext;
  readonly clock: Clock;
  readonly type: string;
  /** Sets the headers: they leave with the first piece. */
  readonly head: () => void;
  /** The engine can send on. */
  readonly resume: () => void;
  /** What a silence is broken with, where the format has such a thing. */
  readonly keepAlive?: Buffer | undefined;
}

/** One event without a name, whose data is JSON. */
export function dataEvent(data: object): Buffer {
  return Buffer.from(`data: ${JSON.stringify(data)}\n\n`);
}

export class ResponseStream {
  readonly #options: ResponseStreamOptions;
  readonly #copy: StreamCopy | undefined;
  readonly #stopKeepAlive: (() => void) | undefined;
  #writer: StreamWriter | undefined;
  #isBlocked = false;
  #isQuiet = false;

  constructor(options: ResponseStreamOptions) {
    const { context, clock, keepAlive } = options;
    this.#options = options;
    this.#copy = context.keeper === undefined ? undefined : new StreamCopy();
    if (keepAlive === undefined) return;
    this.#stopKeepAlive = clock.every(KEEP_ALIVE_MS, () => {
      if (this.#isQuiet && !this.#isBlocked && !context.isGone) this.begin().write(keepAlive);
      this.#isQuiet = true;
    });
  }

  /** Whether the headers have left, so that a failure can be no status any more. */
  get hasBegun(): boolean {
    return this.#writer !== undefined;
  }

  /** The caller reads slower than the engine writes. */
  get isBlocked(): boolean {
    return this.#isBlocked;
  }

  /** Sends the headers, once: what is kept for retries must have them. */
  begin(): StreamWriter {
    if (this.#writer !== undefined) return this.#writer;
    const { context, head, type } = this.#options;
    head();
    context.set('cache-control', 'no-cache');
    // Proxies that buffer (nginx) are told not to.
    context.set('x-accel-buffering', 'no');
    this.#writer = context.stream(200, type);
    return this.#writer;
  }

  /** `false` to pause the engine until `resume` is called. */
  write(piece: Buffer): boolean {
    if (piece.length > 0) {
      this.#isQuiet = false;
      this.#copy?.add(piece);
      if (!this.begin().write(piece)) this.#block();
    }
    return !this.#isBlocked;
  }

  /**
   * Everything with its end, for the retries; `undefined` when it is not kept, or too much for it.
   */
  kept(last: Buffer): Buffer | undefined {
    return this.#copy?.with(last);
  }

  end(last: Buffer): void {
    this.begin().end(last);
  }

  /** Call this whatever became of the stream. */
  close(): void {
    this.#stopKeepAlive?.();
  }

  #block(): void {
    if (this.#isBlocked) return;
    this.#isBlocked = true;
    this.#writer?.onDrain(() => {
      this.#isBlocked = false;
      this.#options.resume();
    });
  }
}

/** What a stream has sent, for the retries of its request; given up above what is kept. */
export class StreamCopy {
  #chunks: Buffer[] = [];
  #sizeBytes = 0;

  add(chunk: Buffer): void {
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes <= MAX_STORED_BYTES) this.#chunks.push(chunk);
    else this.#chunks = [];
  }

  /** Everything with its end, or `undefined` when it is too much to keep. */
  with(last: Buffer): Buffer | undefined {
    if (this.#sizeBytes + last.length > MAX_STORED_BYTES) return undefined;
    return Buffer.concat([...this.#chunks, last]);
  }
}
