/** OpenAPI descriptions of the model lists. */
import * as z from 'zod';
import { capabilities, LIST_TYPES } from '../catalog/catalog.ts';
import { type Capability, MODEL_TYPES } from '../config/config.ts';
import {
  type ParameterDescription,
  type RouteDescription,
  jsonResponse,
} from '../http/describe.ts';
import { Model } from './model-schema.ts';

const ListType = z.enum(LIST_TYPES);
const Type = z.enum(MODEL_TYPES);

const ListQuery = z.object({
  type: ListType.optional().describe(
    'Type of model, `all`, or `code` for text models optimized for code. Default `text`.',
  ),
  limit: z.string().optional().describe('With `anthropic-version`: models per page, 1 to 1000.'),
  after_id: z.string().optional().describe('With `anthropic-version`: page after this id.'),
  before_id: z.string().optional().describe('With `anthropic-version`: page before this id.'),
});
const TypeQuery = z.object({ type: Type.optional().describe('Type of model. Default `text`.') });

const ModelList = z
  .strictObject({
    object: z.literal('list').describe('Kind of the object.'),
    type: ListType.describe('The requested type.'),
    data: z.array(Model).describe('The models.'),
  })
  .meta({ id: 'ModelList' });

const nullableText = z.string().nullable();
const nullableCount = z.int().nullable();

export type AnthropicModel = z.infer<typeof AnthropicModel>;
const AnthropicModel = z
  .strictObject({
    type: z.literal('model').describe('Kind of the object.'),
    id: z.string().describe('Id of the model.'),
    display_name: z.string().describe('Display name.'),
    created_at: z.string().describe('Creation time, RFC 3339.'),
    max_input_tokens: nullableCount.describe(
      'Maximum tokens of prompt and completion together, or null.',
    ),
    max_tokens: nullableCount.describe('Maximum tokens of a completion, or null.'),
    capabilities: z.null().describe('Always null.'),
    lifecycle: z.enum(['active', 'deprecated', 'retired']).describe('Lifecycle stage.'),
    line: z.null().describe('Always null.'),
    deprecated_at: nullableText.describe('Time of the deprecation, RFC 3339, or null.'),
    retires_at: nullableText.describe('Time of the removal, RFC 3339, or null.'),
  })
  .meta({ id: 'AnthropicModel' });

const AnthropicModelList = z
  .strictObject({
    data: z.array(AnthropicModel).describe('The models of this page.'),
    has_more: z.boolean().describe('Whether more models follow.'),
    first_id: nullableText.describe('Id of the first model, for `before_id`, or null.'),
    last_id: nullableText.describe('Id of the last model, for `after_id`, or null.'),
  })
  .meta({ id: 'AnthropicModelList' });

const ANTHROPIC_VERSION: ParameterDescription = {
  name: 'anthropic-version',
  in: 'header',
  about: "Any value selects the format of Anthropic's API.",
  example: '2023-06-01',
};

const NameMap = z
  .strictObject({
    object: z.literal('list').describe('Kind of the object.'),
    type: Type.describe('Type of the models.'),
    data: z.record(z.string(), z.string()).describe('Model ids by name.'),
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
    "Needs no key. With a key, the list contains only models that the key may use (`models`, `modelPrivacy`). With the header `anthropic-version`, it contains the text models in the format of Anthropic's API, each also as `claude-<id>`, which requests may use as `model`.",
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
  summary: 'Get a model',
  about: 'Returns the model with this id or name. A model that the key may not use is not found.',
  parameters: [
    { name: 'id', in: 'path', about: 'Id, trait or compatibility name', example: 'atlas-24b' },
    ANTHROPIC_VERSION,
  ],
  response: jsonResponse('The model.', z.union([Model, AnthropicModel]), MODEL),
  refusals: ['MODEL_NOT_FOUND', 'INVALID_MODEL', 'MODEL_RETIRED'],
};

const CodexModel = z
  .strictObject({
    slug: z.string().describe('Id of the model.'),
    display_name: z.string().describe('Display name.'),
    description: z.null().describe('Always null.'),
    default_reasoning_level: nullableText.describe(
      'Default reasoning effort; null if the model does not support reasoning.',
    ),
    supported_reasoning_levels: z
      .array(
        z.strictObject({
          effort: z.string().describe('Value of `reasoning.effort`.'),
          description: z.string().describe('Description of the effort.'),
        }),
      )
      .describe('Supported reasoning efforts.'),
    shell_type: z.literal('shell_command').describe('How the agent runs commands.'),
    visibility: z.literal('list').describe('Whether the agent lists the model.'),
    supported_in_api: z.boolean().describe('Whether the model is available with an API key.'),
    priority: z.int().describe('Position in the list, lowest first.'),
    upgrade: z.null().describe('Always null.'),
    base_instructions: z.string().describe('Instructions that replace those of the agent.'),
    supports_reasoning_summaries: z
      .boolean()
      .describe('Whether the model returns reasoning summaries.'),
    support_verbosity: z.boolean().describe('Whether the model supports `text.verbosity`.'),
    default_verbosity: z.null().describe('Always null.'),
    apply_patch_tool_type: z
      .literal('freeform')
      .describe('How the agent offers its tool for editing files.'),
    truncation_policy: z
      .strictObject({
        mode: z.literal('tokens').describe('Unit of `limit`.'),
        limit: z.int().describe('Maximum tokens of a tool result.'),
      })
      .describe('How the agent truncates tool results.'),
    supports_parallel_tool_calls: z
      .boolean()
      .describe('Whether the model supports parallel tool calls.'),
    context_window: z.int().describe('Maximum tokens of prompt and completion together.'),
    experimental_supported_tools: z.array(z.never()).describe('Always empty.'),
    input_modalities: z.array(z.enum(['text', 'image'])).describe('Input types of the model.'),
  })
  .meta({ id: 'CodexModel' });

export const CODEX_MODELS_DESCRIPTION: RouteDescription = {
  tag: 'Models',
  summary: 'List models for Codex',
  about:
    'For `model_catalog_url` of Codex: text models that support tools, with their context. The agent uses the instructions of this list in place of its own.',
  query: z.object({
    client_version: z.string().optional().describe('Sent by the agent; no effect.'),
  }),
  response: jsonResponse(
    'The catalogue.',
    z.strictObject({ models: z.array(CodexModel).describe('The models, in order of preference.') }),
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
  about: 'A trait names the best model of a kind; requests can use it as `model`.',
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
  about: 'Names of well-known models that a model of this server serves.',
  query: TypeQuery,
  response: jsonResponse('Names and their models.', NameMap, {
    object: 'list',
    type: 'text',
    data: { 'gpt-4o': 'atlas-24b' },
  }),
};
