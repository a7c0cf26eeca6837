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

export interface FoundEngine {
  readonly engine: LocalEngine;
  /** The base URL of the OpenAI protocol, with `/v1`. */
  readonly url: string;
  readonly models: readonly DiscoveredModel[];
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

/** Each question must be answered within this, so that a start is never held up. */
const START_LIMIT_MS = 500;
/** In the background: an engine that works is slower to answer, and it is still there. */
export const LOOK_LIMIT_MS = 5_000;
const MAX_ANSWER_BYTES = 4 * 1024 * 1024;
/** What is read of an answer of no interest, so that its connection ends in order. */
const MAX_IGNORED_BYTES = 16 * 1024;
/** Details are asked for so many models; further ones are offered without. */
const MAX_DETAILED = 32;
/** A longer id is no name that anybody sends, and it is told in a header of each answer. */
const MAX_ID_CHARACTERS = 256;
/** Embedding models that do not say how long an input may be take this much. */
const USUAL_EMBEDDING_TOKENS = 8_192;
const EMBEDDING_NAME = /embed|bge-|minilm|e5-|gte-/i;

/** What engines say of a window; anything but a number of tokens is as good as nothing. */
const Tokens = z.int().min(1).optional().catch(undefined);

const ModelList = z.object({
  object: z.literal('list'),
  data: z.array(
    z.looseObject({
      id: z.string().min(1),
      object: z.literal('model'),
      max_model_len: Tokens,
      meta: z.looseObject({ n_ctx: Tokens, n_ctx_train: Tokens }).nullish(),
    }),
  ),
});
const LmStudioList = z.object({
  data: z.array(
    z.looseObject({
      id: z.string(),
      type: z.string().optional(),
      max_context_length: Tokens,
      loaded_context_length: Tokens,
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
  default_generation_settings: z.looseObject({ n_ctx: Tokens }).optional(),
  modalities: z.record(z.string(), z.unknown()).optional(),
});

/** The engines that answer now, each of two questions within `limitMs`. Never throws. */
export async function discoverEngines(
  targets: readonly ProbeTarget[] = USUAL_TARGETS,
  limitMs = START_LIMIT_MS,
): Promise<FoundEngine[]> {
  const found = await Promise.all(targets.map((target) => probe(target, limitMs)));
  return found.filter((engine) => engine !== undefined);
}

async function probe(
  { engine, origin }: ProbeTarget,
  limitMs: number,
): Promise<FoundEngine | undefined> {
  const signal = AbortSignal.timeout(limitMs);
  const list = await askFor(ModelList, `${origin}/v1/models`, signal);
  if (list === undefined) return undefined;
  const named = list.data.filter(({ id }) => id.length <= MAX_ID_CHARACTERS);
  const ids = named.map((model) => model.id);
  const details = await DETAILS[engine](origin, ids, AbortSignal.timeout(limitMs));
  const models = named.map(({ id, max_model_len, meta }) => {
    const listed = max_model_len ?? meta?.n_ctx ?? meta?.n_ctx_train;
    const { contextTokens = listed, ...known } = details.get(id) ?? {};
    return offered(engine, id, { ...known, contextTokens });
  });
  return { engine, url: `${origin}/v1`, models };
}

/** What engines call a capability, and what we call it. */
const CAPABILITY_WORDS: Readonly<Record<string, Capability>> = {
  tools: 'functionCalling',
  vision: 'vision',
  thinking: 'reasoning',
};

/** A model in the catalogue's words. */
function offered(engine: LocalEngine, id: string, details: Details): DiscoveredModel {
  const { contextTokens, capabilities: words, isEmbedding = EMBEDDING_NAME.test(id) } = details;
  const common = {
    id,
    origin: 'discovered',
    replicas: [{ engine, model: id }],
    ...(contextTokens !== undefined && { context: contextTokens }),
  } as const;
  if (isEmbedding) {
    const maxInputTokens = contextTokens ?? USUAL_EMBEDDING_TOKENS;
    const embedding = { dimensions: 0, maxInputTokens, customDimensions: false };
    return { ...common, type: 'embedding', embedding };
  }
  // An engine that names no capabilities is trusted with tools and schemas: it refuses by itself.
  const capabilities: readonly Capability[] =
    words === undefined
      ? ['functionCalling', 'responseSchema', 'logProbs']
      : [...words.flatMap((word) => CAPABILITY_WORDS[word] ?? []), 'responseSchema'];
  return { ...common, type: 'text', capabilities };
}

/** What the endpoints of an engine's own add to its list; a model that is not in it has no more. */
interface Details {
  readonly contextTokens?: number | undefined;
  /** In the engine's own words, such as `tools`, `vision`, `thinking`. */
  readonly capabilities?: readonly string[] | undefined;
  readonly isEmbedding?: boolean | undefined;
}

type AskDetails = (
  origin: string,
  ids: readonly string[],
  signal: AbortSignal,
) => Promise<ReadonlyMap<string, Details>>;

const DETAILS: Readonly<Record<LocalEngine, AskDetails>> = {
  async ollama(origin, ids, signal) {
    const tags = await askFor(OllamaTags, `${origin}/api/tags`, signal);
    const known = new Set(tags?.models.map((model) => model.name));
    const asked = ids.slice(0, MAX_DETAILED).filter((id) => known.has(id));
    const details = await Promise.all(
      asked.map(async (model): Promise<[string, Details]> => {
        const show = await askFor(OllamaShow, `${origin}/api/show`, signal, { model });
        const { capabilities, model_info = {}, parameters = '' } = show ?? {};
        // What the operator has set is what Ollama serves, whatever the model could do.
        const set = /^num_ctx\s{1,40}(\d{1,15})/m.exec(parameters)?.[1];
        const known = Object.entries(model_info);
        const [, length] = known.find(([key]) => key.endsWith('.context_length')) ?? [];
        const contextTokens = Tokens.parse(set === undefined ? length : Number(set));
        const isEmbedding = capabilities?.includes('embedding');
        return [model, { contextTokens, capabilities, isEmbedding }];
      }),
    );
    return new Map(details);
  },
  async 'lm-studio'(origin, _ids, signal) {
    const list = await askFor(LmStudioList, `${origin}/api/v0/models`, signal);
    const details = list?.data.map((model): [string, Details] => [
      model.id,
      {
        contextTokens: model.loaded_context_length ?? model.max_context_length,
        capabilities: model.capabilities,
        isEmbedding: model.type === 'embeddings' || undefined,
      },
    ]);
    return new Map(details);
  },
  async 'llama.cpp'(origin, ids, signal) {
    const props = await askFor(LlamaProps, `${origin}/props`, signal);
    const modalities = Object.entries(props?.modalities ?? {})
      .filter(([, isOn]) => isOn === true)
      .map(([name]) => name);
    // The window that the server was started with is smaller than the one of the training.
    const contextTokens = ids.length > 1 ? undefined : props?.default_generation_settings?.n_ctx;
    const capabilities = modalities.length === 0 ? undefined : modalities;
    return new Map(ids.map((id) => [id, { contextTokens, capabilities }]));
  },
  async vllm() {
    return new Map();
  },
};

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

/** Which engine is expected where: by the usual port, else by the OpenAI protocol alone. */
export function probeTargets(urls: readonly string[]): ProbeTarget[] {
  return urls.map((url) => {
    const origin = new URL(url).origin;
    return USUAL_TARGETS.find((target) => target.origin === origin) ?? { engine: 'vllm', origin };
  });
}
