/**
 * What `POST /responses` takes, as zod schemas. Members that are not named pass and say nothing:
 * agents send more with every version, and a refusal ends their turn. Items of the input and tools
 * are looked at one by one (`input-items.ts`, `tools.ts`).
 */
import { z } from 'zod';
import { MAX_MODEL_CHARACTERS, ResponseFormat } from '../wire/chat-schema.ts';

const flag = z.boolean().nullish();
const penalty = z.number().min(-2).max(2).nullish();
const MAX_TOP_LOGPROBS = 20;

const Item = z.looseObject({ type: z.string().nullish() });

export const ResponsesBody = z.looseObject({
  model: z
    .string()
    .min(1)
    .max(MAX_MODEL_CHARACTERS)
    .describe('Model id, trait or compatibility name'),
  input: z
    .union([z.string(), z.array(Item)], 'Expected a string or a list of items')
    .nullish()
    .describe('The text of a user, or items: messages, reasoning, calls and what they gave'),
  instructions: z.string().nullish().describe('System text of this turn; not that of earlier ones'),
  previous_response_id: z.string().nullish().describe('The stored answer that this turn continues'),
  store: flag.describe('Whether the answer can be continued and read by its id. Default true'),
  stream: flag,
  tools: z
    .array(z.looseObject({ type: z.string() }))
    .nullish()
    .describe('`function`, `custom`, `namespace`, `web_search`; others are left out'),
  tool_choice: z
    .union([z.string(), z.looseObject({ type: z.string() })], 'Expected a word or an object')
    .nullish(),
  parallel_tool_calls: flag,
  max_tool_calls: z.int().min(0).nullish().describe("Bound on the server's own web searches"),
  max_output_tokens: z.int().min(1).nullish().describe('Lowered to what the model can'),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  presence_penalty: penalty,
  frequency_penalty: penalty,
  top_logprobs: z.int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
  text: z
    .looseObject({
      format: z.looseObject({ type: z.string() }).nullish(),
      verbosity: z.enum(['low', 'medium', 'high']).nullish(),
    })
    .nullish(),
  reasoning: z
    .looseObject({
      effort: z.string().nullish().describe('An unknown word is taken for the nearest'),
      summary: z.string().nullish(),
    })
    .nullish(),
  include: z
    .array(z.string())
    .nullish()
    .describe('`reasoning.encrypted_content`: reasoning for a caller that stores nothing here'),
  prompt_cache_key: z.string().nullish(),
  metadata: z.record(z.string(), z.unknown()).nullish().describe('Tags, as of a chat'),
  safety_identifier: z.string().nullish().describe('Echoed'),
  service_tier: z.string().nullish().describe('Echoed'),
  truncation: z.enum(['auto', 'disabled']).nullish().describe('`auto` acts as `disabled`'),
  background: flag.describe('Not supported'),
  svc_parameters: z.record(z.string(), z.unknown()).nullish().describe('As of a chat'),
});
export type ResponsesBody = z.infer<typeof ResponsesBody>;

/** `text.format` of a structured answer. */
export const JsonSchemaFormat = z.looseObject({
  type: z.literal('json_schema'),
  name: z.string().min(1),
  description: z.string().nullish(),
  strict: z.boolean().nullish(),
  schema: z.record(z.string(), z.unknown()),
});

export type ChatFormat = z.infer<typeof ResponseFormat>;
