/**
 * Model files in the data folder: each is pinned by size and checksum, fetched once, and gets its
 * name when it is complete. `ModelFetch` fetches all files of a model in the background, starting
 * with its first use, and reports its progress as a fraction.
 */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { ModelOutage } from '../../catalog/catalog.ts';
import type { Config } from '../../config/config.ts';
import { type Clock, MINUTE_MS } from '../../core/clock.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import { modelUrl, throughProxy } from './download-routes.ts';
import { type DownloadProgress, downloadFile } from './model-download.ts';

export interface ModelFile {
  /** File name in the model folder, unique among all models. */
  readonly name: string;
  readonly url: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  /** SPDX name, for display. */
  readonly license: string;
}

/** Resolves to the path of the verified file; `onProgress` receives the bytes fetched so far. */
export type FetchModel = (
  file: ModelFile,
  onProgress: (receivedBytes: number) => void,
  signal: AbortSignal,
) => Promise<string>;

export interface DownloadView {
  update(progress: DownloadProgress): void;
  end(): void;
}

export interface FetchParts {
  readonly config: Config;
  readonly viewOf?: ((title: string) => DownloadView) | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

export function modelPath(dataFolder: string, file: ModelFile): string {
  return join(dataFolder, 'models', file.name);
}

/** Whether the file is available; it gets its name only after its checksum was verified. */
export async function hasModel(dataFolder: string, file: ModelFile): Promise<boolean> {
  try {
    return (await stat(modelPath(dataFolder, file))).size === file.sizeBytes;
  } catch {
    // The file does not exist.
    return false;
  }
}

/** Fetches into the data folder, once, with progress on the terminal and in the log. */
export function modelFetcher(
  { config, viewOf, clock, log }: FetchParts,
  titleOf: (file: ModelFile) => string,
): FetchModel {
  return async (file, onProgress, signal) => {
    const path = modelPath(config.dataFolder, file);
    if (await hasModel(config.dataFolder, file)) return path;
    if (!config.embedded.download)
      throw new Error('Fetching models is switched off (embedded.download)');
    const view = viewOf?.(titleOf(file));
    let toldTenth = 0;
    const tell = (progress: DownloadProgress): void => {
      onProgress(progress.bytesDone);
      view?.update(progress);
      const tenth = Math.floor(progress.fraction * 10);
      if (tenth <= toldTenth) return;
      toldTenth = tenth;
      const { secondsLeft } = progress;
      log.info({ model: file.name, percent: tenth * 10, secondsLeft }, 'A model is being fetched');
    };
    try {
      const { downloads } = config;
      const from = { ...file, url: modelUrl(file.url, downloads) };
      await throughProxy(downloads, (dispatcher) =>
        downloadFile({ file: from, path, dispatcher, clock, log, signal, onProgress: tell }),
      );
    } finally {
      view?.end();
    }
    return path;
  };
}

export function hostOf(url: string): string {
  return URL.parse(url)?.host ?? 'its source';
}

export class FetchPace {
  readonly #totalBytes: number;
  readonly #clock: Clock;
  readonly #startedMs: number;
  #bytes = 0;
  /** Bytes that were already on disk do not count for the network rate. */
  #firstBytes: number | undefined;

  constructor(totalBytes: number, clock: Clock) {
    this.#totalBytes = totalBytes;
    this.#clock = clock;
    this.#startedMs = clock.monotonicMs();
  }

  saw(bytes: number): void {
    this.#firstBytes ??= bytes;
    this.#bytes = bytes;
  }

  /** From 0 to 1. */
  get fraction(): number {
    return Math.min(this.#bytes / this.#totalBytes, 1);
  }

  /** `undefined` while the rate is unknown. */
  get remainingMs(): number | undefined {
    const fresh = this.#bytes - (this.#firstBytes ?? this.#bytes);
    const elapsedMs = this.#clock.monotonicMs() - this.#startedMs;
    if (fresh <= 0 || elapsedMs <= 0) return undefined;
    return Math.round(((this.#totalBytes - this.#bytes) * elapsedMs) / fresh);
  }
}

const UNKNOWN_MS = MINUTE_MS;
/** Upper bound of the retry delay that callers receive for a slow fetch. */
const LONGEST_WAIT_MS = 60 * MINUTE_MS;

export function fetchingOutage(
  { fraction, remainingMs = UNKNOWN_MS }: Pick<ModelProgress, 'fraction' | 'remainingMs'>,
  nowMs: number,
): ModelOutage {
  const reason = `is being fetched: ${Math.floor(fraction * 100)} %`;
  return { reason, backAtMs: Math.round(nowMs + Math.min(remainingMs, LONGEST_WAIT_MS)) };
}

export interface ModelProgress {
  readonly state: 'idle' | 'fetching' | 'ready' | 'failed';
  readonly fraction: number;
  /** `undefined` while the rate is unknown. */
  readonly remainingMs: number | undefined;
  readonly error: string | undefined;
}

export function outageOfFetch(
  progress: ModelProgress | undefined,
  nowMs: number,
): ModelOutage | undefined {
  if (progress === undefined || progress.state === 'ready') return undefined;
  if (progress.state === 'failed') return { reason: 'could not be fetched, which is tried again' };
  return fetchingOutage(progress, nowMs);
}

export interface FetchedModel {
  readonly name: string;
  readonly files: readonly ModelFile[];
  readonly fetchModel: FetchModel;
}

export interface ModelFetchOptions extends FetchedModel {
  /** Receives the paths in the order of `files`. */
  readonly onReady: (paths: readonly string[]) => void;
  readonly log: Log;
  readonly clock: Clock;
}

/** Delay before the next use retries a failed fetch. */
const RETRY_AFTER_MS = 10 * MINUTE_MS;

export class ModelFetch {
  readonly #options: ModelFetchOptions;
  readonly #aborter = new AbortController();
  readonly #totalBytes: number;
  #state: ModelProgress['state'] = 'idle';
  #error: string | undefined;
  #pace: FetchPace;
  #retryAtMs = 0;

  constructor(options: ModelFetchOptions) {
    this.#options = options;
    this.#totalBytes = options.files.reduce((sum, file) => sum + file.sizeBytes, 0);
    this.#pace = new FetchPace(this.#totalBytes, options.clock);
  }

  /** Starts the fetch unless it runs, is done, or failed a short time ago. */
  start(): void {
    const nowMs = this.#options.clock.monotonicMs();
    const isDue = this.#state === 'idle' || (this.#state === 'failed' && nowMs >= this.#retryAtMs);
    if (!isDue || this.#aborter.signal.aborted) return;
    this.#state = 'fetching';
    this.#pace = new FetchPace(this.#totalBytes, this.#options.clock);
    this.#run().catch((error: unknown) => this.#fail(error));
  }

  progress(): ModelProgress {
    const state = this.#state;
    const { fraction, remainingMs } = this.#pace;
    return {
      state,
      fraction: state === 'ready' ? 1 : fraction,
      remainingMs: state === 'fetching' ? remainingMs : undefined,
      error: this.#error,
    };
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
      const before = wholeBytes;
      const onProgress = (bytes: number): void => this.#pace.saw(before + bytes);
      paths.push(await fetchModel(file, onProgress, this.#aborter.signal));
      wholeBytes += file.sizeBytes;
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
