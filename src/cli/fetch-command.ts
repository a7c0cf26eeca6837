/** What the commands that fetch something share: their options, their progress, and Ctrl-C. */
import type { Config, DownloadSettings } from '../config/config.ts';
import { SECOND_MS } from '../core/clock.ts';
import type { DownloadView } from '../engines/embedded/model-files.ts';
import { httpAddress } from './command.ts';
import { downloadViews } from './progress.ts';
import { type Console, printableLine } from './terminal.ts';

export const PROXY = ['--proxy <url>', 'the proxy', httpAddress] as const;

/** Where from, as the options of a command say it. */
export interface FetchOptions {
  readonly registry?: string | undefined;
  readonly mirror?: string | undefined;
  readonly proxy?: string | undefined;
}

/** The settings of a download with what the options change, and how its progress is shown. */
export function fetchWith(
  { stderr }: Console,
  config: Config,
  { registry, mirror: modelMirror, proxy }: FetchOptions,
): {
  readonly downloads: DownloadSettings;
  readonly viewOf: (title: string) => DownloadView;
  readonly onRetry: (reason: string, delayMs: number) => void;
} {
  return {
    downloads: {
      ...config.downloads,
      ...(registry !== undefined && { registry, registryToken: undefined }),
      ...(modelMirror !== undefined && { modelMirror }),
      ...(proxy !== undefined && { httpProxy: proxy, httpsProxy: proxy, noProxy: undefined }),
    },
    viewOf: downloadViews(stderr),
    onRetry: (reason, delayMs) => {
      const seconds = Math.ceil(delayMs / SECOND_MS);
      stderr.write(`${printableLine(reason)}: trying again in ${seconds} s\n`);
    },
  };
}

/** Runs `work` until it is done or a signal stops it. */
export function stoppable<T>(
  console: Console,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    console.onSignal(signal, () =>
      stop.abort(new Error('Stopped: the next pull goes on from here')),
    );
  }
  return work(stop.signal);
}
