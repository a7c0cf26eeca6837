/** What the lists of models take and answer, and what they say of themselves. */
import { z } from 'zod';
import { REASONING_EFFORTS } from '../core/reasoning-efforts.ts';
import { LIST_TYPES, WIRE_CAPABILITIES } from '../catalog/catalog.ts';
import { CAPABILITIES, type Capability, MODEL_TYPES, QUANTIZATIONS } from '../config/config.ts';
import { type ParameterDescription, type RouteDescription, jsonAnswer } from '../http/describe.ts';

const ListType = z.enum(LIST_TYPES);
const Type = z.enum(MODEL_TYPES);

const ListQuery = z.object({
  type: ListType.optional().describe(
    '`text` when absent; `all` is everything, `code` the text models that are made for code.',
  ),
  limit: z.string().optional().describe('With `anthropic-version`: entries of a page, 1 to 1000.'),
  after_id: z.string().optional().describe('With `anthropic-version`: the page after this entry.'),
  before_id: z
    .string()
    .optional()
    .describe('With `anthropic-version`: the page before this entry.'),
});
const TypeQuery = z.object({ type: Type.optional().describe('`text` when absent.') });

const Amount = z
  .strictObject({ usd: z.number(), diem: z.number() })
  .describe('USD; one unit of daily credit is one USD.')
  .meta({ id: 'Amount' });

const TokenPrices = {
  input: Amount.optional(),
  output: Amount.optional(),
  cache_input: Amount.optional(),
  cache_write: Amount.optional(),
};

const Pricing = z
  .strictObject({
    ...TokenPrices,
    extended: z
      .strictObject({ context_token_threshold: z.int(), ...TokenPrices })
      .optional()
      .describe('Of prompts with more tokens than the threshold.'),
    generation: Amount.optional().describe('Per image.'),
    resolutions: z
      .record(z.string(), Amount)
      .optional()
      .describe('Per image, by its size; `generation` for other sizes.'),
    quality: z
      .record(z.string(), z.record(z.string(), Amount))
      .optional()
      .describe('Per image, by its size, or `any`, and then by its quality.'),
    per_request: Amount.optional(),
    per_search: Amount.optional(),
    per_audio_second: Amount.optional(),
  })
  .describe(
    'Prices of tokens are per million; of speech, `input` is per million characters of text.',
  );

/** A member for each capability. */
function capabilities<T>(valueOf: (capability: Capability) => T): Record<string, T> {
  return Object.fromEntries(CAPABILITIES.map((name) => [WIRE_CAPABILITIES[name], valueOf(name)]));
}

const Capabilities = z.strictObject({
  ...capabilities(() => z.boolean()),
  quantization: z.enum(QUANTIZATIONS),
  reasoningEffortOptions: z.array(z.enum(REASONING_EFFORTS)).optional(),
  defaultReasoningEffort: z.enum(REASONING_EFFORTS).optional(),
  maxImages: z.int().optional(),
  maxVideos: z.int().optional(),
});

const Default = z.strictObject({ default: z.number() });

const Constraints = z
  .looseObject({
    temperature: Default.optional(),
    top_p: Default.optional(),
    frequency_penalty: Default.optional(),
    presence_penalty: Default.optional(),
    repetition_penalty: Default.optional(),
    model_type: z.enum(['text-to-video', 'image-to-video', 'video']).optional(),
    durations: z.array(z.string()).optional(),
    aspect_ratios: z.array(z.string()).optional(),
    audio: z.boolean().optional(),
    audio_configurable: z.boolean().optional(),
    prompt_character_limit: z.int().optional(),
    promptCharacterLimit: z.int().optional().describe('Image models: the longest prompt.'),
    resolutions: z.array(z.string()).optional().describe('Sizes that a model makes.'),
    defaultResolution: z.string().optional().describe('Image models: the size unless named.'),
    qualities: z.array(z.string()).optional().describe('Image models: what `quality` takes.'),
    defaultQuality: z.string().optional().describe('Image models: the quality unless named.'),
    maxImages: z.int().optional().describe('Image models: images of one request.'),
    edits: z.boolean().optional().describe('Image models: `/images/edits` takes it.'),
    maxInputImages: z.int().optional().describe('Image models: pictures that an edit starts from.'),
  })
  .describe('Defaults of sampling, what a video model takes, and what the operator adds.');

