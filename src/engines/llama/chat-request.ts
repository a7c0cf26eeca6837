/**
 * The chat request as the llama child understands it: parsed once from the OpenAI body into plain
 * settings. Unknown fields are ignored and `null` means absent; what the engine cannot do (images)
 * is refused in words.
 */
import { z } from 'zod';

import { EngineRefusal } from './engine-refusal.ts';

/** `n` of the OpenAI protocol goes to 128; a CPU engine stops earlier. */
const MAX_CHOICES = 16;
const MAX_STOPS = 4;
const MAX_TOP_LOGPROBS = 20;

const part = z.looseObject({ type: z.string(), text: z.string().optional() });
const content = z.union([z.string(), z.array(part)]).nullish();
const toolCall = z.looseObject({
  id: z.string().optional(),
  function: z.looseObject({ name: z.string(), arguments: z.string().default('{}') }),
});
const message = z.looseObject({
  role: z.enum(['system', 'developer', 'user', 'assistant', 'tool', 'function']),
  content,
  name: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  tool_calls: z.array(toolCall).nullish(),
  tool_call_id: z.string().nullish(),
});
const schemaObject = z.record(z.string(), z.unknown());
const tool = z.looseObject({
  type: z.literal('function').default('function'),
  function: z.looseObject({
    name: z.string().min(1).max(128),
    description: z.string().nullish(),
    parameters: schemaObject.nullish(),
  }),
});
const toolChoice = z.union([
  z.enum(['none', 'auto', 'required']),
  z.looseObject({ type: z.literal('function'), function: z.looseObject({ name: z.string() }) }),
]);
const number = (low: number, high: number) => z.number().min(low).max(high).nullish();
const tokenCount = z.number().int().nullish();

const body = z.looseObject({
  model: z.string(),
  messages: z.array(message).min(1),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  n: z.number().int().min(1).max(MAX_CHOICES).nullish(),
  temperature: number(0, 2),
  top_p: number(0, 1),
  top_k: z.number().int().min(-1).nullish(),
  min_p: number(0, 1),
  repetition_penalty: number(0, 10),
  frequency_penalty: number(-2, 2),
  presence_penalty: number(-2, 2),
  logit_bias: z.record(z.string(), z.number().min(-100).max(100)).nullish(),
  max_tokens: tokenCount,
  max_completion_tokens: tokenCount,
  stop: z.union([z.string(), z.array(z.string()).max(MAX_STOPS)]).nullish(),
  stop_token_ids: z.array(z.number().int()).nullish(),
  seed: z.number().int().nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.number().int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
  response_format: z
    .looseObject({ type: z.string(), json_schema: schemaObject.nullish() })
    .nullish(),
  tools: z.array(tool).nullish(),
  tool_choice: toolChoice.nullish(),
  parallel_tool_calls: z.boolean().nullish(),
  reasoning_effort: z.string().nullish(),
  chat_template_kwargs: schemaObject.nullish(),
});

export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  readonly content: string;
  readonly name?: string;
  readonly reasoning?: string;
  readonly toolCalls?: readonly { readonly name: string; readonly arguments: string }[];
}

export interface OfferedTool {
  readonly name: string;
  readonly description: string | undefined;
  readonly parameters: Readonly<Record<string, unknown>> | undefined;
}

export type AnswerFormat =
  | { readonly type: 'text' }
  | { readonly type: 'json' }
  | { readonly type: 'schema'; readonly schema: unknown };

export interface ChatRequest {
  readonly model: string;
  readonly messages: readonly ChatMessage[];
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly choices: number;
  readonly sampling: {
    readonly temperature: number | undefined;
    readonly topP: number | undefined;
    readonly topK: number | undefined;
    readonly minP: number | undefined;
    readonly repetitionPenalty: number;
    readonly frequencyPenalty: number;
    readonly presencePenalty: number;
    readonly logitBias: ReadonlyMap<number, number>;
  };
  /** Undefined: until the model ends or the context is full. */
  readonly maxTokens: number | undefined;
  readonly stops: readonly string[];
  readonly stopTokens: ReadonlySet<number>;
  readonly seed: number | undefined;
  readonly logprobs: boolean;
  readonly topLogprobs: number;
  readonly format: AnswerFormat;
  readonly tools: readonly OfferedTool[];
  /** `one` forces a call of one of `tools`. */
  readonly toolChoice: 'none' | 'auto' | 'one';
  readonly parallelToolCalls: boolean;
  readonly thinking: boolean;
  /** Further variables for the chat template. */
  readonly templateVariables: Readonly<Record<string, unknown>>;
}

