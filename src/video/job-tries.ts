/**
 * The failed calls of engines by video jobs, for the record of a job. They are kept in this process
 * only: the record of a job that changes its process has the calls of the last one.
 */
import type { Clock } from '../core/clock.ts';
import type { RequestTry } from '../core/request-tries.ts';
import type { EnginePlace } from '../engines/media/media.ts';
import type { JobFailure } from './job.ts';

/** The class of a failed call, by the kind of its result; the other kinds are successes. */
const CLASSES: Readonly<Record<string, string>> = {
  refused: 'refused',
  failed: 'failed',
  unclear: 'broken',
  lost: 'broken',
  busy: 'overloaded',
  away: 'unreachable',
  'too-large': 'too-large',
};
/** Further calls are counted by the attempts of the receipt only. */
const MAX_TRIES = 20;
const MAX_JOBS = 1_000;

export interface EndedJob {
  /** Missing if the job has succeeded. */
  readonly failure?: JobFailure;
  /** The message of the engine. */
  readonly detail: string;
  readonly tries: readonly RequestTry[];
}

interface Called {
  readonly kind: string;
  readonly detail?: string;
}

export class JobTries {
  readonly #clock: Clock;
  readonly #byJob = new Map<string, RequestTry[]>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Runs a call for a job and keeps its failure. A call that fails as the one before is kept once. */
  async note<T extends Called>(
    jobId: string,
    place: () => EnginePlace,
    call: () => Promise<T>,
  ): Promise<T> {
    const startedMs = this.#clock.nowMs();
    const result = await call();
    const failedAs = CLASSES[result.kind];
    if (failedAs === undefined) return result;
    const { engine, engineModel: target } = place();
    const { detail: words = '' } = result;
    const tookMs = this.#clock.nowMs() - startedMs;
    this.#add(jobId, { engine, target, startedMs, tookMs, result: failedAs, detail: '', words });
    return result;
  }

  #add(jobId: string, tried: RequestTry): void {
    const tries = this.#byJob.get(jobId) ?? [];
    const last = tries.at(-1);
    const isSame = last?.result === tried.result && last.words === tried.words;
    if (isSame || tries.length >= MAX_TRIES) return;
    tries.push(tried);
    this.#byJob.set(jobId, tries);
    // The oldest job was continued by another process.
    for (const oldest of this.#byJob.keys()) {
      if (this.#byJob.size <= MAX_JOBS) break;
      this.#byJob.delete(oldest);
    }
  }

  /** Returns the failed calls of a job, and deletes them. */
  take(jobId: string): readonly RequestTry[] {
    const tries = this.#byJob.get(jobId) ?? [];
    this.#byJob.delete(jobId);
    return tries;
  }
}
