/**
 * The members of a Messages request that this server reads. Unknown members, blocks and tools are
 * accepted and ignored, because clients send new ones early and a rejection would end their turn.
 */
import * as z from 'zod';
import {
  flag,
  isStream,
  STOP_LIMITS,
  modelName,
  temperature,
  topK,
  topP,
} from '../wire/request-fields.ts';
import { SvcParametersInput } from '../wire/svc-parameters.ts';

const ContentBlock = z.looseObject({
  type: z
    .string()
    .describe(
      'Kind of the block, such as `text`, `image`, `document`, `tool_use` or `tool_result`; unknown kinds are ignored.',
    ),
});

const content = z
  .union([z.string(), z.array(ContentBlock)], 'Expected a string or a list of content blocks')
  .describe('Text, or a list of blocks.');

const Message = z.looseObject({
  role: z.enum(['user', 'assistant', 'system']).describe('Role of the author.'),
  content,
});

const Tool = z.looseObject({
  type: z
    .string()
    .nullish()
    .describe(
      "Absent or `custom` for the caller's tool, `web_search_…` for the search of this server.",
    ),
  name: z.string().min(1).nullish().describe('Name of the tool.'),
  description: z.string().nullish().describe('Purpose of the tool, for the model.'),
  input_schema: z.record(z.string(), z.unknown()).nullish().describe('JSON Schema of the input.'),
  defer_loading: flag.describe('Hides the tool until a `tool_reference` names it.'),
  max_uses: z.int().min(1).nullish().describe('Maximum number of searches, for `web_search_…`.'),
});
export type Tool = z.infer<typeof Tool>;

const ToolChoice = z.looseObject({
  type: z
    .enum(['auto', 'any', 'tool', 'none'])
    .describe(
      '`auto`: the model decides; `any`: any tool; `tool`: the named tool; `none`: no tool.',
    ),
  name: z.string().nullish().describe('Name of the tool, with `tool`.'),
  disable_parallel_tool_use: flag.describe('Allows only one call. Default false.'),
});
export type ToolChoice = z.infer<typeof ToolChoice>;

const OutputFormat = z.looseObject({
  type: z.literal('json_schema').describe('JSON that matches a schema.'),
  schema: z.record(z.string(), z.unknown()).describe('JSON Schema of the output.'),
});

const Thinking = z.looseObject({
  type: z.string().describe('`enabled` or `adaptive`; any other value turns reasoning off.'),
  budget_tokens: z
    .int()
    .nullish()
    .describe('Below 4,096 is low effort, below 16,384 medium, else high.'),
  display: z.string().nullish().describe('`omitted` returns the signature without the text.'),
});

export const MessagesBody = z.looseObject({
  model: modelName,
  messages: z.array(Message).min(1).describe('Messages, oldest first.'),
  max_tokens: z
    .int()
    .min(1, 'Expected at least 1: a prompt cache cannot be filled without a completion')
    .nullish()
    .describe("Output limit, reasoning included; lowered if the model's is lower."),
  system: content.nullish().describe('System prompt, as text or a list of text blocks.'),
  stream: isStream,
  stop_sequences: z
    .array(z.string())
    .max(STOP_LIMITS.messages)
    .nullish()
    .describe('Texts that end the output: up to 4, or more if the engine accepts them.'),
  temperature,
  top_p: topP,
  top_k: topK,
  tools: z
    .array(Tool)
    .nullish()
    .describe('Tools for the model; of hosted tools only `web_search_…` is available.'),
  tool_choice: ToolChoice.nullish().describe('Which tool to call. Default `auto`.'),
  thinking: Thinking.nullish().describe('Reasoning settings. Default: off.'),
  output_config: z
    .looseObject({
      effort: z.string().nullish().describe('Reasoning effort; wins over `budget_tokens`.'),
      format: OutputFormat.nullish().describe('JSON format, if the model supports it.'),
    })
    .nullish()
    .describe('Format and reasoning effort of the output.'),
  output_format: OutputFormat.nullish().describe('Older name of `output_config.format`.'),
  metadata: z
    .looseObject({
      user_id: z.string().nullish().describe('End user; also the prompt cache key.'),
    })
    .nullish()
    .describe('Tags of the request, for receipts and `GET /usage/tags`.'),
  svc_parameters: SvcParametersInput.nullish().describe('Service parameters, such as search.'),
});
export type MessagesBody = z.infer<typeof MessagesBody>;
