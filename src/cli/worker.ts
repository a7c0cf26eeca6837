/**
 * One worker of `farebox serve --workers`: a whole server that shares its port, its
 * database and the local engines with its siblings. It ends when the first process says so, or
 * when that process is gone; signals of the terminal are the first process's business.
 */
import cluster from 'node:cluster';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { type EngineNews, SharedEngines } from '../engines/shared-engines.ts';
import type { App, OwnView, Siblings } from '../server/server.ts';
import { requireSettings } from './command.ts';
import { logFor, operationsOf, startServer, watchSettings } from './server-start.ts';
import type { Console } from './terminal.ts';

/** What the first process tells its workers. */
export type ToWorker =
  | { readonly kind: 'engines'; readonly news: EngineNews }
  | { readonly kind: 'reload' }
  | { readonly kind: 'stop' }
  /** A sibling is gone; the ids are of all processes that share the database. */
  | { readonly kind: 'ended'; readonly processId: string }
  /** A sibling was asked for what all see. */
  | { readonly kind: 'view-wanted'; readonly of: OwnView; readonly inquiry: number }
  | { readonly kind: 'views'; readonly inquiry: number; readonly views: readonly string[] };

/** What a worker tells the first process. */
export type FromWorker =
  /** Before it takes anything that others share. */
  | { readonly kind: 'began'; readonly processId: string }
  | { readonly kind: 'listening'; /** `http://host:port`. */ readonly address: string }
  /** It is asked for what all see and has its own. */
  | { readonly kind: 'views-wanted'; readonly of: OwnView; readonly inquiry: number }
  | { readonly kind: 'view'; readonly inquiry: number; readonly view: string };

/** The first process waits for less. */
const INQUIRY_LIMIT_MS = 1_500;

/** Serves until the first process says so or is gone; gives the exit code. */
export async function runWorker(console: Console, json: boolean): Promise<number> {
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    console.onSignal(signal, () => undefined);
  }
  const given = new SharedEngines();
  const stop = Promise.withResolvers<undefined>();
  const siblings = new OtherWorkers();
  let isStopping = false;
  let reload: () => void = () => undefined;
  let app: App | undefined;
  process.on('message', (message: ToWorker) => {
    if (message.kind === 'engines') given.take(message.news);
    else if (message.kind === 'reload') reload();
    else if (message.kind === 'stop') {
      // Said again, it is not to wait for open answers.
      if (isStopping) app?.server.hurry();
      isStopping = true;
      stop.resolve(undefined);
    } else if (message.kind === 'ended') void app?.processEnded(message.processId);
    else if (message.kind === 'views') siblings.take(message.inquiry, message.views);
    else {
      const { inquiry, of } = message;
      // One that is not up yet has nothing to say, and is left out.
      void app?.ownView(of).then((view) => tellFirst({ kind: 'view', inquiry, view }));
    }
  });
  process.on('disconnect', () => stop.resolve(undefined));

  const settings = await requireSettings(console);
  const { config } = settings;
  const log = logFor(console, config, json);
  const processId = systemIds().uuid();
  tellFirst({ kind: 'began', processId });
  app = await startServer({
    config,
    log,
    processId,
    localEngines: (onChange) => given.onChange(onChange),
    siblings,
    operations: operationsOf(console),
  });
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

/** Asks the other workers for what they see, through the first process. */
class OtherWorkers implements Siblings {
  readonly worker = cluster.worker?.id ?? 0;
  readonly #clock = systemClock();
  readonly #asked = new Map<number, (views: readonly string[]) => void>();
  #inquiries = 0;

  ask(of: OwnView): Promise<readonly string[]> {
    this.#inquiries += 1;
    const inquiry = this.#inquiries;
    const { promise, resolve } = Promise.withResolvers<readonly string[]>();
    this.#asked.set(inquiry, resolve);
    const cancel = this.#clock.after(INQUIRY_LIMIT_MS, () => this.take(inquiry, []));
    tellFirst({ kind: 'views-wanted', of, inquiry });
    return promise.finally(cancel);
  }

  take(inquiry: number, views: readonly string[]): void {
    this.#asked.get(inquiry)?.(views);
    this.#asked.delete(inquiry);
  }
}
