/**
 * The embedded sentence encoder, as the parent sees it: one child process that speaks OpenAI's
 * `/v1/embeddings` and fetches nothing, since the weights are a package.
 */
import { siblingUrl } from '../../core/sibling.ts';
import { LocalChild, type LocalChildParts } from '../local/local-child.ts';

/** Its name on the wire. */
export const SENTENCE_MODEL = 'farebox-sentences';
/** Numbers of a vector. */
export const SENTENCE_DIMENSIONS = 512;

export function sentenceEngine(parts: LocalChildParts): LocalChild {
  return new LocalChild({
    ...parts,
    name: 'sentences',
    entry: siblingUrl(import.meta.url, 'sentence-process'),
    settings: () => ({}),
  });
}
