/**
 * Makes commits durable without blocking the event loop: one `fdatasync` of the write-ahead log
 * at a time, on the thread pool; whoever committed before it began is covered by it.
 *
 * After a failed flush the pages may be lost while the kernel calls them clean, so the flusher
 * never tries again: it fails every waiter and stays failed until the process is restarted.
 */
import { fdatasync } from 'node:fs';
import { promisify } from 'node:util';

export type Flush = (fileDescriptor: number) => Promise<void>;

export const flushFile: Flush = promisify(fdatasync);

interface Waiter {
  readonly resolve: () => void;
  readonly reject: (error: Error) => void;
}

export class Flusher {
  readonly #fileDescriptor: number;
  readonly #flush: Flush;
  #waiting: Waiter[] = [];
  #running = false;
  #failure: Error | undefined;

  constructor(fileDescriptor: number, flush: Flush) {
    this.#fileDescriptor = fileDescriptor;
    this.#flush = flush;
  }

  get failure(): Error | undefined {
    return this.#failure;
  }

  /** Resolves when everything committed before the call is on disk. */
  durable(): Promise<void> {
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      this.#waiting.push({ resolve, reject });
      if (!this.#running) void this.#run();
    });
  }

  async #run(): Promise<void> {
    this.#running = true;
    while (this.#waiting.length > 0) {
      const covered = this.#waiting;
      this.#waiting = [];
      try {
        await this.#flush(this.#fileDescriptor);
        for (const waiter of covered) waiter.resolve();
      } catch (error) {
        // A lost flush means lost commits: nothing after it can be trusted.
        this.#failure = new Error('The database could not be flushed to disk', { cause: error });
        for (const waiter of [...covered, ...this.#waiting]) waiter.reject(this.#failure);
        this.#waiting = [];
      }
    }
    this.#running = false;
  }
}
