/** Contract between the server and the programs of `engines/`: settings, messages and model names. */

/** The first message to a program. */
export interface ProgramStart {
  readonly settings: unknown;
  /** Path of the packages of the program, and their names. */
  readonly packages?: { readonly folder: string; readonly names: readonly string[] } | undefined;
  /** The Bearer token that the program requires. */
  readonly apiKey: string;
  /** The preferred port; 0 for any. */
  readonly port: number;
  readonly dataFolder?: string | undefined;
}

/** Messages of every program. */
export type ProgramReport =
  | { readonly type: 'ready'; readonly port: number }
  | { readonly type: 'failed'; readonly error: string }
  /** It would use a model that is fetched on first use; default: the first. */
  | { readonly type: 'used'; readonly model?: string }
  | { readonly type: 'model-failed'; readonly error: string }
  | { readonly type: 'alive' };

export interface VideoSettings {
  /** A folder for this engine only; each start of the process empties it. */
  readonly directory: string;
  readonly ffmpeg?: string | undefined;
  readonly ffprobe?: string | undefined;
  readonly searchPath: string;
}

/** Settings of a process that runs one provider package; they contain keys. */
export interface ProviderSettings {
  /** The path that is imported, such as `@ai-sdk/google-vertex/anthropic`. */
  readonly provider: string;
  /** Passed to the factory of the package. */
  readonly settings: Readonly<Record<string, unknown>>;
  /** Options of every call, by the name of the provider. */
  readonly providerOptions: Readonly<Record<string, Readonly<Record<string, unknown>>>>;
  /** That of https connections. */
  readonly proxy: string | undefined;
}

/** The name of the voice at the speech program, and of its fetch. */
export const VOICE = 'voice';
/** The model without weights, which is offered until there is a real one. */
export const DEMO_MODEL = 'demo';
export const SENTENCE_MODEL = 'farebox-sentences';
/** The id of the same encoder for reranking. */
export const RERANK_MODEL = 'farebox-rerank';
export const MAX_RERANKED = 1_000;
export const SENTENCE_DIMENSIONS = 512;

export interface SamplingDefaults {
  readonly temperature: number;
  readonly topP: number;
  /** 0 considers the whole vocabulary. */
  readonly topK: number;
  readonly minP: number;
}

export interface LlamaModelSpec {
  readonly id: string;
  readonly path: string;
  readonly work: 'chat' | 'embeddings';
  /** Tokens of one conversation, or of one input; at most the model's training window. */
  readonly contextTokens: number;
  /** Concurrent conversations; each needs memory for `contextTokens`. */
  readonly sequences: number;
  /** A demo model does not end its output by itself: grammars bound what a schema leaves open. */
  readonly isDemo: boolean;
  readonly sampling?: SamplingDefaults;
}

export interface LoadedLlamaModel extends Omit<LlamaModelSpec, 'path' | 'sampling'> {
  readonly canReason: boolean;
  /** Length of a vector; 0 for chat models. */
  readonly dimensions: number;
}

export interface LlamaSettings {
  /**
   * Threads for arithmetic: cores minus one, at least 1; 1 in tests. More threads than free cores
   * make inference many times slower.
   */
  readonly threads: number;
  readonly models: readonly LlamaModelSpec[];
}

/** Messages to the llama program after the start; requests use HTTP. */
export type LlamaCommand = { readonly type: 'load'; readonly model: LlamaModelSpec };
export type LlamaReport =
  | { readonly type: 'loaded'; readonly id: string; readonly model: LoadedLlamaModel }
  | { readonly type: 'load-failed'; readonly id: string; readonly reason: string };
