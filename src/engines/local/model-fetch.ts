/**
 * The fetch of a model that an embedded engine uses when it is there: started by the first use,
 * running in the background, visible as a fraction. The engine works without the model meanwhile.
 */
import { type Clock, MINUTE_MS } from '../../core/clock.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import type { FetchModel, ModelFile } from './model-files.ts';

export interface ModelProgress {
  readonly state: 'idle' | 'fetching' | 'ready' | 'failed';
  /** From 0 to 1. */
  readonly fraction: number;
  /** `undefined` before enough is known. */
  readonly remainingMs: number | undefined;
  /** Why the last try failed. */
  readonly error: string | undefined;
}

export interface ModelFetchOptions {
  readonly name: string;
  readonly files: readonly ModelFile[];
  readonly fetchModel: FetchModel;
  /** Gets the paths in the order of `files`. */
  readonly onReady: (paths: readonly string[]) => void;
  readonly log: Log;
  readonly clock: Clock;
}

/** A machine without internet tries again this often, at the next use. */
const RETRY_AFTER_MS = 10 * MINUTE_MS;

export class ModelFetch {
  readonly #options: ModelFetchOptions;
  readonly #aborter = new AbortController();
  readonly #totalBytes: number;
  #state: ModelProgress['state'] = 'idle';
  #error: string | undefined;
  #receivedBytes = 0;
  #startedMs = 0;
  /** What was on disk before says nothing about the speed of the network. */
  #bytesAtStart: number | undefined;
  #retryAtMs = 0;

  constructor(options: ModelFetchOptions) {
    this.#options = options;
    this.#totalBytes = options.files.reduce((sum, file) => sum + file.sizeBytes, 0);
  }

  /** Starts the fetch unless it runs, is done, or failed a short while ago. */
  start(): void {
    const nowMs = this.#options.clock.monotonicMs();
    const isDue = this.#state === 'idle' || (this.#state === 'failed' && nowMs >= this.#retryAtMs);
    if (!isDue || this.#aborter.signal.aborted) return;
    this.#state = 'fetching';
    this.#startedMs = nowMs;
    this.#bytesAtStart = undefined;
    this.#run().catch((error: unknown) => this.#fail(error));
  }

  progress(): ModelProgress {
    const received = this.#receivedBytes;
    const fraction = this.#state === 'ready' ? 1 : Math.min(received / this.#totalBytes, 1);
    const elapsedMs = this.#options.clock.monotonicMs() - this.#startedMs;
    const fresh = received - (this.#bytesAtStart ?? received);
    const remainingMs =
      this.#state === 'fetching' && fresh > 0 && elapsedMs > 0
        ? Math.round(((this.#totalBytes - received) * elapsedMs) / fresh)
        : undefined;
    return { state: this.#state, fraction, remainingMs, error: this.#error };
  }

  close(): void {
    this.#aborter.abort();
  }

  async #run(): Promise<void> {
    const { files, fetchModel, onReady, log, name } = this.#options;
    log.info({ model: name }, 'Fetching a model in the background');
    const paths: string[] = [];
    let wholeBytes = 0;
    for (const file of files) {
      const onProgress = (bytes: number): void => {
        this.#receivedBytes = wholeBytes + bytes;
        this.#bytesAtStart ??= this.#receivedBytes;
      };
      paths.push(await fetchModel(file, onProgress, this.#aborter.signal));
      wholeBytes += file.sizeBytes;
      this.#receivedBytes = wholeBytes;
    }
    this.#state = 'ready';
    this.#error = undefined;
    log.info({ model: name }, 'A model is ready');
    onReady(paths);
  }

  #fail(error: unknown): void {
    const { name, clock, log } = this.#options;
    this.#state = 'failed';
    this.#error = reasonOf(error);
    this.#retryAtMs = clock.monotonicMs() + RETRY_AFTER_MS;
    if (this.#aborter.signal.aborted) return;
    log.warn({ model: name, reason: this.#error }, 'A model could not be fetched');
  }
}
