/**
 * Bytes of a chat request in, the normalised request out, or the 400 that says why not.
 *
 * Invariant: `fields` is the canonical body (validated, aliases and foreign shapes rewritten), and
 * each of its values that needed no rewriting is the very value of `source.body`; the engine's
 * body is spliced from that (`engine-request.ts`). Knows nothing of models and what they can do.
 */
import type { ChatMessage } from './chat-message.ts';
import {
  ChatBody,
  MAX_CHOICES,
  MAX_MESSAGES,
  MAX_TOOLS,
  type ChatTool,
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
import { measurePrompt, type PromptFacts } from './prompt-facts.ts';
import { MAX_MODEL_CHARACTERS } from './request-fields.ts';
import {
  effectiveParameters,
  SVC_PARAMETER_DEFAULTS,
  type SvcParameters,
} from './svc-parameters.ts';
import { invalidRequest, refuseIssues } from '../../json/validation.ts';

export interface ChatRequest {
  /**
   * Messages of text and no more than sampling controls, as most callers send them: no tools, no
   * media, no role but the usual three, nothing asked of the service.
   */
  readonly isPlain: boolean;
  readonly model: string;
  readonly messages: readonly ChatMessage[];
  readonly stream: boolean;
  readonly choiceCount: number;
  /** What the caller asked for; `max_completion_tokens` wins over `max_tokens`. */
  readonly maxOutputTokens: number | undefined;
  readonly tools: readonly ChatTool[];
  readonly toolChoice: ChatBody['tool_choice'];
  readonly responseFormat: ResponseFormat | undefined;
  readonly logprobs: boolean;
  readonly reasoningEffort: ReasoningEffort | undefined;
  /** `disable_thinking`, effort `none`, or `reasoning.enabled: false` without an effort. */
  readonly isThinkingOff: boolean;
  readonly verbosity: 'low' | 'medium' | 'high' | undefined;
  readonly promptCacheKey: string | undefined;
  readonly isCacheExtended: boolean;
  readonly metadata: Readonly<Record<string, string>> | undefined;
  readonly parameters: SvcParameters;
  readonly facts: PromptFacts;
  /** The canonical body, see the header. Never holds `svc_parameters`, `user`, `store`. */
  readonly fields: JsonObject;
  readonly source: ParsedObject;
}

export interface ChatRequestOptions {
  readonly serviceName: string;
}

/** Parses and validates a chat body. Throws the 400 (`INVALID_JSON`, `INVALID_REQUEST`). */
export function parseChatRequest(bytes: Buffer, options: ChatRequestOptions): ChatRequest {
  const source = parseJsonObject(bytes);
  return plainRequest(source) ?? anyRequest(source, options);
}

/** The request of a chat body that was made from one of another protocol. Throws the same 400. */
export function chatRequestOf(body: JsonObject, options: ChatRequestOptions): ChatRequest {
  return anyRequest({ bytes: NO_BYTES, body, members: [] }, options);
}

/** Of a body that has none: no member is found in them, so that the engine's is written anew. */
const NO_BYTES = Buffer.alloc(0);

/**
 * The request of a plain body, which needs no further look; `undefined` for any other. What is read
 * here `anyRequest` reads in the same way, which a test proves.
 */
export function plainRequest(source: ParsedObject): ChatRequest | undefined {
  const { body } = source;
  const textBytes = plainTextBytes(body['messages']);
  if (textBytes === undefined) return undefined;
  const { model, n, max_tokens, max_completion_tokens, stream } = body;
  if (typeof model !== 'string' || model === '' || model.length > MAX_MODEL_CHARACTERS) {
    return undefined;
  }
  // Suffixes of the model are parameters.
  if (model.includes('=')) return undefined;
  for (const key in body) if (!isPlainMember(key, body[key])) return undefined;
  // A member that is there has the type that was looked for.
  const given = body as ChatBody & { readonly messages: readonly ChatMessage[] };
  const fields = given.user === undefined ? given : withoutUser(given);
  return {
    isPlain: true,
    model,
    messages: given.messages,
    stream: stream === true,
    choiceCount: typeof n === 'number' ? n : 1,
    maxOutputTokens: (max_completion_tokens ?? max_tokens) as number | undefined,
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
    facts: {
      messageCount: given.messages.length,
      textBytes,
      unknownBytes: 0,
      imageCount: 0,
      imageMessageCount: 0,
      audioCount: 0,
      videoCount: 0,
      fileCount: 0,
    },
    fields,
    source,
  };
}

/** A request that asks for nothing of a chat, for text that is none. */
export function chatRequestWith(
  given: Pick<ChatRequest, 'model' | 'stream' | 'choiceCount' | 'promptCacheKey'>,
): ChatRequest {
  return {
    isPlain: false,
    messages: [],
    maxOutputTokens: undefined,
    tools: NO_TOOLS,
    toolChoice: undefined,
    responseFormat: undefined,
    logprobs: false,
    reasoningEffort: undefined,
    isThinkingOff: false,
    verbosity: undefined,
    isCacheExtended: false,
    metadata: undefined,
    parameters: SVC_PARAMETER_DEFAULTS,
    facts: measurePrompt([], {}),
    fields: {},
    source: { bytes: NO_BYTES, body: {}, members: [] },
    ...given,
  };
}

function withoutUser({ user: _discarded, ...fields }: JsonObject): JsonObject {
  return fields;
}

const NO_TOOLS: readonly ChatTool[] = [];

/** UTF-8 bytes of messages that are all plain; `undefined` when one is not. */
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
  // The schema transforms nothing but unknown parameters, so the validated input stays the value:
  // its identity is what lets the engine's body be spliced. Only the parameters are the copy.
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
    isCacheExtended: (body.prompt_cache_retention ?? 'default') !== 'default',
    metadata: tagsOf(body.metadata),
    parameters,
    facts: measurePrompt(messages, fields),
    fields,
    source,
  };
}

/** Before the schema, which would look at every element of a list that is refused anyway. */
function refuseLonger(fields: JsonObject, name: string, most: number): void {
  const list = fields[name];
  if (!Array.isArray(list) || list.length <= most) return;
  const message = `At most ${most} ${name} are taken, got ${list.length}`;
  throw refuseIssues([{ code: 'too_big', path: [name], message }]);
}

/** A call that is demanded must be of a tool that is there. */
function refuseMissingTool({ tools, tool_choice: choice }: ChatBody): void {
  if (typeof choice !== 'object' && choice !== 'required') return;
  if (choice === null) return;
  const path = ['tool_choice'];
  if (tools === undefined || tools === null || tools.length === 0) {
    const message = 'A tool_choice that demands a call needs tools; send tools, or leave it out';
    throw refuseIssues([{ code: 'custom', path, message }]);
  }
  if (choice === 'required') return;
  if (tools.some((tool) => tool.function.name === choice.function.name)) return;
  const message = 'The function of tool_choice is not among the tools';
  throw refuseIssues([{ code: 'custom', path, message }]);
}

function withoutEmptyAssistants(messages: ChatMessage[]): ChatMessage[] {
  if (!messages.some(isEmptyAssistant)) return messages;
  const kept = messages.filter((message) => !isEmptyAssistant(message));
  if (kept.length > 0) return kept;
  const message = 'At least one message with content is needed';
  throw refuseIssues([{ code: 'too_small', path: ['messages'], message }]);
}
