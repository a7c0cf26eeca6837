/**
 * Takes batches out of the queue and works on them. Any number of processes may run a worker on the
 * same tables: a batch is taken by a lease, and one whose process died falls to the next worker.
 */
import { type Clock, DAY_MS, SECOND_MS } from '../core/clock.ts';
import { JobQueue } from '../core/job-queue.ts';
import { JobWorker } from '../db/db.ts';
import type { Batch } from './batch.ts';
import { BatchRun, LEASE_MS, MAX_PENDING, type RunParts } from './batch-run.ts';

const TICK_MS = SECOND_MS;
const RENEW_MS = 2 * SECOND_MS;
/** Batches that one process works on at once; each has a few lines in memory. */
const MAX_RUNNING = 16;
/** Where more batches wait than a process works on, one gives way to the next after this time. */
const TURN_MS = 30 * SECOND_MS;
/** A batch whose step failed is tried again after this time. */
const LATER_MS = 5 * SECOND_MS;
/** How long lines that run may take to end when the process stops; what is left runs again later. */
const STOP_MS = 2 * SECOND_MS;

export class Worker {
  readonly #parts: RunParts;
  readonly #runs = new Map<string, { readonly run: BatchRun; readonly sinceMs: number }>();
  readonly #worker: JobWorker<Batch>;

  constructor(options: Omit<RunParts, 'lines'>) {
    const { batches, clock, log } = options;
    const lines = new JobQueue({
      running: options.settings.concurrency,
      waiting: MAX_RUNNING * MAX_PENDING,
      retryAfterSeconds: 1,
    });
    this.#parts = { ...options, lines };
    this.#worker = new JobWorker({
      name: 'batches',
      tickMs: TICK_MS,
      claim: (running) => this.#claim(running.length),
      run: (batch, signal) => this.#run(batch, signal),
      failed: ({ id }) => batches.rest(id, clock.nowMs() + LATER_MS),
      renew: { everyMs: RENEW_MS, lease: async ({ id }) => await this.#runs.get(id)?.run.look() },
      clock,
      log,
    });
  }

  /** `alone` says that no other process can work on these batches. */
  start(alone: boolean): void {
    this.#worker.start(alone ? () => this.#parts.batches.freeAll() : undefined);
  }

  /** Starts no further line, and waits for a while for those that run. */
  async stop(): Promise<void> {
    const timer = new AbortController();
    const isOver = this.#parts.clock.sleep(STOP_MS, timer.signal).catch(() => undefined); // ended below
    await Promise.race([this.#worker.stop(), isOver]);
    timer.abort();
  }

  /** Claims batches soon: one was queued, or is to end. */
  nudge(batchId: string): void {
    void this.#runs.get(batchId)?.run.look();
    this.#worker.nudge();
  }

  async #claim(running: number): Promise<Batch[]> {
    const { batches, clock, host } = this.#parts;
    const nowMs = clock.nowMs();
    if (host.isClosing()) return [];
    if (running < MAX_RUNNING) return await batches.claim(nowMs, LEASE_MS, MAX_RUNNING - running);
    const [longest] = this.#runs.values();
    const isLong = longest !== undefined && nowMs - longest.sinceMs >= TURN_MS;
    if (isLong && (await batches.isAnyDue(nowMs))) longest.run.rest();
    return [];
  }

  async #run(batch: Batch, signal: AbortSignal): Promise<void> {
    const run = new BatchRun(this.#parts, batch);
    const rest = (): void => run.rest();
    this.#runs.set(batch.id, { run, sinceMs: this.#parts.clock.nowMs() });
    signal.addEventListener('abort', rest);
    if (signal.aborted) rest();
    try {
      await run.run();
    } finally {
      signal.removeEventListener('abort', rest);
      this.#runs.delete(batch.id);
    }
  }
}

/** Deletes what has expired; for the periodic round of one of all processes. */
export async function sweep(parts: SweepParts): Promise<void> {
  const { files, batches, keepDays, clock } = parts;
  const nowMs = clock.nowMs();
  for (const file of await files.expired(nowMs)) await files.remove(file);
  await batches.forget(nowMs - keepDays * DAY_MS);
}

interface SweepParts extends Pick<RunParts, 'files' | 'batches'> {
  readonly keepDays: number;
  readonly clock: Clock;
}
