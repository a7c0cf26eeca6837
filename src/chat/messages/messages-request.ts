/**
 * Converts a request of Anthropic's Messages API to a chat request: the conversation, the tools,
 * and every setting with a counterpart. Other settings are ignored, never rejected.
 */
import { fittingTags } from '../../http/tags.ts';
import type { JsonObject } from '../../json/json-scan.ts';
import { invalidRequest } from '../../json/validation.ts';
import { Fault } from '../../core/faults.ts';
import { effortOf, engineToolName } from '../agents/engine-values.ts';
import { Transcript } from '../agents/transcript.ts';
import type { ChatMessage } from '../wire/chat-schema.ts';
import { reasoningDetail } from '../upstream/anthropic/reasoning.ts';
import { agentParameters } from '../wire/svc-parameters.ts';
import { blockParts, cacheMark, partsOf, textsOf, withMark } from './messages-content.ts';
import { MessagesBody } from './messages-schema.ts';
import { toolOffer } from './messages-tools.ts';

/** Whether the caller receives the reasoning, only its signature, or none of it. */
export type ThinkingShown = 'whole' | 'signed' | 'hidden';

export interface MessagesRequest {
  readonly chat: JsonObject;
  /** The messages with marks for a prompt cache, if there are any. */
  readonly markedMessages: readonly ChatMessage[] | undefined;
  readonly thinking: ThinkingShown;
  readonly stopSequences: readonly string[];
  readonly maxSearches: number | undefined;
  readonly callIds: ReadonlySet<string>;
  /** The caller's tool names by the engine's, where they differ. */
  readonly toolNames: ReadonlyMap<string, string>;
}

export interface MessagesOptions {
  readonly canSearch: boolean;
  /** Returns the reasoning of a signature of this server; `undefined` for any other. */
  readonly openSealed: (signature: unknown) => string | undefined;
  readonly sessionId: string | undefined;
  readonly serviceName: string;
}

export function readMessagesRequest(body: JsonObject, options: MessagesOptions): MessagesRequest {
  refuseThread(body);
  const result = MessagesBody.safeParse(body);
  if (!result.success) throw invalidRequest(result.error);
  const given = body as MessagesBody; // the schema transforms nothing that is read here
  const transcript = transcriptOf(given, options);
  const offer = toolOffer(given, options.canSearch);
  const thinking = thinkingOf(given);
  const stop = given.stop_sequences ?? [];
  const session = options.sessionId ?? given.metadata?.user_id ?? undefined;
  const chat: JsonObject = {
    model: given.model,
    messages: transcript.messages(),
    stream: given.stream ?? false,
    max_completion_tokens: given.max_tokens,
    temperature: given.temperature,
    top_p: given.top_p,
    top_k: given.top_k,
    stop,
    prompt_cache_key: session?.slice(0, SESSION_CHARACTERS),
    metadata: fittingTags(given.metadata ?? {}),
    ...formatOf(given),
    reasoning_effort: thinking.effort,
    ...offer.fields,
    svc_parameters: agentParameters(given, options.serviceName, offer.search),
  };
  return {
    chat,
    markedMessages: transcript.hasMarks ? transcript.messages(true) : undefined,
    thinking: thinking.shown,
    stopSequences: stop,
    maxSearches: offer.maxSearches,
    callIds: transcript.callIds,
    toolNames: offer.names,
  };
}

const SESSION_CHARACTERS = 256;

/**
 * Rejects the beta feature of server-side conversations. With exactly this error, clients continue
 * by sending the whole conversation.
 */
function refuseThread({ thread }: JsonObject): void {
  if (thread === undefined || thread === null) return;
  const message = 'thread is not supported here; send the whole conversation in messages';
  const details = { error_code: 'thread_unsupported_request', unsupported: ['thread'] };
  throw new Fault('INVALID_REQUEST', {
    message,
    body: { type: 'error', error: { type: 'invalid_request_error', message, details } },
  });
}

/** This system block changes with every request, which would defeat prompt caches. */
const BILLING_HEADER = 'x-anthropic-billing-header:';

