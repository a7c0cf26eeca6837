/**
 * The embedded llama.cpp engine: a child process that serves GGUF models over the OpenAI protocol,
 * and the models that it has loaded. Loaded models are loaded again after a restart of the child.
 *
 * Native code never runs in this process, and this file does not know prices or callers.
 */
import { MINUTE_MS } from '../../core/clock.ts';
import { type EngineAddress, EngineProcess, type EngineProcessParts } from './supervisor.ts';
import type {
  LlamaCommand,
  LlamaModelSpec,
  LlamaReport,
  LlamaSettings,
  LoadedLlamaModel,
} from './llama-models.ts';
import { programUrl } from './program.ts';

/** Large files load slowly from slow disks; a child that reports nothing for this long hangs. */
const START_LIMIT_MS = 5 * MINUTE_MS;
const HEAP_MB = 4_096;

/**
 * One libuv worker thread in the child (arithmetic has its own threads). node-llama-cpp samples the
 * sequences of a batch on several workers, and the first reader of a batch sorts its rows. Two
 * concurrent readers would read each other's rows, so that a caller would receive a token of
 * another caller's completion.
 */
const CHILD_ENVIRONMENT = { UV_THREADPOOL_SIZE: '1' };

export type LlamaEngineOptions = LlamaSettings & EngineProcessParts;

export class LlamaEngine {
  readonly #options: LlamaEngineOptions;
  readonly #child: EngineProcess;
  readonly #specs: Map<string, LlamaModelSpec>;
  readonly #loaded = new Map<string, LoadedLlamaModel>();
  readonly #loads = new Map<string, PromiseWithResolvers<LoadedLlamaModel>>();

  constructor(options: LlamaEngineOptions) {
    const { clock, ids, log, threads, dataFolder } = options;
    this.#options = options;
    this.#specs = new Map(options.models.map((model) => [model.id, model]));
    this.#child = new EngineProcess({
      name: 'llama',
      entry: programUrl('llama/main'),
      packages: 'llama',
      settings: (): LlamaSettings => ({ threads, models: [...this.#specs.values()] }),
      heapMb: HEAP_MB,
      startTimeoutMs: START_LIMIT_MS,
      retriesStart: true,
      environment: CHILD_ENVIRONMENT,
      onMessage: (message) => this.#hear(message as LlamaReport), // from `engines/llama/main.ts`
      onChange: () => this.#childChanged(),
      dataFolder,
      clock,
      ids,
      log,
    });
  }

  /** Base URL of the OpenAI protocol, without `/v1`; `undefined` while the child does not run. */
  get address(): EngineAddress | undefined {
    return this.#child.runningAt;
  }

  get pid(): number | undefined {
    return this.#child.pid;
  }

  models(): LoadedLlamaModel[] {
    return this.address === undefined ? [] : [...this.#loaded.values()];
  }

  /** Starts the child and resolves when it serves; rejects if it cannot start. */
  async start(): Promise<EngineAddress> {
    return await this.#child.address();
  }

  async load(model: LlamaModelSpec): Promise<LoadedLlamaModel> {
    this.#specs.set(model.id, model);
    const loaded = Promise.withResolvers<LoadedLlamaModel>();
    this.#loads.set(model.id, loaded);
    // While the child is down, its next start loads the model.
    if (this.address !== undefined) this.#tellToLoad(model);
    return await loaded.promise;
  }

  /** Stops the child permanently. Never throws. */
  async stop(): Promise<void> {
    for (const { reject } of this.#loads.values())
      reject(new Error('The llama engine was stopped'));
    this.#loads.clear();
    await this.#child.close();
  }

  #tellToLoad(model: LlamaModelSpec): void {
    this.#child.send({ type: 'load', model } satisfies LlamaCommand);
  }

  #childChanged(): void {
    if (this.address === undefined) this.#loaded.clear();
    // Models requested while the child was starting with an older list.
    else
      for (const model of this.#specs.values())
        if (this.#loads.has(model.id)) this.#tellToLoad(model);
    this.#options.onChange?.();
  }

  #hear(message: LlamaReport): void {
    const { log, onChange } = this.#options;
    const { id } = message;
    if (message.type === 'loaded') {
      this.#loaded.set(id, message.model);
      log.info({ model: id }, 'llama model loaded');
      this.#loads.get(id)?.resolve(message.model);
    } else {
      const { reason } = message;
      log.error({ model: id, reason }, 'llama model cannot be loaded');
      // Loading would fail again after each restart.
      this.#specs.delete(id);
      this.#loads.get(id)?.reject(new Error(`The model ${id} cannot be loaded: ${reason}`));
    }
    this.#loads.delete(id);
    onChange?.();
  }
}
