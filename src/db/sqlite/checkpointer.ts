/**
 * Keeps the write-ahead log short. When it has grown, a worker copies it into the database file
 * while commits go on, and once more in a pause of the commits, a few milliseconds, since what came
 * meanwhile is little. A log that is copied whole begins anew with the next commit.
 *
 * The file of the log keeps its size unless it is huge: to cut a file of many megabytes takes the
 * disk longer than all of that, and a log that is written over is flushed faster than one that
 * grows. The event loop never waits for any of it.
 */
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { Worker } from 'node:worker_threads';
import { siblingUrl } from '../../core/sibling.ts';

const MEGABYTE = 1024 * 1024;
/** Commits between two looks at the log, at most. */
const COMMITS_BETWEEN_LOOKS = 128;

export interface LogLimits {
  /** Commits between two copies: a chat is two of some 15 pages of 4 KiB. */
  readonly commits: number;
  /** By which the file may grow between two copies, whatever made it grow. */
  readonly growthBytes: number;
  /** A file that one large piece of work has left behind is cut. */
  readonly cutAboveBytes: number;
}

const LIMITS: LogLimits = {
  commits: 1_024,
  growthBytes: 64 * MEGABYTE,
  cutAboveBytes: 256 * MEGABYTE,
};

/** `cut` copies as well, and then cuts the file. */
export type LogStep = 'copy' | 'cut';

export class Checkpointer {
  /** Commits since the last copy: the store counts them, and asks for a look each `lookEvery`. */
  commits = 0;
  readonly lookEvery: number;
  /** While the rest of the log is being copied: commits wait for this promise. */
  pause: Promise<void> | undefined;
  readonly #path: string;
  readonly #limits: LogLimits;
  #worker: Worker | undefined;
  /** The size of the file when it was last copied. */
  #copiedBytes = 0;
  #cycle: Promise<void> | undefined;

  constructor(path: string, limits: Partial<LogLimits> = {}) {
    this.#path = path;
    this.#limits = { ...LIMITS, ...limits };
    this.lookEvery = Math.min(COMMITS_BETWEEN_LOOKS, this.#limits.commits);
  }

  /** Starts a cycle when the log has grown. */
  look(): void {
    this.#cycle ??= this.#look().finally(() => {
      this.#cycle = undefined;
    });
  }

  async #look(): Promise<void> {
    const { commits, growthBytes, cutAboveBytes } = this.#limits;
    const size = await stat(`${this.#path}-wal`).then(
      (file) => file.size,
      () => 0, // no log, nothing to copy
    );
    if (this.commits < commits && size < this.#copiedBytes + growthBytes) return;
    const isHuge = size > cutAboveBytes;
    this.commits = 0;
    // One that somebody reads is not cut: then it may grow once more before the next try.
    this.#copiedBytes = size;
    await this.#ask('copy');
    // No transaction is open here: their bodies wait for nothing but the database itself.
    const asking = this.#ask(isHuge ? 'cut' : 'copy');
    this.pause = asking.then(() => {
      this.pause = undefined;
    });
    if ((await asking) && isHuge) this.#copiedBytes = 0;
  }

  /** Whether the step was done; what was not is done next time. */
  async #ask(step: LogStep): Promise<boolean> {
    const worker = (this.#worker ??= this.#start());
    const answer = once(worker, 'message');
    worker.ref();
    worker.postMessage(step);
    try {
      const [isDone] = await answer;
      worker.unref();
      return isDone === true;
    } catch {
      // It has ended: a file could not be opened, where a process has too many. The next one may.
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
