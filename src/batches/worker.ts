/**
 * Takes batches out of the queue and works on them. Any number of processes may run a worker on the
 * same tables: a batch is taken by a lease, and one whose process died falls to the next worker.
 */
import { type Clock, DAY_MS, SECOND_MS } from '../core/clock.ts';
import { JobQueue } from '../core/job-queue.ts';
import { reasonOf } from '../core/log.ts';
import type { Batch } from './batch.ts';
import { BatchRun, LEASE_MS, MAX_PENDING, type RunParts } from './batch-run.ts';

const TICK_MS = SECOND_MS;
/** Batches that one process works on at once; each has a few lines in memory. */
const MAX_RUNNING = 16;
/** Where more batches wait than a process works on, one gives way to the next after this time. */
const TURN_MS = 30 * SECOND_MS;
/** A batch whose step failed is tried again after this time. */
const LATER_MS = 5 * SECOND_MS;
/** How long lines that run may take to end when the process stops; what is left runs again later. */
const STOP_MS = 2 * SECOND_MS;

interface Running {
  readonly run: BatchRun;
  readonly sinceMs: number;
  readonly ended: Promise<void>;
}

export class Worker {
  readonly #parts: RunParts;
  readonly #running = new Map<string, Running>();
  #ticking: Promise<void> | undefined;
  #again = false;
  #isStopped = true;
  #stopTicking: (() => void) | undefined;

  constructor(parts: Omit<RunParts, 'lines'>) {
    const { concurrency } = parts.settings;
    const lines = new JobQueue({
      running: concurrency,
      waiting: MAX_RUNNING * MAX_PENDING,
      retryAfterSeconds: 1,
    });
    this.#parts = { ...parts, lines };
  }

  /** `alone` says that no other process can work on these batches. */
  start(alone: boolean): void {
    const { clock, batches } = this.#parts;
    this.#isStopped = false;
    this.#stopTicking = clock.every(TICK_MS, () => this.nudge());
    // Otherwise the leases of the dead run out by themselves.
    this.#tickWith(alone ? batches.freeAll() : Promise.resolve());
    this.#again = true;
  }

  /** Begins no further line, and waits for those that run. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    this.#stopTicking?.();
    await this.#ticking;
    const running = [...this.#running.values()];
    for (const { run } of running) run.rest();
    const timer = new AbortController();
    const isOver = this.#parts.clock.sleep(STOP_MS, timer.signal).catch(() => undefined); // ended below
    await Promise.race([Promise.all(running.map(({ ended }) => ended)), isOver]);
    timer.abort();
  }

  /** Looks for work soon: a batch was queued, or is to end. */
  nudge(batchId = ''): void {
    void this.#running.get(batchId)?.run.look();
    if (this.#isStopped) return;
    if (this.#ticking === undefined) this.#tickWith(this.#tick());
    else this.#again = true;
  }

  #tickWith(work: Promise<void>): void {
    this.#ticking = work
      .catch((error: unknown) => {
        // The next tick tries again; the batches are in the table.
        this.#parts.log.warn({ reason: reasonOf(error) }, 'Batches could not be read');
      })
      .finally(() => {
        this.#ticking = undefined;
        if (!this.#again) return;
        this.#again = false;
        this.nudge();
      });
  }

  async #tick(): Promise<void> {
    const { batches, clock, host } = this.#parts;
    if (host.isClosing()) return;
    const nowMs = clock.nowMs();
    const room = MAX_RUNNING - this.#running.size;
    if (room <= 0) return await this.#giveWay(nowMs);
    for (const batch of await batches.claim(nowMs, LEASE_MS, room)) {
      // A database that stood still let a lease of our own run out: its work is still going on.
      if (!this.#running.has(batch.id)) this.#take(batch, nowMs);
    }
  }

  async #giveWay(nowMs: number): Promise<void> {
    const [longest] = this.#running.values();
    if (longest === undefined || nowMs - longest.sinceMs < TURN_MS) return;
    if (await this.#parts.batches.isAnyDue(nowMs)) longest.run.rest();
  }

  #take(batch: Batch, nowMs: number): void {
    const { batches, clock, log } = this.#parts;
    const run = new BatchRun(this.#parts, batch);
    const ended = run
      .run()
      .catch(async (error: unknown) => {
        log.warn({ batch: batch.id, reason: reasonOf(error) }, 'A step of a batch failed');
        // While the database is away its lease runs out.
        await batches.rest(batch.id, clock.nowMs() + LATER_MS).catch(() => undefined);
      })
      .finally(() => {
        this.#running.delete(batch.id);
        this.nudge();
      });
    this.#running.set(batch.id, { run, sinceMs: nowMs, ended });
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
