/** `farebox serve`: runs the server until it is told to stop. */
import cluster from 'node:cluster';
import { welcomeOwner } from '../server/stores.ts';
import type { Config } from '../config/config.ts';
import { systemClock } from '../core/clock.ts';
import { type Command, type Invocation, UsageError, requireSettings } from './command.ts';
import { serveWorkers } from './serve-workers.ts';
import {
  downloadView,
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

export const serveCommand: Command = {
  name: 'serve',
  summary: 'Run the server',
  usage: 'serve [options]',
  details: `
  --port <number>      where it listens (default: PORT, else listen.port, else 8402)
  --config <file>      the settings (default: FAREBOX_CONFIG, else farebox.yaml)
  --data <folder>      database, keys, models, media (default: FAREBOX_DATA, else ./data)
  --workers <number>   processes that share the port; more than one needs PostgreSQL
  --json               write every log line as JSON

The first start makes the data folder, the database, an owner account with a starter credit and an
API key, which is shown once. No setting is needed for it.
Stop it with Ctrl-C or SIGTERM: open answers finish first, a second one cuts them. SIGHUP reads
the configuration again.`,
  run: serve,
};

async function serve(invocation: Invocation): Promise<number> {
  const { console, isJson: json } = invocation;
  if (cluster.isWorker) return runWorker(console, json);
  const settings = await requireSettings(console);
  const { config } = settings;
  const log = logFor(console, config, json);
  const workers = workersOf(invocation.text('workers'), config);
  if (workers > 1) return serveWorkers({ console, config, workers, json, log });
  const app = await startServer({
    config,
    log,
    downloadView: (title) => downloadView(console, title),
    operations: operationsOf(console),
  });
  const owner = await welcomeOwner(app.stores, config);
  // The command that is printed works as it stands, so its engine gets a moment to come up.
  await withinMoment(app.localReady);
  // Who reads the greeting may stop it at once, or have it read its settings.
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

function workersOf(wanted: string | undefined, config: Config): number {
  if (wanted === undefined) return config.cluster.workers;
  const workers = Number(wanted);
  if (Number.isInteger(workers) && workers >= 1 && workers <= MAX_WORKERS) return workers;
  throw new UsageError(`--workers must be a whole number from 1 to ${MAX_WORKERS}`);
}
