/**
 * The public file of video generation: jobs that survive a restart, and their media.
 *
 * A job belongs to the account that queued it. Every lookup names the account; a job of another
 * account is not found. Money moves only in the steps that make a job final (`worker.ts`).
 */
import { HOUR_MS, MINUTE_MS } from '../core/clock.ts';
import { Fault } from '../core/faults.ts';
import { sha256Hex, uuidOf } from '../core/ids.ts';
import type { Queryable } from '../db/db.ts';
import { JobTable } from './job-table.ts';
import { type NewJob, type VideoJob, failureFault, isWallets } from './job.ts';
import type { EngineInput } from '../engines/media/media.ts';
import { MediaStore } from './media-store.ts';
import { ResultSpace } from './result-space.ts';
import { LEASE_MS, type VideoParts, Worker } from './worker.ts';

export type { VideoJob } from './job.ts';
export type { EndedJob } from './job-tries.ts';

/** Input of `queue`. An empty `keyId` means a wallet; `request` is for the engine. */
export interface QueueJob extends Pick<
  NewJob,
  'accountId' | 'keyId' | 'modelId' | 'quoteNano' | 'request' | 'hasSound'
> {
  readonly tags?: NewJob['tags'];
  readonly listNano?: NewJob['listNano'];
  readonly costs?: NewJob['costs'];
  /** Media files, which are moved into the store. */
  readonly inputs: readonly EngineInput[];
  readonly webhookUrl?: string | undefined;
  readonly withDownload: boolean;
}

export interface QueuedJob {
  readonly id: string;
  /** 256 random bits for the download URL; returned only once. */
  readonly downloadToken: string | undefined;
  /** Signs the callbacks of this account. */
  readonly webhookSecret: string | undefined;
}

export interface QueueSteps {
  /** Called when the job is in the table, which counts its disk space from then on. */
  readonly written?: () => void;
  /** Places a hold for the quote that outlives the process; throws if the balance is too low. */
  readonly hold: (job: VideoJob) => Promise<void>;
  /**
   * Runs in the transaction that admits the job; it may run again after a retry. Its writes through
   * `tx` commit together with the job, and if it throws there is no job.
   */
  readonly together?: (tx: Queryable, queued: QueuedJob) => Promise<void>;
}

interface Times {
  /** The 80th percentile of the model's last jobs. */
  readonly averageMs: number;
  readonly executionMs: number;
}

interface Processing {
  readonly kind: 'processing';
  readonly fraction: number;
  readonly remainingMs: number;
}

export interface MediaFile {
  /** The id of its job, which serves as ETag because a result never changes. */
  readonly tag: string;
  readonly path: string;
  readonly sizeBytes: number;
  readonly mimeType: string;
}

/** `media`: the response contains the bytes; `download`: the caller has a URL for them. */
export type Retrieval = Times &
  (
    | Processing
    | { readonly kind: 'download' }
    | { readonly kind: 'media'; readonly media: MediaFile }
  );

export interface Lookup {
  readonly accountId: string;
  readonly queueId: string;
  /** Accepted model ids of the job; `undefined` accepts any. */
  readonly modelIds?: readonly string[] | undefined;
}

const PERCENTILE = 0.8;
const EXPERIENCE_JOBS = 200;
const EXPERIENCE_MS = MINUTE_MS;
const MAX_KNOWN_MODELS = 1_000;
const DOWNLOAD_HOURS = 24;
const TOKEN_BYTES = 32;
/** Below this fraction the remaining time is not estimated. */
const MIN_FRACTION = 0.05;

export interface VideoOptions extends VideoParts {
  readonly maxStoredBytes: number;
}

export class Video {
  readonly #parts: VideoParts;
  readonly #table: JobTable;
  readonly #files: MediaStore;
  readonly #space: ResultSpace;
  readonly #worker: Worker;
  readonly #experience = new Map<string, { averageMs: number; untilMs: number }>();

