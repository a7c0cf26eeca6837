/**
 * `farebox serve --workers N`: this process makes the first owner, runs the local engines and keeps
 * N workers that share one port and one PostgreSQL. It restarts a worker that dies, with a growing
 * delay, and lets another worker release its holds and leases at once.
 */
import cluster, { type Worker } from 'node:cluster';
import { fileURLToPath } from 'node:url';
import { LocalEngines } from '../engines/embedded/embedded.ts';
import { type FirstOwner, openStores, welcomeOwner } from '../server/stores.ts';
import type { Config } from '../config/config.ts';
import { MINUTE_MS, SECOND_MS, systemClock } from '../core/clock.ts';
import { systemIds } from '../core/ids.ts';
import type { Log } from '../core/log.ts';
import { siblingUrl } from '../core/sibling.ts';
import { countRejections } from '../server/unhandled-rejections.ts';
import { downloadViews } from './progress.ts';
import { greeting, stopSignal } from './server-start.ts';
import type { Console } from './terminal.ts';
import { type FromWorker, Questions, type ToWorker } from './worker.ts';

const FIRST_RESTART_MS = SECOND_MS / 2;
const SLOWEST_RESTART_MS = 30 * SECOND_MS;
/** After running so long, a crash counts as the first one again. */
const HEALTHY_AFTER_MS = MINUTE_MS;
/** A worker that does not say what it sees in this time is left out. */
const INQUIRY_LIMIT_MS = SECOND_MS;
/** After the drain a worker closes its database; one that does not is ended. */
const CLOSING_GRACE_MS = 10 * SECOND_MS;

interface FleetOptions {
  readonly console: Console;
  readonly config: Config;
  readonly log: Log;
  readonly workers: number;
  readonly json: boolean;
}

