/**
 * Model files in the data folder: each is pinned by size and checksum, fetched once, and has its
 * name only when it is whole.
 */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import { type DownloadProgress, downloadFile } from './model-download.ts';

export interface ModelFile {
  /** The name in the model folder, unique among all models. */
  readonly name: string;
  readonly url: string;
  readonly sizeBytes: number;
  /** Lowercase hex. */
  readonly sha256: string;
  /** SPDX name, for people. */
  readonly license: string;
}

/** Resolves to the path of the verified file; `onProgress` gets the bytes that are there so far. */
export type FetchModel = (
  file: ModelFile,
  onProgress: (receivedBytes: number) => void,
  signal: AbortSignal,
) => Promise<string>;

/** Shows a download to whoever sits at the terminal. */
export interface DownloadView {
  update(progress: DownloadProgress): void;
  end(): void;
}

export interface ModelFetching {
  readonly dataFolder: string;
  /** Whether files that are not there may be fetched. */
  readonly mayDownload: boolean;
  readonly viewOf?: ((title: string) => DownloadView) | undefined;
  readonly clock: Clock;
  readonly log: Log;
}

export function modelPath(dataFolder: string, file: ModelFile): string {
  return join(dataFolder, 'models', file.name);
}

/** Whether the file is there: it gets its name only after its checksum was right. */
export async function hasModel(dataFolder: string, file: ModelFile): Promise<boolean> {
  try {
    return (await stat(modelPath(dataFolder, file))).size === file.sizeBytes;
  } catch {
    // Not fetched yet.
    return false;
  }
}

/** Fetches into the data folder, once, with its progress on the terminal and in the log. */
export function modelFetcher(
  { dataFolder, mayDownload, viewOf, clock, log }: ModelFetching,
  titleOf: (file: ModelFile) => string,
): FetchModel {
  return async (file, onProgress, signal) => {
    const path = modelPath(dataFolder, file);
    if (await hasModel(dataFolder, file)) return path;
    if (!mayDownload) throw new Error('Fetching models is switched off (embedded.download)');
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
      await downloadFile({ file, path, clock, log, signal, onProgress: tell });
    } finally {
      view?.end();
    }
    return path;
  };
}
