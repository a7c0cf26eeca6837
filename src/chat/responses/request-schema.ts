/**
 * What `POST /responses` takes, as zod schemas. Members that are not named pass and say nothing:
 * agents send more with every version, and a refusal ends their turn. Items of the input and tools
 * are looked at one by one (`input-items.ts`, `tools.ts`).
 */
import { z } from 'zod';
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
} from '../wire/request-fields.ts';

const MAX_TOP_LOGPROBS = 20;

const Item = z.looseObject({
  type: z
    .string()
    .nullish()
    .describe(
      'Kind of the item: `message`, `function_call`, `function_call_output`, `reasoning`, `item_reference`, …; absent means a message. Others are left out.',
    ),
});

export const ResponsesBody = z.looseObject({
  model: modelName,
  input: z
    .union([z.string(), z.array(Item)], 'Expected a string or a list of items')
    .nullish()
    .describe('The text of a user, or items: messages, reasoning, calls and what they gave.'),
  instructions: z.string().nullish().describe('Instructions of this turn only.'),
  previous_response_id: z.string().nullish().describe('Id of the stored response to continue.'),
  store: flag.describe('Whether the answer can be continued and read by its id. Default true.'),
  stream: isStream,
  tools: z
    .array(z.looseObject({ type: z.string().describe('Kind of the tool.') }))
    .nullish()
    .describe(
      'Tools that the model may call: `function`, `custom`, `namespace`, `web_search`; others are left out.',
    ),
  tool_choice: z
    .union(
      [
        z.string(),
        z.looseObject({
          type: z.string().describe('`function`, `custom`, `allowed_tools` or a hosted tool.'),
        }),
      ],
      'Expected a word or an object',
    )
    .nullish()
    .describe(
      '`auto`, `none`, `required`, or an object that names a tool or allows some. Default `auto`.',
    ),
  parallel_tool_calls: parallelToolCalls,
  max_tool_calls: z.int().min(0).nullish().describe('Most server-side searches. Default 3.'),
  max_output_tokens: z.int().min(1).nullish().describe('Output limit; may be lowered.'),
  temperature,
  top_p: topP,
  presence_penalty: presencePenalty,
  frequency_penalty: frequencyPenalty,
  top_logprobs: z.int().min(0).max(MAX_TOP_LOGPROBS).nullish().describe('Likely tokens, 0 to 20.'),
  text: z
    .looseObject({
      format: z
        .looseObject({ type: z.string().describe('Kind of the form. Default `text`.') })
        .nullish()
        .describe('`text`, `json_object`, or `json_schema` with `name`, `schema` and `strict`.'),
      verbosity: z.enum(['low', 'medium', 'high']).nullish().describe('How much to say.'),
    })
    .nullish()
    .describe('The form of the text.'),
  reasoning: z
    .looseObject({
      effort: z.string().nullish().describe("Reasoning effort. Default: the model's."),
      summary: z.string().nullish().describe('Echoed; reasoning is always a summary.'),
    })
    .nullish()
    .describe('How much the model thinks, and what is told of it.'),
  include: z
    .array(z.string())
    .nullish()
    .describe(
      '`reasoning.encrypted_content` asks for the reasoning, sealed, to send it back; other words are ignored.',
    ),
  prompt_cache_key: promptCacheKey,
  metadata: z.record(z.string(), z.unknown()).nullish().describe('Up to 16 tags of the request.'),
  safety_identifier: z.string().nullish().describe('Echoed, and nothing else.'),
  service_tier: z.string().nullish().describe('Echoed; there is one tier.'),
  truncation: z.enum(['auto', 'disabled']).nullish().describe('Echoed; `auto` acts as `disabled`.'),
  background: flag.describe('Only `false`: answers are not made in the background.'),
  svc_parameters: z.record(z.string(), z.unknown()).nullish().describe('As for a chat.'),
});
export type ResponsesBody = z.infer<typeof ResponsesBody>;

export const JsonSchemaFormat = z.looseObject({
  type: z.literal('json_schema').describe('Marks a form that is JSON of a schema.'),
  name: z.string().min(1).describe('Name of the schema; some models read it.'),
  description: z.string().nullish().describe('What the answer is for; some models read it.'),
  strict: z.boolean().nullish().describe('Asks the engine to keep to the schema exactly.'),
  schema: z.record(z.string(), z.unknown()).describe('The JSON Schema that the answer has to fit.'),
});
