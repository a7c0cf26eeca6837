/**
 * The models of the embedded llama.cpp engine: what is said of one, the demo models that are built
 * into the package, and the library of open models that can be fetched. Those are small,
 * permissively licensed and pinned to one revision with size and SHA-256, the published ones of
 * their repositories on Hugging Face.
 */
import type { ModelSettings } from '../../config/config.ts';
import { packagePath } from '../../core/package-root.ts';
import { type ModelFile, modelPath } from './model-files.ts';

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
export interface LoadedLlamaModel extends Omit<LlamaModelSpec, 'path' | 'sampling'> {
  /** The model can think in a `<think>` block. */
  readonly canReason: boolean;
  /** Length of a vector; 0 for chat models. */
  readonly dimensions: number;
}

/** What the child is sent at its start. */
export interface LlamaSettings {
  /**
   * Threads for arithmetic: cores minus one, at least 1; 1 in tests. More than free cores makes
   * everything many times slower.
   */
  readonly threads: number;
  readonly models: readonly LlamaModelSpec[];
}

/** What passes over the process channel after the start; requests travel over HTTP. */
export type LlamaCommand = { readonly type: 'load'; readonly model: LlamaModelSpec };
export type LlamaReport =
  | { readonly type: 'loaded'; readonly id: string; readonly model: LoadedLlamaModel }
  | { readonly type: 'load-failed'; readonly id: string; readonly reason: string };

/**
 * The demo chat model and its word vectors, both from one file of 4 MB: word statistics of a short
 * text, so that everything can be tried without a download. They are named a demo wherever they
 * appear.
 */
export function demoModels(): LlamaModelSpec[] {
  const path = packagePath('assets/farebox-demo.gguf');
  const common = { path, contextTokens: 8_192, isDemo: true };
  return [
    {
      ...common,
      id: 'farebox-demo',
      work: 'chat',
      sequences: 8,
      sampling: { temperature: 0.7, topP: 0.95, topK: 40, minP: 0 },
    },
    { ...common, id: 'farebox-demo-embedding', work: 'embeddings', sequences: 1 },
  ];
}

export interface LibraryModel extends Omit<LlamaModelSpec, 'path'> {
  /** For people. */
  readonly title: string;
  readonly file: ModelFile;
}

const HUB = 'https://huggingface.co';

/** All models that can be fetched, the first chat model being the default. */
export const MODEL_LIBRARY: readonly LibraryModel[] = [
  // Conversations of 8k tokens cost 0.9 GB each: two, so that a laptop can carry it.
  {
    id: 'qwen3-0.6b',
    title: 'Qwen3 0.6B',
    work: 'chat',
    contextTokens: 8_192,
    sequences: 2,
    isDemo: false,
    sampling: { temperature: 0.6, topP: 0.95, topK: 20, minP: 0 },
    file: {
      name: 'Qwen3-0.6B-Q8_0.gguf',
      url: `${HUB}/Qwen/Qwen3-0.6B-GGUF/resolve/23749fefcc72300e3a2ad315e1317431b06b590a/Qwen3-0.6B-Q8_0.gguf`,
      sizeBytes: 639_446_688,
      sha256: '9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031',
      license: 'Apache-2.0',
    },
  },
  // Its file is trained for 2,048 tokens; longer inputs are averaged over windows.
  {
    id: 'nomic-embed-text-v1.5',
    title: 'Nomic Embed Text 1.5',
    work: 'embeddings',
    contextTokens: 2_048,
    sequences: 1,
    isDemo: false,
    file: {
      name: 'nomic-embed-text-v1.5.Q8_0.gguf',
      url: `${HUB}/nomic-ai/nomic-embed-text-v1.5-GGUF/resolve/0188c9bf409793f810680a5a431e7b899c46104c/nomic-embed-text-v1.5.Q8_0.gguf`,
      sizeBytes: 146_146_432,
      sha256: '3e24342164b3d94991ba9692fdc0dd08e3fd7362e0aacc396a9a5c54a544c3b7',
      license: 'Apache-2.0',
    },
  },
];

/** What the engine is told to load once the file is there. */
export function librarySpec(dataFolder: string, model: LibraryModel): LlamaModelSpec {
  const { title: _title, file, ...spec } = model;
  return { ...spec, path: modelPath(dataFolder, file) };
}

/** Of an operator's own model where the configuration says nothing, as of the library's chat model. */
const OWN_CONTEXT_TOKENS = 8_192;
const OWN_SEQUENCES = 2;

/** The specification of a configured model with a GGUF file; none for other models. */
export function ownSpec({ id, type, gguf, context }: ModelSettings): LlamaModelSpec[] {
  if (gguf === undefined) return [];
  const work = type === 'embedding' ? 'embeddings' : 'chat';
  const contextTokens = context ?? OWN_CONTEXT_TOKENS;
  return [{ id, path: gguf, work, contextTokens, sequences: OWN_SEQUENCES, isDemo: false }];
}
