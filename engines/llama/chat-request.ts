/**
 * Parses an OpenAI chat body into the settings of the engine. Unknown fields are ignored, `null`
 * means absent, and unsupported input (images) is rejected with a message.
 */
import * as z from 'zod';
import type { Fault } from '../../src/core/faults.ts';
import { refusal } from './refusal.ts';
import { refuseUnenforceable } from './strict-schema.ts';

/** The OpenAI protocol allows `n` up to 128; a CPU engine needs a lower limit. */
const MAX_CHOICES = 16;
const MAX_STOPS = 4;
const MAX_TOP_LOGPROBS = 20;
/** Each bias is looked up for every generated token, on the thread that all requests share. */
const MAX_BIASES = 1_024;

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
    strict: z.boolean().nullish(),
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
  logit_bias: z
    .record(z.string(), z.number().min(-100).max(100))
    .refine((bias) => Object.keys(bias).length <= MAX_BIASES, `Has at most ${MAX_BIASES} entries`)
    .nullish(),
  max_tokens: tokenCount,
  max_completion_tokens: tokenCount,
  stop: z.union([z.string(), z.array(z.string()).max(MAX_STOPS)]).nullish(),
  stop_token_ids: z.array(z.number().int()).nullish(),
  seed: z.number().int().nullish(),
  cache_salt: z.string().nullish(),
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
type Body = z.infer<typeof body>;

/** A message for chat templates; the arguments of its tool calls are still text. */
export interface ChatMessage {
  readonly role: 'system' | 'user' | 'assistant' | 'tool';
  readonly content: string;
  readonly name?: string;
  readonly reasoning_content?: string;
  readonly tool_calls?: readonly {
    readonly function: { readonly name: string; readonly arguments: string };
  }[];
}

export type OfferedTool = z.infer<typeof tool>['function'];

export type ChatRequest = ReturnType<typeof parseChatRequest>;

/** Parses an OpenAI chat body; throws an error response that names the invalid field. */
export function parseChatRequest(input: unknown) {
  const request = parsed(body, input);
  const limit = request.max_completion_tokens ?? request.max_tokens ?? 0;
  return {
    model: request.model,
    messages: request.messages.map(messageOf),
    /** Used verbatim instead of the messages. */
    rawPrompt: undefined as string | undefined,
    stream: request.stream ?? false,
    includeUsage: request.stream_options?.include_usage ?? false,
    choices: request.n ?? 1,
    sampling: samplingOf(request),
    /** `Infinity`: until the model ends or the context is full. */
    maxTokens: limit > 0 ? limit : Infinity,
    stops: [request.stop ?? []].flat().filter((text) => text !== ''),
    stopTokens: new Set(request.stop_token_ids),
    seed: request.seed,
    /** Prompts with different salts share no cached state. */
    cacheSalt: request.cache_salt ?? '',
    logprobs: request.logprobs ?? false,
    topLogprobs: request.top_logprobs ?? 0,
    /** Required content; `undefined` leaves it open. */
    schema: schemaOf(request.response_format),
    ...toolsOf(request),
    parallelToolCalls: request.parallel_tool_calls ?? true,
    thinking:
      request.reasoning_effort !== 'none' &&
      request.chat_template_kwargs?.['enable_thinking'] !== false,
    templateVariables: request.chat_template_kwargs ?? {},
  };
}

/** Validates the body; throws the first zod issue as one sentence with its field. */
export function parsed<Schema extends z.ZodType>(schema: Schema, input: unknown): z.infer<Schema> {
  const result = schema.safeParse(input);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const path = issue?.path.join('.') ?? '';
  const reason = issue?.message ?? 'The body is not valid';
  throw path === ''
    ? refusal('invalid_request', reason)
    : refusal('invalid_request', `${path}: ${reason}`, path);
}

function messageOf(from: z.infer<typeof message>): ChatMessage {
  const { name, reasoning_content, tool_calls } = from;
  const role = from.role === 'developer' ? 'system' : from.role;
  return {
    role: role === 'function' ? 'tool' : role,
    content: textOf(from.content),
    ...(name && { name }),
    ...(reasoning_content && { reasoning_content }),
    ...(tool_calls?.length && { tool_calls }),
  };
}

function textOf(from: z.infer<typeof content>): string {
  if (typeof from === 'string') return from;
  const texts = (from ?? []).map((piece) => {
    if (piece.type === 'text' && piece.text !== undefined) return piece.text;
    throw invalid(`Content of type ${piece.type} is not supported by this model: send text`);
  });
  return texts.join('\n');
}

function invalid(message: string, param = 'messages'): Fault {
  return refusal('invalid_request', message, param);
}

function samplingOf(request: Body) {
  const bias = Object.entries(request.logit_bias ?? {});
  return {
    temperature: request.temperature,
    topP: request.top_p,
    // -1 disables it, as in vLLM.
    topK: request.top_k === -1 ? 0 : request.top_k,
    minP: request.min_p,
    repetitionPenalty: request.repetition_penalty ?? 1,
    frequencyPenalty: request.frequency_penalty ?? 0,
    presencePenalty: request.presence_penalty ?? 0,
    logitBias: new Map(bias.map(([token, amount]) => [Number(token), amount])),
  };
}

function schemaOf(format: Body['response_format']): unknown {
  if (format?.type === 'json_object') return { type: 'object' };
  if (format?.type !== 'json_schema') return undefined;
  const described = format.json_schema ?? {};
  // Clients send both `{name, schema}` and the bare schema.
  const schema = 'schema' in described ? described['schema'] : described;
  if (described['strict'] === true) refuseUnenforceable(schema);
  return schema;
}

/** `one` forces a call of one of `tools`. */
function toolsOf(request: Body): { tools: OfferedTool[]; toolChoice: 'none' | 'auto' | 'one' } {
  const tools = (request.tools ?? []).map((offered) => offered.function);
  const choice = request.tool_choice ?? 'auto';
  if (tools.length === 0 || choice === 'none') return { tools: [], toolChoice: 'none' };
  for (const tool of tools) if (tool.strict === true) refuseUnenforceable(tool.parameters);
  if (choice === 'auto') return { tools, toolChoice: 'auto' };
  if (choice === 'required') return { tools, toolChoice: 'one' };
  const { name } = choice.function;
  const wanted = tools.filter((tool) => tool.name === name);
  if (wanted.length > 0) return { tools: wanted, toolChoice: 'one' };
  throw invalid(`tool_choice: The function ${name} is not in tools`, 'tool_choice');
}
