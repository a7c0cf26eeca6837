/**
 * Keeps the write-ahead log short. Every so many commits a worker copies it into the database file
 * while commits go on, and once more in a pause of the commits, a few milliseconds, since what came
 * meanwhile is little. A log that is copied whole begins anew with the next commit.
 *
 * The file of the log keeps its size: to cut a file of many megabytes takes the disk longer than
 * all of that, and a log that is written over is flushed faster than one that grows. The event loop
 * never waits for any of it.
 */
import { once } from 'node:events';
import { Worker } from 'node:worker_threads';
import { siblingUrl } from '../../kernel/sibling.ts';

/** Some 15 pages of 4 KiB each: a log of about 60 MB. */
const COMMITS_BETWEEN_COPIES = 1_024;

export class Checkpointer {
  readonly #path: string;
  readonly #commitsBetween: number;
  #worker: Worker | undefined;
  #commits = 0;
  #cycle: Promise<void> | undefined;
  #pause: Promise<void> | undefined;

  constructor(path: string, commitsBetween = COMMITS_BETWEEN_COPIES) {
    this.#path = path;
    this.#commitsBetween = commitsBetween;
  }

  /** While the rest of the log is being copied: commits wait for this promise. */
  get pause(): Promise<void> | undefined {
    return this.#pause;
  }

  /** Counts a commit, and starts a cycle when the log has grown. */
  committed(): void {
    this.#commits += 1;
    if (this.#commits < this.#commitsBetween || this.#cycle !== undefined) return;
    this.#commits = 0;
    this.#cycle = this.#copyAll().finally(() => {
      this.#cycle = undefined;
    });
  }

  async #copyAll(): Promise<void> {
    await this.#copy();
    // No transaction is open here: their bodies wait for nothing but the database itself.
    this.#pause = this.#copy().finally(() => {
      this.#pause = undefined;
    });
    await this.#pause;
  }

  async #copy(): Promise<void> {
    const worker = (this.#worker ??= this.#start());
    const answer = once(worker, 'message');
    worker.ref();
    worker.postMessage('copy');
    await answer;
    worker.unref();
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
