/**
 * The body that goes to an engine, spliced from the caller's bytes: only members that differ are
 * written, everything else is copied. A 100 KB prompt is never turned into JSON again unless its
 * own message changes.
 *
 * Always set: `model`, the clamped output cap, and on a stream `stream_options.include_usage`.
 * Never sent: service parameters, `user`, `store`, `metadata` (it is ours, and hosted engines
 * refuse it without storage), and what the dialect does not know.
 */
import type { ChatAbilities } from './capability-gates.ts';
import type { ChatRequest } from './chat-request.ts';
import {
  REASONING_EFFORTS,
  type ChatMessage,
  type ChatTool,
  type ReasoningEffort,
} from './chat-schema.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { spliceObject } from '../../json/json-splice.ts';

/** What an engine's spelling of the protocol takes; `engineDialect` guesses it. */
export interface EngineDialect {
  /**
   * The name of the output cap. `both` suits self-hosted servers: each reads the one it knows
   * (older ones only `max_tokens`). OpenAI refuses the two together and wants the newer.
   */
  readonly outputCap: 'max_tokens' | 'max_completion_tokens' | 'both';
  /** Whether messages may have the role `developer`; else it is sent as `system`. */
  readonly developerRole: boolean;
  /** Whether `chat_template_kwargs` is taken (vLLM, SGLang, llama.cpp). */
  readonly templateKwargs: boolean;
  /** Whether `prompt_cache_retention` is taken. */
  readonly cacheRetention: boolean;
  /** Whether `fallbacks` is taken: certain direct routes only. */
  readonly fallbacks: boolean;
  /** Whether each chunk is padded with random text unless the request declines. */
  readonly obfuscates: boolean;
  /** Whether each chunk is asked to carry the usage until then (vLLM, SGLang). */
  readonly continuousUsage: boolean;
}

const SELF_HOSTED: EngineDialect = {
  outputCap: 'both',
  developerRole: false,
  templateKwargs: true,
  cacheRetention: false,
  fallbacks: false,
  obfuscates: false,
  continuousUsage: false,
};

const OPENAI: EngineDialect = {
  outputCap: 'max_completion_tokens',
  developerRole: true,
  templateKwargs: false,
  cacheRetention: true,
  fallbacks: false,
  obfuscates: true,
  continuousUsage: false,
};

/** The dialect of an engine by the host name of its URL: OpenAI's own hosts, or self-hosted. */
export function engineDialect(hostname: string): EngineDialect {
  const isOpenAi = hostname === 'api.openai.com' || hostname.endsWith('.openai.azure.com');
  return isOpenAi ? OPENAI : SELF_HOSTED;
}

export interface EngineTarget {
  /** The engine's own name of the model. */
  readonly model: string;
  readonly dialect: EngineDialect;
  readonly abilities: Pick<
    ChatAbilities,
    'reasoning' | 'reasoningEffort' | 'reasoningEffortOptions'
  >;
  /** The clamped cap: what the hold was computed with. Always sent. */
  readonly maxOutputTokens: number;
  /** Put before the caller's prompts, already joined. */
  readonly systemPrompt?: string;
  /** Replaces the messages (extracted files, search results); keep unchanged ones identical. */
  readonly messages?: readonly ChatMessage[];
  /** Added to the caller's tools. */
  readonly extraTools?: readonly ChatTool[];
  /** Further members, over the caller's: what the engine's own search wants. */
  readonly extraMembers?: JsonObject;
}

/**
 * Names by which some engines let a request go round its output cap, multiply its work, or reach
 * into the state of others: the hold does not cover that. Every other unknown member passes.
 */
const NEVER_PASSED = [
  'best_of',
  'chat_template',
  'id_slot',
  'kv_transfer_params',
  'max_length',
  'max_new_tokens',
  'n_cmpl',
  'n_predict',
  'num_predict',
  'use_beam_search',
] as const;

/** The engine's body. Gives back the caller's own bytes when they happen to be right. */
export function engineRequest(request: ChatRequest, target: EngineTarget): Buffer {
  return spliceObject(request.source, engineFields(request, target));
}

