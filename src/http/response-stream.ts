/**
 * The body of a streamed response that forwards the output of an engine: stored for retries of the
 * request, and paused while the caller reads slower than the engine writes.
 */
import { MAX_STORED_BYTES } from '../billing/idempotency/idempotency.ts';
import type { Clock } from '../core/clock.ts';
import type { RequestContext } from './request-context.ts';
import type { StreamWriter } from './stream-writer.ts';

/** Silence after which a comment keeps the connection open. */
const KEEP_ALIVE_MS = 10_000;
/** Silence is counted in checks, so that a piece does not read the clock. */
const CHECK_MS = KEEP_ALIVE_MS / 2;

export const EVENT_STREAM = 'text/event-stream; charset=utf-8';
/** A comment that keeps the connection open while an engine is silent. */
export const KEEP_ALIVE = Buffer.from(': keep-alive\n\n');

export interface StreamSource {
  readonly context: RequestContext;
  readonly clock: Clock;
  /** Content type. */
  readonly type: string;
  /** Sets the headers, which are sent with the first piece. */
  setHeaders(): void;
  /** Resumes the engine. */
  resume(): void;
  /** Returns bytes for a silence, if the format allows any. */
  readonly keepAlive?: (() => Buffer) | undefined;
  /** Called every five seconds unless the stream is blocked; only with `keepAlive`. */
  readonly check?: (() => void) | undefined;
}

export function dataEvent(data: object): Buffer {
  return Buffer.from(`data: ${JSON.stringify(data)}\n\n`);
}

export class ResponseStream {
  readonly #source: StreamSource;
  readonly #copy: StreamCopy | undefined;
  readonly #stopChecks: (() => void) | undefined;
  #writer: StreamWriter | undefined;
  #isBlocked = false;
  /** Checks since the last write, plus one, since a silence can begin at a check. */
  #quietChecks = 1;

  constructor(source: StreamSource) {
    const { context, clock, keepAlive } = source;
    this.#source = source;
    this.#copy = context.keeper === undefined ? undefined : new StreamCopy();
    if (keepAlive !== undefined) this.#stopChecks = clock.every(CHECK_MS, () => this.#check());
  }

  /** Whether the headers were sent, so that an error can no longer be a status. */
  get hasBegun(): boolean {
    return this.#writer !== undefined;
  }

  /** The caller reads slower than the engine writes. */
  get isBlocked(): boolean {
    return this.#isBlocked;
  }

  /** Sends the headers once; a stored response must have them. */
  begin(): StreamWriter {
    if (this.#writer !== undefined) return this.#writer;
    const { context, type } = this.#source;
    this.#source.setHeaders();
    context.set('cache-control', 'no-cache');
    // Disables the buffering of nginx.
    context.set('x-accel-buffering', 'no');
    this.#writer = context.stream(200, type);
    return this.#writer;
  }

  /** Returns `false` to pause the engine until `resume` is called. */
  write(piece: Buffer): boolean {
    if (piece.length > 0) {
      const { frame } = this.begin();
      const from = frame.end;
      frame.add(piece);
      this.added(from);
    }
    return !this.#isBlocked;
  }

  /** Sends the bytes that were added to the frame of the writer from `from`. */
  added(from: number): void {
    const writer = this.begin();
    this.#quietChecks = 0;
    this.#copy?.add(writer.frame.since(from));
    if (!writer.written()) this.#block(writer);
  }

  /** Returns the whole body for retries; `undefined` if it is not stored or too large. */
  kept(last: Buffer): Buffer | undefined {
    return this.#copy?.with(last);
  }

  end(last: Buffer): void {
    this.begin().end(last);
  }

  /** Must be called after success and failure. */
  close(): void {
    this.#stopChecks?.();
  }

  #check(): void {
    const { context } = this.#source;
    if (this.#isBlocked) return;
    this.#source.check?.();
    this.#quietChecks += 1;
    if (this.#quietChecks * CHECK_MS <= KEEP_ALIVE_MS || context.cancellation.aborted) return;
    const comment = this.#source.keepAlive?.();
    if (comment !== undefined) this.write(comment);
    this.#quietChecks = 1;
  }

  #block(writer: StreamWriter): void {
    if (this.#isBlocked) return;
    this.#isBlocked = true;
    writer.onDrain(() => {
      this.#isBlocked = false;
      this.#source.resume();
    });
  }
}

/** A copy of the sent bytes for retries; discarded above `MAX_STORED_BYTES`. */
class StreamCopy {
  #chunks: Buffer[] = [];
  #sizeBytes = 0;

  add(chunk: Buffer): void {
    this.#sizeBytes += chunk.length;
    if (this.#sizeBytes <= MAX_STORED_BYTES) this.#chunks.push(chunk);
    else this.#chunks = [];
  }

  with(last: Buffer): Buffer | undefined {
    if (this.#sizeBytes + last.length > MAX_STORED_BYTES) return undefined;
    return Buffer.concat([...this.#chunks, last]);
  }
}
