/** Models that engines on local ports report, in the catalogue's words. */
import type { DiscoveredModel } from '../catalog/catalog.ts';
import type { Capability } from '../config/config.ts';
import {
  type DiscoveredEngine,
  type DiscoveredModel as FoundModel,
  type ProbeTarget,
  USUAL_TARGETS,
} from './llama/llama.ts';

/** Embedding models that do not say how long an input may be take this much. */
const USUAL_EMBEDDING_TOKENS = 8_192;

/** Which engine is expected where: by the usual port, else by the OpenAI protocol alone. */
export function probeTargets(urls: readonly string[]): ProbeTarget[] {
  return urls.map((url) => {
    const origin = new URL(url).origin;
    return USUAL_TARGETS.find((target) => target.origin === origin) ?? { engine: 'vllm', origin };
  });
}

/** What engines call a capability, and what we call it. */
const CAPABILITY_WORDS: Readonly<Record<string, Capability>> = {
  tools: 'functionCalling',
  vision: 'vision',
  thinking: 'reasoning',
};

export function discoveredModels(engines: readonly DiscoveredEngine[]): DiscoveredModel[] {
  return engines.flatMap(({ engine, models }) => models.map((model) => offered(engine, model)));
}

function offered(engine: string, model: FoundModel): DiscoveredModel {
  const common = {
    id: model.id,
    origin: 'discovered',
    replicas: [{ engine, model: model.id }],
    ...(model.contextTokens === undefined ? {} : { context: model.contextTokens }),
  } as const;
  if (model.isEmbedding) {
    const maxInputTokens = model.contextTokens ?? USUAL_EMBEDDING_TOKENS;
    const embedding = { dimensions: 0, maxInputTokens, customDimensions: false };
    return { ...common, type: 'embedding', embedding };
  }
  // An engine that names no capabilities is trusted with tools and schemas: it refuses by itself.
  const named = model.capabilities?.flatMap((word) => CAPABILITY_WORDS[word] ?? []);
  const capabilities: readonly Capability[] =
    named === undefined
      ? ['functionCalling', 'responseSchema', 'logProbs']
      : [...named, 'responseSchema'];
  return { ...common, type: 'text', capabilities };
}
