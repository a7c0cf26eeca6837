/**
 * Models of the embedded llama.cpp engine: the bundled demo models, and the library of open models
 * that can be fetched. Library models are small, permissively licensed, published on Hugging Face,
 * and pinned to one revision with size and SHA-256.
 */
import type { ModelSettings } from '../../config/config.ts';
import { packagePath } from '../../core/package-root.ts';
import { type ModelFile, modelPath } from './model-files.ts';
import type { LlamaModelSpec } from './program-contract.ts';

/**
 * The demo chat model and its word vectors, both from one file of 4 MB with word statistics of a
 * short text, so that the API can be tried without a download. Their names contain "demo".
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
  readonly title: string;
  readonly file: ModelFile;
}

const HUB = 'https://huggingface.co';

/** All models that can be fetched; the first chat model is the default. */
export const MODEL_LIBRARY: readonly LibraryModel[] = [
  // A conversation of 8k tokens needs 0.9 GB: two fit on a laptop.
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
  // The model was trained on 2,048 tokens; longer inputs are averaged over windows.
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

export function librarySpec(dataFolder: string, model: LibraryModel): LlamaModelSpec {
  const { title: _title, file, ...spec } = model;
  return { ...spec, path: modelPath(dataFolder, file) };
}

/** Default context of an operator's own model, the same as of the library's chat model. */
const OWN_CONTEXT_TOKENS = 8_192;
const OWN_SEQUENCES = 2;

/** The load specification of a configured model with a GGUF file; empty for other models. */
export function ownSpec({ id, type, gguf, context }: ModelSettings): LlamaModelSpec[] {
  if (gguf === undefined) return [];
  const work = type === 'embedding' ? 'embeddings' : 'chat';
  const contextTokens = context ?? OWN_CONTEXT_TOKENS;
  return [{ id, path: gguf, work, contextTokens, sequences: OWN_SEQUENCES, isDemo: false }];
}
