/**
 * Keeps the write-ahead log short. When it has grown, a worker copies it into the database file
 * while commits go on; what came meanwhile is little, so the log is then cut in a short pause of
 * the commits. The event loop never waits for any of it.
 */
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { Worker } from 'node:worker_threads';
import { siblingUrl } from '../../kernel/sibling.ts';

/** The log's size from which it is copied and cut. */
const CUT_FROM_BYTES = 16 * 1024 * 1024;
/** Commits between two looks at the size of the log. */
const COMMITS_BETWEEN_LOOKS = 128;

type Mode = 'PASSIVE' | 'TRUNCATE';

export class Checkpointer {
  readonly #path: string;
  readonly #cutFromBytes: number;
  #worker: Worker | undefined;
  #commits = 0;
  #cycle: Promise<void> | undefined;
  #pause: Promise<void> | undefined;

  constructor(path: string, cutFromBytes = CUT_FROM_BYTES) {
    this.#path = path;
    this.#cutFromBytes = cutFromBytes;
  }

  /** While the log is being cut: commits wait for this promise. */
  get pause(): Promise<void> | undefined {
    return this.#pause;
  }

  /** Counts a commit, and starts a cycle when the log has grown. */
  committed(): void {
    this.#commits += 1;
    if (this.#commits < COMMITS_BETWEEN_LOOKS || this.#cycle !== undefined) return;
    this.#commits = 0;
    this.#cycle = this.#look().finally(() => {
      this.#cycle = undefined;
    });
  }

  async #look(): Promise<void> {
    const bytes = await stat(`${this.#path}-wal`).then(
      (file) => file.size,
      () => 0, // no log yet
    );
    if (bytes < this.#cutFromBytes) return;
    await this.#ask('PASSIVE');
    // No transaction is open here: their bodies wait for nothing but the database itself.
    this.#pause = this.#ask('TRUNCATE').finally(() => {
      this.#pause = undefined;
    });
    await this.#pause;
  }

  async #ask(mode: Mode): Promise<void> {
    const worker = (this.#worker ??= this.#start());
    const answer = once(worker, 'message');
    worker.ref();
    worker.postMessage(mode);
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
