/**
 * What farebox and its llama child say to each other over the process channel, and the names of
 * what they talk about. Plain data only. Requests for models travel over HTTP, not here.
 */

/** Sampling that applies where a request says nothing. */
export interface SamplingDefaults {
  readonly temperature: number;
  readonly topP: number;
  /** 0 looks at the whole vocabulary. */
  readonly topK: number;
  readonly minP: number;
}

/** One model to serve: a GGUF file and the work that it does. */
export interface LlamaModelSpec {
  /** The id on the wire. */
  readonly id: string;
  /** Absolute path of the GGUF file. */
  readonly path: string;
  readonly work: 'chat' | 'embeddings';
  /** Tokens of one conversation, or of one input; never more than the model was trained on. */
  readonly contextTokens: number;
  /** Conversations that run at the same time; each needs memory for `contextTokens`. */
  readonly sequences: number;
  /** A demo model babbles: what a grammar leaves open is kept short, so that it comes to an end. */
  readonly isDemo: boolean;
  readonly sampling?: SamplingDefaults;
}

/** What a loaded model can do, as its file says. */
export interface LoadedLlamaModel {
  readonly id: string;
  readonly work: 'chat' | 'embeddings';
  readonly contextTokens: number;
  readonly sequences: number;
  readonly isDemo: boolean;
  /** The model can think in a `<think>` block. */
  readonly canReason: boolean;
  /** Length of a vector; 0 for chat models. */
  readonly dimensions: number;
}

/** An address that `node:http` can listen on. Port 0 takes a free one. */
export type ListenAddress =
  | { readonly host: string; readonly port: number }
  | { readonly socketPath: string };

export interface LlamaSettings {
  readonly listen: ListenAddress;
  /** When set, requests need `Authorization: Bearer <apiKey>`. */
  readonly apiKey: string | null;
  /** Threads for arithmetic. More than free cores makes everything many times slower. */
  readonly threads: number;
  /** Choices that may wait for a free sequence; more are refused with 429. */
  readonly maxWaiting: number;
  readonly models: readonly LlamaModelSpec[];
}

export type LlamaCommand =
  | { readonly type: 'start'; readonly settings: LlamaSettings }
  | { readonly type: 'load'; readonly model: LlamaModelSpec }
  | { readonly type: 'unload'; readonly id: string };

export type LlamaReport =
  | { readonly type: 'ready'; readonly address: ListenAddress }
  | { readonly type: 'loaded'; readonly model: LoadedLlamaModel }
  | { readonly type: 'unloaded'; readonly id: string }
  | { readonly type: 'load-failed'; readonly id: string; readonly reason: string }
  | { readonly type: 'failed'; readonly reason: string };