const Deprecation = z.strictObject({
  date: z.string(),
  startsAt: z.string().optional(),
  removesAt: z.string(),
  autoRemap: z.boolean().describe('Whether the replacement answers when it is gone.'),
  replacementModelId: z.string().optional(),
});

const Model = z
  .strictObject({
    id: z.string(),
    object: z.literal('model'),
    created: z.int(),
    owned_by: z.string(),
    type: Type,
    context_length: z.int().optional().describe('Of text models.'),
    model_spec: z.strictObject({
      name: z.string(),
      description: z.string(),
      privacy: z.enum(['private', 'anonymized']),
      offline: z.boolean(),
      offlineReason: z.string().optional().describe('Why, where that is known.'),
      beta: z.boolean(),
      betaModel: z.boolean(),
      uncensored: z.boolean(),
      traits: z.array(z.string()),
      modelSource: z.string().describe('Where the model comes from; can be empty.'),
      regionRestrictions: z.array(z.string()).describe('Countries where it is not offered.'),
      deprecation: Deprecation.optional(),
      pricing: Pricing.optional(),
      availableContextTokens: z.int().optional(),
      maxCompletionTokens: z.int().optional(),
      capabilities: Capabilities.optional().describe('Of text models.'),
      constraints: Constraints.optional(),
      embeddingDimensions: z.int().optional(),
      maxInputTokens: z.int().optional(),
      supportsCustomDimensions: z.literal(true).optional(),
      voices: z.array(z.string()).optional().describe('Of speech models.'),
      default_voice: z.string().optional().describe('The voice of requests that name none.'),
      supported_formats: z.array(z.string()).optional().describe('What speech is written in.'),
      default_format: z.string().optional().describe('The format of requests that name none.'),
      min_speed: z.number().optional().describe('Slowest speech, 1 being usual.'),
      max_speed: z.number().optional().describe('Fastest speech, 1 being usual.'),
      promptCharacterLimit: z.int().optional().describe('Speech models: the longest text.'),
      maxDocuments: z.int().optional().describe('Rerank models: documents of one request.'),
    }),
  })
  .meta({ id: 'Model' });

const ModelList = z
  .strictObject({ object: z.literal('list'), type: ListType, data: z.array(Model) })
  .meta({ id: 'ModelList' });

const AnthropicModel = z
  .strictObject({
    type: z.literal('model'),
    id: z.string(),
    display_name: z.string(),
    created_at: z.string().describe('RFC 3339.'),
    max_input_tokens: z.int().nullable().describe('Null where it is not known.'),
    max_tokens: z.int().nullable(),
    capabilities: z.null(),
    lifecycle: z.enum(['active', 'deprecated', 'retired']),
    line: z.null(),
    deprecated_at: z.string().nullable(),
    retires_at: z.string().nullable(),
  })
  .meta({ id: 'AnthropicModel' });

const AnthropicModelList = z
  .strictObject({
    data: z.array(AnthropicModel),
    has_more: z.boolean(),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
  })
  .meta({ id: 'AnthropicModelList' });

const ANTHROPIC_VERSION: ParameterDescription = {
  name: 'anthropic-version',
  in: 'header',
  about: "Any value: the answer has the form of Anthropic's API.",
  example: '2023-06-01',
};

const NameMap = z
  .strictObject({
    object: z.literal('list'),
    type: Type,
    data: z.record(z.string(), z.string()).describe('A name and the id of its model.'),
  })
  .meta({ id: 'NameMap' });

const HELD = new Set<Capability>(['functionCalling', 'reasoning', 'responseSchema', 'webSearch']);
const MODEL = {
  id: 'atlas-24b',
  object: 'model',
  created: 1795233600,
  owned_by: 'svc',
  type: 'text',
  context_length: 65536,
  model_spec: {
    name: 'Atlas 24B',
    description: 'Writes and reasons.',
    privacy: 'private',
    offline: false,
    beta: false,
    betaModel: false,
    uncensored: false,
    traits: ['default'],
    modelSource: 'https://example.com/atlas-24b',
    regionRestrictions: [],
    pricing: { input: { usd: 0.3, diem: 0.3 }, output: { usd: 1.2, diem: 1.2 } },
    availableContextTokens: 65536,
    maxCompletionTokens: 8192,
    capabilities: {
      ...capabilities((capability) => HELD.has(capability)),
      quantization: 'fp8',
    },
    constraints: { temperature: { default: 0.7 } },
  },
};

