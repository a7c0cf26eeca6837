/**
 * Finds engines on the usual local ports. A port counts only when its answer has the exact shape of
 * an engine's model list, so that a plain web server is never taken for one. All ports are asked at
 * once and each answer is bounded in time and bytes.
 */
import { request as httpRequest } from 'undici';
import { z } from 'zod';
import type { DiscoveredModel } from '../catalog/catalog.ts';
import type { Capability } from '../config/config.ts';

export type LocalEngine = 'ollama' | 'llama.cpp' | 'lm-studio' | 'vllm';

export interface FoundModel {
  readonly id: string;
  readonly contextTokens?: number;
  /** In the engine's own words, such as `tools`, `vision`, `thinking`. */
  readonly capabilities?: readonly string[];
  readonly isEmbedding: boolean;
}

export interface FoundEngine {
  readonly engine: LocalEngine;
  /** The base URL of the OpenAI protocol, with `/v1`. */
  readonly url: string;
  readonly models: readonly FoundModel[];
}

export interface ProbeTarget {
  readonly engine: LocalEngine;
  /** Without a path, such as `http://127.0.0.1:11434`. */
  readonly origin: string;
}

/** The ports that these engines take when nobody says otherwise. */
export const USUAL_TARGETS: readonly ProbeTarget[] = [
  { engine: 'ollama', origin: 'http://127.0.0.1:11434' },
  { engine: 'llama.cpp', origin: 'http://127.0.0.1:8080' },
  { engine: 'lm-studio', origin: 'http://127.0.0.1:1234' },
  { engine: 'vllm', origin: 'http://127.0.0.1:8000' },
];

/** Each port must answer within this, so that a start is never held up. */
const PROBE_LIMIT_MS = 500;
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** What is read of an answer of no interest, so that its connection ends in order. */
const MAX_IGNORED_BYTES = 16 * 1024;
/** Details are asked for so many models; further ones are offered without. */
const MAX_DETAILED = 32;
const EMBEDDING_NAME = /embed|bge-|minilm|e5-|gte-/i;

const ModelList = z.object({
  object: z.literal('list'),
  data: z.array(
    z.looseObject({
      id: z.string().min(1),
      object: z.literal('model'),
      max_model_len: z.number().nullish(),
      meta: z
        .looseObject({ n_ctx: z.number().nullish(), n_ctx_train: z.number().nullish() })
        .nullish(),
    }),
  ),
});
const LmStudioList = z.object({
  data: z.array(
    z.looseObject({
      id: z.string(),
      type: z.string().optional(),
      max_context_length: z.number().optional(),
      loaded_context_length: z.number().optional(),
      capabilities: z.array(z.string()).optional(),
    }),
  ),
});
const OllamaTags = z.object({ models: z.array(z.looseObject({ name: z.string() })) });
const OllamaShow = z.looseObject({
  capabilities: z.array(z.string()).optional(),
  model_info: z.record(z.string(), z.unknown()).optional(),
  parameters: z.string().optional(),
});
const LlamaProps = z.looseObject({
  default_generation_settings: z.looseObject({ n_ctx: z.number().optional() }).optional(),
  modalities: z.record(z.string(), z.unknown()).optional(),
});

/** The engines that answer now. Never throws; takes at most about a second. */
export async function discoverEngines(
  targets: readonly ProbeTarget[] = USUAL_TARGETS,
): Promise<FoundEngine[]> {
  const found = await Promise.all(targets.map(probe));
  return found.filter((engine) => engine !== undefined);
}

async function probe(target: ProbeTarget): Promise<FoundEngine | undefined> {
  const signal = AbortSignal.timeout(PROBE_LIMIT_MS);
  const list = await askFor(ModelList, `${target.origin}/v1/models`, signal);
  if (list === undefined) return undefined;
  const models = list.data.map((model): FoundModel => {
    const context = model.max_model_len ?? model.meta?.n_ctx ?? model.meta?.n_ctx_train;
    return {
      id: model.id,
      ...(typeof context === 'number' ? { contextTokens: context } : {}),
      isEmbedding: EMBEDDING_NAME.test(model.id),
    };
  });
  const detailed = await addDetails(target, models);
  return { engine: target.engine, url: `${target.origin}/v1`, models: detailed };
}

