/**
 * Bounds the memory of the bodies of running requests, so that large bodies cannot end the process.
 * One caller gets half of it at most. A body that comes in one piece is small and does not count.
 */
import { totalmem } from 'node:os';
import { Fault } from '../core/faults.ts';
import { JobQueue } from '../core/job-queue.ts';
import type { RequestContext } from './request-context.ts';

const MEGABYTE = 1024 * 1024;
/** Of the memory that the process may use: a body is read into as much again, and more. */
const SHARE_OF_MEMORY = 1 / 8;
const LEAST_BYTES = 256 * MEGABYTE;
const RETRY_SECONDS = 2;
/** As many as Node has threads for; each has a window of up to 16 MB, which is not counted. */
const MAX_DECODERS = 4;

export class BodyMemory {
  readonly #maxBytes: number;
  /** Of all callers. */
  reservedBytes = 0;
  readonly #callers = new Map<string, number>();
  /** Each waiting body holds its own memory already, so the line needs no bound of its own. */
  readonly #decoders = new JobQueue({
    running: MAX_DECODERS,
    waiting: Infinity,
    retryAfterSeconds: RETRY_SECONDS,
  });

  /** Default: an eighth of the memory that the process may use, and 256 MB at least. */
  constructor(maxMb: number | undefined) {
    this.#maxBytes = maxMb === undefined ? usualBytes() : maxMb * MEGABYTE;
  }

  /**
   * Reserves bytes for a body until its request ends. Returns the fault where they exceed a bound.
   */
  reserve(context: RequestContext, bytes: number): Fault | undefined {
    const caller = callerOf(context);
    const ofCaller = (this.#callers.get(caller) ?? 0) + bytes;
    if (ofCaller > this.#maxBytes / 2) {
      return new Fault('RATE_LIMIT_EXCEEDED', {
        message: `Running requests of this caller have bodies of ${Math.floor(this.#maxBytes / 2 / MEGABYTE)} MB already; send large bodies one after the other`,
        retryAfterSeconds: RETRY_SECONDS,
      });
    }
    if (this.reservedBytes + bytes > this.#maxBytes) {
      return new Fault('SERVICE_UNAVAILABLE', {
        message: 'Running requests have as many large bodies as there is memory for; send it again',
        retryAfterSeconds: RETRY_SECONDS,
      });
    }
    this.#callers.set(caller, ofCaller);
    this.reservedBytes += bytes;
    context.bodyBytes += bytes;
    return undefined;
  }

  /** Runs the decoding of a body when a decoder is free; callers take turns. */
  decode<T>(context: RequestContext, work: () => Promise<T>): Promise<T> {
    return this.#decoders.run(work, undefined, callerOf(context));
  }

  /** The request has ended. */
  release(context: RequestContext): void {
    const { bodyBytes: bytes } = context;
    const caller = callerOf(context);
    const left = (this.#callers.get(caller) ?? 0) - bytes;
    if (left > 0) this.#callers.set(caller, left);
    else this.#callers.delete(caller);
    this.reservedBytes -= bytes;
    context.bodyBytes = 0;
  }
}

/** A body is read when it is known whose it is; nobody's are together. */
function callerOf({ callerIfKnown: caller }: RequestContext): string {
  return caller?.accountId ?? '';
}

function usualBytes(): number {
  const allowed = process.constrainedMemory();
  const memory = allowed > 0 ? Math.min(allowed, totalmem()) : totalmem();
  return Math.max(LEAST_BYTES, memory * SHARE_OF_MEMORY);
}
