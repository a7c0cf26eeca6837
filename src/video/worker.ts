/**
 * Moves jobs through their states. Any number of processes may run a worker on the same table: a
 * job is taken by a lease, a lease that is not renewed falls to the next worker, and each step is a
 * conditional update, so that a job whose owner died goes on where it was and ends once.
 */
import { type Clock, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { Store } from '../db/db.ts';
import type { JobTable, JobTrace, Lease } from './job-table.ts';
import { FAILURES, type JobFailure, type VideoJob } from './job.ts';
import type { MediaStore, StoredFile } from './media-store.ts';
import type {
  CheckFilm,
  EnginePlace,
  EngineRef,
  FilmVerdict,
  VideoEngines,
  VideoMoney,
} from './ports.ts';
import type { Webhooks } from './webhooks.ts';

const TICK_MS = SECOND_MS;
const LEASE_MS = 30 * SECOND_MS;
const RENEW_MS = 10 * SECOND_MS;
const POLL_MS = 2 * SECOND_MS;
const LATER_MS = 5 * SECOND_MS;
const MAX_LATER_MS = MINUTE_MS;
/** Jobs that one process moves at once; most of their time they wait for an engine. */
const MAX_RUNNING = 16;
/** An engine that loses a job gets it again this often. */
const MAX_ATTEMPTS = 3;
/** Orders without a clear answer: each may be a video that the operator pays for. */
const MAX_UNCLEAR = 2;
const SWEEP_MS = MINUTE_MS;
/** Money is held in a second; a job that is admitting for so long was left by a dead process. */
const ABANDONED_MS = 10 * MINUTE_MS;
const SWEEP_BATCH = 100;
/** A file that nobody claims is left alone this long. */
const ORPHAN_AGE_MS = HOUR_MS;
/** Jobs are listed this long after they ended. */
const REMEMBERED_MS = 30 * DAY_MS;

export interface WorkerParts {
  readonly store: Store;
  readonly table: JobTable;
  readonly files: MediaStore;
  readonly engines: VideoEngines;
  readonly checkFilm: CheckFilm;
  readonly money: VideoMoney;
  readonly webhooks: Webhooks | undefined;
  /** Unique among all processes. */
  readonly owner: string;
  readonly keepMs: number;
  readonly maxJobMs: number;
  /** For so long a job waits for an engine that does not answer. */
  readonly maxSilenceMs: number;
  readonly clock: Clock;
  readonly log: Log;
}

export class Worker {
  readonly #parts: WorkerParts;
  readonly #aborter = new AbortController();
  readonly #running = new Map<string, Promise<void>>();
  #ticking: Promise<void> | undefined;
  #again = false;
  #isSweeping = false;
  /** Jobs that were admitting before are nobody's: their process is dead. */
  readonly #bornMs: number;
  /** Files that were there before this process: when it is alone, a dead one left them. */
  readonly #inherited: ReadonlySet<string>;
  #isAlone = false;
  #stops: (() => void)[] = [];

  constructor(parts: WorkerParts) {
    this.#parts = parts;
    this.#bornMs = parts.clock.nowMs();
    this.#inherited = parts.files.namesNow();
  }

  /** `alone` says that no other process can work on these jobs. */
  start(alone: boolean): void {
    const { clock, table, log } = this.#parts;
    this.#isAlone = alone;
    if (alone) {
      this.#ticking = table
        .freeAll()
        .catch((error: unknown) => {
          // The leases run out by themselves.
          log.warn({ reason: reasonOf(error) }, 'Leases of dead workers could not be ended');
        })
        .finally(() => {
          this.#ticking = undefined;
          this.nudge();
        });
    }
    this.#stops = [
      clock.every(TICK_MS, () => this.nudge()),
      clock.every(SWEEP_MS, () => void this.sweep()),
    ];
    void this.sweep();
    this.nudge();
  }

  /** Stops taking jobs, lets go of those in hand, and waits for their steps to end. */
  async stop(): Promise<void> {
    for (const stop of this.#stops) stop();
    this.#aborter.abort();
    await this.#ticking;
    await Promise.all(this.#running.values());
  }

  /** Looks for work soon: a job was queued. A worker that is not started leaves it to others. */
  nudge(): void {
    if (this.#stops.length === 0 || this.#aborter.signal.aborted) return;
    if (this.#ticking !== undefined) {
      this.#again = true;
      return;
    }
    this.#ticking = this.#tick()
      .catch((error: unknown) => {
        // The next tick tries again; the jobs are in the table.
        this.#parts.log.warn({ reason: reasonOf(error) }, 'Video jobs could not be read');
      })
      .finally(() => {
        this.#ticking = undefined;
        if (this.#again) {
          this.#again = false;
          this.nudge();
        }
      });
  }

  async #tick(): Promise<void> {
    const { table, clock, owner, webhooks } = this.#parts;
    const room = MAX_RUNNING - this.#running.size;
    if (room > 0) {
      const jobs = await table.claim(owner, clock.nowMs(), LEASE_MS, room);
      for (const job of jobs) this.#take(job);
    }
    await webhooks?.send(this.#aborter.signal);
  }

  #take(job: VideoJob): void {
    const { clock, table, owner, log } = this.#parts;
    const lease: Lease = { jobId: job.id, owner };
    const renew = (): void => {
      table.renew(lease, clock.nowMs() + LEASE_MS).catch((error: unknown) => {
        // The lease runs out, and another worker goes on.
        log.debug({ job: job.id, reason: reasonOf(error) }, 'A video lease was not renewed');
      });
    };
    const stopRenewing = clock.every(RENEW_MS, renew);
    const work = this.#step(job, lease)
      .catch(async (error: unknown) => {
        // An abort, a full disk, a database away: the job rests and is taken up again.
        if (!this.#aborter.signal.aborted) {
          log.warn({ job: job.id, reason: reasonOf(error) }, 'A step of a video job failed');
        }
        await table.rest(lease, clock.nowMs() + LATER_MS).catch(() => undefined);
      })
      .finally(() => {
        stopRenewing();
        this.#running.delete(job.id);
      });
    this.#running.set(job.id, work);
  }

  async #step(job: VideoJob, lease: Lease): Promise<void> {
    const { clock, maxJobMs } = this.#parts;
    if (clock.nowMs() - job.createdMs > maxJobMs)
      return await this.#fail(job, lease, FAILURES.tooLong);
    switch (job.state) {
      case 'queued':
        return await this.#submit(job, lease);
      case 'submitted':
      case 'running':
        return await this.#poll(job, lease);
      case 'storing':
        return await this.#store(job, lease);
      case 'admitting':
      case 'completed':
      case 'failed':
        // Never claimed.
        return;
    }
  }

  async #submit(job: VideoJob, lease: Lease): Promise<void> {
    const { engines } = this.#parts;
    if (job.unclear === 0) return await this.#order(job, lease);
    const found = await engines.find(job, this.#aborter.signal);
    switch (found.kind) {
      case 'created':
        return await this.#submitted(lease, found);
      case 'unknown':
        if (job.unclear >= MAX_UNCLEAR) return await this.#fail(job, lease, FAILURES.unclear);
        return await this.#order(job, lease);
      case 'away':
        return await this.#away(job, lease, found);
    }
  }

  async #order(job: VideoJob, lease: Lease): Promise<void> {
    const { engines, files, table, clock, log } = this.#parts;
    const inputs = job.inputs.map(({ role, file, mimeType }) => {
      return { role, path: files.inputPath(file), mimeType };
    });
    let added = 1;
    const beforeOrder = async (place: EnginePlace): Promise<boolean> => {
      const isOurs = await table.ordering(lease, place, added);
      // At another replica it is still the same order.
      added = 0;
      return isOurs;
    };
    const answer = await engines.create({ job, inputs, beforeOrder }, this.#aborter.signal);
    switch (answer.kind) {
      case 'created':
        return await this.#submitted(lease, answer);
      case 'not-ours':
        return;
      case 'refused':
        return await this.#fail(job, lease, FAILURES[answer.objection], answer.detail);
      case 'unclear':
        log.warn({ job: job.id, reason: answer.detail }, 'A video engine gave no clear answer');
        return await table.rest(lease, clock.nowMs() + LATER_MS);
      case 'busy':
        await table.notOrdered(lease);
        return await this.#busy(lease, answer);
      case 'away':
        await table.notOrdered(lease);
        return await this.#away(job, lease, answer);
    }
  }

  async #submitted(lease: Lease, ref: EngineRef): Promise<void> {
    const { engines, table, clock } = this.#parts;
    const isOurs = await table.submitted(lease, ref, clock.nowMs());
    // Cancelled meanwhile, or the lease was lost and another worker submits its own.
    if (!isOurs) return await engines.remove(ref);
    await table.rest(lease, clock.nowMs() + POLL_MS);
  }

  async #poll(job: VideoJob, lease: Lease): Promise<void> {
    const { engines, table, clock } = this.#parts;
    const answer = await engines.poll(job, this.#aborter.signal);
    switch (answer.kind) {
      case 'running':
        await table.progressed(lease, answer.fraction);
        this.#tell(job, answer.fraction);
        return await table.rest(lease, clock.nowMs() + POLL_MS);
      case 'done':
        if (await table.storing(lease)) await this.#store(job, lease);
        return;
      case 'failed':
        return await this.#fail(job, lease, FAILURES[answer.objection], answer.detail);
      case 'lost':
        return await this.#lost(job, lease);
      case 'busy':
        return await this.#busy(lease, answer);
      case 'away':
        return await this.#away(job, lease, answer);
    }
  }

  /** Logs each tenth of a job once. */
  #tell(job: VideoJob, fraction: number): void {
    const tenth = Math.floor(fraction * 10);
    if (tenth <= Math.floor(job.fraction * 10)) return;
    const { clock, log } = this.#parts;
    const elapsedMs = clock.nowMs() - job.startedMs;
    const remainingMs = Math.round((elapsedMs * (1 - fraction)) / fraction);
    const fields = { job: job.id, model: job.modelId, percent: tenth * 10, remainingMs };
    log.info(fields, 'A video is being made');
  }

  async #store(job: VideoJob, lease: Lease): Promise<void> {
    const { engines, files, owner } = this.#parts;
    let answer: Awaited<ReturnType<VideoEngines['download']>> | undefined;
    let verdict: FilmVerdict | undefined;
    const sizeBytes = await files
      .storeResult(job.id, owner, async (path) => {
        answer = await engines.download(job, path, this.#aborter.signal);
        if (answer.kind !== 'done') throw new NoResult();
        verdict = await this.#check(job, path);
        if (verdict.kind !== 'fit') throw new NoResult();
      })
      .catch((error: unknown) => {
        if (error instanceof NoResult) return 0;
        throw error;
      });
    if (answer?.kind === 'lost') return await this.#missing(job, lease);
    if (answer?.kind === 'busy') return await this.#busy(lease, answer);
    if (answer?.kind === 'away') return await this.#away(job, lease, answer);
    // The engine's work is done and maybe billed: another order would be a second one.
    if (verdict?.kind !== 'fit') {
      return await this.#fail(job, lease, FAILURES[verdict?.kind ?? 'unfit']);
    }
    await this.#complete(job, lease, { sizeBytes, mimeType: verdict.mimeType });
  }

  /** Looks at what an engine gave; the operator hears why it is not sold. */
  async #check(job: VideoJob, path: string): Promise<FilmVerdict> {
    const { checkFilm, files, log } = this.#parts;
    const source = job.inputs.find(({ role }) => role === 'video_url');
    const sourcePath = source && files.inputPath(source.file);
    const verdict = await checkFilm({ job, path, sourcePath }, this.#aborter.signal);
    if (verdict.kind !== 'fit') {
      const fields = { job: job.id, model: job.modelId, engine: job.engine };
      log.warn({ ...fields, reason: verdict.reason }, 'A video is not sold');
    }
    return verdict;
  }

  /** The one step that charges: the job is final and paid, or neither. */
  async #complete(
    job: VideoJob,
    lease: Lease,
    media: { sizeBytes: number; mimeType: string },
  ): Promise<void> {
    const { store, table, money, clock, keepMs, log } = this.#parts;
    const nowMs = clock.nowMs();
    const done = await store.transaction(async (tx) => {
      const stored = { ...media, untilMs: nowMs + keepMs };
      const completed = await table.completed(tx, lease, stored, nowMs);
      if (completed !== undefined) await money.settle(tx, completed);
      return completed;
    });
    if (done === undefined) return;
    log.info({ job: job.id, model: job.modelId, durationMs: done.executionMs }, 'A video is done');
    await this.#clean(job);
  }

  /** Gives the money back. `detail` is what the engine said: for the log only. */
  async #fail(job: VideoJob, lease: Lease, failure: JobFailure, detail = ''): Promise<void> {
    const { store, table, money, clock, log } = this.#parts;
    const done = await store.transaction(async (tx) => {
      const failed = await table.failed(tx, lease, failure, clock.nowMs());
      if (failed !== undefined) await money.refund(tx, failed);
      return failed;
    });
    if (done === undefined) return;
    const fields = { job: job.id, model: job.modelId, reason: failure.message, detail };
    log.info(fields, 'A video job failed');
    await this.#clean(job);
  }

  /**
   * Ends a job for its caller, in whichever hands it is, and gives the money back. `undefined` when
   * it has ended, or its engine is done: then there is a video to pay for.
   */
  async cancel(id: string): Promise<VideoJob | undefined> {
    const { store, table, money, clock, log } = this.#parts;
    const done = await store.transaction(async (tx) => {
      const cancelled = await table.cancelled(tx, id, FAILURES.cancelled, clock.nowMs());
      if (cancelled !== undefined) await money.refund(tx, cancelled);
      return cancelled;
    });
    if (done === undefined) return undefined;
    log.info({ job: id, model: done.modelId }, 'A video job was cancelled');
    await this.#clean(done);
    return done;
  }

  async #lost(job: VideoJob, lease: Lease): Promise<void> {
    const { table, clock } = this.#parts;
    if (job.attempts >= MAX_ATTEMPTS) return await this.#fail(job, lease, FAILURES.lost);
    await table.requeued(lease, clock.nowMs());
  }

  /** A video that is done and whose content is not there: unless the job is gone too, it may come. */
  async #missing(job: VideoJob, lease: Lease): Promise<void> {
    const answer = await this.#parts.engines.poll(job, this.#aborter.signal);
    if (answer.kind === 'lost') return await this.#lost(job, lease);
    await this.#away(job, lease, { detail: 'the video is done and has no content' });
  }

  /** It answers: it may take as long as a job may take. */
  async #busy(
    lease: Lease,
    answer: { readonly retryAfterMs: number | undefined; readonly detail: string },
  ): Promise<void> {
    const { table, clock, log } = this.#parts;
    log.debug({ job: lease.jobId, reason: answer.detail }, 'A video engine is busy');
    await table.silentSince(lease, 0);
    const pauseMs = Math.min(answer.retryAfterMs ?? LATER_MS, MAX_LATER_MS);
    await table.rest(lease, clock.nowMs() + pauseMs);
  }

  /** It does not answer: nobody's money waits long for it. */
  async #away(job: VideoJob, lease: Lease, { detail }: { readonly detail: string }): Promise<void> {
    const { table, clock, log, maxSilenceMs } = this.#parts;
    const nowMs = clock.nowMs();
    // Ended by our own stop: it was not silent.
    if (this.#aborter.signal.aborted) return await table.rest(lease, nowMs);
    // While no process asked, it was not silent either.
    const sinceMs = job.silentSinceMs === 0 ? nowMs : Math.max(job.silentSinceMs, this.#bornMs);
    if (nowMs - sinceMs >= maxSilenceMs) return await this.#fail(job, lease, FAILURES.away, detail);
    log.debug({ job: job.id, reason: detail }, 'A video engine does not answer');
    await table.silentSince(lease, sinceMs);
    await table.rest(lease, nowMs + LATER_MS);
  }

  async #clean(job: VideoJob): Promise<void> {
    const { files, engines } = this.#parts;
    await files.removeInputs(job.id);
    const ref: EngineRef = job;
    if (ref.engineJobId !== '') await engines.remove(ref);
  }

  /** Deletes what has expired and what nobody claims; gives back what a dead process held. */
  async sweep(): Promise<void> {
    // A slow database must not gather sweeps.
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    const { log } = this.#parts;
    try {
      await this.#expire();
      await this.#parts.table.forget(this.#parts.clock.nowMs() - REMEMBERED_MS, SWEEP_BATCH);
      await this.#discardAbandoned();
      await this.#removeOrphans();
    } catch (error) {
      // The next sweep tries again.
      log.warn({ reason: reasonOf(error) }, 'Video media could not be swept');
    } finally {
      this.#isSweeping = false;
    }
  }

  async #expire(): Promise<void> {
    const { table, files, clock } = this.#parts;
    for (const id of await table.expiredMedia(clock.nowMs(), SWEEP_BATCH)) {
      if (await table.mediaGone(id)) await files.removeResult(id);
    }
  }

  async #discardAbandoned(): Promise<void> {
    const { store, table, files, money, clock } = this.#parts;
    const deadMs = this.#isAlone ? this.#bornMs : 0;
    for (const { id } of await table.abandoned(Math.max(deadMs, clock.nowMs() - ABANDONED_MS))) {
      await store.transaction(async (tx) => {
        const job = await table.discarded(tx, id, FAILURES.abandoned, clock.nowMs());
        if (job !== undefined) await money.refund(tx, job);
      });
      await files.removeInputs(id);
    }
  }

  async #removeOrphans(): Promise<void> {
    const { table, files } = this.#parts;
    const all = await files.files();
    const idOf = ({ name }: StoredFile): string => name.split('.')[0] ?? name;
    for (let at = 0; at < all.length; at += SWEEP_BATCH) {
      const some = all.slice(at, at + SWEEP_BATCH);
      const known = await table.states(some.map(idOf));
      for (const file of some) {
        if (await this.#isOrphan(file, known.get(idOf(file)))) await files.remove(file);
      }
    }
  }

  async #isOrphan(file: StoredFile, job: JobTrace | undefined): Promise<boolean> {
    const isOpen = job !== undefined && job.state !== 'completed' && job.state !== 'failed';
    // Of a job that has ended nothing but its media is wanted; what came of one is never a part.
    const isPart = file.name.includes('.');
    if (!isPart && (isOpen || (file.kind === 'results' && job?.hasMedia === true))) return false;
    if (!isPart && job !== undefined) return true;
    // Its job may be about to be written, or a download on its way: by this process, or by another.
    if (this.#isAlone && this.#inherited.has(file.name)) return true;
    const { files, clock } = this.#parts;
    return await files.isLeft(file, clock.nowMs() - ORPHAN_AGE_MS);
  }
}

/** Leaves `storeResult` without a result. */
class NoResult extends Error {}
