/**
 * The schema of a chat request in its canonical form, the source of validation, types and the
 * OpenAPI document. Unknown members are accepted; `null` means absent.
 */
import { z } from 'zod';
import { REASONING_EFFORTS } from '../../core/reasoning-efforts.ts';
import { TagMetadata } from '../../http/tags.ts';
import { ChatMessage } from './chat-message.ts';
import {
  count,
  flag,
  frequencyPenalty,
  isStream,
  modelName,
  parallelToolCalls,
  presencePenalty,
  probability,
  promptCacheKey,
  stopTexts,
  temperature,
  topK,
  topP,
} from './request-fields.ts';
import { SvcParametersInput } from './svc-parameters.ts';

/** Multiplies the hold; clients use far fewer. */
export const MAX_CHOICES = 128;
export const MAX_FALLBACKS = 10;
export const MAX_MESSAGES = 16_384;
/** Eight times the limit of hosted engines. */
export const MAX_TOOLS = 1_024;

export type ReasoningEffort = (typeof REASONING_EFFORTS)[number];

export const ChatTool = z.looseObject({
  type: z.literal('function').describe('Always `function`.'),
  function: z
    .looseObject({
      name: z.string().min(1).describe('Name of the tool.'),
      description: z.string().nullish().describe('Purpose of the function, for the model.'),
      parameters: z
        .record(z.string(), z.unknown())
        .nullish()
        .describe('JSON Schema of the arguments. Default: no arguments.'),
      strict: flag.describe('Whether arguments must match exactly. Default false.'),
    })
    .describe('The function.'),
  id: z.string().nullish().describe('Id of the tool, for the engine.'),
});
export type ChatTool = z.infer<typeof ChatTool>;

export const ToolChoice = z.union([
  z.enum(['auto', 'none', 'required']),
  z.looseObject({
    type: z.literal('function').describe('Always `function`.'),
    function: z
      .looseObject({ name: z.string().min(1).describe('Name of the function, one of `tools`.') })
      .describe('The required function.'),
  }),
]);

export const ResponseFormat = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('text').describe('Free text, the default.') }),
  z.looseObject({ type: z.literal('json_object').describe('Any JSON object.') }),
  z.looseObject({
    type: z.literal('json_schema').describe('JSON that matches a schema.'),
    json_schema: z
      .looseObject({
        name: z.string().describe('Name of the schema, for the model.'),
        description: z.string().nullish().describe('Purpose of the output, for the model.'),
        strict: flag.describe('Whether to match the schema exactly.'),
        schema: z.record(z.string(), z.unknown()).describe('JSON Schema of the output.'),
      })
      .describe('The schema and its name.'),
  }),
]);
export type ResponseFormat = z.infer<typeof ResponseFormat>;

const verbosity = z
  .enum(['low', 'medium', 'high', 'auto'])
  .nullish()
  .describe('Length of the output, if supported.');
const effort = z.enum(REASONING_EFFORTS).nullish().describe('Reasoning effort.');

export const ChatBody = z.looseObject({
  model: modelName,
  messages: z.array(ChatMessage).min(1).describe('1 to 16,384 messages, oldest first.'),
  frequency_penalty: frequencyPenalty,
  presence_penalty: presencePenalty,
  repetition_penalty: z
    .number()
    .min(0)
    .nullish()
    .describe('Above 1: makes repetition less likely.'),
  logprobs: flag.describe('Whether to return log probabilities of the tokens. Default false.'),
  top_logprobs: count.describe('Likely tokens per token, with `logprobs`.'),
  max_completion_tokens: z.int().nullish().describe('Limit on output tokens, reasoning included.'),
  max_tokens: z.int().nullish().describe('Older name of `max_completion_tokens`, which wins.'),
  temperature,
  min_temp: temperature.describe('0 to 2: lower bound of a dynamic temperature.'),
  max_temp: temperature.describe('0 to 2: upper bound of a dynamic temperature.'),
  top_p: topP,
  top_k: topK,
  min_p: probability.describe('0 to 1: minimum probability relative to the likeliest token.'),
  n: z
    .int()
    .min(1)
    .max(MAX_CHOICES)
    .nullish()
    .describe('Choices, 1 to 128, all billed. Default 1.'),
  seed: z.int().min(1).nullish().describe('Seed for reproducible output, if supported.'),
  stop: stopTexts.describe('Up to 4 texts that end the output and are not part of it.'),
  stop_token_ids: z.array(z.int().min(0)).nullish().describe('Ids of tokens that end the output.'),
  stream: isStream,
  stream_options: z
    .looseObject({
      include_usage: flag.describe('No effect: a stream always contains its usage.'),
    })
    .nullish()
    .describe('Options of the stream.'),
  prompt_cache_key: promptCacheKey,
  prompt_cache_retention: z
    .enum(['default', 'extended', '24h'])
    .nullish()
    .describe('Cache lifetime of the prompt: `extended` and `24h` are one day.'),
  reasoning: z
    .looseObject({
      effort,
      summary: z
        .enum(['auto', 'concise', 'detailed'])
        .nullish()
        .describe('Requests a reasoning summary.'),
      enabled: flag.describe('`false` turns reasoning off, if supported.'),
    })
    .nullish()
    .describe('Reasoning settings.'),
  reasoning_effort: effort.describe('Reasoning effort; wins over `reasoning.effort`.'),
  verbosity,
  text: z.looseObject({ verbosity }).nullish().describe('Options of the text.'),
  include: z.array(z.string()).nullish().describe('Further members of the output, for the engine.'),
  metadata: TagMetadata.nullish().describe('Up to 16 tags, for receipts and `GET /usage/tags`.'),
  user: z.string().nullish().describe('Discarded.'),
  store: flag.describe('No effect: chats are not stored.'),
  fallbacks: z
    .array(z.looseObject({ model: z.string().describe('Model name of the engine.') }))
    .max(MAX_FALLBACKS)
    .nullish()
    .describe('Up to 10 alternative models, if the engine supports them.'),
  parallel_tool_calls: parallelToolCalls,
  response_format: ResponseFormat.nullish().describe('Format of the output.'),
  tool_choice: ToolChoice.nullish().describe(
    '`auto`: the model decides; `none`: no call; `required`: any call; an object names the function. Default `auto`.',
  ),
  tools: z.array(ChatTool).nullish().describe('Up to 1,024 functions for the model.'),
  svc_parameters: SvcParametersInput.nullish().describe('Service parameters, such as search.'),
});
export type ChatBody = z.infer<typeof ChatBody>;
