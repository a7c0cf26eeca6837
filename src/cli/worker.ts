/**
 * One worker of `farebox serve --workers`: a whole server that shares its port, its
 * database and the local engines with its siblings. It ends when the first process says so, or
 * when that process is gone; signals of the terminal are the first process's business.
 */
import { type EngineNews, SharedEngines } from '../engines/shared-engines.ts';
import { requireSettings } from './command.ts';
import { logFor, operationsOf, startServer, watchSettings } from './serving.ts';
import type { Console } from './terminal.ts';

/** What the first process tells its workers. */
export type ToWorker =
  | { readonly kind: 'engines'; readonly news: EngineNews }
  | { readonly kind: 'reload' }
  | { readonly kind: 'stop' };

/** A worker tells the first process that it listens. */
export interface FromWorker {
  readonly kind: 'listening';
  /** `http://host:port`. */
  readonly address: string;
}

/** Serves until the first process says so or is gone; gives the exit code. */
export async function runWorker(console: Console, json: boolean): Promise<number> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    console.onSignal(signal, () => undefined);
  }
  const given = new SharedEngines();
  const stop = Promise.withResolvers<undefined>();
  let reload: () => void = () => undefined;
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'engines') given.take(message.news);
    else if (message.kind === 'reload') reload();
    else stop.resolve(undefined);
  });
  process.on('disconnect', () => stop.resolve(undefined));

  const settings = await requireSettings(console);
  const { config } = settings;
  const log = logFor(console, config, json);
  const app = await startServer({
    config,
    log,
    localEngines: (onChange) => given.onChange(onChange),
    operations: operationsOf(console),
  });
  const watch = watchSettings(console, app, settings, log);
  reload = () => void watch.check(true);
  process.send?.({ kind: 'listening', address: app.address } satisfies FromWorker);
  await stop.promise;
  watch.stop();
  await app.close();
  // The open channel to the first process would keep this one alive.
  if (process.connected) process.disconnect?.();
  return 0;
}
