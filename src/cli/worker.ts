/**
 * One worker of `farebox serve --workers`: a whole server that shares its port, its
 * database and the local engines with its siblings. It ends when the first process says so, or
 * when that process is gone; signals of the terminal are the first process's business.
 */
import cluster from 'node:cluster';
import { systemClock } from '../core/clock.ts';
import { type EngineNews, SharedEngines } from '../engines/shared-engines.ts';
import type { Siblings } from '../server/server.ts';
import { requireSettings } from './command.ts';
import { logFor, operationsOf, startServer, watchSettings } from './serving.ts';
import type { Console } from './terminal.ts';

/** What the first process tells its workers. */
export type ToWorker =
  | { readonly kind: 'engines'; readonly news: EngineNews }
  | { readonly kind: 'reload' }
  | { readonly kind: 'stop' }
  /** A sibling was asked for the figures of all. */
  | { readonly kind: 'figures-wanted'; readonly scrape: number }
  | { readonly kind: 'figures'; readonly scrape: number; readonly pages: readonly string[] };

/** What a worker tells the first process. */
export type FromWorker =
  | { readonly kind: 'listening'; /** `http://host:port`. */ readonly address: string }
  /** It is asked for the figures of all and has its own. */
  | { readonly kind: 'figures-wanted'; readonly scrape: number }
  | { readonly kind: 'figures'; readonly scrape: number; readonly page: string };

/** The first process waits for less. */
const FIGURES_LIMIT_MS = 1_500;

/** Serves until the first process says so or is gone; gives the exit code. */
export async function runWorker(console: Console, json: boolean): Promise<number> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    console.onSignal(signal, () => undefined);
  }
  const given = new SharedEngines();
  const stop = Promise.withResolvers<undefined>();
  const siblings = new OtherWorkers();
  let reload: () => void = () => undefined;
  let ownPage = (): Promise<string> => Promise.resolve('');
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'engines') given.take(message.news);
    else if (message.kind === 'reload') reload();
    else if (message.kind === 'stop') stop.resolve(undefined);
    else if (message.kind === 'figures') siblings.take(message.scrape, message.pages);
    else {
      const { scrape } = message;
      void ownPage().then((page) => tellFirst({ kind: 'figures', scrape, page }));
    }
  });
  process.on('disconnect', () => stop.resolve(undefined));

  const settings = await requireSettings(console);
  const { config } = settings;
  const log = logFor(console, config, json);
  const app = await startServer({
    config,
    log,
    localEngines: (onChange) => given.onChange(onChange),
    siblings,
    operations: operationsOf(console),
  });
  ownPage = () => app.metricsPage();
  const watch = watchSettings(console, app, settings, log);
  reload = () => void watch.check(true);
  tellFirst({ kind: 'listening', address: app.address });
  await stop.promise;
  watch.stop();
  await app.close();
  // The open channel to the first process would keep this one alive.
  if (process.connected) process.disconnect?.();
  return 0;
}

/** The first process may be gone. */
function tellFirst(message: FromWorker): void {
  if (process.connected) process.send?.(message);
}

/** Asks the other workers for their figures, through the first process. */
class OtherWorkers implements Siblings {
  readonly worker = cluster.worker?.id ?? 0;
  readonly #clock = systemClock();
  readonly #asked = new Map<number, (pages: readonly string[]) => void>();
  #scrapes = 0;

  metricsPages(): Promise<readonly string[]> {
    this.#scrapes += 1;
    const scrape = this.#scrapes;
    const { promise, resolve } = Promise.withResolvers<readonly string[]>();
    this.#asked.set(scrape, resolve);
    const cancel = this.#clock.after(FIGURES_LIMIT_MS, () => this.take(scrape, []));
    tellFirst({ kind: 'figures-wanted', scrape });
    return promise.finally(cancel);
  }

  take(scrape: number, pages: readonly string[]): void {
    this.#asked.get(scrape)?.(pages);
    this.#asked.delete(scrape);
  }
}
