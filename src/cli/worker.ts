/**
 * One worker of `farebox serve --workers`: a whole server that shares port, database and local
 * engines. It ends on a message of the first process, or when that process is gone.
 */
import cluster from 'node:cluster';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { type EngineNews, SharedEngines } from '../engines/shared-engines.ts';
import type { App, OwnView, Siblings } from '../server/server.ts';
import type { Cli } from './command.ts';
import { logFor, operationsOf, startServer, watchSettings } from './server-start.ts';

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
export async function runWorker(cli: Cli): Promise<number> {
  const { console, isJson } = cli;
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    console.onSignal(signal, () => undefined);
  }
  const given = new SharedEngines();
  const stop = Promise.withResolvers<undefined>();
  const views = new Questions<readonly string[]>();
  const siblings: Siblings = {
    worker: cluster.worker?.id ?? 0,
    ask: async (of) =>
      (await views.ask(INQUIRY_LIMIT_MS, (inquiry) =>
        tellFirst({ kind: 'views-wanted', of, inquiry }),
      )) ?? [],
  };
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
    else if (message.kind === 'views') views.answer(message.inquiry, message.views);
    else {
      const { inquiry, of } = message;
      // One that is not up yet has nothing to say, and is left out.
      void app?.ownView(of).then((view) => tellFirst({ kind: 'view', inquiry, view }));
    }
  });
  process.on('disconnect', () => stop.resolve(undefined));

  const settings = await cli.settings();
  const { config } = settings;
  const log = logFor(console, config, isJson);
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

/** Questions to another process, each answered by its number or not in time. */
export class Questions<T> {
  readonly #clock = systemClock();
  readonly #open = new Map<number, (answer: T | undefined) => void>();
  #count = 0;

  /** Resolves to `undefined` when no answer comes within `limitMs`. */
  ask(limitMs: number, send: (question: number) => void): Promise<T | undefined> {
    this.#count += 1;
    const question = this.#count;
    const { promise, resolve } = Promise.withResolvers<T | undefined>();
    this.#open.set(question, resolve);
    const cancel = this.#clock.after(limitMs, () => this.answer(question, undefined));
    send(question);
    return promise.finally(cancel);
  }

  answer(question: number, answer: T | undefined): void {
    this.#open.get(question)?.(answer);
    this.#open.delete(question);
  }
}
