/**
 * Bytes of a chat request in, the normalised request out, or the 400 that says why not.
 *
 * Invariant: `fields` is the canonical body (validated, aliases and foreign shapes rewritten), and
 * each of its values that needed no rewriting is the very value of `source.body`; the engine's
 * body is spliced from that (`engine-request.ts`). Knows nothing of models and what they can do.
 */
import {
  ChatBody,
  MAX_MESSAGES,
  MAX_TOOLS,
  type ChatMessage,
  type ChatTool,
  type ReasoningEffort,
  type ResponseFormat,
} from './chat-schema.ts';
import { canonicalFields } from './foreign-fields.ts';
import { isEmptyAssistant } from './foreign-messages.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import type { ParsedObject } from '../../json/json-splice.ts';
import { isPlainChat } from './plain-chat.ts';
import { measurePrompt, type PromptFacts } from './prompt-facts.ts';
import { effectiveParameters, type SvcParameters } from './svc-parameters.ts';
import { invalidRequest, parseJsonObject, refuseIssues } from '../../json/validation.ts';

export interface ChatRequest {
  /** The model's name as asked for, without suffixes; not resolved. */
  readonly model: string;
  readonly messages: readonly ChatMessage[];
  readonly stream: boolean;
  /** `n`, 1 when absent. */
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
  readonly metadata: JsonObject | undefined;
  /** The effective service parameters, defaults filled in. */
  readonly parameters: SvcParameters;
  readonly facts: PromptFacts;
  /** The canonical body, see the header. Never holds `svc_parameters`, `user`, `store`. */
  readonly fields: JsonObject;
  readonly source: ParsedObject;
  /** Whether a member of the caller's body was rewritten or removed. */
  readonly changed: boolean;
}

export interface ChatRequestOptions {
  /** The operator's service name: its `<name>_parameters` is read beside `svc_parameters`. */
  readonly serviceName: string;
}

/** Members that are for us alone: never sent to an engine. */
const OWN_MEMBERS = ['svc_parameters', 'user', 'store'] as const;

/** Parses and validates a chat body. Throws the 400 (`INVALID_JSON`, `INVALID_REQUEST`). */
export function parseChatRequest(bytes: Buffer, options: ChatRequestOptions): ChatRequest {
  const source = parseJsonObject(bytes);
  const fields = canonicalFields(source.body, options.serviceName);
  const body = validated(fields);
  const messages = withoutEmptyAssistants(body.messages);
  const parameters = effectiveParameters(body.svc_parameters ?? undefined);
  for (const key of OWN_MEMBERS) if (Object.hasOwn(fields, key)) delete fields[key];
  fields['messages'] = messages;
  return {
    ...readControls(body, parameters),
    model: body.model,
    messages,
    parameters,
    facts: measurePrompt(messages, fields),
    fields,
    source,
    changed: differs(source.body, fields),
  };
}

function validated(fields: Record<string, unknown>): ChatBody {
  refuseLonger(fields, 'messages', MAX_MESSAGES);
  refuseLonger(fields, 'tools', MAX_TOOLS);
  if (isPlainChat(fields)) return fields;
  const result = ChatBody.safeParse(fields);
  if (!result.success) throw invalidRequest(result.error);
  // The schema transforms nothing but unknown parameters, so the validated input stays the value:
  // its identity is what lets the engine's body be spliced. Only the parameters are the copy.
  return { ...(fields as ChatBody), svc_parameters: result.data.svc_parameters };
}

/** Before the schema, which would look at every element of a list that is refused anyway. */
function refuseLonger(fields: JsonObject, name: string, most: number): void {
  const list = fields[name];
  if (!Array.isArray(list) || list.length <= most) return;
  const message = `At most ${most} ${name} are taken, got ${list.length}`;
  throw refuseIssues([{ code: 'too_big', path: [name], message }]);
}

function withoutEmptyAssistants(messages: ChatMessage[]): ChatMessage[] {
  if (!messages.some(isEmptyAssistant)) return messages;
  const kept = messages.filter((message) => !isEmptyAssistant(message));
  if (kept.length > 0) return kept;
  const message = 'At least one message with content is needed';
  throw refuseIssues([{ code: 'too_small', path: ['messages'], message }]);
}

type Controls = Omit<
  ChatRequest,
  'model' | 'messages' | 'parameters' | 'facts' | 'fields' | 'source' | 'changed'
>;

function readControls(body: ChatBody, parameters: SvcParameters): Controls {
  const effort = body.reasoning_effort ?? body.reasoning?.effort ?? undefined;
  const verbosity = body.verbosity ?? body.text?.verbosity ?? 'auto';
  const retention = body.prompt_cache_retention ?? 'default';
  const isSwitchedOff = effort === undefined && body.reasoning?.enabled === false;
  return {
    stream: body.stream ?? false,
    choiceCount: body.n ?? 1,
    maxOutputTokens: body.max_completion_tokens ?? body.max_tokens ?? undefined,
    tools: body.tools ?? [],
    toolChoice: body.tool_choice,
    responseFormat: body.response_format ?? undefined,
    logprobs: body.logprobs ?? false,
    reasoningEffort: effort,
    isThinkingOff: parameters.disable_thinking || effort === 'none' || isSwitchedOff,
    verbosity: verbosity === 'auto' ? undefined : verbosity,
    promptCacheKey: body.prompt_cache_key ?? undefined,
    isCacheExtended: retention !== 'default',
    metadata: body.metadata ?? undefined,
  };
}

function differs(body: JsonObject, fields: JsonObject): boolean {
  const keys = Object.keys(body);
  if (keys.length !== Object.keys(fields).length) return true;
  return keys.some((key) => body[key] !== fields[key]);
}