  constructor(parts: VideoOptions) {
    this.#parts = parts;
    this.#table = new JobTable({ ...parts, owner: parts.ids.uuid(), leaseMs: LEASE_MS });
    this.#files = new MediaStore(parts.folder);
    this.#space = new ResultSpace(this.#table, parts.maxStoredBytes);
    this.#worker = new Worker(parts, this.#table, this.#files, this.#space);
  }

  /**
   * Starts processing jobs, including those of dead processes; immediately if `alone` states that
   * no other process is running.
   */
  start({ alone = false }: { readonly alone?: boolean } = {}): void {
    this.#worker.start(alone);
  }

  async stop(): Promise<void> {
    await this.#worker.stop();
  }

  /**
   * Places the hold and queues the job. Faults: 402 of the hold, 429 for too many open jobs, and
   * those of the steps.
   */
  async queue(request: QueueJob, steps: QueueSteps): Promise<QueuedJob> {
    const { ids, clock } = this.#parts;
    const id = uuidOf(ids.ordered(clock.nowMs()));
    return await this.#worker.whileAdmitting(id, () => this.#queue(id, request, steps));
  }

  async #queue(id: string, request: QueueJob, steps: QueueSteps): Promise<QueuedJob> {
    const { ids, clock, maxOpenJobs, callbacks } = this.#parts;
    const { inputs: given, webhookUrl, withDownload, ...job } = request;
    const downloadToken = withDownload ? ids.bytes(TOKEN_BYTES).toString('base64url') : undefined;
    const downloadHash = downloadToken === undefined ? null : sha256Hex(downloadToken);
    try {
      const { inputs, sizeBytes: inputBytes } = await this.#files.adopt(id, given);
      const row = {
        ...job,
        id,
        inputs,
        inputBytes,
        createdMs: clock.nowMs(),
        downloadHash,
        webhookUrl: callbacks === undefined ? '' : (webhookUrl ?? ''),
      };
      if (!(await this.#table.insert(row, maxOpenJobs))) {
        const message = `At most ${maxOpenJobs} videos of one caller may wait or run: retry when one has ended`;
        throw new Fault('RATE_LIMIT_EXCEEDED', { message, retryAfterSeconds: 30 });
      }
    } catch (error) {
      // Without a job row the files are not needed. If the row was written after all, there is no
      // hold yet.
      await this.#files.remove('inputs', id);
      throw error;
    }
    steps.written?.();
    const webhookSecret = webhookUrl === undefined ? undefined : callbacks?.secretOf(job.accountId);
    const queued = { id, downloadToken, webhookSecret };
    const admitting = await this.#hold(id, steps);
    await this.#admit(admitting, queued, steps);
    this.#worker.nudge();
    return queued;
  }