/** Runs until a signal; gives the exit code. Throws when the database is no PostgreSQL. */
export async function serveWorkers(options: FleetOptions): Promise<number> {
  const { console, config, log } = options;
  if (config.databaseUrl.startsWith('sqlite:')) {
    throw new Error(
      `${options.workers} workers need a database that they can share: set "database" to postgres://… ("farebox move" copies what is there), or run one worker`,
    );
  }
  countRejections(process, log, systemClock());
  const owner = await firstOwner(config, log);
  const fleet = new Fleet(options);
  const stopped = stopSignal(console, () => fleet.hurry()).then(() => 'stop' as const);
  const address = await Promise.race([fleet.start(), stopped]);
  if (address === undefined) {
    console.stderr.write('No worker could start\n');
    await fleet.stop();
    return 1;
  }
  if (address !== 'stop') {
    console.onSignal('SIGHUP', () => fleet.tell({ kind: 'reload' }));
    console.stdout.write(greeting(address, config, owner));
    await stopped;
  }
  await fleet.stop();
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

class Fleet {
  readonly #options: FleetOptions;
  readonly #clock = systemClock();
  readonly #slots: Slot[] = [];
  readonly #views = new Questions<string>();
  readonly #engines: LocalEngines;
  readonly #listening = Promise.withResolvers<string | undefined>();
  readonly #gone = Promise.withResolvers<undefined>();
  /** Ended processes that no worker was told of. */
  readonly #untold: string[] = [];
  #isListening = false;
  #isStopping = false;
  #cancelKill: (() => void) | undefined;

  constructor(options: FleetOptions) {
    this.#options = options;
    const { config, log, console } = options;
    this.#engines = new LocalEngines({
      config,
      clock: this.#clock,
      ids: systemIds(),
      log,
      onChange: () => this.tell(this.#news()),
      viewOf: downloadViews(console.stderr, 'download ended'),
    });
  }

  /** Starts workers and engines; the address, or `undefined` when the first workers fail. */
  start(): Promise<string | undefined> {
    cluster.setupPrimary({
      // A worker finds out by itself that it is one.
      exec: fileURLToPath(siblingUrl(import.meta.url, '../main')),
      args: ['serve', ...(this.#options.json ? ['--json'] : [])],
      cwd: this.#options.console.cwd,
      serialization: 'advanced',
    });
    for (let at = 0; at < this.#options.workers; at += 1) {
      const slot: Slot = { worker: undefined, isListening: false, startedMs: 0, crashes: 0 };
      this.#slots.push(slot);
      this.#launch(slot);
    }
    // Workers call what is there as soon as they hear of it; nobody waits for a download.
    void this.#engines.start().then(() => this.tell(this.#news()));
    return this.#listening.promise;
  }

  tell(message: ToWorker): void {
    for (const worker of this.#connected()) worker.send(message);
  }

  /** Drains all workers at once, ends those that hang, and stops the engines. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    this.tell({ kind: 'stop' });
    this.#checkGone();
    const { config } = this.#options;
    this.#killAfter(config.http.drainSeconds * SECOND_MS + CLOSING_GRACE_MS);
    await this.#gone.promise;
    this.#cancelKill?.();
    await this.#engines.stop();
  }

  /** Open answers are cut; a worker that hangs gets no more time than it takes to close. */
  hurry(): void {
    this.tell({ kind: 'stop' });
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
    const worker = cluster.fork(console.env);
    slot.worker = worker;
    slot.isListening = false;
    let processId: string | undefined;
    slot.startedMs = this.#clock.monotonicMs();
    worker.on('error', (error) => log.debug({ reason: String(error) }, 'Worker channel failed'));
    worker.on('online', () => worker.send(this.#news()));
    worker.on('message', (message: FromWorker) => {
      if (message.kind === 'views-wanted') return void this.#collectViews(worker, message);
      if (message.kind === 'view') return this.#views.answer(message.inquiry, message.view);
      if (message.kind === 'began') {
        processId = message.processId;
        return;
      }
      slot.isListening = true;
      this.#tellEnded();
      this.#isListening = true;
      this.#listening.resolve(message.address);
      log.info({ worker: worker.process.pid }, 'Worker listens');
    });
    worker.on('exit', (code, signal) => {
      if (processId !== undefined) this.#untold.push(processId);
      this.#ended(slot, worker, signal || `code ${code}`);
      this.#tellEnded();
    });
  }

  /** Gathers what all other workers see for the one that a request has met. */
  async #collectViews(
    asker: Worker,
    { of, inquiry: asked }: Extract<FromWorker, { kind: 'views-wanted' }>,
  ): Promise<void> {
    const others = this.#connected().filter((worker) => worker !== asker);
    const found = await Promise.all(
      others.map((worker) =>
        this.#views.ask(INQUIRY_LIMIT_MS, (inquiry) =>
          worker.send({ kind: 'view-wanted', of, inquiry } satisfies ToWorker),
        ),
      ),
    );
    const views = found.filter((view) => view !== undefined);
    if (asker.isConnected())
      asker.send({ kind: 'views', inquiry: asked, views } satisfies ToWorker);
  }

  /** Notifies one worker that serves; if the message is lost, the lease of the process expires. */
  #tellEnded(): void {
    const heir = this.#slots.find((one) => one.isListening && one.worker?.isConnected() === true);
    if (heir === undefined) return;
    for (const processId of this.#untold.splice(0)) {
      heir.worker?.send({ kind: 'ended', processId } satisfies ToWorker);
    }
  }

  #ended(slot: Slot, worker: Worker, how: string): void {
    slot.worker = undefined;
    slot.isListening = false;
    if (this.#isStopping) {
      this.#checkGone();
      return;
    }
    const { log } = this.#options;
    log.error({ worker: worker.process.pid, how }, 'A worker ended');
    if (!this.#isListening) {
      // Nothing ever worked: the reason is on the terminal, and trying again would hide it.
      this.#listening.resolve(undefined);
      return;
    }
    if (this.#clock.monotonicMs() - slot.startedMs > HEALTHY_AFTER_MS) slot.crashes = 0;
    const pauseMs = Math.min(FIRST_RESTART_MS * 2 ** slot.crashes, SLOWEST_RESTART_MS);
    slot.crashes += 1;
    this.#clock.after(pauseMs, () => {
      if (!this.#isStopping) this.#launch(slot);
    });
  }

  #checkGone(): void {
    if (this.#slots.every((slot) => slot.worker === undefined)) this.#gone.resolve(undefined);
  }

  #news(): ToWorker {
    const { areStarting } = this.#engines;
    const [engines, models] = [this.#engines.engines(), this.#engines.models()];
    const news = { engines, models, probes: this.#engines.probes(), areStarting };
    return { kind: 'engines', news };
  }
}
