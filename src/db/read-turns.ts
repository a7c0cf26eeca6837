/** Queues long reads: a few run at once, and a caller with many does not delay the others. */
import { SECOND_MS } from '../core/clock.ts';
import { JobQueue } from '../core/job-queue.ts';
import { StoreUnavailable } from './failures.ts';

/** The time limit of one read, after which it fails with `ReadTooLong`. */
export const MAX_READ_MS = 10 * SECOND_MS;
const MAX_WAITING = 256;
const MAX_WAITING_OF_CALLER = 16;

/** `run` rejects with `StoreUnavailable` if too many reads wait. */
export function readTurns(atOnce: number): JobQueue {
  return new JobQueue({
    running: atOnce,
    waiting: MAX_WAITING,
    waitingOfCaller: MAX_WAITING_OF_CALLER,
    full: () => new StoreUnavailable('Too many overview reads are queued'),
  });
}

/** Returns the queue of a caller; the operator has an empty name. */
export function lineOf(caller: string): string {
  return caller === '' ? 'operator' : caller;
}
