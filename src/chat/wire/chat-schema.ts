/**
 * The chat request as one zod schema: the source of validation, of the types, and of the OpenAPI
 * page (`z.toJSONSchema` works on everything exported here: no transform, no preprocess).
 *
 * It describes the canonical shape; foreign spellings are rewritten before (`foreign-*.ts`).
 * Unknown members pass; every optional member also takes `null`, which means absent.
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

/** No client comes near; `n` multiplies the hold. */
export const MAX_CHOICES = 128;
export const MAX_FALLBACKS = 10;
/** Longer histories than any context could hold. */
export const MAX_MESSAGES = 16_384;
/** Eight times what hosted engines take. */
export const MAX_TOOLS = 1_024;

export type ReasoningEffort = (typeof REASONING_EFFORTS)[number];

export const ChatTool = z.looseObject({
  type: z.literal('function').describe('Only functions are supported.'),
  function: z
    .looseObject({
      name: z.string().min(1).describe('Name that the model calls it by.'),
      description: z.string().nullish().describe('What it does and when to call it.'),
      parameters: z
        .record(z.string(), z.unknown())
        .nullish()
        .describe('JSON Schema of the arguments; none means no arguments.'),
      strict: z
        .boolean()
        .nullish()
        .describe('Whether arguments must match exactly. Default false.'),
    })
    .describe('The function, as the model sees it.'),
  id: z.string().nullish().describe("A name of the caller's own; passed on."),
});
export type ChatTool = z.infer<typeof ChatTool>;

export const ToolChoice = z.union([
  z.enum(['auto', 'none', 'required']),
  z.looseObject({
    type: z.literal('function').describe('Only functions can be chosen.'),
    function: z
      .looseObject({ name: z.string().min(1).describe('Name of one of `tools`.') })
      .describe('The function that must be called.'),
  }),
]);

export const ResponseFormat = z.discriminatedUnion('type', [
  z.looseObject({ type: z.literal('text').describe('Free text, the default.') }),
  z.looseObject({ type: z.literal('json_object').describe('Any JSON object.') }),
  z.looseObject({
    type: z.literal('json_schema').describe('Marks JSON of a schema.'),
    json_schema: z
      .looseObject({
        name: z.string().describe('Name of the schema; some models read it.'),
        description: z.string().nullish().describe('What the answer is for; some models read it.'),
        strict: z.boolean().nullish().describe('Whether to match the schema exactly.'),
        schema: z.record(z.string(), z.unknown()).describe('JSON Schema of the output.'),
      })
      .describe('The schema, with its name.'),
  }),
]);
export type ResponseFormat = z.infer<typeof ResponseFormat>;

const verbosity = z
  .enum(['low', 'medium', 'high', 'auto'])
  .nullish()
  .describe('How much to say, where the model knows the field.');
const effort = z.enum(REASONING_EFFORTS).nullish().describe('Reasoning effort.');

export const ChatBody = z.looseObject({
  model: modelName,
  messages: z.array(ChatMessage).min(1).describe('The conversation, oldest first: 1 to 16,384.'),
  frequency_penalty: frequencyPenalty,
  presence_penalty: presencePenalty,
  repetition_penalty: z.number().min(0).nullish().describe('Above 1 makes repetition less likely.'),
  logprobs: flag.describe('Whether to return log probabilities of the tokens. Default false.'),
  top_logprobs: count.describe('With `logprobs`: how many likely tokens to show at each place.'),
  max_completion_tokens: z.int().nullish().describe('Output limit, thinking included.'),
  max_tokens: z.int().nullish().describe('Older name of `max_completion_tokens`, which wins.'),
  temperature,
  min_temp: temperature.describe('0 to 2: lower bound of a dynamic temperature.'),
  max_temp: temperature.describe('0 to 2: upper bound of a dynamic temperature.'),
  top_p: topP,
  top_k: topK,
  min_p: probability.describe('0 to 1: least probability, as a share of the likeliest token.'),
  n: z
    .int()
    .min(1)
    .max(MAX_CHOICES)
    .nullish()
    .describe('Choices, 1 to 128, all billed. Default 1.'),
  seed: z.int().min(1).nullish().describe('Above 0: makes the output reproducible, if it can be.'),
  stop: stopTexts.describe('Up to 4 texts that end the answer; they are not part of it.'),
  stop_token_ids: z.array(z.int().min(0)).nullish().describe('Ids of tokens that end the output.'),
  stream: isStream,
  stream_options: z
    .looseObject({
      include_usage: flag.describe('For compatibility; a stream always ends with its usage.'),
    })
    .nullish()
    .describe('What the stream carries besides.'),
  prompt_cache_key: promptCacheKey,
  prompt_cache_retention: z
    .enum(['default', 'extended', '24h'])
    .nullish()
    .describe(
      'How long the engine should keep the beginning of the prompt: `extended` and `24h` ask for a day. Default `default`.',
    ),
  reasoning: z
    .looseObject({
      effort,
      summary: z.enum(['auto', 'concise', 'detailed']).nullish().describe('Requests a summary.'),
      enabled: flag.describe('`false` turns thinking off where the model can.'),
    })
    .nullish()
    .describe('How much the model thinks, and what is told of it.'),
  reasoning_effort: effort.describe('Reasoning effort; wins over `reasoning.effort`.'),
  verbosity,
  text: z.looseObject({ verbosity }).nullish().describe('Further options of the text.'),
  include: z.array(z.string()).nullish().describe('More members of the output; passed on.'),
  metadata: TagMetadata.nullish().describe('Up to 16 tags, for receipts and `GET /usage/tags`.'),
  user: z.string().nullish().describe('Taken for compatibility and discarded.'),
  store: flag.describe('Taken for compatibility and ignored: chats are not stored.'),
  fallbacks: z
    .array(z.looseObject({ model: z.string().describe('Model as the engine names it.') }))
    .max(MAX_FALLBACKS)
    .nullish()
    .describe(
      'Models to try instead, at most 10; passed to engines that know the field, ignored by others.',
    ),
  parallel_tool_calls: parallelToolCalls,
  response_format: ResponseFormat.nullish().describe('The form of the answer.'),
  tool_choice: ToolChoice.nullish().describe(
    'Whether and what to call: `auto` leaves it to the model, `none` forbids, `required` asks for a call, an object names the function. Default `auto` with `tools`.',
  ),
  tools: z.array(ChatTool).nullish().describe('Functions that the model may call; at most 1,024.'),
  svc_parameters: SvcParametersInput.nullish().describe('Persona, search, pages and thinking.'),
});
export type ChatBody = z.infer<typeof ChatBody>;
