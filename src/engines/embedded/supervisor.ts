/**
 * The supervisor of one embedded engine: a child process that serves an HTTP protocol on a loopback
 * port. It starts, restarts and stops the process, and fetches the model that the process uses.
 *
 * - The process receives its settings and a secret by message, not by arguments or environment. It
 *   inherits no environment except the folder of compiled modules, so nothing that the server knows
 *   reaches code that reads untrusted data.
 * - After a crash it is restarted with the same secret and, if the port is free, at the same address;
 *   after repeated crashes only after a pause. A process that reports why it cannot start is restarted
 *   only on the next request.
 * - A process whose event loop does not respond for two minutes is killed and restarted. The
 *   arithmetic of a model runs beside the loop and may take longer.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { type Clock, SECOND_MS } from '../../core/clock.ts';
import { compileCache } from '../../core/compile-cache.ts';
import { Fault } from '../../core/faults.ts';
import type { Ids } from '../../core/ids.ts';
import type { Log } from '../../core/log.ts';
import { lowerPriority } from '../../core/lower-priority.ts';
import type { ModelOutage } from '../../catalog/catalog.ts';
import { type FetchedModel, ModelFetch } from './model-files.ts';
import { type EngineSet, fetchedPackages, missingPackages } from './packages.ts';
import type { ProgramStart } from './program-contract.ts';

/** The address of a running child, and the Bearer token that it requires. */
export interface EngineAddress {
  /** Without a trailing slash, for example `http://127.0.0.1:40123`. */
  readonly url: string;
  readonly apiKey: string;
}

export interface EngineProcessParts {
  /** Folder of fetched packages, in addition to the program's own. */
  readonly dataFolder?: string | undefined;
  /** Called when the child starts serving and when it has ended. */
  readonly onChange?: (() => void) | undefined;
  readonly log: Log;
  readonly clock: Clock;
  readonly ids: Ids;
}

export interface EngineProcessOptions extends EngineProcessParts {
  readonly name: string;
  /** The entry file of the program; it calls `serveEngine`. */
  readonly entry: URL;
  readonly packages?: EngineSet;
  readonly settings: () => object;
  /** Models that are fetched after the child first reports their use. */
  readonly models?: readonly FetchedByProcess[] | undefined;
  /** Whether the child runs with a lower priority, so that chats do not wait for its work. */
  readonly isBackground?: boolean;
  readonly heapMb?: number;
  readonly startTimeoutMs?: number;
  /** Restart the child even after it reported why it cannot start. */
  readonly retriesStart?: boolean;
  /** Environment of the child, in addition to the folder of compiled modules. */
  readonly environment?: Readonly<Record<string, string>>;
  /** Receives every message of the child that is not part of the start. */
  readonly onMessage?: (message: unknown) => void;
}

export interface FetchedByProcess extends FetchedModel {
  /** Settings for the files in order: sent when they are available, and with later starts. */
  readonly settings: (paths: readonly string[]) => object;
}

const DEFAULT_START_TIMEOUT_MS = 30_000;
const DEFAULT_HEAP_MB = 512;
/** A child that ran for less than this counts as crashed at once. */
const SHORT_LIFE_MS = 10_000;
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 60_000;
const RESTART_MS = 100;
const CLOSE_GRACE_MS = 2_000;
const ALIVE_CHECK_MS = 15_000;
/**
 * Number of unanswered checks after which the child counts as hung: two minutes. Checks are counted
 * instead of measuring time, so that a suspended parent or machine does not count against the
 * child.
 */
const MOST_UNANSWERED = 8;
/** Characters of output kept for the error message of a child that ended. */
const KEPT_OUTPUT_CHARACTERS = 2_000;

/** A `ProgramReport` as received: a program that an attacker controls may send anything. */
interface ReceivedReport {
  readonly type?: unknown;
  readonly port?: unknown;
  readonly model?: unknown;
  readonly error?: unknown;
}

interface Running {
  readonly child: ChildProcess;
  readonly started: PromiseWithResolvers<EngineAddress>;
  readonly exited: PromiseWithResolvers<void>;
  readonly startedMs: number;
  output: string;
  isReady: boolean;
  /** Liveness checks sent since the last message of the child. */
  unanswered: number;
}