export const MODELS_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'List models',
  about:
    "Needs no key. With a key, only what it may use is listed: see its `models` and `modelPrivacy`. With the header `anthropic-version` the text models are listed in the form of Anthropic's API, each also as `claude-<id>`, a name that every request may use.",
  parameters: [ANTHROPIC_VERSION],
  query: ListQuery,
  answers: [
    jsonAnswer('The models of one type.', z.union([ModelList, AnthropicModelList]), {
      object: 'list',
      type: 'text',
      data: [MODEL],
    }),
  ],
};

export const MODEL_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'Describe a model',
  about:
    'By its id or by any name that a request can use; the answer has the id. What the key may not use is not found.',
  parameters: [
    { name: 'id', in: 'path', about: 'Id, trait or compatibility name', example: 'atlas-24b' },
    ANTHROPIC_VERSION,
  ],
  answers: [jsonAnswer('The model.', z.union([Model, AnthropicModel]), MODEL)],
  refusals: ['MODEL_NOT_FOUND', 'INVALID_MODEL', 'MODEL_RETIRED'],
};

const CodexModel = z
  .strictObject({
    slug: z.string(),
    display_name: z.string(),
    description: z.null(),
    default_reasoning_level: z.string().nullable(),
    supported_reasoning_levels: z.array(
      z.strictObject({ effort: z.string(), description: z.string() }),
    ),
    shell_type: z.literal('shell_command'),
    visibility: z.literal('list'),
    supported_in_api: z.boolean(),
    priority: z.int(),
    upgrade: z.null(),
    base_instructions: z.string().describe('What the agent is told, in the place of its own.'),
    supports_reasoning_summaries: z.boolean(),
    support_verbosity: z.boolean(),
    default_verbosity: z.null(),
    apply_patch_tool_type: z.literal('freeform'),
    truncation_policy: z.strictObject({ mode: z.literal('tokens'), limit: z.int() }),
    supports_parallel_tool_calls: z.boolean(),
    context_window: z.int(),
    experimental_supported_tools: z.array(z.never()),
    input_modalities: z.array(z.enum(['text', 'image'])),
  })
  .meta({ id: 'CodexModel' });

export const CODEX_MODELS_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'List models for Codex',
  about:
    'For `model_catalog_url` of Codex: text models that can call tools, with their context. The agent then works by the instructions of this list, not by its own.',
  query: z.object({
    client_version: z.string().optional().describe('Sent by the agent; not read.'),
  }),
  answers: [
    jsonAnswer('The catalogue.', z.strictObject({ models: z.array(CodexModel) }), {
      models: [
        {
          slug: 'atlas-24b',
          display_name: 'Atlas 24B',
          description: null,
          default_reasoning_level: null,
          supported_reasoning_levels: [],
          shell_type: 'shell_command',
          visibility: 'list',
          supported_in_api: true,
          priority: 0,
          upgrade: null,
          base_instructions: 'You are a coding agent in a terminal.',
          supports_reasoning_summaries: false,
          support_verbosity: false,
          default_verbosity: null,
          apply_patch_tool_type: 'freeform',
          truncation_policy: { mode: 'tokens', limit: 10_000 },
          supports_parallel_tool_calls: true,
          context_window: 65_536,
          experimental_supported_tools: [],
          input_modalities: ['text'],
        },
      ],
    }),
  ],
};

export const TRAITS_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'List traits',
  about: 'A trait is a name for the best model of a kind; requests can use it as `model`.',
  query: TypeQuery,
  answers: [
    jsonAnswer('Traits and their models.', NameMap, {
      object: 'list',
      type: 'text',
      data: { default: 'atlas-24b', fastest: 'atlas-3b' },
    }),
  ],
};

export const MAPPING_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'List compatibility names',
  about: 'Names of well-known models that are served by a model of this server.',
  query: TypeQuery,
  answers: [
    jsonAnswer('Names and their models.', NameMap, {
      object: 'list',
      type: 'text',
      data: { 'gpt-4o': 'atlas-24b' },
    }),
  ],
};