/** The engine's body as an object, members to leave out being `undefined`: for `engineRequest`. */
export function engineFields(request: ChatRequest, target: EngineTarget): JsonObject {
  const fields: Record<string, unknown> = { ...request.fields };
  fields['model'] = target.model;
  fields['messages'] = engineMessages(request, target);
  setOutputCap(fields, target);
  setStreamOptions(fields, request, target.dialect);
  setThinking(fields, request, target);
  setCaching(fields, request, target.dialect);
  leaveOut(fields, NEVER_PASSED);
  leaveOut(fields, ['metadata', 'text', 'verbosity']);
  if (request.verbosity !== undefined) fields['verbosity'] = request.verbosity;
  if (!target.dialect.fallbacks) leaveOut(fields, ['fallbacks']);
  if (target.extraTools !== undefined && target.extraTools.length > 0) {
    fields['tools'] = [...request.tools, ...target.extraTools];
  }
  Object.assign(fields, target.extraMembers);
  return fields;
}

function leaveOut(fields: Record<string, unknown>, names: readonly string[]): void {
  for (const name of names) if (Object.hasOwn(fields, name)) fields[name] = undefined;
}

function setOutputCap(fields: Record<string, unknown>, target: EngineTarget): void {
  const { outputCap } = target.dialect;
  leaveOut(fields, ['max_tokens', 'max_completion_tokens']);
  if (outputCap !== 'max_completion_tokens') fields['max_tokens'] = target.maxOutputTokens;
  if (outputCap !== 'max_tokens') fields['max_completion_tokens'] = target.maxOutputTokens;
}

/** The usage is always asked for: billing needs it, whether the caller does or not. */
function setStreamOptions(
  fields: Record<string, unknown>,
  request: ChatRequest,
  dialect: EngineDialect,
): void {
  if (!request.stream) return leaveOut(fields, ['stream_options']);
  const given = isJsonObject(fields['stream_options']) ? fields['stream_options'] : {};
  const padding = dialect.obfuscates ? { include_obfuscation: false } : {};
  const continuous = dialect.continuousUsage ? { continuous_usage_stats: true } : {};
  const wanted = { ...given, include_usage: true, ...padding, ...continuous };
  const same = Object.entries(wanted).every(([key, value]) => given[key] === value);
  fields['stream_options'] = same ? given : wanted;
}

function setThinking(
  fields: Record<string, unknown>,
  request: ChatRequest,
  target: EngineTarget,
): void {
  const { reasoning, reasoningEffort } = target.abilities;
  leaveOut(fields, ['reasoning', 'reasoning_effort']);
  if (!reasoning) return;
  const effort = request.isThinkingOff ? 'none' : request.reasoningEffort;
  if (effort !== undefined && reasoningEffort) {
    fields['reasoning_effort'] = nearestEffort(effort, target.abilities.reasoningEffortOptions);
  }
  if (request.isThinkingOff && target.dialect.templateKwargs) {
    const given = fields['chat_template_kwargs'];
    const kwargs = isJsonObject(given) ? given : {};
    fields['chat_template_kwargs'] = { ...kwargs, enable_thinking: false };
  }
}

/** The option of the engine that stands closest on the scale; the lower of two equal ones. */
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

function setCaching(
  fields: Record<string, unknown>,
  request: ChatRequest,
  dialect: EngineDialect,
): void {
  leaveOut(fields, ['prompt_cache_retention']);
  if (dialect.cacheRetention && request.isCacheExtended) fields['prompt_cache_retention'] = '24h';
}

function engineMessages(request: ChatRequest, target: EngineTarget): readonly ChatMessage[] {
  const given = target.messages ?? request.messages;
  const messages = target.dialect.developerRole ? given : withoutDeveloperRole(given);
  const { systemPrompt } = target;
  if (systemPrompt === undefined || systemPrompt === '') return messages;
  return withSystemPrompt(messages, systemPrompt);
}

function withoutDeveloperRole(messages: readonly ChatMessage[]): readonly ChatMessage[] {
  if (!messages.some((message) => message.role === 'developer')) return messages;
  return messages.map((message) =>
    message.role === 'developer' ? { ...message, role: 'system' as const } : message,
  );
}

/**
 * The default prompt first, the caller's after it, in one message: many chat templates refuse a
 * second system message.
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
