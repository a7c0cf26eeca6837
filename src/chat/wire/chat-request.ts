/**
 * Parses the bytes of a chat request into a normalized request, or throws the 400.
 *
 * Invariant: `fields` is the validated body with aliases and foreign forms rewritten; values that
 * needed no rewriting are identical to those of `source.body`, so that the engine's body can be
 * spliced from its bytes.
 */
import {
  ChatBody,
  type ChatMessage,
  type ChatTool,
  MAX_CHOICES,
  MAX_MESSAGES,
  MAX_TOOLS,
  type ReasoningEffort,
  type ResponseFormat,
} from './chat-schema.ts';
import { tagsOf } from '../../http/tags.ts';
import { canonicalFields } from './foreign-fields.ts';
import { isEmptyAssistant } from './foreign-messages.ts';
import {
  type ParsedObject,
  parseJsonObject,
  isJsonObject,
  type JsonObject,
} from '../../json/json-scan.ts';
import { measurePrompt, NO_FACTS, type PromptFacts } from './prompt-facts.ts';
import { MAX_MODEL_CHARACTERS, STOP_LIMITS } from './request-fields.ts';
import {
  effectiveParameters,
  SVC_PARAMETER_DEFAULTS,
  type SvcParameters,
} from './svc-parameters.ts';
import { invalidRequest, refuseMember } from '../../json/validation.ts';

export interface ChatRequest {
  /**
   * Only text messages and sampling parameters, as in most requests: no tools, media, other roles
   * or service parameters.
   */
  readonly isPlain: boolean;
  readonly model: string;
  readonly messages: readonly ChatMessage[];
  /**
   * The same messages with marks for a prompt cache and signed reasoning, for engines that read
   * them.
   */
  readonly markedMessages?: readonly ChatMessage[] | undefined;
  /** Whether files stay content parts, for engines that read them. */
  readonly keepsFiles?: boolean | undefined;
  readonly stream: boolean;
  readonly choiceCount: number;
  /** `max_completion_tokens` overrides `max_tokens`. */
  readonly maxOutputTokens: number | undefined;
  readonly tools: readonly ChatTool[];
  readonly toolChoice: ChatBody['tool_choice'];
  readonly responseFormat: ResponseFormat | undefined;
  readonly logprobs: boolean;
  readonly reasoningEffort: ReasoningEffort | undefined;
  readonly isThinkingOff: boolean;
  readonly verbosity: 'low' | 'medium' | 'high' | undefined;
  readonly promptCacheKey: string | undefined;
  readonly isCacheExtended: boolean;
  readonly metadata: Readonly<Record<string, string>> | undefined;
  readonly parameters: SvcParameters;
  readonly facts: PromptFacts;
  /** The canonical body, without `svc_parameters`, `user` and `store`. */
  readonly fields: JsonObject;
  readonly source: ParsedObject;
}

export interface ChatRequestOptions {
  readonly serviceName: string;
}

/** Throws 400 `INVALID_JSON` or `INVALID_REQUEST`. */
export function parseChatRequest(bytes: Buffer, options: ChatRequestOptions): ChatRequest {
  const source = parseJsonObject(bytes);
  const plain = plainRequest(source);
  if (plain !== undefined) return plain;
  refuseLonger(source.body, 'stop', STOP_LIMITS.chat, 'stop texts');
  return anyRequest(source, options);
}

export function chatRequestOf(body: JsonObject, options: ChatRequestOptions): ChatRequest {
  return anyRequest({ bytes: NO_BYTES, body, members: [] }, options);
}

const NO_BYTES = Buffer.alloc(0);

/**
 * Returns a plain request without schema validation, else `undefined`. A test proves that
 * `anyRequest` reads it equally.
 */
export function plainRequest(source: ParsedObject): ChatRequest | undefined {
  const { body } = source;
  const textBytes = plainTextBytes(body['messages']);
  if (textBytes === undefined) return undefined;
  const { model, n, max_tokens, max_completion_tokens, stream } = body;
  if (typeof model !== 'string' || model === '' || model.length > MAX_MODEL_CHARACTERS) {
    return undefined;
  }
  if (model.includes('=')) return undefined;
  for (const key in body) if (!isPlainMember(key, body[key])) return undefined;
  // The loop above has checked the types.
  const given = body as ChatBody & { readonly messages: readonly ChatMessage[] };
  const fields = given.user === undefined ? given : withoutUser(given);
  return {
    ...NOTHING_REQUESTED,
    isPlain: true,
    model,
    messages: given.messages,
    stream: stream === true,
    choiceCount: typeof n === 'number' ? n : 1,
    maxOutputTokens: (max_completion_tokens ?? max_tokens) as number | undefined,
    facts: { ...NO_FACTS, messageCount: given.messages.length, textBytes },
    fields,
    source,
  };
}

/** A request without a chat, for text completions. */
export function chatRequestWith(
  given: Pick<
    ChatRequest,
    'model' | 'stream' | 'choiceCount' | 'maxOutputTokens' | 'promptCacheKey'
  >,
): ChatRequest {
  return {
    ...NOTHING_REQUESTED,
    isPlain: false,
    messages: [],
    facts: NO_FACTS,
    fields: {},
    source: { bytes: NO_BYTES, body: {}, members: [] },
    ...given,
  };
}

function withoutUser({ user: _discarded, ...fields }: JsonObject): JsonObject {
  return fields;
}

