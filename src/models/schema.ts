/** What the lists of models take and answer, and what they say of themselves. */
import { z } from 'zod';
import { LIST_TYPES } from '../catalog/catalog.ts';
import { type Capability, MODEL_TYPES } from '../config/config.ts';
import {
  type ParameterDescription,
  type RouteDescription,
  jsonResponse,
} from '../http/describe.ts';
import { capabilities, Model } from './model-schema.ts';

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
  response: jsonResponse('The models of one type.', z.union([ModelList, AnthropicModelList]), {
    object: 'list',
    type: 'text',
    data: [MODEL],
  }),
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
  response: jsonResponse('The model.', z.union([Model, AnthropicModel]), MODEL),
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
  response: jsonResponse(
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
};

export const TRAITS_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'List traits',
  about: 'A trait is a name for the best model of a kind; requests can use it as `model`.',
  query: TypeQuery,
  response: jsonResponse('Traits and their models.', NameMap, {
    object: 'list',
    type: 'text',
    data: { default: 'atlas-24b', fastest: 'atlas-3b' },
  }),
};

export const MAPPING_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'List compatibility names',
  about: 'Names of well-known models that are served by a model of this server.',
  query: TypeQuery,
  response: jsonResponse('Names and their models.', NameMap, {
    object: 'list',
    type: 'text',
    data: { 'gpt-4o': 'atlas-24b' },
  }),
};