/** Parses an OpenAI chat body; throws an `EngineRefusal` that names the wrong field. */
export function parseChatRequest(input: unknown): ChatRequest {
  const parsed = body.safeParse(input);
  if (!parsed.success) throw refusalOf(parsed.error);
  const request = parsed.data;
  const limit = request.max_completion_tokens ?? request.max_tokens ?? undefined;
  return {
    model: request.model,
    messages: request.messages.map(messageOf),
    stream: request.stream ?? false,
    includeUsage: request.stream_options?.include_usage ?? false,
    choices: request.n ?? 1,
    sampling: samplingOf(request),
    maxTokens: limit === undefined || limit <= 0 ? undefined : limit,
    stops: stopsOf(request.stop),
    stopTokens: new Set(request.stop_token_ids),
    seed: request.seed ?? undefined,
    logprobs: request.logprobs ?? false,
    topLogprobs: request.top_logprobs ?? 0,
    format: formatOf(request.response_format),
    ...toolsOf(request),
    parallelToolCalls: request.parallel_tool_calls ?? true,
    thinking: thinkingOf(request),
    templateVariables: request.chat_template_kwargs ?? {},
  };
}

type Body = z.infer<typeof body>;

/** The first complaint of zod as one sentence with its field. */
export function refusalOf(error: z.ZodError): EngineRefusal {
  const issue = error.issues[0];
  const path = issue?.path.join('.') ?? '';
  return new EngineRefusal(
    'invalid_request',
    path === '' ? (issue?.message ?? 'The body is not valid') : `${path}: ${issue?.message}`,
    path === '' ? null : path,
  );
}

function messageOf(from: z.infer<typeof message>): ChatMessage {
  const role = from.role === 'developer' ? 'system' : from.role;
  return {
    role: role === 'function' ? 'tool' : role,
    content: textOf(from.content),
    ...(from.name ? { name: from.name } : {}),
    ...(from.reasoning_content ? { reasoning: from.reasoning_content } : {}),
    ...(from.tool_calls?.length
      ? {
          toolCalls: from.tool_calls.map((call) => ({
            name: call.function.name,
            arguments: call.function.arguments,
          })),
        }
      : {}),
  };
}

function textOf(from: z.infer<typeof content>): string {
  if (from === null || from === undefined) return '';
  if (typeof from === 'string') return from;
  return from
    .map((piece) => {
      if (piece.type === 'text' && piece.text !== undefined) return piece.text;
      const message = `Content of type ${piece.type} is not supported by this model, send text`;
      throw new EngineRefusal('invalid_request', message, 'messages');
    })
    .join('\n');
}

function samplingOf(request: Body): ChatRequest['sampling'] {
  const bias = Object.entries(request.logit_bias ?? {});
  return {
    temperature: request.temperature ?? undefined,
    topP: request.top_p ?? undefined,
    // -1 is how vLLM spells "off"
    topK: request.top_k === -1 ? 0 : (request.top_k ?? undefined),
    minP: request.min_p ?? undefined,
    repetitionPenalty: request.repetition_penalty ?? 1,
    frequencyPenalty: request.frequency_penalty ?? 0,
    presencePenalty: request.presence_penalty ?? 0,
    logitBias: new Map(bias.map(([token, amount]) => [Number(token), amount])),
  };
}

function stopsOf(stop: Body['stop']): string[] {
  const stops = typeof stop === 'string' ? [stop] : (stop ?? []);
  return stops.filter((text) => text !== '');
}

function formatOf(format: Body['response_format']): AnswerFormat {
  if (format?.type === 'json_object') return { type: 'json' };
  if (format?.type !== 'json_schema') return { type: 'text' };
  const described = format.json_schema ?? {};
  // Both `{name, schema}` and the bare schema are sent by clients.
  return { type: 'schema', schema: 'schema' in described ? described['schema'] : described };
}

function toolsOf(request: Body): Pick<ChatRequest, 'tools' | 'toolChoice'> {
  const tools = (request.tools ?? []).map(({ function: offered }) => ({
    name: offered.name,
    description: offered.description ?? undefined,
    parameters: offered.parameters ?? undefined,
  }));
  const choice = request.tool_choice ?? 'auto';
  if (tools.length === 0 || choice === 'none') return { tools: [], toolChoice: 'none' };
  if (choice === 'auto') return { tools, toolChoice: 'auto' };
  if (choice === 'required') return { tools, toolChoice: 'one' };
  const wanted = tools.filter((tool) => tool.name === choice.function.name);
  if (wanted.length === 0) {
    const message = `tool_choice names ${choice.function.name}, which is not among the tools`;
    throw new EngineRefusal('invalid_request', message, 'tool_choice');
  }
  return { tools: wanted, toolChoice: 'one' };
}

function thinkingOf(request: Body): boolean {
  return (
    request.reasoning_effort !== 'none' &&
    request.chat_template_kwargs?.['enable_thinking'] !== false
  );
}
