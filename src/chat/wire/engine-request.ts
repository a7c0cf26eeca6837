/**
 * Writes the body for an engine, spliced from the caller's bytes: only members that differ are
 * serialized.
 *
 * Always contains `model`, the output cap, and on a stream `stream_options.include_usage`. Never
 * contains service parameters, `user`, `store`, `metadata` (hosted engines reject it without
 * storage), and what the dialect excludes.
 */
import { REASONING_EFFORTS } from '../../core/reasoning-efforts.ts';
import type { CatalogModel } from '../../catalog/catalog.ts';
import { UNSOLD_MEMBERS } from '../../engines/unsold-members.ts';
import type { ChatRequest } from './chat-request.ts';
import type { ChatMessage, ChatTool, ReasoningEffort } from './chat-schema.ts';
import { sha256Hex } from '../../core/ids.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { refuseMember } from '../../json/validation.ts';
import { spliceObject, withMembers } from '../../json/json-splice.ts';
import { CACHE_MARK, type EngineDialect, type RefusedParameter } from './engine-dialect.ts';

export interface EngineTarget {
  readonly model: string;
  readonly dialect: EngineDialect;
  readonly abilities: Pick<CatalogModel, 'capabilities' | 'reasoningEfforts'>;
  /** The cap that the hold covers. */
  readonly maxOutputTokens: number;
  readonly systemPrompt?: string;
  /** Replaces the messages; unchanged ones must stay identical. */
  readonly messages?: readonly ChatMessage[] | undefined;
  readonly extraTool?: ChatTool | undefined;
  readonly promptCacheKey?: string | undefined;
  /** Separates prompt caches; contains no characters that JSON escapes. */
  readonly cacheSalt?: string | undefined;
  readonly extraMembers?: JsonObject | undefined;
  /** The service tier that was sold; others than `auto` and `default` are left out. */
  readonly serviceTier?: string | undefined;
  /** Whether the protocol of the caller continues a last message by the assistant. */
  readonly mayPrefill?: boolean;
}

/**
 * Some engines use these members to exceed the output cap, to multiply the work or the tokens of media,
 * to run code of the caller, to search at the price of the provider (`enable_x_search` is charged) or to
 * access state of other requests, which the hold does not cover. Other unknown members are passed on.
 */
export const BEYOND_HOLD = {
  ...UNSOLD_MEMBERS,
  best_of: undefined,
  bootstrap_host: undefined,
  bootstrap_port: undefined,
  bootstrap_room: undefined,
  chat_template: undefined,
  custom_logit_processor: undefined,
  enable_search: undefined,
  id_slot: undefined,
  kv_transfer_params: undefined,
  logits_processors: undefined,
  max_length: undefined,
  max_new_tokens: undefined,
  media_io_kwargs: undefined,
  mm_processor_kwargs: undefined,
  n_cmpl: undefined,
  n_predict: undefined,
  num_predict: undefined,
  plugins: undefined,
  search_options: undefined,
  search_parameters: undefined,
  session_params: undefined,
  use_beam_search: undefined,
  web_search_options: undefined,
};

const LEFT_OUT = { ...BEYOND_HOLD, metadata: undefined, text: undefined, reasoning: undefined };

export function engineRequest(request: ChatRequest, target: EngineTarget): Buffer {
  const texts = plainChanges(request, target);
  if (texts !== undefined) return withMembers(request.source, texts);
  return spliceObject(request.source, engineFields(request, target));
}

function plainChanges(
  { isPlain, stream, fields, markedMessages }: ChatRequest,
  target: EngineTarget,
): Record<string, string | undefined> | undefined {
  const { model, dialect, maxOutputTokens, systemPrompt, messages, extraTool, extraMembers } =
    target;
  const hasMore = messages !== undefined || extraTool !== undefined || extraMembers !== undefined;
  if (!isPlain || hasMore || systemPrompt !== '') return undefined;
  if (dialect.leaveOut.length + dialect.renamed.length > 0) return undefined;
  if (dialect.lastMessage !== undefined || markedMessages !== undefined) return undefined;
  // The body may need no change at all, which only `spliceObject` detects.
  if (model === fields['model']) return undefined;
  const { outputCap } = dialect;
  const texts: Record<string, string | undefined> = {
    model: `"model":${JSON.stringify(model)}`,
    max_tokens:
      outputCap === 'max_completion_tokens' ? undefined : `"max_tokens":${maxOutputTokens}`,
    max_completion_tokens:
      outputCap === 'max_tokens' ? undefined : `"max_completion_tokens":${maxOutputTokens}`,
    user: undefined,
    stream_options: undefined,
  };
  if (target.cacheSalt !== undefined) texts['cache_salt'] = `"cache_salt":"${target.cacheSalt}"`;
  if (!stream) return texts;
  const options = streamOptions(fields['stream_options'], dialect);
  texts['stream_options'] = `"stream_options":${JSON.stringify(options)}`;
  return texts;
}

