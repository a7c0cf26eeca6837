/**
 * A thread inside a worker process that ends the process when it is too large, too late, or an
 * orphan. It runs while the main thread of the worker is stuck in a parser, which is when it counts.
 */
import { workerData } from 'node:worker_threads';

export interface WatchdogData {
  readonly maxBytes: number;
  readonly parentPid: number;
  /** One number: the Unix time in milliseconds at which the present job is overdue; 0 when idle. */
  readonly deadline: SharedArrayBuffer;
}

const CHECK_EVERY_MS = 20;

const data = workerData as WatchdogData; // handed over by worker-process.ts, the only starter
const deadline = new BigInt64Array(data.deadline);

setInterval(() => {
  const dueMs = Number(Atomics.load(deadline, 0));
  const isLate = dueMs !== 0 && Date.now() > dueMs;
  const isOrphan = process.ppid !== data.parentPid;
  if (isLate || isOrphan || process.memoryUsage.rss() > data.maxBytes) {
    process.kill(process.pid, 'SIGKILL');
  }
}, CHECK_EVERY_MS);
