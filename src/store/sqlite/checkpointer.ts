/**
 * Keeps the write-ahead log short. Past `SOFT_BYTES` the worker copies what it can while commits
 * go on; past `HARD_BYTES` commits wait (the event loop does not) until the log is cut.
 */
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { Worker } from 'node:worker_threads';
import { siblingUrl } from '../../kernel/sibling.ts';

const SOFT_BYTES = 8 * 1024 * 1024;
const HARD_BYTES = 256 * 1024 * 1024;
/** Commits between two looks at the size of the log. */
const COMMITS_BETWEEN_LOOKS = 256;

export class Checkpointer {
  readonly #path: string;
  #worker: Worker | undefined;
  #commits = 0;
  #running: Promise<void> | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  /** Counts a commit; returns a promise only when commits must wait for the log to be cut. */
  committed(): Promise<void> | undefined {
    this.#commits += 1;
    if (this.#commits < COMMITS_BETWEEN_LOOKS || this.#running !== undefined) return undefined;
    this.#commits = 0;
    const look = this.#look();
    return this.#mustWait ? look : undefined;
  }

  #mustWait = false;

  async #look(): Promise<void> {
    const bytes = await stat(`${this.#path}-wal`).then(
      (file) => file.size,
      () => 0, // no log yet
    );
    this.#mustWait = bytes > HARD_BYTES;
    if (bytes > SOFT_BYTES) await this.run(this.#mustWait ? 'TRUNCATE' : 'PASSIVE');
  }

  /** Runs one checkpoint on the worker; calls that overlap share it. */
  async run(mode: 'PASSIVE' | 'TRUNCATE'): Promise<void> {
    this.#running ??= this.#ask(mode).finally(() => {
      this.#running = undefined;
    });
    await this.#running;
  }

  async #ask(mode: 'PASSIVE' | 'TRUNCATE'): Promise<void> {
    this.#worker ??= this.#start();
    const answer = once(this.#worker, 'message');
    this.#worker.postMessage(mode);
    await answer;
  }

  #start(): Worker {
    const worker = new Worker(siblingUrl(import.meta.url, './checkpoint-worker'), {
      workerData: this.#path,
    });
    worker.unref();
    return worker;
  }

  async close(): Promise<void> {
    if (this.#running !== undefined) await this.#running;
    const worker = this.#worker;
    if (worker === undefined) return;
    const ended = once(worker, 'exit');
    worker.postMessage('close');
    await ended;
  }
}