/**
 * The engine's body as an object; `undefined` members are left out. Throws 400 for what the engine
 * cannot do.
 */
export function engineFields(request: ChatRequest, target: EngineTarget): JsonObject {
  const { dialect, maxOutputTokens, systemPrompt = '' } = target;
  const { outputCap, maxStops } = dialect;
  const { stop } = request.fields;
  if (Array.isArray(stop) && stop.length > maxStops) {
    const message = `The engine of this model accepts at most ${maxStops} stop texts, got ${stop.length}`;
    throw refuseMember(['stop'], message, 'too_big');
  }
  const fields: Record<string, unknown> = {
    ...request.fields,
    ...(request.isPlain ? undefined : LEFT_OUT),
    model: target.model,
    max_tokens: outputCap === 'max_completion_tokens' ? undefined : maxOutputTokens,
    max_completion_tokens: outputCap === 'max_tokens' ? undefined : maxOutputTokens,
    stream_options: request.stream
      ? streamOptions(request.fields['stream_options'], dialect)
      : undefined,
  };
  let messages = target.messages ?? request.messages;
  if (dialect.cacheMarks) messages = withInnerMarks(withMarks(messages, request));
  if (!request.isPlain || dialect.lastMessage !== undefined) {
    messages = knownMessages(messages, dialect);
  }
  if (dialect.unsignedCalls?.test(target.model) === false) messages = withSignatures(messages);
  if (systemPrompt !== '') messages = withSystemPrompt(messages, systemPrompt);
  fields['messages'] = messages;
  if (target.mayPrefill === true) setPrefill(fields, messages.at(-1), dialect);
  if (!request.isPlain) {
    setThinking(fields, request, target);
    const isExtended = dialect.promptCacheRetention && request.isCacheExtended;
    fields['prompt_cache_retention'] = isExtended ? '24h' : undefined;
    if (dialect.fallbacks) fields['fallbacks'] = request.fields['fallbacks'];
    if (dialect.extraBody === true) fields['extra_body'] = request.fields['extra_body'];
    fields['verbosity'] = request.verbosity;
    const tier = fields['service_tier'];
    if (tier !== 'auto' && tier !== 'default') fields['service_tier'] = target.serviceTier;
  }
  if (target.promptCacheKey !== undefined) fields['prompt_cache_key'] = target.promptCacheKey;
  if (target.cacheSalt !== undefined) fields['cache_salt'] = target.cacheSalt;
  if (dialect.leaveOutOfMessages.includes(CACHE_MARK) && request.tools.some(hasMark)) {
    fields['tools'] = request.tools.map(withoutMark);
  }
  if (target.extraTool !== undefined) fields['tools'] = [...request.tools, target.extraTool];
  if (target.extraMembers !== undefined) Object.assign(fields, target.extraMembers);
  for (const [name, engineName] of dialect.renamed) {
    if (fields[name] === undefined) continue;
    fields[engineName] = fields[name];
    fields[name] = undefined;
  }
  for (const name of dialect.leaveOut) fields[name] = undefined;
  return fields;
}

function setPrefill(
  fields: Record<string, unknown>,
  last: ChatMessage | undefined,
  { prefill }: EngineDialect,
): void {
  if (last?.role !== 'assistant' || callsOf(last).length > 0) return;
  if (prefill === undefined) {
    const message =
      'The engine of this model cannot continue a message of the assistant; end the messages with one of the user';
    throw refuseMember(['messages'], message, 'unsupported');
  }
  Object.assign(fields, prefill);
}

