/**
 * Bounds the memory for bodies of running requests, and for media that they fetch, so that large ones
 * cannot end the process.
 * One caller gets half of it at most. A body of one piece is small and does not count.
 */
import { totalmem } from 'node:os';
import { Fault } from '../core/faults.ts';
import { JobQueue } from '../core/job-queue.ts';
import type { RequestContext } from './request-context.ts';

const MEGABYTE = 1024 * 1024;
/** Share of the memory of the process; parsing a body takes as much again, and more. */
const SHARE_OF_MEMORY = 1 / 8;
const LEAST_BYTES = 256 * MEGABYTE;
const RETRY_SECONDS = 2;
/** Number of threads of Node; each decoder has an uncounted window of up to 16 MB. */
const MAX_DECODERS = 4;

export class BodyMemory {
  readonly #maxBytes: number;
  /** Sum of all callers. */
  reservedBytes = 0;
  readonly #callers = new Map<string, number>();
  /** Reserved bytes of media, for requests that have fetched some. */
  readonly #mediaBytes = new WeakMap<RequestContext, number>();
  /** The queue needs no bound, because waiting bodies have reserved their memory. */
  readonly #decoders = new JobQueue({
    running: MAX_DECODERS,
    waiting: Infinity,
    retryAfterSeconds: RETRY_SECONDS,
  });

  /** Default: an eighth of the memory of the process, at least 256 MB. */
  constructor(maxMb: number | undefined) {
    this.#maxBytes = maxMb === undefined ? usualBytes() : maxMb * MEGABYTE;
  }

  /** Reserves bytes until the request ends; returns a fault if they exceed a bound. */
  reserve(context: RequestContext, bytes: number): Fault | undefined {
    const caller = callerOf(context);
    const ofCaller = (this.#callers.get(caller) ?? 0) + bytes;
    if (ofCaller > this.#maxBytes / 2) {
      return new Fault('RATE_LIMIT_EXCEEDED', {
        message: `The bodies and fetched media of this caller's running requests would exceed ${Math.floor(this.#maxBytes / 2 / MEGABYTE)} MB; send large requests one after the other`,
        retryAfterSeconds: RETRY_SECONDS,
      });
    }
    if (this.reservedBytes + bytes > this.#maxBytes) {
      return new Fault('SERVICE_UNAVAILABLE', {
        message:
          'The memory for large bodies and media is in use by running requests; retry shortly',
        retryAfterSeconds: RETRY_SECONDS,
      });
    }
    this.#callers.set(caller, ofCaller);
    this.reservedBytes += bytes;
    context.bodyBytes += bytes;
    return undefined;
  }

  /**
   * Reserves the bytes of all media that a request has fetched for a model. A fallback fetches them
   * again, after those of the model before are released.
   */
  reserveMedia(context: RequestContext, totalBytes: number): Fault | undefined {
    const more = totalBytes - (this.#mediaBytes.get(context) ?? 0);
    const refusal = more > 0 ? this.reserve(context, more) : undefined;
    if (more > 0 && refusal === undefined) this.#mediaBytes.set(context, totalBytes);
    return refusal;
  }

  /** Runs `work` when a decoder is free; callers take turns. */
  decode<T>(context: RequestContext, work: () => Promise<T>): Promise<T> {
    return this.#decoders.run(work, undefined, callerOf(context));
  }

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

/** Bodies of unknown callers count together. */
function callerOf({ callerIfKnown: caller }: RequestContext): string {
  return caller?.accountId ?? '';
}

function usualBytes(): number {
  const allowed = process.constrainedMemory();
  const memory = allowed > 0 ? Math.min(allowed, totalmem()) : totalmem();
  return Math.max(LEAST_BYTES, memory * SHARE_OF_MEMORY);
}
