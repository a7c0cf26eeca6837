/**
 * The models that the engine process has in memory, until it exits. A file is read once, even if it
 * serves two kinds of work. Models load one at a time, so that two large files do not compete for
 * memory.
 */
import { getLlama, type Llama, LlamaLogLevel, type LlamaModel } from 'node-llama-cpp';
import { ChatModel } from './chat-model.ts';
import { EmbeddingModel } from './embedding-model.ts';
import type {
  LlamaModelSpec,
  LoadedLlamaModel,
} from '../../src/engines/embedded/program-contract.ts';
import { refusal } from './refusal.ts';

export class LoadedModels {
  readonly #llama: Llama;
  readonly #threads: number;
  readonly #models = new Map<string, ChatModel | EmbeddingModel>();
  readonly #files = new Map<string, LlamaModel>();
  #queue: Promise<unknown> = Promise.resolve();

  private constructor(llama: Llama, threads: number) {
    this.#llama = llama;
    this.#threads = threads;
  }

  /** Opens the native library with `threads` threads (at least one); never compiles it. */
  static async open(threads: number): Promise<LoadedModels> {
    const llama = await getLlama({
      gpu: 'auto',
      build: 'never',
      skipDownload: true,
      progressLogs: false,
      // 0 would mean "all cores": ggml busy-waits and starves other work on the same core.
      maxThreads: threads,
      logLevel: LlamaLogLevel.error,
    });
    return new LoadedModels(llama, threads);
  }

  list(): LoadedLlamaModel[] {
    return [...this.#models.values()].map((model) => model.info());
  }

  /** Throws `model_not_found` if no such chat model is loaded. */
  chat(id: string): ChatModel {
    const model = this.#known(id);
    if (model instanceof ChatModel) return model;
    throw refusal('model_not_found', `The model ${id} is not a chat model`, 'model');
  }

  /** Throws `model_not_found` if no such embedding model is loaded. */
  embeddings(id: string): EmbeddingModel {
    const model = this.#known(id);
    if (model instanceof EmbeddingModel) return model;
    throw refusal('model_not_found', `The model ${id} is not an embedding model`, 'model');
  }

  #known(id: string): ChatModel | EmbeddingModel {
    const model = this.#models.get(id);
    if (model !== undefined) return model;
    throw refusal('model_not_found', `The model ${id} is not loaded`, 'model');
  }

  async load(spec: LlamaModelSpec): Promise<LoadedLlamaModel> {
    const work = this.#queue.then(async () => this.#loadNow(spec));
    // The next load waits until this one settles, even if it fails.
    this.#queue = work.catch(() => undefined);
    return await work;
  }

  async #loadNow(spec: LlamaModelSpec): Promise<LoadedLlamaModel> {
    const known = this.#models.get(spec.id);
    if (known !== undefined) return known.info();
    const open = this.#files.get(spec.path);
    const file = open ?? (await this.#llama.loadModel({ modelPath: spec.path }));
    try {
      const model =
        spec.work === 'chat'
          ? await ChatModel.create(spec, file, this.#threads)
          : await EmbeddingModel.create(spec, file, this.#threads);
      this.#models.set(spec.id, model);
      this.#files.set(spec.path, file);
      return model.info();
    } catch (error) {
      if (open === undefined) await file.dispose();
      throw error;
    }
  }
}