const ADDED = new Set([
  'max_tokens',
  'max_completion_tokens',
  'stream_options',
  'reasoning_effort',
  'chat_template_kwargs',
  'verbosity',
  'cache_salt',
]);

/**
 * Whether the request contains the rejected parameter; otherwise the rejection has another cause.
 */
export function mayHave(request: ChatRequest, { name, inMessages }: RefusedParameter): boolean {
  if (inMessages) {
    const isMarked = name === CACHE_MARK && request.tools.some(hasMark);
    return isMarked || request.messages.some((message) => hasMember(message, name));
  }
  return ADDED.has(name) || Object.hasOwn(request.fields, name);
}

const NO_OPTIONS: JsonObject = {};

function streamOptions(options: unknown, dialect: EngineDialect): unknown {
  const given = isJsonObject(options) ? options : NO_OPTIONS;
  const { padding: isPadded, continuousUsage } = dialect;
  if (given['include_usage'] === true && !isPadded && !continuousUsage) return given;
  const padding = isPadded ? { include_obfuscation: false } : {};
  const continuous = continuousUsage ? { continuous_usage_stats: true } : {};
  const wanted: JsonObject = { ...given, include_usage: true, ...padding, ...continuous };
  if (given === NO_OPTIONS) return wanted;
  return Object.keys(wanted).every((key) => given[key] === wanted[key]) ? given : wanted;
}

function setThinking(
  fields: Record<string, unknown>,
  request: ChatRequest,
  { abilities, dialect }: EngineTarget,
): void {
  const { capabilities, reasoningEfforts } = abilities;
  fields['reasoning_effort'] = undefined;
  if (!capabilities.has('reasoning')) return;
  if (request.isThinkingOff && dialect.thinkingOff !== undefined) {
    Object.assign(fields, dialect.thinkingOff);
    return;
  }
  const effort = request.isThinkingOff ? 'none' : request.reasoningEffort;
  if (effort !== undefined && capabilities.has('reasoningEffort')) {
    fields['reasoning_effort'] = nearestEffort(effort, reasoningEfforts);
  }
  if (request.isThinkingOff && dialect.thinkingSwitch) {
    const given = fields['chat_template_kwargs'];
    const kwargs = isJsonObject(given) ? given : {};
    fields['chat_template_kwargs'] = { ...kwargs, enable_thinking: false };
  }
}

/** The closest supported effort; the lower of two equally close ones. */
function nearestEffort(effort: ReasoningEffort, options?: readonly string[]): string {
  if (options === undefined || options.length === 0 || options.includes(effort)) return effort;
  const wanted = REASONING_EFFORTS.indexOf(effort);
  let best: string = effort;
  let bestDistance = Infinity;
  for (const [rank, name] of REASONING_EFFORTS.entries()) {
    const distance = Math.abs(rank - wanted);
    if (!options.includes(name) || distance >= bestDistance) continue;
    best = name;
    bestDistance = distance;
  }
  return best;
}

/** Replaces each unchanged message by the same message with its marks. */
function withMarks(
  messages: readonly ChatMessage[],
  { messages: given, markedMessages: marked }: ChatRequest,
): readonly ChatMessage[] {
  if (marked?.length !== given.length) return messages;
  return messages.map((message, at) => (message === given[at] && marked[at]) || message);
}

/** Some clients mark a whole message for a prompt cache: the mark belongs to its last call or part. */
function withInnerMarks(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  if (!messages.some((message) => isJsonObject(message[CACHE_MARK]))) return messages;
  return messages.map((message) => {
    const { [CACHE_MARK]: mark, ...rest } = message;
    if (!isJsonObject(mark)) return message;
    const { content } = message;
    const calls = callsOf(message);
    const text = typeof content === 'string' ? [{ type: 'text', text: content }] : partsOf(message);
    const inner = calls.length > 0 ? calls : text;
    if (inner.length === 0) return message;
    const marked = [...inner.slice(0, -1), { [CACHE_MARK]: mark, ...inner.at(-1) }];
    return { ...rest, [calls.length > 0 ? 'tool_calls' : 'content']: marked };
  });
}

/** A tool is marked in one of two places. */
function hasMark(tool: ChatTool): boolean {
  return Object.hasOwn(tool, CACHE_MARK) || Object.hasOwn(tool.function, CACHE_MARK);
}

