/**
 * Keeps the write-ahead log short. When it has grown, a worker copies it into the database file
 * while commits continue, and once more during a pause of the commits for a few milliseconds. After
 * a complete copy the next commit overwrites the log from its start.
 *
 * The log file keeps its size unless it is very large: truncating many megabytes takes longer than
 * the rest, and overwriting is flushed faster than growing. The event loop never waits for any of
 * it.
 */
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { Worker } from 'node:worker_threads';
import { siblingUrl } from '../../core/sibling.ts';

const MEGABYTE = 1024 * 1024;
/** Maximum number of commits between two checks of the log. */
const COMMITS_BETWEEN_CHECKS = 128;

export interface LogLimits {
  /** Commits between two copies; a single chat makes one, of about 10 pages of 2 KiB. */
  readonly commits: number;
  readonly growthBytes: number;
  readonly cutAboveBytes: number;
}

const LIMITS: LogLimits = {
  commits: 1_024,
  growthBytes: 64 * MEGABYTE,
  cutAboveBytes: 256 * MEGABYTE,
};

/** `cut` copies as well, and then truncates the file. */
export type LogStep = 'copy' | 'cut';

export class Checkpointer {
  /** Commits since the last copy, counted by the store, which calls `check` every `checkEvery`. */
  commits = 0;
  readonly checkEvery: number;
  /** Set while the rest of the log is copied: commits wait for it. */
  pause: Promise<void> | undefined;
  readonly #path: string;
  readonly #limits: LogLimits;
  #worker: Worker | undefined;
  #copiedBytes = 0;
  #cycle: Promise<void> | undefined;

  constructor(path: string, limits: Partial<LogLimits> = {}) {
    this.#path = path;
    this.#limits = { ...LIMITS, ...limits };
    this.checkEvery = Math.min(COMMITS_BETWEEN_CHECKS, this.#limits.commits);
  }

  check(): void {
    this.#cycle ??= this.#checkSize().finally(() => {
      this.#cycle = undefined;
    });
  }

  async #checkSize(): Promise<void> {
    const { commits, growthBytes, cutAboveBytes } = this.#limits;
    const size = await stat(`${this.#path}-wal`).then(
      (file) => file.size,
      () => 0, // no log, nothing to copy
    );
    if (this.commits < commits && size < this.#copiedBytes + growthBytes) return;
    const isHuge = size > cutAboveBytes;
    this.commits = 0;
    // A log with an active reader is not truncated; it may grow once more before the next try.
    this.#copiedBytes = size;
    await this.#run('copy');
    // No transaction is open here: transaction bodies wait for the database only.
    const second = this.#run(isHuge ? 'cut' : 'copy');
    this.pause = second.then(() => {
      this.pause = undefined;
    });
    if ((await second) && isHuge) this.#copiedBytes = 0;
  }

  /** Returns whether the step succeeded; otherwise it is repeated next time. */
  async #run(step: LogStep): Promise<boolean> {
    try {
      const worker = (this.#worker ??= this.#start());
      const reply = once(worker, 'message');
      worker.ref();
      worker.postMessage(step);
      const [isDone] = await reply;
      worker.unref();
      return isDone === true;
    } catch {
      // The worker has exited or could not be created, for example because the process has too many
      // open files or threads. The next one may succeed.
      this.#worker = undefined;
      return false;
    }
  }

  #start(): Worker {
    return new Worker(siblingUrl(import.meta.url, './checkpoint-worker'), {
      workerData: this.#path,
    });
  }

  async close(): Promise<void> {
    await this.#cycle;
    const worker = this.#worker;
    if (worker === undefined) return;
    const ended = once(worker, 'exit');
    worker.ref();
    worker.postMessage('close');
    await ended;
  }
}
