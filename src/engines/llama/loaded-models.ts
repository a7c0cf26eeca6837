/**
 * The models that the child has in memory. A file is read once, even when one file serves two
 * kinds of work. Loading goes one by one, so that two large files never compete for memory.
 */
import { getLlama, type Llama, LlamaLogLevel, type LlamaModel } from 'node-llama-cpp';

import type { Fault } from '../../core/faults.ts';
import { ChatModel } from './chat-model.ts';
import { EmbeddingModel } from './embedding-model.ts';
import type { LlamaModelSpec, LoadedLlamaModel } from './llama-models.ts';
import { refusal } from './refusal.ts';

interface OpenFile {
  readonly model: LlamaModel;
  users: number;
}

export class LoadedModels {
  readonly #llama: Llama;
  readonly #threads: number;
  readonly #models = new Map<string, ChatModel | EmbeddingModel>();
  readonly #files = new Map<string, OpenFile>();
  #queue: Promise<unknown> = Promise.resolve();

  private constructor(llama: Llama, threads: number) {
    this.#llama = llama;
    this.#threads = threads;
  }

  /** Starts the native library; it uses so many threads, at least one, and never builds anything. */
  static async open(threads: number): Promise<LoadedModels> {
    const llama = await getLlama({
      gpu: 'auto',
      build: 'never',
      skipDownload: true,
      progressLogs: false,
      // Zero would mean "all": ggml spins, and neighbours on the same core starve.
      maxThreads: threads,
      logLevel: LlamaLogLevel.error,
    });
    return new LoadedModels(llama, threads);
  }

  list(): LoadedLlamaModel[] {
    return [...this.#models.values()].map((model) => model.info());
  }

  /** Throws `model_not_found` when no such chat model is loaded. */
  chat(id: string): ChatModel {
    const model = this.#models.get(id);
    if (model instanceof ChatModel) return model;
    throw notLoaded(id, model === undefined ? 'is not loaded' : 'is not a chat model');
  }

  /** Throws `model_not_found` when no such embedding model is loaded. */
  embeddings(id: string): EmbeddingModel {
    const model = this.#models.get(id);
    if (model instanceof EmbeddingModel) return model;
    throw notLoaded(id, model === undefined ? 'is not loaded' : 'is not an embedding model');
  }

  /** Loads a model, or replaces the one with the same id once the new one is ready. */
  async load(spec: LlamaModelSpec): Promise<LoadedLlamaModel> {
    const work = this.#queue.then(async () => this.#loadNow(spec));
    // The next in line waits for the end of this one, not for its success.
    this.#queue = work.catch(() => undefined);
    return await work;
  }

  async #loadNow(spec: LlamaModelSpec): Promise<LoadedLlamaModel> {
    const file = await this.#openFile(spec.path);
    try {
      const model =
        spec.work === 'chat'
          ? await ChatModel.create(spec, this.#llama, file.model, this.#threads)
          : await EmbeddingModel.create(spec, file.model, this.#threads);
      const before = this.#models.get(spec.id);
      this.#models.set(spec.id, model);
      if (before !== undefined) await this.#close(before);
      return model.info();
    } catch (error) {
      // The file may have been opened for this model alone.
      await this.#closeFile(spec.path);
      throw error;
    }
  }

  async #openFile(path: string): Promise<OpenFile> {
    const known = this.#files.get(path);
    const file = known ?? { model: await this.#llama.loadModel({ modelPath: path }), users: 0 };
    file.users += 1;
    this.#files.set(path, file);
    return file;
  }

  async #close(model: ChatModel | EmbeddingModel): Promise<void> {
    await model.dispose();
    await this.#closeFile(model.spec.path);
  }

  async #closeFile(path: string): Promise<void> {
    const file = this.#files.get(path);
    if (file === undefined) return;
    file.users -= 1;
    if (file.users > 0) return;
    this.#files.delete(path);
    await file.model.dispose();
  }
}

function notLoaded(id: string, why: string): Fault {
  return refusal('model_not_found', `The model ${id} ${why}`, 'model');
}
