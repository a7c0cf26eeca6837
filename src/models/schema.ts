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
  .strictObject({
    usd: z.number().describe('Price in USD.'),
    diem: z.number().describe('Price in daily credit, the same number.'),
  })
  .describe('USD; one unit of daily credit is one USD.')
  .meta({ id: 'Amount' });

const TokenPrices = {
  input: Amount.optional().describe('For each million tokens of the prompt.'),
  output: Amount.optional().describe('For each million tokens of the answer, thinking included.'),
  cache_input: Amount.optional().describe("For each million tokens read from the engine's cache."),
  cache_write: Amount.optional().describe("For each million tokens written to the engine's cache."),
};

const Pricing = z
  .strictObject({
    ...TokenPrices,
    extended: z
      .strictObject({
        context_token_threshold: z
          .int()
          .describe('Prompts with more tokens than this pay these prices.'),
        ...TokenPrices,
      })
      .optional()
      .describe('Of prompts with more tokens than the threshold.'),
    generation: Amount.optional().describe('Per image.'),
    per_request: Amount.optional().describe('For each request.'),
    per_search: Amount.optional().describe('For each web search, and for each page that was read.'),
    per_audio_second: Amount.optional().describe('For each second of a recording.'),
  })
  .describe('Prices of tokens are per million.');

/** A member for each capability. */
function capabilities<T>(valueOf: (capability: Capability) => T): Record<string, T> {
  return Object.fromEntries(CAPABILITIES.map((name) => [WIRE_CAPABILITIES[name], valueOf(name)]));
}

const CAPABILITY_WORDS: Readonly<Record<Capability, string>> = {
  optimizedForCode: 'Made for code.',
  functionCalling: 'Takes `tools` and calls them.',
  audioInput: 'Takes recordings, as parts `input_audio`.',
  reasoning: 'Thinks before it answers.',
  reasoningEffort: 'Takes `reasoning_effort`.',
  responseSchema: 'Takes `response_format` with a JSON Schema.',
  multipleImages: 'Takes several images, and keeps those of the whole history.',
  vision: 'Takes images, as parts `image_url`.',
  videoInput: 'Takes videos, as parts `video_url`.',
  webSearch: 'Can be asked with `enable_web_search`.',
  xSearch: "Can be asked with `enable_x_search`, its engine's own search.",
  logProbs: 'Takes `logprobs`.',
  teeAttestation: 'Runs in an enclave that can be attested, by the word of the operator.',
  e2ee: 'Speaks end-to-end encrypted with its callers, by the word of the operator.',
};

const Capabilities = z.strictObject({
  ...capabilities((name) => z.boolean().describe(CAPABILITY_WORDS[name])),
  quantization: z
    .enum(QUANTIZATIONS)
    .describe('Precision of the weights; `not-available` where it is not told.'),
  reasoningEffortOptions: z
    .array(z.enum(REASONING_EFFORTS))
    .optional()
    .describe('The words of `reasoning_effort` that the model takes.'),
  defaultReasoningEffort: z
    .enum(REASONING_EFFORTS)
    .optional()
    .describe('How much it thinks when nothing is said.'),
  maxImages: z.int().optional().describe('Most images of a request.'),
  maxVideos: z.int().optional().describe('Most videos of a request.'),
});

const Default = z.strictObject({
  default: z.number().describe('What is used when the request says nothing.'),
});

const Constraints = z
  .looseObject({
    temperature: Default.optional().describe('The usual temperature.'),
    top_p: Default.optional().describe('The usual `top_p`.'),
    frequency_penalty: Default.optional().describe('The usual `frequency_penalty`.'),
    presence_penalty: Default.optional().describe('The usual `presence_penalty`.'),
    repetition_penalty: Default.optional().describe('The usual `repetition_penalty`.'),
    model_type: z
      .enum(['text-to-video', 'image-to-video', 'video'])
      .optional()
      .describe('What a video is made from or of.'),
    durations: z
      .array(z.string())
      .optional()
      .describe('Durations that can be asked for, such as `5s`.'),
    resolutions: z
      .array(z.string())
      .optional()
      .describe('Resolutions that can be asked for, such as `720p`.'),
    aspect_ratios: z
      .array(z.string())
      .optional()
      .describe('Aspect ratios that can be asked for, such as `16:9`.'),
    audio: z.boolean().optional().describe('Whether its videos can have sound.'),
    audio_configurable: z
      .boolean()
      .optional()
      .describe('Whether a request can turn the sound off.'),
    prompt_character_limit: z.int().optional().describe('Most characters of a prompt.'),
  })
  .describe('Defaults of sampling, what a video model takes, and what the operator adds.');

const Deprecation = z.strictObject({
  date: z.string().describe('The day from which it is gone.'),
  startsAt: z.string().optional().describe('When answers began, or begin, to warn; ISO 8601.'),
  removesAt: z.string().describe('When it is gone; ISO 8601.'),
  autoRemap: z.boolean().describe('Whether the replacement answers when it is gone.'),
  replacementModelId: z.string().optional().describe('The model to use instead.'),
});

