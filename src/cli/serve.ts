/** `farebox serve`: runs the server until it is told to stop. */
import cluster from 'node:cluster';
import { InvalidArgumentError } from '@commander-js/extra-typings';
import { welcomeOwner } from '../server/stores.ts';
import { systemClock } from '../core/clock.ts';
import type { Cli } from './command.ts';
import { downloadViews } from './progress.ts';
import { serveWorkers } from './serve-workers.ts';
import {
  greeting,
  logFor,
  operationsOf,
  startServer,
  stopSignal,
  watchSettings,
} from './server-start.ts';
import { runWorker } from './worker.ts';

/** The embedded engine is up within two seconds; a slow machine sees the greeting all the same. */
const ENGINE_MOMENT_MS = 5_000;

export function serveCommand(cli: Cli): void {
  cli.program
    .command('serve')
    .description(`Run the server

The first start makes the data folder, the database, an owner account with a starter credit and an
API key, which is shown once. No setting is needed for it.
Stop it with Ctrl-C or SIGTERM: open answers finish first, a second one cuts them. SIGHUP reads
the configuration again.`)
    .option('--port <number>', 'where it listens (default: PORT, else listen.port, else 8402)')
    .option(
      '--workers <number>',
      'processes that share the port; more than one needs PostgreSQL',
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
  const settings = await cli.settings();
  const { config } = settings;
  const log = logFor(console, config, json);
  const workers = wanted ?? config.cluster.workers;
  if (workers > 1) return serveWorkers({ console, config, workers, json, log });
  const app = await startServer({
    config,
    log,
    downloadView: downloadViews(console.stderr, 'download ended'),
    operations: operationsOf(console),
  });
  const owner = await welcomeOwner(app.stores, config);
  // The command that is printed works as it stands, so its engine gets a moment to come up.
  await withinMoment(app.localReady);
  // Signals are received before the startup banner is printed.
  const watch = watchSettings(console, app, settings, log);
  const stopped = stopSignal(console, () => app.server.hurry());
  console.stdout.write(greeting(app.address, config, owner));
  await stopped;
  watch.stop();
  await app.close();
  return 0;
}

/** Waits for `work`, but not for long; no timer is left that would hold the ending process. */
async function withinMoment(work: Promise<void>): Promise<void> {
  const patience = new AbortController();
  const moment = systemClock().sleep(ENGINE_MOMENT_MS, patience.signal);
  const quiet = moment.catch(() => undefined); // the work was faster
  await Promise.race([work, quiet]);
  patience.abort();
}

const MAX_WORKERS = 256;

function workersOf(text: string): number {
  const workers = Number(text);
  if (Number.isInteger(workers) && workers >= 1 && workers <= MAX_WORKERS) return workers;
  throw new InvalidArgumentError(`must be a whole number from 1 to ${MAX_WORKERS}`);
}
