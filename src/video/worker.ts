/**
 * Moves jobs through their states. Any number of processes may run a worker on the same table. A
 * worker leases a job; another worker takes over an expired lease. Each step is a conditional
 * update, so that the job of a dead process continues where it was and ends exactly once.
 */
import { type Clock, DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS } from '../core/clock.ts';
import type { Ids } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import { JobWorker, type Store } from '../db/db.ts';
import type {
  DownloadResult,
  EngineDelay,
  EnginePlace,
  EngineRef,
  VideoEngines,
} from '../engines/media/media.ts';
import type { CheckVideo, VideoVerdict } from './check-video.ts';
import type { JobTable } from './job-table.ts';
import { type EndedJob, JobTries } from './job-tries.ts';
import {
  FAILURES,
  type JobFailure,
  type VideoCallbacks,
  type VideoJob,
  isWallets,
  messageOf,
} from './job.ts';
import type { MediaStore } from './media-store.ts';
import { removeOrphans } from './orphans.ts';
import type { ResultSpace } from './result-space.ts';
import type { VideoMoney } from './video-money.ts';

export interface VideoParts {
  readonly store: Store;
  readonly engines: VideoEngines;
  readonly checkVideo: CheckVideo;
  readonly money: VideoMoney;
  /** The media folder, which all processes must share. */
  readonly folder: string;
  readonly keepHours: number;
  readonly maxJobHours: number;
  /** Time for which a job waits for an engine that does not respond. */
  readonly maxSilenceMinutes: number;
  readonly maxOpenJobs: number;
  readonly callbacks: VideoCallbacks | undefined;
  /** Called when a job has failed, or has succeeded after failed calls of engines. */
  readonly ended: (job: VideoJob, how: EndedJob) => void;
  /** Configured `expectedSeconds` of a model, used until there are measurements. */
  readonly expectedSeconds: (modelId: string) => number;
  readonly clock: Clock;
  readonly ids: Ids;
  readonly log: Log;
}

const TICK_MS = SECOND_MS;
export const LEASE_MS = 30 * SECOND_MS;
const RENEW_MS = 10 * SECOND_MS;
const POLL_MS = 2 * SECOND_MS;
const LATER_MS = 5 * SECOND_MS;
const MAX_LATER_MS = MINUTE_MS;
/** Concurrent steps of one process; most of the time a job only waits for an engine. */
const MAX_RUNNING = 16;
/** Further steps are one for each account, so that a step does not wait for those of one account. */
const MAX_SHARED = 12;
/** Number of submissions of a job to an engine that loses it. */
const MAX_ATTEMPTS = 3;
/** Create requests without a clear response: each may be a video that the operator pays for. */
const MAX_UNCLEAR = 2;
const SWEEP_MS = MINUTE_MS;
/** After this time, a hold whose response was lost has been committed or has failed. */
const HOLD_KNOWN_MS = 10 * SECOND_MS;
const NO_FILES: ReadonlySet<string> = new Set();
/** Time for which ended jobs are listed. */
const KEEP_JOBS_MS = 30 * DAY_MS;

export class Worker {
  readonly #parts: VideoParts;
  readonly #table: JobTable;
  readonly #files: MediaStore;
  readonly #space: ResultSpace;
  readonly #tries: JobTries;
  readonly #worker: JobWorker<VideoJob>;
  #isSweeping = false;
  readonly #startedMs: number;
  /** Files from before this process; if it runs alone, a dead process left them. */
  readonly #oldFiles: ReadonlySet<string>;
  #isAlone = false;
  /** Jobs that this process admits; with a monotonic time, those that it could not admit then. */
  readonly #admitting = new Map<string, number | undefined>();
  #stopSweeping: (() => void) | undefined;

