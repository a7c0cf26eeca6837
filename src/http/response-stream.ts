/**
 * The body of a streamed response that forwards what an engine sends: kept for the retries of its
 * request, and paused where the caller reads slower than the engine writes.
 */
import { MAX_STORED_BYTES } from '../billing/idempotency/idempotency.ts';
import type { Clock } from '../core/clock.ts';
import type { RequestContext } from './request-context.ts';
import type { StreamWriter } from './stream-writer.ts';

/** Silence after which a comment keeps the connection open. */
const KEEP_ALIVE_MS = 10_000;
/** Silence is counted in checks, so that a piece needs no look at the clock. */
const CHECK_MS = KEEP_ALIVE_MS / 2;

/** The content type of server-sent events. */
export const EVENT_STREAM = 'text/event-stream; charset=utf-8';
/** A comment of an event stream: keeps the connection open while an engine is silent. */
export const KEEP_ALIVE = Buffer.from(': keep-alive\n\n');

export interface StreamSource {
  readonly context: RequestContext;
  readonly clock: Clock;
  /** The content type. */
  readonly type: string;
  /** Sets the headers: they leave with the first piece. */
  setHeaders(): void;
  /** The engine can send on. */
  resume(): void;
  /** What breaks a silence, where the format has such a thing. */
  readonly keepAlive?: (() => Buffer) | undefined;
  /** Called every five seconds while the caller keeps up; only with `keepAlive`. */
  readonly check?: (() => void) | undefined;
}

/** One event without a name, whose data is JSON. */
export function dataEvent(data: object): Buffer {
  return Buffer.from(`data: ${JSON.stringify(data)}\n\n`);
}

export class ResponseStream {
  readonly #source: StreamSource;
  readonly #copy: StreamCopy | undefined;
  readonly #stopChecks: (() => void) | undefined;
  #writer: StreamWriter | undefined;
  #isBlocked = false;
  /** Checks since something was written, and one for a silence that began with a check. */
  #quietChecks = 1;

  constructor(source: StreamSource) {
    const { context, clock, keepAlive } = source;
    this.#source = source;
    this.#copy = context.keeper === undefined ? undefined : new StreamCopy();
    if (keepAlive !== undefined) this.#stopChecks = clock.every(CHECK_MS, () => this.#check());
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
    const { context, type } = this.#source;
    this.#source.setHeaders();
    context.set('cache-control', 'no-cache');
    // Proxies that buffer (nginx) are told not to.
    context.set('x-accel-buffering', 'no');
    this.#writer = context.stream(200, type);
    return this.#writer;
  }

  /** `false` to pause the engine until `resume` is called. */
  write(piece: Buffer): boolean {
    if (piece.length > 0) {
      const { frame } = this.begin();
      const from = frame.end;
      frame.add(piece);
      this.added(from);
    }
    return !this.#isBlocked;
  }

  /** Sends what was added to the frame of the writer since its `end` was `from`. */
  added(from: number): void {
    const writer = this.begin();
    this.#quietChecks = 0;
    this.#copy?.add(writer.frame.since(from));
    if (!writer.written()) this.#block(writer);
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
    this.#stopChecks?.();
  }

  #check(): void {
    const { context } = this.#source;
    // A caller that does not read needs no comment.
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

/** What a stream has sent, for the retries of its request; given up above what is kept. */
class StreamCopy {
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