const NO_TOOLS: readonly ChatTool[] = [];
const NOTHING_REQUESTED = {
  tools: NO_TOOLS,
  toolChoice: undefined,
  responseFormat: undefined,
  logprobs: false,
  reasoningEffort: undefined,
  isThinkingOff: false,
  verbosity: undefined,
  promptCacheKey: undefined,
  isCacheExtended: false,
  metadata: undefined,
  parameters: SVC_PARAMETER_DEFAULTS,
};

function plainTextBytes(messages: unknown): number | undefined {
  if (!Array.isArray(messages) || messages.length === 0 || messages.length > MAX_MESSAGES) {
    return undefined;
  }
  let textBytes = 0;
  for (const message of messages as readonly unknown[]) {
    if (typeof message !== 'object' || message === null) return undefined;
    for (const key in message) if (key !== 'role' && key !== 'content') return undefined;
    const { role, content } = message as JsonObject; // members of any object can be read
    if (typeof content !== 'string') return undefined;
    if (role !== 'user' && role !== 'system' && !(role === 'assistant' && content !== '')) {
      return undefined;
    }
    textBytes += Buffer.byteLength(content);
  }
  return textBytes;
}

function isPlainMember(key: string, value: unknown): boolean {
  switch (key) {
    case 'model':
    case 'messages':
      return true;
    case 'stream':
      return typeof value === 'boolean';
    case 'stream_options':
      return isJsonObject(value) && typeof value['include_usage'] === 'boolean';
    case 'max_tokens':
    case 'max_completion_tokens':
      return Number.isSafeInteger(value) && isWithin(value, 1, Infinity);
    case 'temperature':
      return isWithin(value, 0, 2);
    case 'top_p':
      return isWithin(value, 0, 1);
    case 'frequency_penalty':
    case 'presence_penalty':
      return isWithin(value, -2, 2);
    case 'n':
      return Number.isSafeInteger(value) && isWithin(value, 1, MAX_CHOICES);
    case 'seed':
      return Number.isSafeInteger(value) && isWithin(value, 1, Infinity);
    case 'stop':
    case 'user':
      return typeof value === 'string';
    default:
      return false;
  }
}

function isWithin(value: unknown, least: number, most: number): boolean {
  return typeof value === 'number' && value >= least && value <= most;
}

export function anyRequest(source: ParsedObject, options: ChatRequestOptions): ChatRequest {
  const given = canonicalFields(source.body, options.serviceName);
  refuseLonger(given, 'messages', MAX_MESSAGES);
  refuseLonger(given, 'tools', MAX_TOOLS);
  const result = ChatBody.safeParse(given);
  if (!result.success) throw invalidRequest(result.error);
  // The schema transforms only service parameters, so the input itself stays the value and keeps
  // its identity.
  const body = given as ChatBody;
  const parameters = effectiveParameters(result.data.svc_parameters ?? undefined);
  refuseMissingTool(body);
  const messages = withoutEmptyAssistants(body.messages);
  const { svc_parameters: _ours, user: _discarded, store: _unused, ...rest } = body;
  const fields = { ...rest, messages };
  const effort = body.reasoning_effort ?? body.reasoning?.effort ?? undefined;
  const verbosity = body.verbosity ?? body.text?.verbosity ?? 'auto';
  const isSwitchedOff = effort === undefined && body.reasoning?.enabled === false;
  return {
    isPlain: false,
    model: body.model,
    messages,
    stream: body.stream ?? false,
    choiceCount: body.n ?? 1,
    maxOutputTokens: body.max_completion_tokens ?? body.max_tokens ?? undefined,
    tools: body.tools ?? NO_TOOLS,
    toolChoice: body.tool_choice,
    responseFormat: body.response_format ?? undefined,
    logprobs: body.logprobs ?? false,
    reasoningEffort: effort,
    isThinkingOff: parameters.disable_thinking || effort === 'none' || isSwitchedOff,
    verbosity: verbosity === 'auto' ? undefined : verbosity,
    promptCacheKey: body.prompt_cache_key ?? undefined,
    isCacheExtended: EXTENDED.has(body.prompt_cache_retention ?? ''),
    metadata: tagsOf(body.metadata),
    parameters,
    facts: measurePrompt(messages, fields),
    fields,
    source,
  };
}

/** Values of `prompt_cache_retention` that mean one day. */
const EXTENDED: ReadonlySet<string> = new Set(['extended', '24h']);

/** Checked before the schema, which would validate every element first. */
function refuseLonger(fields: JsonObject, name: string, most: number, words = name): void {
  const list = fields[name];
  if (!Array.isArray(list) || list.length <= most) return;
  const message = `At most ${most} ${words} are allowed, got ${list.length}`;
  throw refuseMember([name], message, 'too_big');
}

function refuseMissingTool({ tools, tool_choice: choice }: ChatBody): void {
  const name = typeof choice === 'object' ? choice?.function.name : undefined;
  if (name === undefined && choice !== 'required') return;
  const given = tools ?? [];
  const isThere = name === undefined || given.some((tool) => tool.function.name === name);
  if (given.length > 0 && isThere) return;
  const message =
    given.length === 0
      ? 'A tool_choice that requires a call needs tools; send tools or omit tool_choice'
      : 'The function of tool_choice is not among the tools';
  throw refuseMember(['tool_choice'], message);
}

function withoutEmptyAssistants(messages: ChatMessage[]): ChatMessage[] {
  if (!messages.some(isEmptyAssistant)) return messages;
  const kept = messages.filter((message) => !isEmptyAssistant(message));
  if (kept.length > 0) return kept;
  const message = 'At least one message with content is needed';
  throw refuseMember(['messages'], message, 'too_small');
}