function transcriptOf(body: MessagesBody, { openSealed }: MessagesOptions): Transcript {
  const transcript = new Transcript();
  const { system } = body;
  const blocks = typeof system === 'string' ? [{ type: 'text', text: system }] : (system ?? []);
  for (const block of blocks) {
    for (const text of textsOf([block])) {
      if (!text.startsWith(BILLING_HEADER)) transcript.system(text, cacheMark(block));
    }
  }
  for (const [at, { role, content }] of body.messages.entries()) {
    const path = ['messages', at, 'content'];
    if (role === 'system') for (const text of textsOf(content)) transcript.system(text);
    else if (role === 'assistant') addAssistant(transcript, content, openSealed);
    else addUser(transcript, content, path);
  }
  return transcript;
}

type Content = MessagesBody['messages'][number]['content'];

function addUser(
  transcript: Transcript,
  content: Content,
  path: readonly (string | number)[],
): void {
  if (typeof content === 'string') return transcript.user(partsOf(content, path));
  for (const [at, block] of content.entries()) {
    const place = [...path, at];
    if (block.type !== 'tool_result') {
      const parts = blockParts(block, place);
      if (parts.length > 0) transcript.user(parts);
      continue;
    }
    const { tool_use_id: id, content: result, is_error: isError } = block;
    if (typeof id !== 'string') continue;
    const parts = partsOf(result, [...place, 'content']);
    transcript.result(id, withMark(isError === true ? asError(parts) : parts, block));
  }
}

function asError(parts: ReturnType<typeof partsOf>): ReturnType<typeof partsOf> {
  const [first, ...rest] = parts;
  if (first?.type === 'text') return [{ ...first, text: `Error: ${first.text}` }, ...rest];
  return [{ type: 'text', text: 'Error: the tool has failed' }, ...parts];
}

function addAssistant(
  transcript: Transcript,
  content: Content,
  openSealed: MessagesOptions['openSealed'],
): void {
  if (typeof content === 'string') return transcript.text(content);
  for (const block of content) {
    if (block.type === 'text' && typeof block['text'] === 'string') {
      transcript.text(block['text'], cacheMark(block));
    } else if (block.type === 'thinking' || block.type === 'redacted_thinking') {
      const text = openSealed(block[block.type === 'thinking' ? 'signature' : 'data']);
      const detail = text === undefined ? reasoningDetail(block) : undefined;
      if (text !== undefined) transcript.reasoning(text);
      else if (detail !== undefined) transcript.detail(detail);
    } else if (block.type === 'tool_use') {
      const { id, name, input } = block;
      if (typeof id !== 'string' || typeof name !== 'string') continue;
      const call = { id, name: engineToolName(name), arguments: JSON.stringify(input ?? {}) };
      const mark = cacheMark(block);
      transcript.call(mark === undefined ? call : { ...call, mark });
    }
  }
}

const LOW_BUDGET_TOKENS = 4_096;
const MEDIUM_BUDGET_TOKENS = 16_384;

/**
 * As in Anthropic's API, there is no thinking unless requested: the server disables it in the
 * request to the model, and hides reasoning that the model writes anyway.
 */
function thinkingOf({ thinking, output_config: config }: MessagesBody) {
  const asked = config?.effort ?? undefined;
  const isOn = thinking?.type === 'enabled' || thinking?.type === 'adaptive';
  const isOff = !isOn && (thinking?.type !== undefined || asked === undefined);
  const shown: ThinkingShown = !isOn
    ? 'hidden'
    : thinking.display === 'omitted'
      ? 'signed'
      : 'whole';
  const budget = isOn ? (thinking.budget_tokens ?? undefined) : undefined;
  const effort = effortOf(asked) ?? effortOfBudget(budget);
  return { shown, effort: isOff ? 'none' : effort };
}

function effortOfBudget(budgetTokens: number | undefined): string | undefined {
  if (budgetTokens === undefined) return undefined;
  if (budgetTokens < LOW_BUDGET_TOKENS) return 'low';
  return budgetTokens < MEDIUM_BUDGET_TOKENS ? 'medium' : 'high';
}

function formatOf({ output_config: config, output_format: older }: MessagesBody): JsonObject {
  const format = config?.format ?? older ?? undefined;
  if (format === undefined) return {};
  const json_schema = { name: 'answer', schema: format.schema, strict: true };
  return { response_format: { type: 'json_schema', json_schema } };
}
