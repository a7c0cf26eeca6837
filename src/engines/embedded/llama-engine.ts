/**
 * The embedded llama.cpp engine: a child process that serves GGUF models over the OpenAI protocol,
 * and the models that it has loaded. They are loaded again after a restart of the process.
 */
import { MINUTE_MS } from '../../core/clock.ts';
import { programUrl } from './packages.ts';
import type {
  LlamaCommand,
  LlamaModelSpec,
  LlamaReport,
  LlamaSettings,
  LoadedLlamaModel,
} from './program-contract.ts';
import { EngineProcess, type EngineProcessParts } from './supervisor.ts';

/** Large files load slowly from slow disks; a process that reports nothing for this long hangs. */
const START_LIMIT_MS = 5 * MINUTE_MS;
const HEAP_MB = 4_096;

/**
 * One libuv worker thread in the process (arithmetic has its own threads). node-llama-cpp samples the
 * sequences of a batch on several workers, and the first reader of a batch sorts its rows. Two
 * concurrent readers would read each other's rows, so that a caller would receive a token of
 * another caller's completion.
 */
const ENVIRONMENT = { UV_THREADPOOL_SIZE: '1' };

export type LlamaEngineOptions = LlamaSettings & EngineProcessParts;

export class LlamaEngine {
  readonly process: EngineProcess;
  readonly #options: LlamaEngineOptions;
  readonly #specs: Map<string, LlamaModelSpec>;
  readonly #loaded = new Map<string, LoadedLlamaModel>();
  readonly #loads = new Map<string, PromiseWithResolvers<LoadedLlamaModel>>();

  constructor(options: LlamaEngineOptions) {
    const { threads, models, ...parts } = options;
    this.#options = options;
    this.#specs = new Map(models.map((model) => [model.id, model]));
    this.process = new EngineProcess({
      ...parts,
      name: 'llama',
      entry: programUrl('llama/main'),
      packages: 'llama',
      settings: (): LlamaSettings => ({ threads, models: [...this.#specs.values()] }),
      heapMb: HEAP_MB,
      startTimeoutMs: START_LIMIT_MS,
      retriesStart: true,
      environment: ENVIRONMENT,
      onMessage: (message) => this.#receive(message as LlamaReport), // from `engines/llama/main.ts`
      onChange: () => this.#processChanged(),
    });
  }

  /** The loaded models; empty while the process does not run. */
  models(): LoadedLlamaModel[] {
    return [...this.#loaded.values()];
  }

  /** Resolves when the model is loaded, which may be after the next start of the process. */
  async load(model: LlamaModelSpec): Promise<LoadedLlamaModel> {
    this.#specs.set(model.id, model);
    const loaded = Promise.withResolvers<LoadedLlamaModel>();
    this.#loads.set(model.id, loaded);
    // While the process is down, its next start loads the model.
    if (this.process.runningAt !== undefined) this.#sendLoad(model);
    return await loaded.promise;
  }

  #sendLoad(model: LlamaModelSpec): void {
    this.process.send({ type: 'load', model } satisfies LlamaCommand);
  }

  #processChanged(): void {
    if (this.process.runningAt === undefined) this.#loaded.clear();
    // Models requested while the process was starting with an older list.
    else
      for (const model of this.#specs.values())
        if (this.#loads.has(model.id)) this.#sendLoad(model);
    this.#options.onChange?.();
  }

  #receive(message: LlamaReport): void {
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
