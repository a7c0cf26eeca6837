/**
 * The request of Anthropic's Messages API as far as it is read here. Members, blocks and tools that
 * are not named pass and are not looked at: a client of that API sends new ones before anybody else
 * has heard of them, and a refusal would end its turn.
 */
import { z } from 'zod';
import { MAX_MODEL_CHARACTERS } from '../wire/chat-schema.ts';
import { SvcParametersInput } from '../wire/svc-parameters.ts';

/** A part of a content, of any type; `messages-content.ts` reads the types that it knows. */
const ContentBlock = z.looseObject({ type: z.string() });

const content = z.union(
  [z.string(), z.array(ContentBlock)],
  'Expected a string or a list of content blocks',
);

const Message = z.looseObject({
  role: z.enum(['user', 'assistant', 'system']),
  content,
});

const Tool = z.looseObject({
  type: z.string().nullish().describe('Absent or `custom`: a tool of the caller'),
  name: z.string().min(1).optional(),
  description: z.string().nullish(),
  input_schema: z.record(z.string(), z.unknown()).nullish().describe('JSON schema'),
  defer_loading: z.boolean().nullish().describe('Hidden until a `tool_reference` names it'),
  max_uses: z.int().min(1).nullish().describe('Of `web_search_…`: the most searches'),
});
export type Tool = z.infer<typeof Tool>;

const ToolChoice = z.looseObject({
  type: z.enum(['auto', 'any', 'tool', 'none']),
  name: z.string().optional(),
  disable_parallel_tool_use: z.boolean().nullish(),
});
export type ToolChoice = z.infer<typeof ToolChoice>;

const OutputFormat = z.looseObject({
  type: z.literal('json_schema'),
  schema: z.record(z.string(), z.unknown()),
});

const Thinking = z.looseObject({
  type: z.string().describe('`enabled`, `adaptive`; anything else is off'),
  budget_tokens: z.int().nullish(),
  display: z.string().nullish().describe('`omitted`: the signature alone'),
});

export const MessagesBody = z.looseObject({
  model: z.string().min(1).max(MAX_MODEL_CHARACTERS).describe('Model id, trait or alias'),
  messages: z.array(Message).min(1),
  max_tokens: z.int().nullish().describe('Clamped to what the model and the balance allow'),
  system: content.nullish(),
  stream: z.boolean().nullish(),
  stop_sequences: z.array(z.string()).nullish().describe('The first four are used'),
  temperature: z.number().min(0).max(2).nullish(),
  top_p: z.number().min(0).max(1).nullish(),
  top_k: z.int().min(0).nullish(),
  tools: z.array(Tool).nullish(),
  tool_choice: ToolChoice.nullish(),
  thinking: Thinking.nullish().describe('Absent: the model is asked not to think'),
  output_config: z
    .looseObject({ effort: z.string().nullish(), format: OutputFormat.nullish() })
    .nullish(),
  output_format: OutputFormat.nullish(),
  metadata: z.looseObject({ user_id: z.string().nullish() }).nullish(),
  svc_parameters: SvcParametersInput.nullish(),
});
export type MessagesBody = z.infer<typeof MessagesBody>;