function withoutMark({ [CACHE_MARK]: _mark, function: made, ...rest }: ChatTool): JsonObject {
  const { [CACHE_MARK]: _inner, ...kept } = made;
  return { ...rest, function: kept };
}

/** Whether the message or one of its tool calls has the member, or one of its parts the mark. */
function hasMember(message: ChatMessage, name: string): boolean {
  const has = (one: JsonObject): boolean => Object.hasOwn(one, name);
  const isInPart = name === CACHE_MARK && partsOf(message).some(has);
  return isInPart || has(message) || callsOf(message).some(has);
}

function partsOf({ content }: ChatMessage): readonly JsonObject[] {
  return Array.isArray(content) ? content : [];
}

function callsOf(message: ChatMessage): readonly JsonObject[] {
  return message.role === 'assistant' ? (message.tool_calls ?? []) : [];
}

function knownMessages(
  messages: readonly ChatMessage[],
  { developerRole, leaveOutOfMessages, callIdCharacters, lastMessage }: EngineDialect,
): readonly ChatMessage[] {
  let known = messages;
  if (!developerRole && messages.some((message) => message.role === 'developer')) {
    known = messages.map((message) =>
      message.role === 'developer' ? { ...message, role: 'system' as const } : message,
    );
  }
  for (const name of leaveOutOfMessages) {
    if (!known.some((message) => hasMember(message, name))) continue;
    known = known.map((message) => {
      if (!hasMember(message, name)) return message;
      const without = ({ [name]: _refused, ...kept }: JsonObject) => kept;
      const calls = callsOf(message).map(without);
      const parts = name === CACHE_MARK ? partsOf(message).map(without) : [];
      const more = calls.length === 0 ? {} : { tool_calls: calls };
      const content = parts.length === 0 ? {} : { content: parts };
      // Only members that a message and its calls can do without are left out.
      return { ...without(message), ...more, ...content } as ChatMessage;
    });
  }
  const last = known.at(-1);
  if (lastMessage !== undefined && last?.role === 'assistant') {
    known = [...known.slice(0, -1), { ...last, ...lastMessage }];
  }
  return callIdCharacters === undefined ? known : withShortIds(known, callIdCharacters);
}

/** The signature that the provider documents for tool calls that it has not made or signed. */
const UNSIGNED = { google: { thought_signature: 'skip_thought_signature_validator' } };

function withSignatures(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  const isUnsigned = (message: ChatMessage): boolean =>
    callsOf(message).length > 0 && !hasMember(message, 'extra_content');
  if (!messages.some(isUnsigned)) return messages;
  return messages.map((message) => {
    if (!isUnsigned(message)) return message;
    const [first, ...others] = callsOf(message);
    // The same message, with a member that a call may have.
    return {
      ...message,
      tool_calls: [{ ...first, extra_content: UNSIGNED }, ...others],
    } as ChatMessage;
  });
}

/** Replaces ids of tool calls by hashes, which are the same in every turn. */
function withShortIds(messages: readonly ChatMessage[], length: number): readonly ChatMessage[] {
  const isShort = (id: string): boolean => id.length === length && /^[A-Za-z0-9]*$/.test(id);
  const short = (id: string): string => (isShort(id) ? id : sha256Hex(id).slice(0, length));
  return messages.map((message) => {
    if (message.role === 'tool') {
      return { ...message, tool_call_id: short(message.tool_call_id) };
    }
    if (message.role !== 'assistant' || !message.tool_calls) return message;
    const tool_calls = message.tool_calls.map((call) => ({ ...call, id: short(call.id) }));
    return { ...message, tool_calls };
  });
}

/**
 * Joins both prompts in one message, because many chat templates reject a second system message.
 */
function withSystemPrompt(
  messages: readonly ChatMessage[],
  prompt: string,
): readonly ChatMessage[] {
  const first = messages[0];
  if (first === undefined || (first.role !== 'system' && first.role !== 'developer')) {
    return [{ role: 'system', content: prompt }, ...messages];
  }
  const content =
    typeof first.content === 'string'
      ? `${prompt}\n\n${first.content}`
      : [{ type: 'text' as const, text: prompt }, ...first.content];
  return [{ ...first, content }, ...messages.slice(1)];
}
