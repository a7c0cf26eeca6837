/** The queue of an engine: callers take turns, and no caller can fill it. */
import { JobQueue } from '../../src/core/job-queue.ts';

/** Share of the waiting places that one caller may use. */
const SHARE_OF_CALLER = 0.75;

export function engineQueue(limits: {
  readonly running: number;
  readonly runningOfCaller?: number;
  readonly waiting: number;
  readonly retryAfterSeconds: number;
}): JobQueue {
  return new JobQueue({ ...limits, waitingOfCaller: limits.waiting * SHARE_OF_CALLER });
}