const Model = z
  .strictObject({
    id: z.string().describe('Id to ask for it by.'),
    object: z.literal('model').describe('Kind of the object.'),
    created: z.int().describe('Unix time in seconds since which it is offered.'),
    owned_by: z.string().describe('Who offers it.'),
    type: Type.describe('What it makes.'),
    context_length: z.int().optional().describe('Of text models.'),
    model_spec: z
      .strictObject({
        name: z.string().describe('Name for people.'),
        description: z.string().describe('What it is good for; can be empty.'),
        privacy: z
          .enum(['private', 'anonymized'])
          .describe(
            "`private`: prompts stay on the operator's own machines; `anonymized`: others run it and do not learn who asks.",
          ),
        offline: z.boolean().describe('Whether no engine serves it now.'),
        offlineReason: z.string().optional().describe('Why, where that is known.'),
        beta: z.boolean().describe('Whether it is still tried out.'),
        betaModel: z.boolean().describe('The same, under its other name.'),
        uncensored: z.boolean().describe('Whether it answers without a content policy of its own.'),
        traits: z
          .array(z.string())
          .describe('Names that lead to it, such as `default` or `fastest`.'),
        modelSource: z.string().describe('Where the model comes from; can be empty.'),
        regionRestrictions: z.array(z.string()).describe('Countries where it is not offered.'),
        deprecation: Deprecation.optional().describe(
          'When it goes, and what to use instead; missing while it stays.',
        ),
        pricing: Pricing.optional().describe(
          'What it costs; missing for what is free or priced by a quote.',
        ),
        availableContextTokens: z
          .int()
          .optional()
          .describe('Most tokens of prompt and answer together.'),
        maxCompletionTokens: z.int().optional().describe('Most tokens of an answer.'),
        capabilities: Capabilities.optional().describe('Of text models.'),
        constraints: Constraints.optional().describe('Usual values and what requests can ask for.'),
        embeddingDimensions: z.int().optional().describe('Numbers in one of its vectors.'),
        maxInputTokens: z.int().optional().describe('Most tokens of one input of an embedding.'),
        supportsCustomDimensions: z
          .literal(true)
          .optional()
          .describe('Whether `dimensions` can ask for shorter vectors.'),
      })
      .describe('What it is, what it can do and what it costs.'),
  })
  .meta({ id: 'Model' });

const ModelList = z
  .strictObject({
    object: z.literal('list').describe('Kind of the object.'),
    type: ListType.describe('The type that was asked for.'),
    data: z.array(Model).describe('The models.'),
  })
  .meta({ id: 'ModelList' });

const AnthropicModel = z
  .strictObject({
    type: z.literal('model').describe('Kind of the object.'),
    id: z.string().describe('Id to ask for it by.'),
    display_name: z.string().describe('Name for people.'),
    created_at: z.string().describe('RFC 3339.'),
    max_input_tokens: z.int().nullable().describe('Null where it is not known.'),
    max_tokens: z
      .int()
      .nullable()
      .describe('Most tokens of an answer; null where it is not known.'),
    capabilities: z.null().describe('Not told in this form.'),
    lifecycle: z
      .enum(['active', 'deprecated', 'retired'])
      .describe('Whether it stays, goes or is gone.'),
    line: z.null().describe('Not told in this form.'),
    deprecated_at: z
      .string()
      .nullable()
      .describe('When it began to go, RFC 3339; null while it stays.'),
    retires_at: z.string().nullable().describe('When it is gone, RFC 3339; null while it stays.'),
  })
  .meta({ id: 'AnthropicModel' });

const AnthropicModelList = z
  .strictObject({
    data: z.array(AnthropicModel).describe('The models of this page.'),
    has_more: z.boolean().describe('Whether there are entries beyond this page.'),
    first_id: z.string().nullable().describe('First entry, for `before_id`; null without entries.'),
    last_id: z.string().nullable().describe('Last entry, for `after_id`; null without entries.'),
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
    object: z.literal('list').describe('Kind of the object.'),
    type: Type.describe('What the models make.'),
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
    slug: z.string().describe('Id to ask for it by.'),
    display_name: z.string().describe('Name for people.'),
    description: z.null().describe('Not told in this form.'),
    default_reasoning_level: z
      .string()
      .nullable()
      .describe('How much it thinks when nothing is said; null where it cannot think.'),
    supported_reasoning_levels: z
      .array(
        z.strictObject({
          effort: z.string().describe('Word of `reasoning.effort`.'),
          description: z.string().describe('The same for people.'),
        }),
      )
      .describe('How much it can think.'),
    shell_type: z.literal('shell_command').describe('How the agent runs commands with it.'),
    visibility: z.literal('list').describe('Whether the agent lists it.'),
    supported_in_api: z.boolean().describe('Whether it can be asked for with an API key.'),
    priority: z.int().describe('Place in the list, lowest first.'),
    upgrade: z.null().describe('No model replaces it in the agent.'),
    base_instructions: z.string().describe('What the agent is told, in the place of its own.'),
    supports_reasoning_summaries: z.boolean().describe('Whether it tells what it thinks.'),
    support_verbosity: z.boolean().describe('Whether it knows `text.verbosity`.'),
    default_verbosity: z.null().describe('No verbosity of its own.'),
    apply_patch_tool_type: z
      .literal('freeform')
      .describe('How the agent gives it the tool that edits files.'),
    truncation_policy: z
      .strictObject({
        mode: z.literal('tokens').describe('The unit of `limit`.'),
        limit: z.int().describe('Most tokens of what a tool answers.'),
      })
      .describe('How the agent shortens what tools answer.'),
    supports_parallel_tool_calls: z
      .boolean()
      .describe('Whether one answer may hold several calls.'),
    context_window: z
      .int()
      .describe('Most tokens of prompt and answer together; the agent compacts by it.'),
    experimental_supported_tools: z.array(z.never()).describe('None.'),
    input_modalities: z.array(z.enum(['text', 'image'])).describe('What it reads.'),
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
    jsonAnswer(
      'The catalogue.',
      z.strictObject({ models: z.array(CodexModel).describe('The models, best first.') }),
      {
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
      },
    ),
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
