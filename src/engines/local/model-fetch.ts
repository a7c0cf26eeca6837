/**
 * The fetch of a model that an embedded engine uses when it is there: started by the first wish,
 * running in the background, visible as a fraction. The engine works without the model meanwhile.
 *
 * Transport, resume and checksum belong to the function that is handed in.
 */
import type { Clock } from '../../core/clock.ts';
import { MINUTE_MS } from '../../core/clock.ts';
import { type Log, reasonOf } from '../../core/log.ts';

/** One file of a model, pinned by size and checksum. */
export interface ModelFile {
  /** The name in the model folder, unique among all models. */
  readonly name: string;
  readonly url: string;
  readonly sizeBytes: number;
  /** Lowercase hex. */
  readonly sha256: string;
  /** SPDX name or `MIT`-like words, for people. */
  readonly license: string;
}

/** Resolves to the path of the verified file; `onProgress` gets the bytes that are there so far. */
export type FetchModel = (
  file: ModelFile,
  onProgress: (receivedBytes: number) => void,
  signal: AbortSignal,
) => Promise<string>;

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

/** A machine without internet tries again this often, at the next wish. */
const RETRY_AFTER_MS = 10 * MINUTE_MS;

export class ModelFetch {
  readonly #options: ModelFetchOptions;
  readonly #aborter = new AbortController();
  readonly #received = new Map<string, number>();
  #state: ModelProgress['state'] = 'idle';
  #error: string | undefined;
  #startedMs = 0;
  #startedBytes: number | undefined;
  #retryAtMs = 0;

  constructor(options: ModelFetchOptions) {
    this.#options = options;
  }

  /** Starts the fetch unless it runs, is done, or failed a short while ago. */
  want(): void {
    if (this.#state === 'fetching' || this.#state === 'ready' || this.#aborter.signal.aborted)
      return;
    const nowMs = this.#options.clock.monotonicMs();
    if (this.#state === 'failed' && nowMs < this.#retryAtMs) return;
    this.#state = 'fetching';
    this.#startedMs = nowMs;
    this.#startedBytes = undefined;
    this.#run().catch((error: unknown) => this.#fail(error));
  }

  progress(): ModelProgress {
    const total = this.#options.files.reduce((sum, file) => sum + file.sizeBytes, 0);
    const received = this.#receivedBytes();
    const fraction = this.#state === 'ready' || total === 0 ? 1 : Math.min(received / total, 1);
    const elapsedMs = this.#options.clock.monotonicMs() - this.#startedMs;
    // What was on disk before says nothing about the speed of the network.
    const fresh = received - (this.#startedBytes ?? received);
    const remainingMs =
      this.#state === 'fetching' && fresh > 0 && elapsedMs > 0
        ? Math.round(((total - received) * elapsedMs) / fresh)
        : undefined;
    return { state: this.#state, fraction, remainingMs, error: this.#error };
  }

  close(): void {
    this.#aborter.abort();
  }

  #receivedBytes(): number {
    let sum = 0;
    for (const bytes of this.#received.values()) sum += bytes;
    return sum;
  }

  async #run(): Promise<void> {
    const { files, fetchModel, onReady, log, name } = this.#options;
    log.info({ model: name }, 'Fetching a model in the background');
    const paths: string[] = [];
    for (const file of files) {
      const onProgress = (bytes: number): void => {
        this.#received.set(file.name, bytes);
        this.#startedBytes ??= this.#receivedBytes();
      };
      paths.push(await fetchModel(file, onProgress, this.#aborter.signal));
      this.#received.set(file.name, file.sizeBytes);
    }
    this.#state = 'ready';
    this.#error = undefined;
    log.info({ model: name }, 'A model is ready');
    onReady(paths);
  }

  #fail(error: unknown): void {
    this.#state = 'failed';
    this.#error = reasonOf(error);
    this.#retryAtMs = this.#options.clock.monotonicMs() + RETRY_AFTER_MS;
    if (this.#aborter.signal.aborted) return;
    const { name, log } = this.#options;
    log.warn({ model: name, reason: this.#error }, 'A model could not be fetched');
  }
}
