/**
 * The embedded llama.cpp engine as farebox sees it: a child process with a lifetime. It is started
 * with the models to serve, restarted with backoff when it dies, told to load further models, and
 * stopped. Callers reach it over HTTP at `address`, like any other engine.
 *
 * It never runs native code in this process and knows nothing of prices or callers.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

import { assert } from '../../core/assert.ts';
import { type Clock, MINUTE_MS, SECOND_MS } from '../../core/clock.ts';
import type { Log } from '../../core/log.ts';
import type {
  ListenAddress,
  LlamaCommand,
  LlamaModelSpec,
  LlamaReport,
  LoadedLlamaModel,
} from './llama-wire.ts';

/** Large files on slow disks take their time; a child that says nothing for so long hangs. */
const START_LIMIT_MS = 5 * MINUTE_MS;
const STOP_LIMIT_MS = 3 * SECOND_MS;
const FIRST_RESTART_MS = SECOND_MS / 2;
const SLOWEST_RESTART_MS = 30 * SECOND_MS;
/** After running so long, a crash counts as the first one again. */
const HEALTHY_AFTER_MS = MINUTE_MS;
const KEPT_STDERR_CHARACTERS = 2_000;
/** Choices that may wait for a free sequence. */
const MAX_WAITING = 64;

/**
 * One worker thread in the child (arithmetic has threads of its own). node-llama-cpp samples the
 * sequences of a batch on several workers, and the first reader of a batch puts its rows in order:
 * two at once read each other's rows, and a caller gets a token of somebody else's answer.
 */
const CHILD_ENVIRONMENT = { UV_THREADPOOL_SIZE: '1' };

export type LlamaState = 'stopped' | 'starting' | 'running' | 'waiting-to-restart';

export interface LlamaEngineOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** Cores minus one, at least 1; 1 in tests. */
  readonly threads: number;
  readonly models: readonly LlamaModelSpec[];
  /** Default: a free port of 127.0.0.1, kept over restarts. */
  readonly listen?: ListenAddress;
  /** Requests must carry it as a bearer key, so that other users of the machine cannot. */
  readonly apiKey?: string;
  /** Called after each change of address, state or models. */
  readonly onChange?: () => void;
  /** For tests: another entry than `llama-process.ts`. */
  readonly entryPath?: string;
}

export type Availability = { readonly ok: true } | { readonly ok: false; readonly reason: string };

/** Whether node-llama-cpp is installed; if not, the reason says how to add it. */
export function llamaAvailable(
  resolve: (name: string) => string = (name) => import.meta.resolve(name),
): Availability {
  try {
    resolve('node-llama-cpp');
    return { ok: true };
  } catch {
    // Resolution fails for one reason only: the optional package is not there.
    const reason =
      'The embedded engine needs the optional package node-llama-cpp, ' +
      'add it with "npm install node-llama-cpp@3.21.1" or configure an engine';
    return { ok: false, reason };
  }
}

interface LoadWaiter {
  readonly resolve: (model: LoadedLlamaModel) => void;
  readonly reject: (error: Error) => void;
}

export class LlamaEngine {
  readonly #options: LlamaEngineOptions;
  readonly #specs: Map<string, LlamaModelSpec>;
  readonly #loaded = new Map<string, LoadedLlamaModel>();
  readonly #loads = new Map<string, LoadWaiter>();
  #state: LlamaState = 'stopped';
  #child: ChildProcess | undefined;
  #address: ListenAddress | undefined;
  #crashes = 0;
  #readyAtMs = 0;
  #cancelRestart: (() => void) | undefined;

  constructor(options: LlamaEngineOptions) {
    this.#options = options;
    this.#specs = new Map(options.models.map((model) => [model.id, model]));
  }

  get state(): LlamaState {
    return this.#state;
  }

  /** Where the child listens; undefined while it does not run. */
  get address(): ListenAddress | undefined {
    return this.#state === 'running' ? this.#address : undefined;
  }

  /** The base URL of the OpenAI protocol; undefined while the child does not run, or on a socket. */
  get url(): string | undefined {
    const address = this.address;
    if (address === undefined || 'socketPath' in address) return undefined;
    return `http://${address.host}:${address.port}/v1`;
  }

  /** The process id, for health pages and tests. */
  get pid(): number | undefined {
    return this.#child?.pid;
  }

  /** The models that can answer now. */
  models(): LoadedLlamaModel[] {
    return this.#state === 'running' ? [...this.#loaded.values()] : [];
  }

