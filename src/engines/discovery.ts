/**
 * Finds engines on the usual local ports. A port counts only if its response has the exact shape of
 * an engine's model list, so that an ordinary web server is never used as an engine. All ports are
 * queried concurrently; each response is limited in time and size.
 */
import { request as httpRequest } from 'undici';
import * as z from 'zod';
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

/** Default ports of these engines. */
export const USUAL_TARGETS: readonly ProbeTarget[] = [
  { engine: 'ollama', origin: 'http://127.0.0.1:11434' },
  { engine: 'llama.cpp', origin: 'http://127.0.0.1:8080' },
  { engine: 'lm-studio', origin: 'http://127.0.0.1:1234' },
  { engine: 'vllm', origin: 'http://127.0.0.1:8000' },
];

/** Limit per request at startup, so that discovery does not delay the start. */
const START_LIMIT_MS = 500;
/** Limit per request of the discovery in the background; busy engines are slow to respond. */
export const LOOK_LIMIT_MS = 5_000;
const MAX_RESPONSE_BYTES = 4 * 1024 * 1024;
/** Bytes read of an ignored response, so that its connection can close cleanly. */
const MAX_IGNORED_BYTES = 16 * 1024;
/** Number of models whose details are queried; further ones are offered without details. */
const MAX_DETAILED = 32;
/** Ids are sent in a response header, so their length is limited. */
const MAX_ID_CHARACTERS = 256;
const USUAL_EMBEDDING_TOKENS = 8_192;
const EMBEDDING_NAME = /embed|bge-|minilm|e5-|gte-/i;

/** Context window in tokens; any other value is ignored. */
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

/**
 * Returns the engines that respond, with a limit of `limitMs` for each of two requests per engine,
 * and those of `before` that are too busy to respond in time. Never throws.
 */
export async function discoverEngines(
  targets: readonly ProbeTarget[] = USUAL_TARGETS,
  limitMs = START_LIMIT_MS,
  before: readonly FoundEngine[] = [],
): Promise<FoundEngine[]> {
  const found = await Promise.all(targets.map((target) => probe(target, limitMs, before)));
  return found.filter((engine) => engine !== undefined);
}

async function probe(
  { engine, origin }: ProbeTarget,
  limitMs: number,
  before: readonly FoundEngine[],
): Promise<FoundEngine | undefined> {
  const url = `${origin}/v1`;
  const known = before.find((one) => one.url === url);
  const signal = AbortSignal.timeout(limitMs);
  const list = await fetchJson(ModelList, `${url}/models`, signal);
  if (list === undefined) return signal.aborted ? known : undefined;
  const named = list.data.filter(({ id }) => id.length <= MAX_ID_CHARACTERS);
  const ids = named.map((model) => model.id);
  const late = AbortSignal.timeout(limitMs);
  const details = await DETAILS[engine](origin, ids, late);
  // Without details the models would lose their properties.
  if (late.aborted && known !== undefined) return known;
  const models = named.map(({ id, max_model_len, meta }) => {
    const listed = max_model_len ?? meta?.n_ctx ?? meta?.n_ctx_train;
    const { contextTokens = listed, ...known } = details.get(id) ?? {};
    return offered(engine, id, { ...known, contextTokens });
  });
  return { engine, url, models };
}

/** Capabilities in the terms of engines, mapped to those of the catalog. */
const CAPABILITY_WORDS: Readonly<Record<string, Capability>> = {
  tools: 'functionCalling',
  vision: 'vision',
  thinking: 'reasoning',
};

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
  // If an engine reports no capabilities, tools and schemas are assumed; the engine rejects what it
  // does not support.
  const capabilities: readonly Capability[] =
    words === undefined
      ? ['functionCalling', 'responseSchema', 'logProbs']
      : [...words.flatMap((word) => CAPABILITY_WORDS[word] ?? []), 'responseSchema'];
  return { ...common, type: 'text', capabilities };
}

interface Details {
  readonly contextTokens?: number | undefined;
  /** In the engine's terms, such as `tools`, `vision`, `thinking`. */
  readonly capabilities?: readonly string[] | undefined;
  readonly isEmbedding?: boolean | undefined;
}

type FetchDetails = (
  origin: string,
  ids: readonly string[],
  signal: AbortSignal,
) => Promise<ReadonlyMap<string, Details>>;

const DETAILS: Readonly<Record<LocalEngine, FetchDetails>> = {
  async ollama(origin, ids, signal) {
    const tags = await fetchJson(OllamaTags, `${origin}/api/tags`, signal);
    const known = new Set(tags?.models.map((model) => model.name));
    const detailed = ids.slice(0, MAX_DETAILED).filter((id) => known.has(id));
    const details = await Promise.all(
      detailed.map(async (model): Promise<[string, Details]> => {
        const show = await fetchJson(OllamaShow, `${origin}/api/show`, signal, { model });
        const { capabilities, model_info = {}, parameters = '' } = show ?? {};
        // Ollama serves the context size that the operator has set, even if the model supports
        // more.
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
    const list = await fetchJson(LmStudioList, `${origin}/api/v0/models`, signal);
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
    const props = await fetchJson(LlamaProps, `${origin}/props`, signal);
    const modalities = Object.entries(props?.modalities ?? {})
      .filter(([, isOn]) => isOn === true)
      .map(([name]) => name);
    // The server's configured window, which is smaller than the one of the training.
    const contextTokens = ids.length > 1 ? undefined : props?.default_generation_settings?.n_ctx;
    const capabilities = modalities.length === 0 ? undefined : modalities;
    return new Map(ids.map((id) => [id, { contextTokens, capabilities }]));
  },
  async vllm() {
    return new Map();
  },
};

/** Returns the validated response; `undefined` if it is invalid, missing or too late. */
async function fetchJson<Schema extends z.ZodType>(
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
    // No server, or not an engine: both mean "not found".
    return undefined;
  }
}

async function readJson(body: AsyncIterable<Uint8Array>): Promise<unknown> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  for await (const chunk of body) {
    size += chunk.length;
    if (size > MAX_RESPONSE_BYTES) return undefined;
    chunks.push(chunk);
  }
  // `JSON.parse` returns `any`; the schema validates the value.
  return JSON.parse(Buffer.concat(chunks).toString('utf8')) as unknown;
}

/**
 * The engines with ids that are not in `taken`, so that each model is called at its own server: a
 * second engine of a kind is for example `vllm-2`.
 */
export function withFreeIds(
  found: readonly FoundEngine[],
  taken: Iterable<string>,
): (FoundEngine & { readonly id: string })[] {
  const used = new Set(taken);
  return found.map((one) => {
    const { engine } = one;
    let id: string = engine;
    for (let number = 2; used.has(id); number += 1) id = `${engine}-${number}`;
    used.add(id);
    const models = one.models.map((model) => {
      const replicas = model.replicas.map((replica) => ({ ...replica, engine: id }));
      return { ...model, replicas };
    });
    return { ...one, id, models };
  });
}

/** Maps URLs to the engine of their usual port; other ports are queried by the OpenAI protocol. */
export function probeTargets(urls: readonly string[]): ProbeTarget[] {
  return urls.map((url) => {
    const origin = new URL(url).origin;
    return USUAL_TARGETS.find((target) => target.origin === origin) ?? { engine: 'vllm', origin };
  });
}
