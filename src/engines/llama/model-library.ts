/**
 * The open models that farebox can fetch by itself: small, permissively licensed, pinned to one
 * revision with size and SHA-256. The checksums are the published SHA-256 of the files in their
 * repositories on Hugging Face.
 */
import { stat } from 'node:fs/promises';
import { join } from 'node:path';

import type { LlamaModelSpec, SamplingDefaults } from './llama-wire.ts';

export interface LibraryModel {
  readonly id: string;
  /** For people. */
  readonly title: string;
  readonly work: 'chat' | 'embeddings';
  readonly url: string;
  readonly fileName: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  readonly license: string;
  readonly contextTokens: number;
  /** Memory of a conversation grows with each of these. */
  readonly sequences: number;
  readonly sampling?: SamplingDefaults;
}

const HUB = 'https://huggingface.co';

/** Conversations of 8k tokens cost 0.9 GB each in this model: two, so that a laptop can carry it. */
const QWEN3: LibraryModel = {
  id: 'qwen3-0.6b',
  title: 'Qwen3 0.6B',
  work: 'chat',
  url: `${HUB}/Qwen/Qwen3-0.6B-GGUF/resolve/23749fefcc72300e3a2ad315e1317431b06b590a/Qwen3-0.6B-Q8_0.gguf`,
  fileName: 'Qwen3-0.6B-Q8_0.gguf',
  sizeBytes: 639_446_688,
  sha256: '9465e63a22add5354d9bb4b99e90117043c7124007664907259bd16d043bb031',
  license: 'Apache-2.0',
  contextTokens: 8_192,
  sequences: 2,
  sampling: { temperature: 0.6, topP: 0.95, topK: 20, minP: 0 },
};

/** Its file is trained for 2,048 tokens; longer inputs are averaged over windows. */
const NOMIC: LibraryModel = {
  id: 'nomic-embed-text-v1.5',
  title: 'Nomic Embed Text 1.5',
  work: 'embeddings',
  url: `${HUB}/nomic-ai/nomic-embed-text-v1.5-GGUF/resolve/0188c9bf409793f810680a5a431e7b899c46104c/nomic-embed-text-v1.5.Q8_0.gguf`,
  fileName: 'nomic-embed-text-v1.5.Q8_0.gguf',
  sizeBytes: 146_146_432,
  sha256: '3e24342164b3d94991ba9692fdc0dd08e3fd7362e0aacc396a9a5c54a544c3b7',
  license: 'Apache-2.0',
  contextTokens: 2_048,
  sequences: 1,
};

/** All models that can be fetched, the first chat model being the default. */
export const MODEL_LIBRARY: readonly LibraryModel[] = [QWEN3, NOMIC];

/** The model of that id; undefined when the library has none. */
export function libraryModel(id: string): LibraryModel | undefined {
  return MODEL_LIBRARY.find((model) => model.id === id);
}

/** Where a model lies in a data folder. */
export function libraryPath(dataFolder: string, model: LibraryModel): string {
  return join(dataFolder, 'models', model.fileName);
}

/** Whether the file is there, whole: it gets its name only after its checksum was right. */
export async function hasLibraryFile(dataFolder: string, model: LibraryModel): Promise<boolean> {
  try {
    return (await stat(libraryPath(dataFolder, model))).size === model.sizeBytes;
  } catch {
    // Not fetched yet.
    return false;
  }
}

/** What the engine is told to load once the file is there. */
export function librarySpec(dataFolder: string, model: LibraryModel): LlamaModelSpec {
  return {
    id: model.id,
    path: libraryPath(dataFolder, model),
    work: model.work,
    contextTokens: model.contextTokens,
    sequences: model.sequences,
    isDemo: false,
    ...(model.sampling === undefined ? {} : { sampling: model.sampling }),
  };
}
