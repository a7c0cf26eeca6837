/**
 * The public file of video generation: quotes, jobs that survive a restart, and their media.
 *
 * A job belongs to the account that queued it; every lookup names the account, and somebody else's
 * job is not found. Money moves only inside the steps that make a job final (`worker.ts`).
 */
import { HOUR_MS, MINUTE_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { sha256Hex } from '../core/ids.ts';
import type { Queryable } from '../db/db.ts';
import { JobTable } from './job-table.ts';
import { type NewJob, type VideoJob, failureFault, isWallets } from './job.ts';
import type { EngineInput } from '../engines/media/media.ts';
import { MediaStore } from './media-store.ts';
import { ResultRoom } from './result-room.ts';
import { type VideoParts, Worker } from './worker.ts';

/** What is asked for. An empty `keyId` is a wallet's; `request` is for the engine, without media. */
export interface QueueJob extends Pick<
  NewJob,
  'accountId' | 'keyId' | 'modelId' | 'quoteNano' | 'request' | 'hasSound'
> {
  readonly tags?: NewJob['tags'];
  /** Media files, which are moved into the store. */
  readonly inputs: readonly EngineInput[];
  readonly webhookUrl?: string | undefined;
  readonly withDownload: boolean;
}

export interface QueuedJob {
  readonly id: string;
  /** 256 random bits for the download address, shown this once. */
  readonly downloadToken: string | undefined;
  /** Signs the callbacks of this account. */
  readonly webhookSecret: string | undefined;
}

export interface QueueSteps {
  /** The job is in the table: what it holds on the disk is counted there from here on. */
  readonly written?: () => void;
  /** Sets the quote aside so that it outlives the process; throws when there is not enough. */
  readonly hold: (job: VideoJob) => Promise<void>;
  /**
   * Runs in the transaction that makes the job real, maybe twice: what it writes through `tx` exists
   * exactly when the job does, and when it throws there is no job.
   */
  readonly together?: (tx: Queryable, queued: QueuedJob) => Promise<void>;
}

interface Times {
  /** P80 of the model's last jobs. */
  readonly averageMs: number;
  readonly executionMs: number;
}

interface Processing {
  readonly kind: 'processing';
  /** From 0 to 1. */
  readonly fraction: number;
  readonly remainingMs: number;
}

export interface MediaFile {
  /** The id of its job: a job has one result, which does not change. */
  readonly tag: string;
  readonly path: string;
  readonly sizeBytes: number;
  readonly mimeType: string;
}

/** `media`: the bytes are the answer; `download`: the caller has an address for them. */
export type Retrieval = Times &
  (
    | Processing
    | { readonly kind: 'download' }
    | { readonly kind: 'media'; readonly media: MediaFile }
  );

export interface Lookup {
  readonly accountId: string;
  readonly queueId: string;
  /** Ids that its model may have; `undefined` accepts any. */
  readonly modelIds?: readonly string[] | undefined;
}

const PERCENTILE = 0.8;
const EXPERIENCE_JOBS = 200;
const EXPERIENCE_MS = MINUTE_MS;
const MAX_MODELS_REMEMBERED = 1_000;
const DOWNLOAD_HOURS = 24;
const TOKEN_BYTES = 32;
/** Below this fraction the pace is no estimate. */
const TELLING_FRACTION = 0.05;

export interface VideoOptions extends VideoParts {
  readonly maxStoredBytes: number;
}

export class Video {
  readonly #parts: VideoParts;
  readonly #table: JobTable;
  readonly #files: MediaStore;
  readonly #room: ResultRoom;
  readonly #worker: Worker;
  readonly #experience = new Map<string, { averageMs: number; untilMs: number }>();

  constructor(parts: VideoOptions) {
    this.#parts = parts;
    this.#table = new JobTable(parts.store, parts.ids.uuid());
    this.#files = new MediaStore(parts.folder);
    this.#room = new ResultRoom(this.#table, parts.maxStoredBytes);
    this.#worker = new Worker(parts, this.#table, this.#files, this.#room);
  }

  /**
   * Starts working on jobs, also on those that other processes left; at once when `alone` says that
   * no other process is alive.
   */
  start(options: { readonly alone: boolean } = { alone: false }): void {
    this.#worker.start(options.alone);
  }

  /** Gives all jobs back; another process or the next start continues them. */
  async stop(): Promise<void> {
    await this.#worker.stop();
  }

  /**
   * Holds the quote and queues the job. Faults: 402 of the hold, 429 for too many open jobs, those
   * of the steps.
   */
  async queue(wanted: QueueJob, steps: QueueSteps): Promise<QueuedJob> {
    const { ids, clock, maxOpenJobs, callbacks } = this.#parts;
    const { inputs: given, webhookUrl, withDownload, ...job } = wanted;
    const id = ids.uuid();
    const downloadToken = withDownload ? ids.bytes(TOKEN_BYTES).toString('base64url') : undefined;
    const { inputs, sizeBytes: inputBytes } = await this.#files.adopt(id, given);
    const downloadHash = downloadToken === undefined ? null : sha256Hex(downloadToken);
    try {
      const isNew = { id, inputs, inputBytes, createdMs: clock.nowMs(), downloadHash };
      const written = {
        ...job,
        ...isNew,
        webhookUrl: callbacks === undefined ? '' : (webhookUrl ?? ''),
      };
      if (!(await this.#table.insert(written, maxOpenJobs))) {
        const message = `At most ${maxOpenJobs} videos of one caller wait or run at once`;
        throw new Fault('RATE_LIMIT_EXCEEDED', { message, retryAfterSeconds: 30 });
      }
    } catch (error) {
      // A job that is not written has no files. When it was written after all, nothing is held yet.
      await this.#files.remove('inputs', id);
      throw error;
    }
    steps.written?.();
    const webhookSecret = webhookUrl === undefined ? undefined : callbacks?.secretOf(job.accountId);
    const queued = { id, downloadToken, webhookSecret };
    const held = await this.#hold(id, steps);
    await this.#admit(held, queued, steps);
    this.#worker.nudge();
    return queued;
  }

  async #hold(id: string, { hold }: QueueSteps): Promise<VideoJob> {
    const job = await this.#table.find('id', id);
    if (job === undefined) throw new Error('A video job is gone right after its insert');
    try {
      await hold(job);
    } catch (error) {
      // A refusal held nothing; anything else may have, also after its answer was lost.
      if (error instanceof Fault) {
        await this.#table.withdraw(id);
        await this.#files.remove('inputs', id);
      } else this.#worker.giveBackSoon(id);
      throw error;
    }
    return job;
  }

  /** Makes the job real; the hold of a job that is not admitted is released. */
  async #admit(job: VideoJob, queued: QueuedJob, { together }: QueueSteps): Promise<void> {
    const { store, clock, money } = this.#parts;
    try {
      await store.transaction(async (tx) => {
        if (!(await this.#table.admit(tx, queued.id, clock.nowMs()))) {
          throw new Fault('SERVICE_UNAVAILABLE', { retryAfterSeconds: 5 });
        }
        // A wallet is charged when an engine has taken its job.
        if (!isWallets(job)) await money.charge(tx, job);
        await together?.(tx, queued);
      });
    } catch (error) {
      // Its answer may be lost and the job admitted after all: then it is left alone.
      this.#worker.giveBackSoon(queued.id);
      throw error;
    }
  }

  /**
   * What a caller gets for its job now. Faults: MEDIA_NOT_FOUND for an unknown, foreign, deleted or
   * expired one; the failure of a failed one (422, 500, 503).
   */
  async retrieve(lookup: Lookup): Promise<Retrieval> {
    const job = await this.#find(lookup);
    if (job.failure !== null) throw failureFault(job.failure);
    const averageMs = await this.#averageMs(job.modelId);
    if (job.state !== 'completed') return this.#processing(job, averageMs);
    const times = { averageMs, executionMs: job.executionMs };
    const media = this.#mediaOf(job);
    return job.hasDownload ? { kind: 'download', ...times } : { kind: 'media', media, ...times };
  }

  /**
   * Removes the media of a finished job; again is fine. Faults: MEDIA_NOT_FOUND for an unknown or
   * foreign job, INVALID_REQUEST while it is being made.
   */
  async complete(lookup: Lookup): Promise<void> {
    const job = await this.#find(lookup);
    if (job.state !== 'completed' && job.state !== 'failed') {
      const message = 'The video is still being made: retrieve it first';
      throw new Fault('INVALID_REQUEST', { message });
    }
    await this.removeMedia(job.id);
  }

  /**
   * Ends a job that is not done and gives its money back; again is fine. The job as it is then.
   * Faults: MEDIA_NOT_FOUND for an unknown or foreign job, INVALID_REQUEST when the video is made.
   */
  async cancel(lookup: Lookup): Promise<VideoJob> {
    const job = await this.#find(lookup);
    const cancelled = await this.#worker.cancel(job.id);
    if (cancelled !== undefined) return cancelled;
    const ended = await this.#find(lookup);
    if (ended.state === 'failed') return ended;
    const message = 'The video is made and cannot be cancelled any more: retrieve it';
    throw new Fault('INVALID_REQUEST', { message });
  }

  /** Deletes the media of a job, after `delete_media_on_completion` was served. */
  async removeMedia(id: string): Promise<void> {
    if (await this.#table.mediaGone(id)) await this.#files.remove('results', id);
  }

  async storedBytes(accountId: string): Promise<{ callerBytes: number; allBytes: number }> {
    return await this.#room.storedBytes(accountId);
  }

  /** A caller's jobs, newest first, created before `beforeMs`. */
  async list(accountId: string, beforeMs: number, limit: number): Promise<VideoJob[]> {
    return await this.#table.list(accountId, beforeMs, limit);
  }

  /** The media behind a download token. Faults: MEDIA_NOT_FOUND when revoked, expired or not ready. */
  async openDownload(token: string): Promise<MediaFile> {
    const job = await this.#table.find('download_hash', sha256Hex(token));
    const untilMs = (job?.finishedMs ?? 0) + DOWNLOAD_HOURS * HOUR_MS;
    if (job?.state !== 'completed' || this.#parts.clock.nowMs() > untilMs) {
      throw new Fault('MEDIA_NOT_FOUND');
    }
    return this.#mediaOf(job);
  }

  /** Ends a download token and deletes its media. Faults: MEDIA_NOT_FOUND for an unknown one. */
  async revokeDownload(token: string): Promise<void> {
    const job = await this.#table.find('download_hash', sha256Hex(token));
    if (job === undefined) throw new Fault('MEDIA_NOT_FOUND');
    await this.#table.revokeDownload(job.id);
    await this.removeMedia(job.id);
  }

  async #find({ accountId, queueId, modelIds }: Lookup): Promise<VideoJob> {
    const job = await this.#table.find('id', queueId);
    const isTheirs = job?.accountId === accountId && job.state !== 'admitting';
    if (!isTheirs || modelIds?.includes(job.modelId) === false) {
      throw new Fault('MEDIA_NOT_FOUND', { message: 'Video not found' });
    }
    return job;
  }

  #mediaOf(job: VideoJob): MediaFile {
    if (!job.hasMedia || this.#parts.clock.nowMs() >= job.mediaUntilMs) {
      throw new Fault('MEDIA_NOT_FOUND', { message: 'The video was deleted or has expired' });
    }
    return {
      tag: job.id,
      path: this.#files.pathOf('results', job.id),
      sizeBytes: job.mediaBytes,
      mimeType: job.mediaType,
    };
  }

  #processing(job: VideoJob, averageMs: number): Retrieval {
    const sinceMs = job.startedMs === 0 ? job.createdMs : job.startedMs;
    const executionMs = Math.max(0, this.#parts.clock.nowMs() - sinceMs);
    const { fraction } = job;
    const byPace = (executionMs * (1 - fraction)) / fraction;
    const remainingMs = Math.round(
      fraction >= TELLING_FRACTION ? byPace : Math.max(0, averageMs - executionMs),
    );
    return { kind: 'processing', averageMs, executionMs, fraction, remainingMs };
  }

  /** The time within which four of five jobs of the model were done. */
  async #averageMs(modelId: string): Promise<number> {
    const nowMs = this.#parts.clock.monotonicMs();
    const known = this.#experience.get(modelId);
    if (known !== undefined && nowMs < known.untilMs) return known.averageMs;
    const times = await this.#table.executionTimes(modelId, EXPERIENCE_JOBS);
    const averageMs = percentile(times, PERCENTILE) ?? this.#parts.expectedSeconds(modelId) * 1_000;
    if (this.#experience.size >= MAX_MODELS_REMEMBERED) this.#experience.clear();
    this.#experience.set(modelId, { averageMs, untilMs: nowMs + EXPERIENCE_MS });
    return averageMs;
  }
}

/** The value below which `share` of the values lie (nearest rank); `undefined` for none. */
export function percentile(values: readonly number[], share: number): number | undefined {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
}