/** What the engine's own endpoints add; without them the plain list stands. */
async function addDetails(
  target: ProbeTarget,
  models: readonly FoundModel[],
): Promise<readonly FoundModel[]> {
  const signal = AbortSignal.timeout(PROBE_LIMIT_MS);
  switch (target.engine) {
    case 'ollama':
      return await ollamaDetails(target.origin, models, signal);
    case 'lm-studio':
      return await lmStudioDetails(target.origin, models, signal);
    case 'llama.cpp':
      return await llamaDetails(target.origin, models, signal);
    case 'vllm':
      return models;
  }
}

async function ollamaDetails(
  origin: string,
  models: readonly FoundModel[],
  signal: AbortSignal,
): Promise<readonly FoundModel[]> {
  const tags = await askFor(OllamaTags, `${origin}/api/tags`, signal);
  const known = new Set(tags?.models.map((model) => model.name));
  return await Promise.all(
    models.map(async (model, index) => {
      if (!known.has(model.id) || index >= MAX_DETAILED) return model;
      const show = await askFor(OllamaShow, `${origin}/api/show`, signal, { model: model.id });
      if (show === undefined) return model;
      const length = Object.entries(show.model_info ?? {}).find(([key]) =>
        key.endsWith('.context_length'),
      )?.[1];
      // What the operator has set is what Ollama serves, whatever the model could do.
      const set = /^num_ctx\s+(\d+)/m.exec(show.parameters ?? '')?.[1];
      const context = set === undefined ? length : Number(set);
      return {
        ...model,
        ...(typeof context === 'number' ? { contextTokens: context } : {}),
        ...(show.capabilities === undefined ? {} : { capabilities: show.capabilities }),
        isEmbedding: show.capabilities?.includes('embedding') ?? model.isEmbedding,
      };
    }),
  );
}

async function lmStudioDetails(
  origin: string,
  models: readonly FoundModel[],
  signal: AbortSignal,
): Promise<readonly FoundModel[]> {
  const list = await askFor(LmStudioList, `${origin}/api/v0/models`, signal);
  const details = new Map(list?.data.map((model) => [model.id, model]));
  return models.map((model) => {
    const detail = details.get(model.id);
    if (detail === undefined) return model;
    const context = detail.loaded_context_length ?? detail.max_context_length;
    return {
      ...model,
      ...(context === undefined ? {} : { contextTokens: context }),
      ...(detail.capabilities === undefined ? {} : { capabilities: detail.capabilities }),
      isEmbedding: detail.type === 'embeddings' || model.isEmbedding,
    };
  });
}

async function llamaDetails(
  origin: string,
  models: readonly FoundModel[],
  signal: AbortSignal,
): Promise<readonly FoundModel[]> {
  const props = await askFor(LlamaProps, `${origin}/props`, signal);
  const context = props?.default_generation_settings?.n_ctx;
  const modalities = Object.entries(props?.modalities ?? {})
    .filter(([, isOn]) => isOn === true)
    .map(([name]) => name);
  return models.map((model) => ({
    ...model,
    // The window that the server was started with is smaller than the one of the training.
    ...(context === undefined || models.length > 1 ? {} : { contextTokens: context }),
    ...(modalities.length === 0 ? {} : { capabilities: modalities }),
  }));
}

/** The answer in the wanted shape; undefined for anything else, or nothing, or too late. */
async function askFor<Schema extends z.ZodType>(
  schema: Schema,
  url: string,
  signal: AbortSignal,
  body?: unknown,
): Promise<z.infer<Schema> | undefined> {
  try {
    const response = await httpRequest(url, {
      signal,
      ...(body === undefined
        ? {}
        : {
            method: 'POST',
            headers: { 'content-type': 'application/json' },
            body: JSON.stringify(body),
          }),
    });
    const isJson = String(response.headers['content-type']).includes('json');
    if (response.statusCode !== 200 || !isJson) {
      await response.body.dump({ limit: MAX_IGNORED_BYTES, signal });
      return undefined;
    }
    const parsed = schema.safeParse(await readJson(response.body));
    return parsed.success ? parsed.data : undefined;
  } catch {
    // Nobody listens there, or something that is no engine: both mean "not found".
    return undefined;
  }
}

async function readJson(body: AsyncIterable<Uint8Array>): Promise<unknown> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    if (size > MAX_ANSWER_BYTES) return undefined;
    chunks.push(chunk);
  }
  // JSON.parse gives `any`; the schema looks at it next.
  return JSON.parse(Buffer.concat(chunks).toString('utf8')) as unknown;
}

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

export function discoveredModels(engines: readonly FoundEngine[]): DiscoveredModel[] {
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
