/**
 * The response to a tool call: JSON if the call ends soon, otherwise an event stream that begins with
 * the first progress or keep-alive, because proxies and clients drop silent connections.
 */
import type { Clock } from '../core/clock.ts';
import { SECOND_MS } from '../core/clock.ts';
import type { RequestContext } from '../http/request-context.ts';
import type { StreamWriter } from '../http/stream-writer.ts';
import type { Json } from './protocol.ts';

const KEEP_ALIVE_MS = 10 * SECOND_MS;
/** Minimum interval of progress events. */
const PROGRESS_MS = 500;
const KEEP_ALIVE = Buffer.from(': still running\n\n');
const NOTHING = Buffer.alloc(0);
const EVENT_STREAM = 'text/event-stream';

export class CallResult {
  readonly #context: RequestContext;
  readonly #clock: Clock;
  readonly #progressToken: string | number | undefined;
  readonly #stopKeepAlive: (() => void) | undefined;
  #writer: StreamWriter | undefined;
  #isFull = false;
  #progressMs = -Infinity;

  constructor(context: RequestContext, clock: Clock, progressToken: unknown) {
    this.#context = context;
    this.#clock = clock;
    const canStream = context.header('accept')?.includes(EVENT_STREAM) === true;
    const isToken = typeof progressToken === 'string' || Number.isInteger(progressToken);
    this.#progressToken = canStream && isToken ? (progressToken as string | number) : undefined; // checked above
    if (canStream) this.#stopKeepAlive = clock.every(KEEP_ALIVE_MS, () => this.#write(KEEP_ALIVE));
  }

  readonly progress = (progress: number, message: string, total?: number): void => {
    const progressToken = this.#progressToken;
    const nowMs = this.#clock.monotonicMs();
    if (progressToken === undefined || nowMs - this.#progressMs < PROGRESS_MS) return;
    this.#progressMs = nowMs;
    const params = { progressToken, progress, ...(total === undefined ? {} : { total }), message };
    this.#write(eventOf({ jsonrpc: '2.0', method: 'notifications/progress', params }));
  };

  /** Drops the event if the reader is behind, because old progress is useless. */
  #write(bytes: Buffer): void {
    if (this.#isFull || this.#context.isGone) return;
    this.#writer ??= this.#begin();
    if (this.#writer.write(bytes)) return;
    this.#isFull = true;
    this.#writer.onDrain(() => {
      this.#isFull = false;
    });
  }

  #begin(): StreamWriter {
    this.#context.set('x-accel-buffering', 'no');
    return this.#context.stream(200, EVENT_STREAM);
  }

  close(): void {
    this.#stopKeepAlive?.();
  }

  /** Sends the final message; without a message, the client has cancelled. */
  async end(message: Json | undefined): Promise<void> {
    // The compression of the message takes a while, in which no stream may begin.
    this.close();
    if (this.#context.isGone) return;
    if (this.#writer !== undefined) {
      this.#writer.end(message === undefined ? NOTHING : eventOf(message));
    } else if (message === undefined) this.#context.empty(204);
    else await this.#context.json(200, message);
  }
}

function eventOf(message: Json): Buffer {
  return Buffer.from(`event: message\ndata: ${JSON.stringify(message)}\n\n`);
}