export class EngineProcess {
  readonly #options: EngineProcessOptions;
  readonly #apiKey: string;
  /** By the name of the model. */
  readonly #fetches: ReadonlyMap<string, ModelFetch>;
  /** By the name of the model. */
  readonly #modelSettings = new Map<string, object>();
  #running: Running | undefined;
  #port = 0;
  #crashes = 0;
  #notBeforeMs = 0;
  #isClosed = false;
  #cannotStart = false;
  #cancelRestart: (() => void) | undefined;

  constructor(options: EngineProcessOptions) {
    this.#options = options;
    const { models = [], log, clock, ids } = options;
    this.#apiKey = ids.hex(32);
    const fetchOf = (model: FetchedByProcess): ModelFetch =>
      new ModelFetch({
        ...model,
        log,
        clock,
        onReady: (paths) => {
          const settings = model.settings(paths);
          this.#modelSettings.set(model.name, settings);
          this.send({ type: 'model', ...settings });
        },
      });
    this.#fetches = new Map(models.map((model) => [model.name, fetchOf(model)]));
  }

  get pid(): number | undefined {
    return this.#running?.child.pid;
  }

  get runningAt(): EngineAddress | undefined {
    return this.#running?.isReady === true ? this.#address : undefined;
  }

  /** Starts the child if it does not run. Faults: SERVICE_UNAVAILABLE if it cannot start. */
  async address(): Promise<EngineAddress> {
    if (this.#isClosed) throw new Fault('SHUTTING_DOWN');
    if (this.#running === undefined) {
      const waitMs = this.#notBeforeMs - this.#options.clock.monotonicMs();
      if (waitMs > 0) throw this.#unavailable(waitMs, 'it crashed repeatedly');
      this.#cancelRestart?.();
      this.#cannotStart = false;
      this.#running = this.#start(this.#packages());
    }
    return await this.#running.started.promise;
  }

  /**
   * Starts to fetch a model, by default the first, unless that runs, is done, or failed a short time
   * ago.
   */
  fetchModel(name?: string): void {
    const [first] = this.#fetches.values();
    (name === undefined ? first : this.#fetches.get(name))?.start();
  }

  /** Why the first model is not available; `undefined` if it is, or if none has to be fetched. */
  modelOutage(): ModelOutage | undefined {
    const [first] = this.#fetches.values();
    return first?.outage();
  }

  /** Sends a message if the child runs; otherwise drops it. */
  send(message: object): void {
    const child = this.#running?.child;
    // A child that has just died does not receive the message; its exit is handled separately.
    if (child?.connected === true) child.send(message, () => undefined);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#cancelRestart?.();
    for (const fetch of this.#fetches.values()) fetch.close();
    const running = this.#running;
    if (running === undefined) return;
    // The child exits when the channel closes; the timer kills a hung one.
    if (running.child.connected) running.child.disconnect();
    const cancel = this.#options.clock.after(CLOSE_GRACE_MS, () => running.child.kill('SIGKILL'));
    await running.exited.promise;
    cancel();
  }

  get #address(): EngineAddress {
    return { url: `http://127.0.0.1:${this.#port}`, apiKey: this.#apiKey };
  }

  #start(packages: ProgramStart['packages']): Running {
    const { name, entry, settings, environment = {}, dataFolder, log, clock } = this.#options;
    const child = fork(entry, [], {
      env: { ...compileCache(), ...environment },
      execArgv: [`--max-old-space-size=${this.#options.heapMb ?? DEFAULT_HEAP_MB}`],
      stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
      serialization: 'json',
    });
    if (this.#options.isBackground === true) lowerPriority(child);
    const running: Running = {
      child,
      started: Promise.withResolvers(),
      exited: Promise.withResolvers(),
      startedMs: clock.monotonicMs(),
      output: '',
      isReady: false,
      unanswered: 0,
    };
    for (const stream of [child.stdout, child.stderr]) {
      stream?.setEncoding('utf8').on('data', (text: string) => {
        running.output = (running.output + text).slice(-KEPT_OUTPUT_CHARACTERS);
        log.debug({ engine: name, output: text.slice(0, KEPT_OUTPUT_CHARACTERS) }, 'Engine output');
      });
    }
    const fail = (reason: string): void => {
      running.started.reject(this.#unavailable(FIRST_PAUSE_MS, reason));
    };
    const cancel = clock.after(this.#options.startTimeoutMs ?? DEFAULT_START_TIMEOUT_MS, () => {
      fail('it did not start in time');
      child.kill('SIGKILL');
    });
    // The failure is returned to callers that wait for the address; without a waiter it is logged.
    running.started.promise.then(cancel, cancel);
    child.on('message', (message: unknown) => {
      this.#receive(running, message ?? {}, fail);
    });
    const stopChecks = clock.every(ALIVE_CHECK_MS, () => this.#checkAlive(running));
    const end = (how: string | number | null, reason: string): void => {
      stopChecks();
      fail(reason);
      this.#exited(running, how);
      running.exited.resolve();
    };
    child.once('exit', (code, signal) => end(signal ?? code, 'it ended while it started'));
    child.on('error', (error) => {
      // A process that could not be spawned emits no exit event.
      if (child.pid === undefined) end(error.message, error.message);
      else log.debug({ engine: name, reason: error.message }, 'Engine channel failed');
    });
    const start: ProgramStart = {
      settings: Object.assign(settings(), ...this.#modelSettings.values()) as object,
      apiKey: this.#apiKey,
      port: this.#port,
      packages,
      dataFolder,
    };
    // A child that could not be started may have no channel.
    if (child.connected) child.send(start, () => undefined);
    return running;
  }

  #packages(): ProgramStart['packages'] {
    const { packages: name, dataFolder } = this.#options;
    if (name === undefined) return undefined;
    const packages = fetchedPackages(name, dataFolder);
    if (packages !== undefined) return packages;
    const reason = `The engine cannot start: ${missingPackages(name)}`;
    throw this.#unavailable(FIRST_PAUSE_MS, reason);
  }

  /** The duration of a start has its own limit. */
  #checkAlive(running: Running): void {
    if (!running.isReady) return;
    if (running.unanswered < MOST_UNANSWERED) {
      running.unanswered += 1;
      this.send({ type: 'are-you-alive' });
      return;
    }
    const seconds = (MOST_UNANSWERED * ALIVE_CHECK_MS) / SECOND_MS;
    const { name, log } = this.#options;
    log.error({ engine: name, seconds }, 'An engine process does not respond and is killed');
    running.child.kill('SIGKILL');
  }

  #receive(running: Running, message: ReceivedReport, fail: (reason: string) => void): void {
    const { name, log, onChange, onMessage, retriesStart } = this.#options;
    running.unanswered = 0;
    switch (message.type) {
      case 'alive':
        return;
      case 'ready':
        this.#port = Number(message.port);
        running.isReady = true;
        running.started.resolve(this.#address);
        onChange?.();
        return;
      case 'failed':
        this.#cannotStart = retriesStart !== true;
        return fail(String(message.error));
      case 'used':
        return this.fetchModel(typeof message.model === 'string' ? message.model : undefined);
      case 'model-failed':
        // The first model is the one that reports it; it is not tried again at the next start.
        this.#modelSettings.delete(this.#options.models?.[0]?.name ?? '');
        log.warn({ engine: name, reason: message.error }, 'The model of an engine does not load');
        return;
      default:
        onMessage?.(message);
    }
  }

  #exited(running: Running, how: string | number | null): void {
    if (this.#running !== running) return;
    this.#running = undefined;
    if (!this.#isClosed) this.#planRestart(running, how);
    this.#options.onChange?.();
  }

  #planRestart(running: Running, how: string | number | null): void {
    const { name, clock, log } = this.#options;
    const nowMs = clock.monotonicMs();
    this.#crashes = nowMs - running.startedMs < SHORT_LIFE_MS ? this.#crashes + 1 : 1;
    const growth = 2 ** (this.#crashes - 2);
    const pauseMs = this.#crashes > 1 ? Math.min(FIRST_PAUSE_MS * growth, LONGEST_PAUSE_MS) : 0;
    this.#notBeforeMs = nowMs + pauseMs;
    const fields = { engine: name, how, output: running.output.trim() };
    if (this.#cannotStart) {
      log.warn(fields, 'An engine process cannot start');
      return;
    }
    this.#cancelRestart = clock.after(pauseMs + RESTART_MS, () => {
      // A failed start schedules the next one, or logs that it cannot.
      this.address().catch(() => undefined);
    });
    log.warn(fields, 'An engine process ended and is restarted');
  }

  #unavailable(waitMs: number, reason: string): Fault {
    return new Fault('SERVICE_UNAVAILABLE', {
      message: `The ${this.#options.name} engine is not available: ${reason}`,
      retryAfterSeconds: Math.max(1, Math.ceil(waitMs / 1000)),
    });
  }
}
