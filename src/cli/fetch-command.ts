/** Shared parts of `models pull` and `engines pull`: options, progress, and cancellation by a signal. */
import type { Config, DownloadSettings } from '../config/config.ts';
import { SECOND_MS } from '../core/clock.ts';
import type { DownloadView } from '../engines/embedded/model-files.ts';
import { httpAddress } from './command.ts';
import { downloadViews } from './progress.ts';
import { type Console, printableLine } from './terminal.ts';

export const PROXY = ['--proxy <url>', 'URL of an HTTP proxy', httpAddress] as const;

interface FetchOptions {
  readonly registry?: string | undefined;
  readonly mirror?: string | undefined;
  readonly proxy?: string | undefined;
}

/** The download settings of the configuration with the options applied, and the progress output. */
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
      stderr.write(`${printableLine(reason)}; retrying in ${seconds} s\n`);
    },
  };
}

/** Runs `work`; SIGINT and SIGTERM abort it. */
export function stoppable<T>(
  console: Console,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    console.onSignal(signal, () =>
      stop.abort(new Error('Stopped; run the command again to continue the download')),
    );
  }
  return work(stop.signal);
}
