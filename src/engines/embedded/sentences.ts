/**
 * The embedded sentence encoder, as the parent sees it: one child process that speaks `/v1/embeddings`
 * and `/v1/rerank` and fetches nothing, since the weights are a package.
 */
import { EngineProcess, type EngineProcessParts } from './supervisor.ts';
import { programUrl } from './program.ts';

/** Its name on the wire. */
export const SENTENCE_MODEL = 'farebox-sentences';
/** The same encoder where documents are ranked. */
export const RERANK_MODEL = 'farebox-rerank';
/** Documents of one request. */
export const MAX_RERANKED = 1_000;
/** Numbers of a vector. */
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