  /** Starts the child and waits until it serves; rejects when it cannot start at all. */
  async start(): Promise<void> {
    assert(this.#state === 'stopped', 'the llama engine is started once');
    await this.#launch();
  }

  /** Loads a further model, or replaces one of the same id; it survives restarts. */
  async load(model: LlamaModelSpec): Promise<LoadedLlamaModel> {
    this.#specs.set(model.id, model);
    const loaded = new Promise<LoadedLlamaModel>((resolve, reject) => {
      this.#loads.set(model.id, { resolve, reject });
    });
    // While the child is down, its next start loads the model.
    if (this.#state === 'running') this.#send({ type: 'load', model });
    return await loaded;
  }

  /** Frees the memory of a model. */
  unload(id: string): void {
    this.#specs.delete(id);
    if (this.#state === 'running') this.#send({ type: 'unload', id });
  }

  /** Ends the child, by force when it does not go, and stays down. Never throws. */
  async stop(): Promise<void> {
    this.#cancelRestart?.();
    const child = this.#child;
    this.#become('stopped');
    this.#failLoads('The llama engine was stopped');
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise<void>((resolve) => {
      child.once('exit', () => resolve());
    });
    const cancel = this.#options.clock.after(STOP_LIMIT_MS, () => child.kill('SIGKILL'));
    if (child.connected) child.disconnect();
    else child.kill('SIGTERM');
    await gone;
    cancel();
  }

  async #launch(): Promise<void> {
    this.#become('starting');
    const child = fork(this.#options.entryPath ?? entryPath(), [], {
      // Flags of this process (a test runner, a debugger) are not for the child.
      execArgv: [],
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
      env: CHILD_ENVIRONMENT,
    });
    this.#child = child;
    const stderr = keepTail(child);
    const ready = new Promise<void>((resolve, reject) => {
      const cancel = this.#options.clock.after(START_LIMIT_MS, () => child.kill('SIGKILL'));
      child.on('message', (message: LlamaReport) => {
        if (this.#child !== child) return;
        this.#hear(message);
        if (message.type === 'ready') resolve();
        if (message.type === 'failed') reject(new Error(message.reason));
      });
      child.once('error', reject);
      child.once('exit', (code, signal) => {
        cancel();
        const reason = `The llama engine ended with ${signal ?? code}`;
        reject(new Error(reason));
        if (this.#child === child) this.#ended(reason, stderr());
      });
    });
    this.#send({ type: 'start', settings: this.#settings() });
    await ready;
  }

  #settings(): Extract<LlamaCommand, { type: 'start' }>['settings'] {
    return {
      listen: this.#address ?? this.#options.listen ?? { host: '127.0.0.1', port: 0 },
      apiKey: this.#options.apiKey ?? null,
      threads: Math.max(1, this.#options.threads),
      maxWaiting: MAX_WAITING,
      models: [...this.#specs.values()],
    };
  }

  #hear(message: LlamaReport): void {
    const { log } = this.#options;
    switch (message.type) {
      case 'ready':
        this.#address = message.address;
        this.#readyAtMs = this.#options.clock.monotonicMs();
        this.#become('running');
        this.#loadWhatCameMeanwhile();
        return;
      case 'loaded':
        this.#loaded.set(message.model.id, message.model);
        log.info({ model: message.model.id }, 'llama model loaded');
        this.#loads.get(message.model.id)?.resolve(message.model);
        this.#loads.delete(message.model.id);
        break;
      case 'unloaded':
        this.#loaded.delete(message.id);
        break;
      case 'load-failed': {
        log.error({ model: message.id, reason: message.reason }, 'llama model cannot be loaded');
        // It would fail again after each restart.
        this.#specs.delete(message.id);
        const reason = `The model ${message.id} cannot be loaded: ${message.reason}`;
        this.#loads.get(message.id)?.reject(new Error(reason));
        this.#loads.delete(message.id);
        break;
      }
      case 'failed':
        log.error({ reason: message.reason }, 'llama engine failed');
    }
    this.#options.onChange?.();
  }

  /** Models that were asked for while the child was starting with an older list. */
  #loadWhatCameMeanwhile(): void {
    for (const id of this.#loads.keys()) {
      const model = this.#specs.get(id);
      if (model !== undefined) this.#send({ type: 'load', model });
    }
  }

  #ended(reason: string, stderr: string): void {
    this.#loaded.clear();
    const { clock, log } = this.#options;
    if (this.#state === 'stopped') return;
    if (this.#state === 'running' && clock.monotonicMs() - this.#readyAtMs > HEALTHY_AFTER_MS) {
      this.#crashes = 0;
    }
    const delayMs = Math.min(FIRST_RESTART_MS * 2 ** this.#crashes, SLOWEST_RESTART_MS);
    this.#crashes += 1;
    log.error({ reason, stderr, delayMs }, 'llama engine ended, it is started again');
    this.#become('waiting-to-restart');
    this.#cancelRestart = clock.after(delayMs, () => {
      this.#launch().catch((error: unknown) => {
        // The end of the child has already planned the next try.
        log.warn({ reason: String(error) }, 'llama engine did not start');
      });
    });
  }

  #failLoads(reason: string): void {
    for (const waiter of this.#loads.values()) waiter.reject(new Error(reason));
    this.#loads.clear();
  }

  #send(command: LlamaCommand): void {
    // A child that has just died cannot be told anything; its end is handled on its own.
    this.#child?.send(command, () => undefined);
  }

  #become(state: LlamaState): void {
    this.#state = state;
    this.#options.onChange?.();
  }
}

/** The entry beside this file: TypeScript in a checkout, JavaScript in a release. */
function entryPath(): string {
  const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js';
  return fileURLToPath(new URL(`./llama-process.${extension}`, import.meta.url));
}

/** Keeps the last words of the child for the log. */
function keepTail(child: ChildProcess): () => string {
  let tail = '';
  child.stderr?.on('data', (chunk: Buffer) => {
    tail = (tail + chunk.toString('utf8')).slice(-KEPT_STDERR_CHARACTERS);
  });
  return () => tail.trim();
}
