/**
 * The request of `POST /responses`. Unknown members are accepted and ignored, because agents send
 * new ones with every version and a rejection ends their turn. `input-items.ts` and `tools.ts`
 * validate items and tools.
 */
import * as z from 'zod';
import {
  flag,
  frequencyPenalty,
  isStream,
  modelName,
  parallelToolCalls,
  presencePenalty,
  promptCacheKey,
  temperature,
  topP,
  verbosity,
} from '../wire/request-fields.ts';

const MAX_TOP_LOGPROBS = 20;

const Item = z.looseObject({
  type: z
    .string()
    .nullish()
    .describe(
      'Kind of the item, such as `message`, `function_call`, `function_call_output`, `reasoning` or `item_reference`; unknown kinds are ignored. Default `message`.',
    ),
});

export const ResponsesBody = z.looseObject({
  model: modelName,
  input: z
    .union([z.string(), z.array(Item)], 'Expected a string or a list of items')
    .nullish()
    .describe('Text of a user message, or a list of items.'),
  instructions: z.string().nullish().describe('System prompt of this response only.'),
  previous_response_id: z.string().nullish().describe('Id of the stored response to continue.'),
  store: flag.describe('Whether to store the response. Default true.'),
  stream: isStream,
  tools: z
    .array(z.looseObject({ type: z.string().describe('Kind of the tool.') }))
    .nullish()
    .describe(
      'Tools of type `function`, `custom`, `namespace` or `web_search`; others are ignored.',
    ),
  tool_choice: z
    .union(
      [
        z.string(),
        z.looseObject({
          type: z.string().describe('`function`, `custom`, `allowed_tools` or a hosted tool.'),
        }),
      ],
      'Expected a string or an object',
    )
    .nullish()
    .describe(
      '`auto`, `none`, `required`, or an object with a tool or allowed tools. Default `auto`.',
    ),
  parallel_tool_calls: parallelToolCalls,
  max_tool_calls: z.int().min(0).nullish().describe('Maximum number of searches. Default 3.'),
  max_output_tokens: z
    .int()
    .nullish()
    .describe("Output limit; lowered if the model's is lower. Default for 0 or less: the model's."),
  temperature,
  top_p: topP,
  presence_penalty: presencePenalty,
  frequency_penalty: frequencyPenalty,
  top_logprobs: z
    .int()
    .min(0)
    .max(MAX_TOP_LOGPROBS)
    .nullish()
    .describe('Likely tokens per token, 0 to 20.'),
  text: z
    .looseObject({
      format: z
        .looseObject({ type: z.string().describe('Kind of the format. Default `text`.') })
        .nullish()
        .describe('`text`, `json_object`, or `json_schema` with `name`, `schema` and `strict`.'),
      verbosity: verbosity.describe('Length of the output.'),
    })
    .nullish()
    .describe('Options of the text.'),
  reasoning: z
    .looseObject({
      effort: z.string().nullish().describe("Reasoning effort. Default: the model's."),
      summary: z
        .string()
        .nullish()
        .describe('No effect: reasoning is always returned as a summary.'),
    })
    .nullish()
    .describe('Reasoning settings.'),
  include: z
    .array(z.string())
    .nullish()
    .describe(
      '`reasoning.encrypted_content` returns sealed reasoning, `message.output_text.logprobs` log probabilities; other values are ignored.',
    ),
  prompt_cache_key: promptCacheKey,
  prompt_cache_retention: z
    .string()
    .nullish()
    .describe('`24h` requests a cache lifetime of one day; other values the default.'),
  metadata: z.record(z.string(), z.unknown()).nullish().describe('Up to 16 tags of the request.'),
  safety_identifier: z.string().nullish().describe('No effect.'),
  service_tier: z
    .string()
    .nullish()
    .describe('`flex` or `priority`, if the model has a price for it; otherwise without effect.'),
  truncation: z
    .enum(['auto', 'disabled'])
    .nullish()
    .describe('No effect; `auto` acts as `disabled`.'),
  background: flag.describe('Must not be `true`: there are no background responses.'),
  svc_parameters: z
    .record(z.string(), z.unknown())
    .nullish()
    .describe('Service parameters, as for `POST /chat/completions`.'),
});
export type ResponsesBody = z.infer<typeof ResponsesBody>;

export const JsonSchemaFormat = z.looseObject({
  type: z.literal('json_schema').describe('JSON that matches a schema.'),
  name: z.string().min(1).describe('Name of the schema, for the model.'),
  description: z.string().nullish().describe('Purpose of the output, for the model.'),
  strict: flag.describe('Whether to match the schema exactly.'),
  schema: z.record(z.string(), z.unknown()).describe('JSON Schema of the output.'),
});
