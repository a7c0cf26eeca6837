/**
 * A worker of `farebox serve --workers`: a complete server that shares port, database and local
 * engines with its siblings. It stops on a message from the primary process or when that process ends.
 */
import cluster from 'node:cluster';
import { systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { type EngineNews, SharedEngines } from '../engines/shared-engines.ts';
import type { App, OwnView } from '../server/server.ts';
import type { Cli, Settings } from './command.ts';
import { logFor, operationsOf, startServer, watchSettings } from './server-start.ts';

export type ToWorker =
  /** The first message: the file may have changed since the start of the server. */
  | { readonly kind: 'settings'; readonly settings: Settings }
  | { readonly kind: 'engines'; readonly news: EngineNews }
  | { readonly kind: 'reload' }
  | { readonly kind: 'stop' }
  /** A sibling ended; `processId` is unique among all processes on the database. */
  | { readonly kind: 'ended'; readonly processId: string }
  /** Requests the view of this worker, for a request that a sibling serves. */
  | { readonly kind: 'view-request'; readonly of: OwnView; readonly id: number }
  | { readonly kind: 'views'; readonly id: number; readonly views: readonly string[] };

export type FromWorker =
  /** Sent before the worker acquires shared resources. */
  | { readonly kind: 'began'; readonly processId: string }
  /** The configuration changed. */
  | { readonly kind: 'reloaded' }
  | { readonly kind: 'listening'; /** `http://host:port`. */ readonly address: string }
  /** Requests the views of all siblings. */
  | { readonly kind: 'views-request'; readonly of: OwnView; readonly id: number }
  | { readonly kind: 'view'; readonly id: number; readonly view: string };

/** Longer than the primary process waits for each worker. */
const VIEWS_TIMEOUT_MS = 1_500;

/** Serves until the primary process stops it; returns the exit code. */
export async function runWorker(cli: Cli): Promise<number> {
  const { console, isJson } = cli;
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
    console.onSignal(signal, () => undefined);
  }
  const shared = new SharedEngines(() => send({ kind: 'reloaded' }));
  const start = Promise.withResolvers<Settings>();
  const stop = Promise.withResolvers<undefined>();
  const views = new Requests<readonly string[]>();
  let isStopping = false;
  let reload: () => void = () => undefined;
  let app: App | undefined;
  process.on('message', (message: ToWorker) => {
    switch (message.kind) {
      case 'settings':
        start.resolve(message.settings);
        return;
      case 'engines':
        shared.take(message.news);
        return;
      case 'reload':
        reload();
        return;
      case 'stop':
        // The second message aborts open requests.
        if (isStopping) app?.server.hurry();
        isStopping = true;
        stop.resolve(undefined);
        return;
      case 'ended':
        void app?.processEnded(message.processId);
        return;
      case 'views':
        views.resolve(message.id, message.views);
        return;
      case 'view-request': {
        // A worker that still starts does not respond; the primary process leaves it out.
        const { id, of } = message;
        void app?.ownView(of).then((view) => send({ kind: 'view', id, view }));
      }
    }
  });
  process.on('disconnect', () => stop.resolve(undefined));

  const settings = await start.promise;
  const { config } = settings;
  const log = logFor(console, config, isJson);
  const processId = systemIds().uuid();
  send({ kind: 'began', processId });
  try {
    app = await startServer({
      config,
      log,
      processId,
      localEngines: (onChange) => shared.onChange(onChange),
      siblings: {
        worker: cluster.worker?.id ?? 0,
        ask: async (of) =>
          (await views.send(VIEWS_TIMEOUT_MS, (id) => send({ kind: 'views-request', of, id }))) ??
          [],
      },
      operations: operationsOf(console),
    });
  } catch (error) {
    // The open channel would keep this process alive, and the primary process starts another one.
    process.channel?.unref();
    throw error;
  }
  const watch = watchSettings(console, app, settings, log);
  reload = () => void watch.check(true);
  send({ kind: 'listening', address: app.address });
  await stop.promise;
  watch.stop();
  await app.close();
  // An open channel would keep this process alive.
  if (process.connected) process.disconnect?.();
  return 0;
}

/** Sends to the primary process, unless it has ended. */
function send(message: FromWorker): void {
  if (process.connected) process.send?.(message);
}

/** Matches responses of another process to requests by id, with a timeout. */
export class Requests<T> {
  readonly #clock = systemClock();
  readonly #open = new Map<number, (response: T | undefined) => void>();
  #lastId = 0;

  /** Resolves to `undefined` after `timeoutMs` without a response. */
  send(timeoutMs: number, transmit: (id: number) => void): Promise<T | undefined> {
    this.#lastId += 1;
    const id = this.#lastId;
    const { promise, resolve } = Promise.withResolvers<T | undefined>();
    this.#open.set(id, resolve);
    const cancel = this.#clock.after(timeoutMs, () => this.resolve(id, undefined));
    transmit(id);
    return promise.finally(cancel);
  }

  resolve(id: number, response: T | undefined): void {
    this.#open.get(id)?.(response);
    this.#open.delete(id);
  }
}
