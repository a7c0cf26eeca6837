/**
 * `farebox serve --workers N`: the primary process. It creates the first owner, runs the local engines
 * and starts N workers that share one port and one PostgreSQL database. It restarts a worker that
 * ends, with a growing delay, and notifies another worker, which releases its holds and leases.
 */
import cluster, { type Worker } from 'node:cluster';
import { LocalEngines } from '../engines/embedded/embedded.ts';
import { type FirstOwner, openStores, welcomeOwner } from '../server/stores.ts';
import { type Config, loadConfig, settingsInForce } from '../config/config.ts';
import { MINUTE_MS, SECOND_MS, systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import { type Log, reasonOf } from '../core/log.ts';
import type { LeveledLog } from '../observability/log-writer.ts';
import { countRejections } from '../server/unhandled-rejections.ts';
import { serverDownloads } from './progress.ts';
import type { Settings } from './command.ts';
import { startupBanner, stopSignal } from './server-start.ts';
import type { Console } from './terminal.ts';
import { type FromWorker, Requests, type ToWorker } from './worker.ts';

const FIRST_RESTART_MS = SECOND_MS / 2;
const MAX_RESTART_MS = 30 * SECOND_MS;
/** A worker that ran this long starts again with the shortest restart delay. */
const HEALTHY_AFTER_MS = MINUTE_MS;
const VIEW_TIMEOUT_MS = SECOND_MS;
/** Time for a worker to close its database after the drain; then it is killed. */
const CLOSING_GRACE_MS = 10 * SECOND_MS;

interface PrimaryOptions {
  readonly console: Console;
  readonly settings: Settings;
  readonly log: LeveledLog;
  readonly workers: number;
  readonly json: boolean;
}

/** Runs until a signal and returns the exit code. Throws if the database is not PostgreSQL. */
export async function serveWorkers(options: PrimaryOptions): Promise<number> {
  const { console, log } = options;
  const { config } = options.settings;
  if (config.databaseUrl.startsWith('sqlite:')) {
    throw new Error(
      `${options.workers} workers need a shared database: set "database" to postgres://… ("farebox move" copies the data), or run one worker`,
    );
  }
  countRejections(process, log, systemClock());
  const owner = await firstOwner(config, log);
  const primary = new Primary(options);
  const stopped = stopSignal(console, () => primary.hurry()).then(() => 'stop' as const);
  const address = await Promise.race([primary.start(), stopped]);
  if (address === undefined) {
    console.stderr.write('No worker could start; the messages above name the reason\n');
    await primary.stop();
    return 1;
  }
  if (address !== 'stop') {
    console.onSignal('SIGHUP', () => primary.broadcast({ kind: 'reload' }));
    console.stdout.write(startupBanner(address, config, owner, console.env));
    await stopped;
  }
  await primary.stop();
  return 0;
}

async function firstOwner(config: Config, log: Log): Promise<FirstOwner | undefined> {
  const stores = await openStores({ config, clock: systemClock(), ids: systemIds(), log });
  try {
    return await welcomeOwner(stores, config);
  } finally {
    await stores.close();
  }
}

interface Slot {
  worker: Worker | undefined;
  isListening: boolean;
  startedMs: number;
  crashes: number;
}

class Primary {
  readonly #options: PrimaryOptions;
  /** In force, for workers that start again. */
  #settings: Settings;
  readonly #clock = systemClock();
  readonly #slots: Slot[] = [];
  readonly #views = new Requests<string>();
  readonly #engines: LocalEngines;
  readonly #listening = Promise.withResolvers<string | undefined>();
  readonly #allEnded = Promise.withResolvers<undefined>();
  /** Ended processes of which no worker was notified yet. */
  readonly #unreported: string[] = [];
  #isListening = false;
  readonly #stopping = new AbortController();
  #cancelKill: (() => void) | undefined;

  constructor(options: PrimaryOptions) {
    this.#options = options;
    this.#settings = options.settings;
    const { log, console } = options;
    this.#engines = new LocalEngines({
      config: options.settings.config,
      clock: this.#clock,
      ids: systemIds(),
      log,
      onChange: () => this.broadcast(this.#news()),
      viewOf: serverDownloads(console.stderr),
    });
  }

  /** Starts workers and engines. Resolves to the address, or `undefined` if no worker can start. */
  start(): Promise<string | undefined> {
    cluster.setupPrimary({
      // A worker runs the program of this process, in which `serve` sees `cluster.isWorker`.
      args: ['serve', ...(this.#options.json ? ['--json'] : [])],
      cwd: this.#options.console.cwd,
      serialization: 'advanced',
    });
    for (let at = 0; at < this.#options.workers; at += 1) {
      const slot: Slot = { worker: undefined, isListening: false, startedMs: 0, crashes: 0 };
      this.#slots.push(slot);
      this.#launch(slot);
    }
    // Workers do not wait for downloads of engines.
    void this.#engines.start().then(() => this.broadcast(this.#news()));
    return this.#listening.promise;
  }

  broadcast(message: ToWorker): void {
    for (const worker of this.#connected()) worker.send(message);
  }

  /** Drains all workers, kills those that hang, and stops the engines. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    this.broadcast({ kind: 'stop' });
    this.#checkAllEnded();
    const { config } = this.#settings;
    this.#killAfter(config.http.drainSeconds * SECOND_MS + CLOSING_GRACE_MS);
    await this.#allEnded.promise;
    this.#cancelKill?.();
    await this.#engines.stop();
  }

  /** Aborts open requests. */
  hurry(): void {
    this.broadcast({ kind: 'stop' });
    this.#killAfter(CLOSING_GRACE_MS);
  }

  #killAfter(ms: number): void {
    this.#cancelKill?.();
    this.#cancelKill = this.#clock.after(ms, () => {
      for (const { worker } of this.#slots) worker?.process.kill('SIGKILL');
    });
  }

  #connected(): Worker[] {
    return this.#slots.flatMap(({ worker }) => (worker?.isConnected() === true ? [worker] : []));
  }

  #launch(slot: Slot): void {
    const { console, log } = this.#options;
    slot.startedMs = this.#clock.monotonicMs();
    let worker: Worker;
    try {
      worker = cluster.fork(console.env);
    } catch (error) {
      return this.#ended(slot, undefined, reasonOf(error));
    }
    slot.worker = worker;
    slot.isListening = false;
    let processId: string | undefined;
    worker.on('error', (error) => {
      log.debug({ reason: String(error) }, 'Worker channel failed');
      // A process that could not be started does not exit.
      const hasStarted = worker.process.pid !== undefined;
      if (!hasStarted && slot.worker === worker) this.#ended(slot, undefined, reasonOf(error));
    });
    worker.on('online', () => {
      worker.send({ kind: 'settings', settings: this.#settings } satisfies ToWorker);
      worker.send(this.#news());
    });
    worker.on('message', (message: FromWorker) => {
      if (message.kind === 'views-request') return void this.#collectViews(worker, message);
      if (message.kind === 'view') return this.#views.resolve(message.id, message.view);
      if (message.kind === 'began') {
        processId = message.processId;
        return;
      }
      if (message.kind === 'reloaded') return void this.#reloadEngines();
      slot.isListening = true;
      this.#reportEnded();
      this.#isListening = true;
      this.#listening.resolve(message.address);
      log.info({ worker: worker.process.pid }, 'Worker listens');
    });
    worker.on('exit', (code, signal) => {
      if (processId !== undefined) this.#unreported.push(processId);
      this.#ended(slot, worker.process.pid, signal || `code ${code}`);
      this.#reportEnded();
    });
  }

  /** Every worker reports the change; engines with unchanged settings continue. */
  async #reloadEngines(): Promise<void> {
    const { console, log } = this.#options;
    const { env, cwd } = console;
    const loaded = await loadConfig({ env, cwd });
    if (!loaded.ok || this.#stopping.signal.aborted) return;
    const config = settingsInForce(this.#settings.config, loaded.config);
    this.#settings = { config, sources: loaded.sources };
    log.setLevel(config.log.level);
    this.#engines.configure(config);
  }

  /** Collects the views of all other workers. A worker that does not respond in time is left out. */
  async #collectViews(
    requester: Worker,
    { of, id }: Extract<FromWorker, { kind: 'views-request' }>,
  ): Promise<void> {
    const others = this.#connected().filter((worker) => worker !== requester);
    const found = await Promise.all(
      others.map((worker) =>
        this.#views.send(VIEW_TIMEOUT_MS, (own) =>
          worker.send({ kind: 'view-request', of, id: own } satisfies ToWorker),
        ),
      ),
    );
    const views = found.filter((view) => view !== undefined);
    if (requester.isConnected()) requester.send({ kind: 'views', id, views } satisfies ToWorker);
  }

  /** Notifies one listening worker; if the message is lost, the lease of the process expires. */
  #reportEnded(): void {
    const slot = this.#slots.find((one) => one.isListening && one.worker?.isConnected() === true);
    if (slot === undefined) return;
    for (const processId of this.#unreported.splice(0)) {
      slot.worker?.send({ kind: 'ended', processId } satisfies ToWorker);
    }
  }

  #ended(slot: Slot, worker: number | undefined, how: string): void {
    slot.worker = undefined;
    slot.isListening = false;
    if (this.#stopping.signal.aborted) {
      this.#checkAllEnded();
      return;
    }
    const { log } = this.#options;
    log.error({ worker, how }, 'A worker ended');
    if (!this.#isListening) {
      // No worker ever listened. A restart would bury the reason that is on the terminal.
      this.#listening.resolve(undefined);
      return;
    }
    if (this.#clock.monotonicMs() - slot.startedMs > HEALTHY_AFTER_MS) slot.crashes = 0;
    const delayMs = Math.min(FIRST_RESTART_MS * 2 ** slot.crashes, MAX_RESTART_MS);
    slot.crashes += 1;
    // This timer keeps the process alive: after the end of all workers nothing else may do so.
    void this.#clock.sleep(delayMs, this.#stopping.signal).then(
      () => this.#launch(slot),
      () => undefined, // the server stops
    );
  }

  #checkAllEnded(): void {
    if (this.#slots.every((slot) => slot.worker === undefined)) this.#allEnded.resolve(undefined);
  }

  #news(): ToWorker {
    const { areStarting } = this.#engines;
    const [engines, models] = [this.#engines.engines(), this.#engines.models()];
    const news = { engines, models, probes: this.#engines.probes(), areStarting };
    return { kind: 'engines', news };
  }
}
