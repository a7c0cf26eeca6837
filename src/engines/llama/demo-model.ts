/**
 * The demo models: word statistics of a short text, built into the package, so that everything can
 * be tried without a download. They are named a demo wherever they appear.
 */
import { fileURLToPath } from 'node:url';

import type { LlamaModelSpec } from './llama-wire.ts';

export const DEMO_CHAT_ID = 'farebox-demo';
export const DEMO_EMBEDDING_ID = 'farebox-demo-embedding';

/** The demo chat model and its word vectors, both from one file of 4 MB. */
export function demoModels(): LlamaModelSpec[] {
  const path = fileURLToPath(new URL('../../../assets/farebox-demo.gguf', import.meta.url));
  const common = { path, contextTokens: 8_192, isDemo: true };
  return [
    {
      ...common,
      id: DEMO_CHAT_ID,
      work: 'chat',
      sequences: 8,
      sampling: { temperature: 0.7, topP: 0.95, topK: 40, minP: 0 },
    },
    { ...common, id: DEMO_EMBEDDING_ID, work: 'embeddings', sequences: 1 },
  ];
}