  constructor(parts: VideoParts, table: JobTable, files: MediaStore, space: ResultSpace) {
    this.#parts = parts;
    this.#table = table;
    this.#files = files;
    this.#space = space;
    const { clock, log } = parts;
    this.#tries = new JobTries(clock);
    this.#startedMs = clock.nowMs();
    this.#oldFiles = files.namesNow();
    this.#worker = new JobWorker({
      name: 'video',
      tickMs: TICK_MS,
      claim: (running) => this.#claim(running),
      run: (job) => this.#step(job),
      failed: (job) => this.#pause(job, LATER_MS),
      renew: {
        everyMs: RENEW_MS,
        lease: ({ id }) => table.extendLease(id),
      },
      clock,
      log,
    });
  }

  /** `alone`: no other process can be working on these jobs. */
  start(alone: boolean): void {
    this.#isAlone = alone;
    this.#stopSweeping = this.#parts.clock.every(SWEEP_MS, () => void this.#sweep());
    this.#worker.start(alone ? () => this.#table.freeAll() : undefined);
    void this.#sweep();
  }

  /** Stops taking jobs, waits for running steps, and releases the leased jobs. */
  async stop(): Promise<void> {
    this.#stopSweeping?.();
    await this.#worker.stop();
  }

  nudge(): void {
    this.#worker.nudge();
  }

  get #signal(): AbortSignal {
    return this.#worker.signal;
  }

  async #claim(running: readonly VideoJob[]): Promise<VideoJob[]> {
    const { clock, log } = this.#parts;
    for (const [id, sinceMs] of this.#admitting) {
      if (sinceMs === undefined || clock.monotonicMs() - sinceMs < HOLD_KNOWN_MS) continue;
      try {
        await this.#abandon(id);
        this.#admitting.delete(id);
      } catch (error) {
        // Repeated with the next claim; other jobs go on.
        log.warn({ job: id, reason: reasonOf(error) }, 'A video job could not be given up');
      }
    }
    const shared = MAX_SHARED - running.length;
    if (shared > 0) return await this.#table.claim(shared, running);
    const busy = running.map(({ accountId }) => accountId);
    return running.length >= MAX_RUNNING ? [] : await this.#table.claim(1, running, busy);
  }

  async #pause(job: VideoJob, pauseMs: number): Promise<void> {
    await this.#table.rest(job.id, pauseMs);
  }

  async #step(job: VideoJob): Promise<void> {
    const { clock, maxJobHours } = this.#parts;
    const maxMs = maxJobHours * HOUR_MS;
    if (clock.nowMs() - job.createdMs > maxMs && (await this.#table.isOlder(job.id, maxMs)))
      return await this.#fail(job, FAILURES.tooLong);
    switch (job.state) {
      case 'queued':
        return await this.#submit(job);
      case 'submitted':
      case 'running':
        return await this.#poll(job);
      case 'storing':
        return await this.#store(job);
      case 'admitting':
      case 'completed':
      case 'failed':
        // The job was never claimed.
        return;
    }
  }

  async #submit(job: VideoJob): Promise<void> {
    if (job.unclear === 0) return await this.#order(job);
    const found = await this.#parts.engines.find(job, this.#signal);
    switch (found.kind) {
      case 'created':
        return await this.#submitted(job, found);
      case 'unknown':
        if (job.unclear >= MAX_UNCLEAR) return await this.#fail(job, FAILURES.unclear);
        return await this.#order(job);
      case 'away':
        return await this.#delayed(job, found);
    }
  }

  async #order(job: VideoJob): Promise<void> {
    const { engines, log } = this.#parts;
    const inputs = job.inputs.map(({ role, file, mimeType }) => {
      return { role, path: this.#files.pathOf('inputs', file), mimeType };
    });
    let added = 1;
    let called: EnginePlace = job;
    const beforeOrder = async (place: EnginePlace): Promise<boolean> => {
      called = place;
      const isOurs = await this.#table.ordering(job.id, place, added);
      // A request to another replica still counts as the same one.
      added = 0;
      return isOurs;
    };
    const result = await this.#tries.note(
      job.id,
      () => called,
      () => engines.create({ job, inputs, beforeOrder }, this.#signal),
    );
    switch (result.kind) {
      case 'created':
        return await this.#submitted(job, result);
      case 'not-ours':
        return;
      case 'refused':
        return await this.#fail(job, FAILURES[result.objection], result.detail);
      case 'unclear':
        log.warn({ job: job.id }, 'A video engine sent no clear response');
        return await this.#pause(job, LATER_MS);
      case 'busy':
      case 'away':
        await this.#table.notOrdered(job.id);
        return await this.#delayed(job, result);
    }
  }

  async #submitted(job: VideoJob, ref: EngineRef): Promise<void> {
    const { store, money, clock } = this.#parts;
    const isOurs = await store.transaction(async (tx) => {
      const isNoted = await this.#table.submitted(tx, job.id, ref, clock.nowMs());
      // A key was already charged when the job was queued.
      if (isNoted && isWallets(job)) await money.charge(tx, job);
      return isNoted;
    });
    // The job was cancelled, or the lease was lost and another worker submits its own.
    if (!isOurs) return await this.#parts.engines.remove(ref);
    await this.#pause(job, POLL_MS);
  }

  async #poll(job: VideoJob): Promise<void> {
    const result = await this.#call(job, () => this.#parts.engines.poll(job, this.#signal));
    switch (result.kind) {
      case 'running':
        await this.#table.progressed(job.id, result.fraction);
        this.#logProgress(job, result.fraction);
        return await this.#pause(job, POLL_MS);
      case 'done':
        if (await this.#table.storing(job.id)) await this.#store(job);
        return;
      case 'failed':
        return await this.#fail(job, FAILURES[result.objection], result.detail);
      case 'lost':
        return await this.#lost(job);
      case 'busy':
      case 'away':
        return await this.#delayed(job, result);
    }
  }

  #call<T extends { readonly kind: string }>(job: VideoJob, call: () => Promise<T>): Promise<T> {
    return this.#tries.note(job.id, () => job, call);
  }

  #logProgress(job: VideoJob, fraction: number): void {
    const tenth = Math.floor(fraction * 10);
    if (tenth <= Math.floor(job.fraction * 10)) return;
    const { clock, log } = this.#parts;
    const remainingMs = Math.round(((clock.nowMs() - job.startedMs) * (1 - fraction)) / fraction);
    const fields = { job: job.id, model: job.modelId, percent: tenth * 10, remainingMs };
    log.info(fields, 'A video is being made');
  }

  async #store(job: VideoJob): Promise<void> {
    const signal = this.#signal;
    let result: DownloadResult | undefined;
    let verdict: VideoVerdict | undefined;
    const sizeBytes = await this.#space.within(job.accountId, (fits) =>
      this.#files.storeResult(job.id, this.#table.owner, async (path) => {
        result = await this.#call(job, () =>
          this.#parts.engines.download(job, path, { canStore: fits, signal }),
        );
        if (result.kind === 'done') verdict = await this.#check(job, path);
        return verdict?.kind === 'fit';
      }),
    );
    if (result?.kind === 'lost') return await this.#missing(job);
    if (result?.kind === 'busy' || result?.kind === 'away') return await this.#delayed(job, result);
    if (result?.kind === 'too-large') return await this.#fail(job, FAILURES.unfit, result.detail);
    // The engine has finished and may have billed: do not submit the job again.
    if (verdict?.kind !== 'fit') return await this.#fail(job, FAILURES[verdict?.kind ?? 'unfit']);
    await this.#complete(job, sizeBytes, verdict);
  }

  async #check(job: VideoJob, path: string): Promise<VideoVerdict> {
    const source = job.inputs.find(({ role }) => role === 'video_url');
    const sourcePath = source && this.#files.pathOf('inputs', source.file);
    const verdict = await this.#parts.checkVideo({ job, path, sourcePath }, this.#signal);
    if (verdict.kind !== 'fit') {
      const fields = { job: job.id, model: job.modelId, engine: job.engine };
      this.#parts.log.warn({ ...fields, reason: verdict.reason }, 'A video was rejected');
    }
    return verdict;
  }

  /** The only step that completes a job: its state and its charge change in one transaction. */
  async #complete(
    job: VideoJob,
    sizeBytes: number,
    { mimeType, sha256 }: Extract<VideoVerdict, { kind: 'fit' }>,
  ): Promise<void> {
    const { store, money, clock, keepHours, log } = this.#parts;
    const nowMs = clock.nowMs();
    const media = { sizeBytes, mimeType, keepMs: keepHours * HOUR_MS };
    const done = await store.transaction(async (tx) => {
      const completed = await this.#table.completed(tx, job.id, media, nowMs);
      if (completed !== undefined) await money.settle(tx, completed, sha256);
      return completed;
    });
    if (done === undefined) return;
    log.info({ job: job.id, model: job.modelId, durationMs: done.executionMs }, 'A video is done');
    const tries = this.#tries.take(job.id);
    if (tries.length > 0) this.#parts.ended(job, { detail: '', tries });
    await this.#clean(job);
  }

  /**
   * Fails a job and refunds it. `detail`: the engine's message for the record, which leaves out the
   * prompt. The log would show it.
   */
  async #fail(job: VideoJob, failure: JobFailure, detail = ''): Promise<void> {
    const failed = await this.#refund(job.id, 'worker', failure);
    if (failed === undefined) return;
    const fields = { job: job.id, model: job.modelId, reason: failure.message };
    this.#parts.log.info(fields, 'A video job failed');
    this.#parts.ended(job, { failure, detail, tries: this.#tries.take(job.id) });
    await this.#clean(job);
  }

  /**
   * Cancels a job for its caller, whichever process leases it, and refunds it. Returns `undefined`
   * if the job has ended or its engine is done, because then there is a video to pay for.
   */
  async cancel(id: string): Promise<VideoJob | undefined> {
    const cancelled = await this.#refund(id, 'caller', FAILURES.cancelled);
    if (cancelled === undefined) return undefined;
    this.#parts.log.info({ job: id, model: cancelled.modelId }, 'A video job was cancelled');
    await this.#clean(cancelled);
    return cancelled;
  }

  /** Runs the admission of a job, which until then does not belong to a dead process. */
  async whileAdmitting<T>(id: string, admit: () => Promise<T>): Promise<T> {
    this.#admitting.set(id, undefined);
    try {
      return await admit();
    } finally {
      if (this.#admitting.get(id) === undefined) this.#admitting.delete(id);
    }
  }

  /**
   * Ends a job that could not be admitted, as soon as the state of its hold is certain. Waits while
   * the database is unreachable; if this process dies, the sweep of another one finds the job.
   */
  giveBackSoon(id: string): void {
    this.#admitting.set(id, this.#parts.clock.monotonicMs());
  }

  async #abandon(id: string): Promise<void> {
    const { store, money } = this.#parts;
    if ((await this.#refund(id, 'nobody', FAILURES.abandoned)) === undefined) {
      const job = await this.#table.find('id', id);
      // It was admitted, although the response to its commit was lost.
      if (job !== undefined && job.state !== 'failed') return;
      // Another process has ended it before; the hold may have been placed after that.
      if (job !== undefined) await store.transaction((tx) => money.release(tx, job));
    }
    await this.#files.remove('inputs', id);
  }

  /** The only step that refunds a job: its state and its refund change in one transaction. */
  async #refund(
    id: string,
    by: Parameters<JobTable['failed']>[2],
    failure: JobFailure,
  ): Promise<VideoJob | undefined> {
    const { store, money, clock } = this.#parts;
    return await store.transaction(async (tx) => {
      const failed = await this.#table.failed(tx, id, by, failure, clock.nowMs());
      if (failed !== undefined) await money[by === 'nobody' ? 'release' : 'refund'](tx, failed);
      return failed;
    });
  }

  async #lost(job: VideoJob): Promise<void> {
    if (job.attempts >= MAX_ATTEMPTS) return await this.#fail(job, FAILURES.lost);
    await this.#table.requeued(job.id);
  }

  /** A finished video without content: waits for it, unless the engine's job is gone too. */
  async #missing(job: VideoJob): Promise<void> {
    const result = await this.#parts.engines.poll(job, this.#signal);
    if (result.kind === 'lost') return await this.#lost(job);
    await this.#delayed(job, { kind: 'away', detail: 'the video is done but has no content' });
  }

  /**
   * A busy engine responds, so the job may wait up to its time limit. For an engine that does not
   * respond the limit is much shorter, so that the caller's money is not blocked.
   */
  async #delayed(job: VideoJob, delay: EngineDelay): Promise<void> {
    const { clock, log, maxSilenceMinutes } = this.#parts;
    const fields = { job: job.id, model: job.modelId };
    if (delay.kind === 'busy') {
      log.debug(fields, 'A video engine is busy');
      await this.#table.silentSince(job.id, 0);
      return await this.#pause(job, Math.min(delay.retryAfterMs ?? LATER_MS, MAX_LATER_MS));
    }
    // The request was aborted by our own shutdown; the engine was not silent.
    if (this.#signal.aborted) return await this.#pause(job, 0);
    const nowMs = clock.nowMs();
    // Silence before the start of this process does not count: maybe no process called the engine.
    const sinceMs = job.silentSinceMs === 0 ? nowMs : Math.max(job.silentSinceMs, this.#startedMs);
    if (nowMs - sinceMs >= maxSilenceMinutes * MINUTE_MS) {
      return await this.#fail(job, FAILURES.away, delay.detail);
    }
    log.debug(fields, 'A video engine does not respond');
    await this.#table.silentSince(job.id, sinceMs);
    await this.#pause(job, LATER_MS);
  }

  async #clean(job: VideoJob): Promise<void> {
    if (job.webhookUrl !== '') await this.#announce();
    await this.#files.remove('inputs', job.id);
    await this.#removeAtEngine(job);
  }

  /** Ends the work of the engine, also if its response to the create request was lost. */
  async #removeAtEngine(job: VideoJob): Promise<void> {
    const { engines } = this.#parts;
    if (job.engineJobId !== '') return await engines.remove(job);
    if (job.engine === '') return;
    const found = await engines.find(job, this.#signal);
    if (found.kind === 'created') await engines.remove(found);
  }

  /** Queues the callbacks of ended jobs; the sweep repeats it after a crash. */
  async #announce(): Promise<void> {
    const { store, callbacks } = this.#parts;
    if (callbacks === undefined) return;
    await store.transaction(async (tx) => {
      for (const job of await this.#table.takeCallbacks(tx))
        await callbacks.add(tx, messageOf(job));
    });
    callbacks.nudge();
  }

  /** Deletes expired and unreferenced media; releases the holds of dead processes. */
  async #sweep(): Promise<void> {
    // Sweeps must not pile up on a slow database.
    if (this.#isSweeping) return;
    this.#isSweeping = true;
    try {
      const nowMs = this.#parts.clock.nowMs();
      await this.#announce();
      for (const id of await this.#table.expireMedia(nowMs))
        await this.#files.remove('results', id);
      await this.#table.deleteOld(KEEP_JOBS_MS, nowMs);
      for (const { id } of await this.#table.abandoned(this.#isAlone)) {
        if (!this.#admitting.has(id)) await this.#abandon(id);
      }
      const deadFiles = this.#isAlone ? this.#oldFiles : NO_FILES;
      await removeOrphans(this.#files, this.#table, deadFiles, nowMs);
    } catch (error) {
      // The next sweep retries.
      this.#parts.log.warn({ reason: reasonOf(error) }, 'Old video media could not be deleted');
    } finally {
      this.#isSweeping = false;
    }
  }
}
