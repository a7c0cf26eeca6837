/**
 * The request of Anthropic's Messages API as far as it is read here. Members, blocks and tools that
 * are not named pass and are not looked at: a client of that API sends new ones before anybody else
 * has heard of them, and a refusal would end its turn.
 */
import { z } from 'zod';
import { isStream, modelName, temperature, topK, topP } from '../wire/request-fields.ts';
import { SvcParametersInput } from '../wire/svc-parameters.ts';

/** A part of a content, of any type; `messages-content.ts` reads the types that it knows. */
const ContentBlock = z.looseObject({
  type: z
    .string()
    .describe(
      'Kind of the block: `text`, `image`, `document`, `tool_use`, `tool_result`, `thinking`, `search_result`, …; others are left out.',
    ),
});

const content = z
  .union([z.string(), z.array(ContentBlock)], 'Expected a string or a list of content blocks')
  .describe('A text, or blocks.');

const Message = z.looseObject({
  role: z
    .enum(['user', 'assistant', 'system'])
    .describe('Author; a later `system` is instructions.'),
  content,
});

const Tool = z.looseObject({
  type: z
    .string()
    .nullish()
    .describe(
      'Absent or `custom` for a tool of the caller, `web_search_…` for the search of the server.',
    ),
  name: z.string().min(1).optional().describe('Name that the model calls it by.'),
  description: z.string().nullish().describe('What it does and when to call it, for the model.'),
  input_schema: z.record(z.string(), z.unknown()).nullish().describe('JSON Schema of the input.'),
  defer_loading: z
    .boolean()
    .nullish()
    .describe('`true` hides it until a `tool_reference` names it.'),
  max_uses: z.int().min(1).nullish().describe('Of `web_search_…`: most searches of an answer.'),
});
export type Tool = z.infer<typeof Tool>;

const ToolChoice = z.looseObject({
  type: z
    .enum(['auto', 'any', 'tool', 'none'])
    .describe(
      '`auto` leaves it to the model, `any` asks for a call, `tool` names one, `none` forbids.',
    ),
  name: z.string().optional().describe('With `tool`: which one.'),
  disable_parallel_tool_use: z
    .boolean()
    .nullish()
    .describe('`true` allows one call. Default false.'),
});
export type ToolChoice = z.infer<typeof ToolChoice>;

const OutputFormat = z.looseObject({
  type: z.literal('json_schema').describe('Marks JSON of a schema.'),
  schema: z.record(z.string(), z.unknown()).describe('The JSON Schema that the answer has to fit.'),
});

const Thinking = z.looseObject({
  type: z.string().describe('`enabled` or `adaptive`; anything else is off.'),
  budget_tokens: z
    .int()
    .nullish()
    .describe(
      'Tokens to think with: below 4,096 is low effort, below 16,384 medium, above that high.',
    ),
  display: z.string().nullish().describe('`omitted` sends the signature without the text.'),
});

export const MessagesBody = z.looseObject({
  model: modelName,
  messages: z.array(Message).min(1).describe('The conversation, oldest message first.'),
  max_tokens: z.int().nullish().describe('Output limit, thinking included; may be lowered.'),
  system: content.nullish().describe('Instructions, a text or blocks of text.'),
  stream: isStream,
  stop_sequences: z
    .array(z.string())
    .nullish()
    .describe('Texts that end the output; at most four.'),
  temperature,
  top_p: topP,
  top_k: topK,
  tools: z
    .array(Tool)
    .nullish()
    .describe(
      "Tools that the model may call; of hosted ones only `web_search_…`, which is the server's own search.",
    ),
  tool_choice: ToolChoice.nullish().describe('Which tool to call. Default `auto` with `tools`.'),
  thinking: Thinking.nullish().describe('Whether and how much to think. Default: off.'),
  output_config: z
    .looseObject({
      effort: z.string().nullish().describe('Reasoning effort; wins over `budget_tokens`.'),
      format: OutputFormat.nullish().describe('JSON that fits a schema, where the model can.'),
    })
    .nullish()
    .describe('The form of the answer, and how much to think for it.'),
  output_format: OutputFormat.nullish().describe('Older name of `output_config.format`.'),
  metadata: z
    .looseObject({
      user_id: z.string().nullish().describe('End user; also the affinity key of replicas.'),
    })
    .nullish()
    .describe('Tags of the request: on its receipt, and summed up by `GET /usage/tags`.'),
  svc_parameters: SvcParametersInput.nullish().describe('Persona, search, pages and thinking.'),
});
export type MessagesBody = z.infer<typeof MessagesBody>;