  async #hold(id: string, { hold }: QueueSteps): Promise<VideoJob> {
    const job = await this.#table.find('id', id);
    if (job === undefined) throw new Error('A video job is missing right after its insert');
    try {
      await hold(job);
    } catch (error) {
      // A Fault means that no hold exists; after any other error one may exist, even if its
      // response was lost.
      if (error instanceof Fault) {
        await this.#table.withdraw(id);
        await this.#files.remove('inputs', id);
      } else this.#worker.giveBackSoon(id);
      throw error;
    }
    return job;
  }

  async #admit(job: VideoJob, queued: QueuedJob, { together }: QueueSteps): Promise<void> {
    const { store, clock, money } = this.#parts;
    try {
      await store.transaction(async (tx) => {
        if (!(await this.#table.admit(tx, queued.id, clock.nowMs()))) {
          throw new Fault('SERVICE_UNAVAILABLE', { retryAfterSeconds: 5 });
        }
        // A wallet is charged when an engine has accepted its job.
        if (!isWallets(job)) await money.charge(tx, job);
        await together?.(tx, queued);
      });
    } catch (error) {
      // The commit may have succeeded although its response was lost; the worker checks that first.
      this.#worker.giveBackSoon(queued.id);
      throw error;
    }
  }

  /**
   * The state or the media of a job. Faults: MEDIA_NOT_FOUND for a job that is unknown, deleted,
   * expired or of another account; the failure of a failed job (422, 500, 503).
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
   * Deletes the media of a finished job; idempotent. Faults: MEDIA_NOT_FOUND for a job that is
   * unknown or of another account, INVALID_REQUEST if it is not finished.
   */
  async complete(lookup: Lookup): Promise<void> {
    const job = await this.#find(lookup);
    if (job.state !== 'completed' && job.state !== 'failed') {
      const message = 'The video is still being made: retrieve or cancel it first';
      throw new Fault('INVALID_REQUEST', { message });
    }
    await this.removeMedia(job.id);
  }

  /**
   * Cancels an unfinished job and refunds it; idempotent. Returns the job afterwards. Faults:
   * MEDIA_NOT_FOUND for a job that is unknown or of another account, INVALID_REQUEST if the video
   * is finished.
   */
  async cancel(lookup: Lookup): Promise<VideoJob> {
    const job = await this.#find(lookup);
    const cancelled = await this.#worker.cancel(job.id);
    if (cancelled !== undefined) return cancelled;
    const ended = await this.#find(lookup);
    if (ended.state === 'failed') return ended;
    const message = 'The video is finished and cannot be cancelled: retrieve it';
    throw new Fault('INVALID_REQUEST', { message });
  }

  /** Deletes the media of a job after it was served with `delete_media_on_completion`. */
  async removeMedia(id: string): Promise<void> {
    if (await this.#table.mediaGone(id)) await this.#files.remove('results', id);
  }

  async storedBytes(accountId: string): Promise<{ callerBytes: number; allBytes: number }> {
    return await this.#space.storedBytes(accountId);
  }

  async list(accountId: string, beforeMs: number, limit: number): Promise<VideoJob[]> {
    return await this.#table.list(accountId, beforeMs, limit);
  }

  /** The media of a token. Faults: MEDIA_NOT_FOUND if it is revoked, expired or not ready. */
  async openDownload(token: string): Promise<MediaFile> {
    const job = await this.#table.find('download_hash', sha256Hex(token));
    const untilMs = (job?.finishedMs ?? 0) + DOWNLOAD_HOURS * HOUR_MS;
    if (job?.state !== 'completed' || this.#parts.clock.nowMs() > untilMs) {
      throw new Fault('MEDIA_NOT_FOUND');
    }
    return this.#mediaOf(job);
  }

  /** Revokes a token and deletes its media. Faults: MEDIA_NOT_FOUND for an unknown token. */
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
    if (!job.hasMedia) {
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
      fraction >= MIN_FRACTION ? byPace : Math.max(0, averageMs - executionMs),
    );
    return { kind: 'processing', averageMs, executionMs, fraction, remainingMs };
  }

  async #averageMs(modelId: string): Promise<number> {
    const nowMs = this.#parts.clock.monotonicMs();
    const known = this.#experience.get(modelId);
    if (known !== undefined && nowMs < known.untilMs) return known.averageMs;
    const times = await this.#table.executionTimes(modelId, EXPERIENCE_JOBS);
    const averageMs = percentile(times, PERCENTILE) ?? this.#parts.expectedSeconds(modelId) * 1_000;
    if (this.#experience.size >= MAX_KNOWN_MODELS) this.#experience.clear();
    this.#experience.set(modelId, { averageMs, untilMs: nowMs + EXPERIENCE_MS });
    return averageMs;
  }
}

/** The value below which `share` of the values lie (nearest rank); `undefined` without values. */
export function percentile(values: readonly number[], share: number): number | undefined {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.max(0, Math.ceil(sorted.length * share) - 1)];
}
