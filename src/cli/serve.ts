/** `farebox serve`: runs the server until a signal stops it. */
import cluster from 'node:cluster';
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { welcomeOwner } from '../server/stores.ts';
import { systemClock } from '../core/clock.ts';
import type { Cli } from './command.ts';
import { serverDownloads } from './progress.ts';
import { serveWorkers } from './serve-workers.ts';
import {
  logFor,
  operationsOf,
  startServer,
  startupBanner,
  stopSignal,
  watchSettings,
} from './server-start.ts';
import { runWorker } from './worker.ts';

/** The embedded engine starts within 2 s; on a slow machine the banner does not wait longer. */
const ENGINE_START_MS = 5_000;
const MAX_WORKERS = 256;

export function serveCommand(cli: Cli): void {
  cli.program
    .command('serve')
    .description(`Run the server

The first start needs no configuration. It creates the data folder, the database, and an owner account
with a starter credit and an API key, and prints the key once.

Ctrl-C or SIGTERM stops the server after open requests have finished; a second signal aborts them.
SIGHUP reloads the configuration.`)
    .option('--port <number>', 'listen port (default: PORT, else listen.port, else 8402)')
    .option(
      '--workers <number>',
      'processes that share the port (default: cluster.workers, else 1); more than 1 needs PostgreSQL',
      workersOf,
    )
    .action(async ({ port, workers }) => {
      cli.setEnvironment({ PORT: port });
      cli.exitCode = await serve(cli, workers);
    });
}

async function serve(cli: Cli, wanted: number | undefined): Promise<number> {
  const { console, isJson: json } = cli;
  if (cluster.isWorker) return runWorker(cli);
  // A reload during a long start would end the process, which systemd takes for a clean exit.
  console.onSignal('SIGHUP', () => undefined);
  const settings = await cli.settings();
  const { config } = settings;
  const log = logFor(console, config, json);
  const workers = wanted ?? config.cluster.workers;
  if (workers > 1) return serveWorkers({ console, settings, workers, json, log });
  const app = await startServer({
    config,
    log,
    downloadView: serverDownloads(console.stderr),
    operations: operationsOf(console),
  });
  // It serves requests from now on.
  const stopped = stopSignal(console, () => app.server.hurry());
  const watch = watchSettings(console, app, settings, log);
  const owner = await welcomeOwner(app.stores, config);
  // The command in the banner needs the engine.
  await atMost(ENGINE_START_MS, Promise.race([app.localReady, stopped]));
  console.stdout.write(startupBanner(app.address, config, owner, console.env));
  await stopped;
  watch.stop();
  await app.close();
  return 0;
}

/** Waits for `work`, at most `limitMs`. Leaves no timer that would keep the process alive. */
async function atMost(limitMs: number, work: Promise<void>): Promise<void> {
  const timeout = new AbortController();
  const sleep = systemClock().sleep(limitMs, timeout.signal);
  await Promise.race([work, sleep.catch(() => undefined)]); // aborted below
  timeout.abort();
}

function workersOf(text: string): number {
  const workers = Number(text);
  if (Number.isInteger(workers) && workers >= 1 && workers <= MAX_WORKERS) return workers;
  throw new InvalidArgumentError(`must be a whole number from 1 to ${MAX_WORKERS}`);
}
