/**
 * Model files in the data folder: each is pinned by size and checksum, fetched once, and gets its
 * name when it is complete. `ModelFetch` fetches all files of a model in the background, starting
 * with its first use, and reports its progress.
 */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { EnvHttpProxyAgent } from 'undici';
import type { ModelOutage } from '../../catalog/catalog.ts';
import type { Config, DownloadSettings } from '../../config/config.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import { type Log, reasonOf } from '../../core/log.ts';
import { type DownloadOptions, type DownloadProgress, downloadFile } from './model-download.ts';

export interface ModelFile {
  /** File name in the model folder, unique among all models. */
  readonly name: string;
  readonly url: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  /** SPDX name, for display. */
  readonly license: string;
}

type FetchedBytes = Pick<DownloadProgress, 'bytesDone' | 'bytesPerSecond'>;

/** Resolves to the path of the verified file. */
export type FetchModel = (
  file: ModelFile,
  onProgress: (fetched: FetchedBytes) => void,
  signal: AbortSignal,
) => Promise<string>;

/** Shows the progress of one download on the terminal. */
export interface DownloadView {
  update(progress: DownloadProgress): void;
  /** `isDone`: whether the download is complete. */
  end(isDone: boolean): void;
}

export interface FetchParts {
  readonly config: Config;
  readonly viewOf?: ((title: string) => DownloadView) | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

/** Interval of log lines about a running download. */
const LOG_MS = MINUTE_MS;

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

const HUGGING_FACE = 'https://huggingface.co';

function urlOf(file: ModelFile, { modelMirror, modelHub }: DownloadSettings): string {
  const { origin, pathname, search } = new URL(file.url);
  const base = modelMirror ?? (origin === HUGGING_FACE ? modelHub : undefined) ?? origin;
  return `${base}${pathname}${search}`;
}

export interface ModelDownloadOptions extends Omit<DownloadOptions, 'file' | 'dispatcher'> {
  readonly downloads: DownloadSettings;
  readonly view: DownloadView | undefined;
}

/** Downloads a model file from the configured mirror through the configured proxy. */
export async function downloadModel(
  file: ModelFile,
  { downloads, view, onProgress, ...options }: ModelDownloadOptions,
): Promise<void> {
  const { httpProxy = '', httpsProxy = '', noProxy = '' } = downloads;
  const isDirect = httpProxy === '' && httpsProxy === '';
  const proxy = isDirect ? undefined : new EnvHttpProxyAgent({ httpProxy, httpsProxy, noProxy });
  let isDone = false;
  try {
    await downloadFile({
      ...options,
      file: { ...file, url: urlOf(file, downloads) },
      dispatcher: proxy,
      onProgress: (progress) => {
        view?.update(progress);
        onProgress?.(progress);
      },
    });
    isDone = true;
  } finally {
    view?.end(isDone);
    await proxy?.close();
  }
}

/**
 * Returns a function that downloads a missing model file into the data folder, and reports the progress
 * in the terminal and the log.
 */
export function modelFetcher(
  { config, viewOf, clock, log }: FetchParts,
  titleOf: (file: ModelFile) => string,
): FetchModel {
  return async (file, onProgress, signal) => {
    const { dataFolder, downloads } = config;
    const path = modelPath(dataFolder, file);
    if (await hasModel(dataFolder, file)) return path;
    if (!config.embedded.download)
      throw new Error('Downloading models is switched off (embedded.download)');
    let loggedMs = clock.monotonicMs();
    const report = (progress: DownloadProgress): void => {
      onProgress(progress);
      const nowMs = clock.monotonicMs();
      if (nowMs - loggedMs < LOG_MS) return;
      loggedMs = nowMs;
      const { fraction, secondsLeft } = progress;
      const percent = Math.floor(fraction * 100);
      log.info({ model: file.name, percent, secondsLeft }, 'A model is being downloaded');
    };
    const view = viewOf?.(titleOf(file));
    await downloadModel(file, { downloads, path, view, clock, log, signal, onProgress: report });
    return path;
  };
}

export function hostOf(url: string): string {
  return URL.parse(url)?.host ?? 'its source';
}

/** Retry delay for callers while the rate of a fetch is unknown. */
const UNKNOWN_MS = MINUTE_MS;
/** Upper bound of the retry delay for callers. */
const LONGEST_WAIT_MS = 60 * MINUTE_MS;

/** The outage of a model of which `fetched` bytes have been fetched. */
export function fetchingOutage(
  totalBytes: number,
  { bytesDone, bytesPerSecond }: FetchedBytes,
  nowMs: number,
): ModelOutage {
  const percent = Math.floor(Math.min(bytesDone / totalBytes, 1) * 100);
  const leftMs = ((totalBytes - bytesDone) * SECOND_MS) / bytesPerSecond;
  const waitMs = bytesPerSecond > 0 ? Math.min(leftMs, LONGEST_WAIT_MS) : UNKNOWN_MS;
  return { reason: `is being downloaded: ${percent} %`, backAtMs: Math.round(nowMs + waitMs) };
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
  #state: 'idle' | 'fetching' | 'ready' | 'failed' = 'idle';
  #fetched: FetchedBytes = { bytesDone: 0, bytesPerSecond: 0 };
  #retryAtMs = 0;

  constructor(options: ModelFetchOptions) {
    this.#options = options;
    this.#totalBytes = options.files.reduce((sum, file) => sum + file.sizeBytes, 0);
  }

  /** Starts the fetch, unless it is running, done, or failed a short time ago. */
  start(): void {
    const nowMs = this.#options.clock.monotonicMs();
    const isDue = this.#state === 'idle' || (this.#state === 'failed' && nowMs >= this.#retryAtMs);
    if (!isDue || this.#aborter.signal.aborted) return;
    this.#state = 'fetching';
    this.#fetched = { bytesDone: 0, bytesPerSecond: 0 };
    this.#run().catch((error: unknown) => this.#fail(error));
  }

  /** Why the model is not available; `undefined` if it is. */
  outage(): ModelOutage | undefined {
    if (this.#state === 'ready') return undefined;
    if (this.#state === 'failed')
      return { reason: 'could not be downloaded; the server tries again' };
    return fetchingOutage(this.#totalBytes, this.#fetched, this.#options.clock.monotonicMs());
  }

  close(): void {
    this.#aborter.abort();
  }

  async #run(): Promise<void> {
    const { files, fetchModel, onReady, log, name } = this.#options;
    log.info({ model: name }, 'Downloading a model in the background');
    const paths: string[] = [];
    let previousBytes = 0;
    for (const file of files) {
      const onProgress = ({ bytesDone, bytesPerSecond }: FetchedBytes): void => {
        this.#fetched = { bytesDone: previousBytes + bytesDone, bytesPerSecond };
      };
      paths.push(await fetchModel(file, onProgress, this.#aborter.signal));
      previousBytes += file.sizeBytes;
    }
    this.#state = 'ready';
    log.info({ model: name }, 'A model is ready');
    onReady(paths);
  }

  #fail(error: unknown): void {
    const { name, clock, log } = this.#options;
    this.#state = 'failed';
    this.#retryAtMs = clock.monotonicMs() + RETRY_AFTER_MS;
    if (this.#aborter.signal.aborted) return;
    log.warn({ model: name, reason: reasonOf(error) }, 'A model could not be downloaded');
  }
}
