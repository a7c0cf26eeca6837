/**
 * Runs queued batches. Any number of processes may run a worker on the same tables: a worker leases a
 * batch, and another worker takes over an expired lease.
 */
import { SECOND_MS } from '../core/clock.ts';
import { JobQueue } from '../core/job-queue.ts';
import { JobWorker } from '../db/db.ts';
import type { Batch } from './batch.ts';
import { BatchRun, MAX_PENDING, type RunParts } from './batch-run.ts';

const TICK_MS = SECOND_MS;
const RENEW_MS = 2 * SECOND_MS;
/** Concurrent batches of one process; each has a few lines in memory. */
const MAX_RUNNING = 16;
/** If more batches wait than may run, the oldest run pauses after this time. */
const TURN_MS = 30 * SECOND_MS;
/** Time for a run to pause, which waits for its running lines, before the next one pauses. */
const PAUSE_MS = 5 * SECOND_MS;
/** Pause after an unexpected error. */
const LATER_MS = 5 * SECOND_MS;
/** Time for running lines to end at a stop; other lines run again later. */
const STOP_MS = 2 * SECOND_MS;

export class Worker {
  readonly #parts: RunParts;
  /** The oldest first, with its monotonic begin. */
  readonly #runs = new Map<string, { readonly run: BatchRun; readonly sinceMs: number }>();
  #pausedMs = -Infinity;
  readonly #worker: JobWorker<Batch>;

  constructor(options: Omit<RunParts, 'lines'>) {
    const { batches, settings, clock, log } = options;
    const lines = new JobQueue({
      // Lines that never end must not keep the lines of all other accounts waiting.
      running: settings.concurrency + 1,
      runningOfCaller: settings.concurrency,
      waiting: MAX_RUNNING * MAX_PENDING,
      retryAfterSeconds: 1,
    });
    this.#parts = { ...options, lines };
    this.#worker = new JobWorker({
      name: 'batches',
      tickMs: TICK_MS,
      claim: (running) => this.#claim(running),
      run: (batch, signal) => this.#run(batch, signal),
      failed: ({ id }) => batches.rest(id, LATER_MS),
      renew: {
        everyMs: RENEW_MS,
        lease: async ({ id }) => await this.#runs.get(id)?.run.checkLease(),
      },
      clock,
      log,
    });
  }

  /** `alone`: no other process can be running these batches. */
  start(alone: boolean): void {
    this.#worker.start(alone ? () => this.#parts.batches.freeAll() : undefined);
  }

  /** Starts no further line, and waits at most `STOP_MS` for running ones. */
  async stop(): Promise<void> {
    const timer = new AbortController();
    const isOver = this.#parts.clock.sleep(STOP_MS, timer.signal).catch(() => undefined); // ended below
    await Promise.race([this.#worker.stop(), isOver]);
    timer.abort();
  }

  /** Claims batches soon, after a batch was queued or cancelled. */
  nudge(batchId: string): void {
    void this.#runs.get(batchId)?.run.checkLease();
    this.#worker.nudge();
  }

  async #claim(running: readonly Batch[]): Promise<Batch[]> {
    const { batches, clock, host } = this.#parts;
    if (host.isClosing()) return [];
    const free = MAX_RUNNING - running.length;
    if (free > 0) return await batches.claim(free, running);
    const nowMs = clock.monotonicMs();
    if (nowMs - this.#pausedMs < PAUSE_MS) return [];
    const longest = [...this.#runs.values()].find(({ run }) => !run.isStopping);
    const isLong = longest !== undefined && nowMs - longest.sinceMs >= TURN_MS;
    if (isLong && (await batches.due(1)).length > 0) {
      longest.run.pause();
      this.#pausedMs = nowMs;
    }
    return [];
  }

  async #run(batch: Batch, signal: AbortSignal): Promise<void> {
    const run = new BatchRun(this.#parts, batch);
    const pause = (): void => run.pause();
    this.#runs.set(batch.id, { run, sinceMs: this.#parts.clock.monotonicMs() });
    signal.addEventListener('abort', pause);
    if (signal.aborted) pause();
    try {
      await run.run();
    } finally {
      signal.removeEventListener('abort', pause);
      this.#runs.delete(batch.id);
    }
  }
}
