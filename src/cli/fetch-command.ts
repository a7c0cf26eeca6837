/** What the commands that fetch something share: their options, their progress, and Ctrl-C. */
import type { Config, DownloadSettings } from '../config/config.ts';
import { SECOND_MS } from '../core/clock.ts';
import type { DownloadView } from '../engines/local/model-files.ts';
import { type Invocation, UsageError } from './command.ts';
import { Progress } from './progress.ts';
import { type Console, printableLine } from './terminal.ts';

/** Where from, as the options say it, and what is shown meanwhile. */
export function fetchWith(
  invocation: Invocation,
  config: Config,
): {
  readonly downloads: DownloadSettings;
  readonly viewOf: (title: string) => DownloadView;
  readonly onRetry: (reason: string, delayMs: number) => void;
} {
  const { stderr } = invocation.console;
  const registry = addressOf(invocation, 'registry');
  const modelMirror = addressOf(invocation, 'mirror');
  const proxy = addressOf(invocation, 'proxy');
  return {
    downloads: {
      ...config.downloads,
      ...(registry !== undefined && { registry, registryToken: undefined }),
      ...(modelMirror !== undefined && { modelMirror }),
      ...(proxy !== undefined && { httpProxy: proxy, httpsProxy: proxy, noProxy: undefined }),
    },
    viewOf: (title) => {
      const progress = new Progress(stderr);
      return { update: (state) => progress.download(title, state), end: () => progress.end() };
    },
    onRetry: (reason, delayMs) => {
      const seconds = Math.ceil(delayMs / SECOND_MS);
      stderr.write(`${printableLine(reason)}: trying again in ${seconds} s\n`);
    },
  };
}

function addressOf(invocation: Invocation, name: string): string | undefined {
  const text = invocation.text(name);
  if (text === undefined) return undefined;
  const url = URL.parse(text);
  if (url !== null && /^https?:$/.test(url.protocol)) return text.replace(/\/+$/, '');
  throw new UsageError(`--${name} must be an address such as https://example.com, not "${text}"`);
}

/** Runs `work` until it is done or the person at the terminal has enough. */
export async function stoppable<T>(
  console: Console,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) {
    console.onSignal(signal, () =>
      stop.abort(new Error('Stopped: the next pull goes on from here')),
    );
  }
  return await work(stop.signal);
}
