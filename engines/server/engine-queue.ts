/** The queue of an engine: callers take turns, and no caller can fill it. */
import { nextTurn } from '../../src/core/event-loop.ts';
import { JobQueue, type Turn } from '../../src/core/job-queue.ts';

/** Share of the waiting places that one caller may use. */
const SHARE_OF_CALLER = 0.75;
/** In separate turns of the event loop, a connection, the head and the body of a request arrive. */
const EVENT_LOOP_TURNS = 3;

export function engineQueue(limits: {
  readonly running: number;
  readonly runningOfCaller?: number;
  readonly waiting: number;
  readonly retryAfterSeconds: number;
}): JobQueue {
  return new JobQueue({ ...limits, waitingOfCaller: limits.waiting * SHARE_OF_CALLER });
}

/**
 * For work that blocks the event loop: the response of the previous caller is sent before a piece,
 * and requests and disconnects that arrived during it are processed before the queue selects the
 * next one.
 */
export function blockingTurn(turn: Turn): Turn {
  return (work) =>
    turn(async () => {
      await nextTurn();
      const result = await work();
      for (let count = 0; count < EVENT_LOOP_TURNS; count += 1) await nextTurn();
      return result;
    });
}
