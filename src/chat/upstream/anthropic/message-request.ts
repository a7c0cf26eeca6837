/**
 * Converts the body of a chat to a request of Anthropic's Messages API. Reasoning is sent back only
 * if this protocol signed it. Members without a counterpart that change the completion are rejected.
 */
import { Fault } from '../../../core/faults.ts';
import { sha256Hex } from '../../../core/ids.ts';
import { isJsonObject, type JsonObject } from '../../../json/json-scan.ts';
import { jsonObjects, parsedJsonObject, stringOrEmpty } from '../../../json/json-text.ts';
import { engineWords } from '../../../engines/engine-refusal.ts';
import { refuseMember } from '../../../json/validation.ts';
import { refuseMissing, type WriteOptions } from '../upstream.ts';
import { functionName, functionOf, reasoningDetails, toolCallsOf } from '../../wire/chat-choice.ts';
import { REASONING_FORMAT } from './reasoning.ts';
import { budgetOf, thinkingMembers } from './thinking.ts';

type Blocks = JsonObject[];

/** Members of a chat that the protocol lacks. */
const MISSING = [
  'n',
  'seed',
  'logit_bias',
  'logprobs',
  'prediction',
  'audio',
  'modalities',
  'stop_token_ids',
  'frequency_penalty',
  'presence_penalty',
  'repetition_penalty',
];

export function messageRequest(chat: JsonObject, options: WriteOptions): JsonObject | undefined {
  const { own, refusal } = options;
  refuseMissing(chat, MISSING);
  const isOlder = own === undefined && refusal !== undefined && isAboutEffort(refusal.body);
  const isUnthinking = refusal !== undefined && !isOlder;
  if (isUnthinking && !isAboutThinking(refusal.body)) return undefined;
  const { system, messages } = conversationOf(chat, isUnthinking);
  const tools = toolsOf(chat, own);
  const choice = tools.length === 0 ? undefined : toolChoiceOf(chat);
  const forced = choice?.type === 'any' || choice?.type === 'tool';
  const { thinking, effort } = isOlder
    ? { thinking: forced ? undefined : budgetOf(chat, messages), effort: undefined }
    : thinkingMembers(chat, own, messages, forced || isUnthinking);
  const isThinking = isJsonObject(thinking) && thinking['type'] !== 'disabled';
  const output = { ...formatOf(chat), ...(effort === undefined ? {} : { effort }) };
  const blocks = () => [...system, ...tools, ...messages.flatMap(({ content }) => content)];
  const isCached = options.cachePrompts === true && own === undefined && !hasMarks(blocks());
  return {
    ...(isCached ? AUTOMATIC_CACHE : {}),
    ...marked(chat['cache_control']),
    ...ownSettings(own),
    model: chat['model'],
    max_tokens: chat['max_tokens'] ?? chat['max_completion_tokens'],
    ...(system.length === 0 ? {} : { system }),
    messages,
    ...(tools.length === 0 ? {} : { tools }),
    ...(choice === undefined ? {} : { tool_choice: choice }),
    ...(isThinking ? {} : samplingOf(chat)),
    ...stopsOf(chat),
    ...(Object.keys(output).length === 0 ? {} : { output_config: output }),
    ...(thinking === undefined ? {} : { thinking }),
    ...(chat['stream'] === true ? { stream: true } : {}),
  };
}

/** Whether an engine rejected signatures, or a completion without reasoning before a tool call. */
export function isAboutThinking(body: Buffer | null): boolean {
  return /thinking|signature/i.test(engineWords(body).message);
}

/** Whether the model has no adaptive reasoning or no effort, as older ones. */
function isAboutEffort(body: Buffer | null): boolean {
  return /adaptive|effort|output_config/i.test(engineWords(body).message);
}

/** The engine marks the last block itself, and reads the longest prefix that it has cached. */
const AUTOMATIC_CACHE: JsonObject = { cache_control: { type: 'ephemeral' } };

/** Callers with marks have decided what to cache, and may have used all marks of a request. */
function hasMarks(blocks: Blocks): boolean {
  return blocks.some((block) => 'cache_control' in block);
}

/** Settings of a Messages request that a chat has no member for. */
const OWN_SETTINGS = ['cache_control', 'context_management', 'metadata', 'service_tier'];

function ownSettings(own: JsonObject | undefined): JsonObject {
  if (own === undefined) return {};
  return Object.fromEntries(
    OWN_SETTINGS.flatMap((name) => (name in own ? [[name, own[name]]] : [])),
  );
}

function samplingOf(chat: JsonObject): JsonObject {
  const { temperature, top_p, top_k } = chat;
  return {
    // A chat allows up to 2, Anthropic up to 1.
    ...(typeof temperature === 'number' ? { temperature: Math.min(1, temperature) } : {}),
    ...(typeof top_p === 'number' ? { top_p } : {}),
    ...(typeof top_k === 'number' && top_k > 0 ? { top_k } : {}),
  };
}

function stopsOf({ stop }: JsonObject): JsonObject {
  const texts: readonly unknown[] = Array.isArray(stop) ? stop : [stop];
  const stop_sequences = texts.filter((text) => typeof text === 'string' && text !== '');
  if (stop_sequences.some((text) => String(text).trim() === '')) {
    const message = 'The engine of this model accepts no stop text of white space alone';
    throw refuseMember(['stop'], message, 'unsupported');
  }
  return stop_sequences.length === 0 ? {} : { stop_sequences };
}

function formatOf({ response_format: format }: JsonObject): JsonObject {
  if (isJsonObject(format) && format['type'] === 'json_object') {
    const message =
      'The engine of this model accepts a response format with a schema only (json_schema)';
    throw refuseMember(['response_format'], message, 'unsupported');
  }
  const named = isJsonObject(format) ? format['json_schema'] : undefined;
  const schema = isJsonObject(named) ? named['schema'] : undefined;
  return isJsonObject(schema) ? { format: { type: 'json_schema', schema } } : {};
}

function toolsOf({ tools }: JsonObject, own: JsonObject | undefined): Blocks {
  const owned = new Map(jsonObjects(own?.['tools']).map((tool) => [tool['name'], tool]));
  return jsonObjects(tools).map((tool) => owned.get(functionName(tool)) ?? toolOf(tool));
}

function toolOf(tool: JsonObject): JsonObject {
  const { name, description, parameters, strict } = functionOf(tool);
  const mark = tool['cache_control'] ?? functionOf(tool)['cache_control'];
  return {
    name,
    ...(typeof description === 'string' ? { description } : {}),
    input_schema: { type: 'object', ...(isJsonObject(parameters) ? parameters : {}) },
    ...(strict === true ? { strict } : {}),
    ...marked(mark),
  };
}

function toolChoiceOf({ tool_choice: choice, parallel_tool_calls: parallel }: JsonObject) {
  const serial = parallel === false ? { disable_parallel_tool_use: true } : {};
  if (choice === 'none') return { type: 'none' };
  if (choice === 'required') return { type: 'any', ...serial };
  if (isJsonObject(choice)) return { type: 'tool', name: functionName(choice), ...serial };
  return choice === 'auto' || parallel === false ? { type: 'auto', ...serial } : undefined;
}

function conversationOf(chat: JsonObject, isUnthinking: boolean) {
  const system: Blocks = [];
  const messages: { role: 'user' | 'assistant'; content: Blocks }[] = [];
  const add = (role: 'user' | 'assistant', blocks: readonly JsonObject[]): void => {
    if (blocks.length === 0) return;
    const last = messages.at(-1);
    if (last?.role === role) last.content.push(...blocks);
    else messages.push({ role, content: [...blocks] });
  };
  for (const message of jsonObjects(chat['messages'])) {
    const { role, content } = message;
    if (role === 'system' || role === 'developer') {
      // Later system text would change the prefix that is cached.
      if (messages.length === 0) system.push(...partsOf(content));
      else add('user', partsOf(content));
    } else if (role === 'assistant') add('assistant', assistantBlocks(message, isUnthinking));
    else if (role === 'tool') add('user', [toolResult(message)]);
    else add('user', partsOf(content));
  }
  if (messages[0]?.role === 'assistant') messages.unshift(OPENING);
  const last = messages.at(-1);
  if (last?.role === 'assistant') last.content = withoutTrailingSpace(last.content);
  return { system, messages };
}

/** The first message has to be of the user. */
const OPENING = { role: 'user' as const, content: [{ type: 'text', text: '(continue)' }] };

/** A prefilled completion must not end with white space. */
function withoutTrailingSpace(content: Blocks): Blocks {
  const last = content.at(-1);
  if (last?.['type'] !== 'text' || typeof last['text'] !== 'string') return content;
  return [...content.slice(0, -1), { ...last, text: last['text'].trimEnd() }];
}

function assistantBlocks(message: JsonObject, isUnthinking: boolean): Blocks {
  const blocks = isUnthinking ? [] : thinkingBlocks(message);
  blocks.push(...partsOf(message['content']));
  for (const call of toolCallsOf(message)) {
    const { arguments: text } = functionOf(call);
    const input = typeof text === 'string' ? (parsedJsonObject(text) ?? {}) : {};
    const use = { type: 'tool_use', id: safeId(call['id']), name: functionName(call), input };
    blocks.push({ ...use, ...marked(call['cache_control']) });
  }
  // Reasoning alone is no message.
  return blocks.some(({ type }) => type === 'text' || type === 'tool_use') ? blocks : [];
}

function thinkingBlocks(message: JsonObject): Blocks {
  const blocks: Blocks = [];
  let text = '';
  for (const detail of reasoningDetails(message)) {
    if (detail['format'] !== REASONING_FORMAT) continue;
    const { type, signature, data } = detail;
    if (type === 'reasoning.encrypted' && typeof data === 'string') {
      blocks.push({ type: 'redacted_thinking', data });
    } else if (type === 'reasoning.text') {
      // Some clients keep the pieces of a stream, of which only the last one has the signature.
      text += stringOrEmpty(detail['text']);
      if (typeof signature !== 'string' || signature === '') continue;
      blocks.push({ type: 'thinking', thinking: text, signature });
      text = '';
    }
  }
  return blocks;
}

function toolResult({ tool_call_id: id, content }: JsonObject): JsonObject {
  const parts = partsOf(content);
  const { cache_control: mark } = parts.at(-1) ?? {};
  const plain = parts.map(({ cache_control: _mark, ...part }) => part);
  const text = typeof content === 'string' ? content : plain;
  return { type: 'tool_result', tool_use_id: safeId(id), content: text, ...marked(mark) };
}

const USUAL_ID = /^[A-Za-z0-9_-]{1,64}$/;
const ID_CHARACTERS = 24;

/** Returns the same id in every turn. */
function safeId(id: unknown): string {
  const text = stringOrEmpty(id);
  return USUAL_ID.test(text) ? text : `toolu_${sha256Hex(text).slice(0, ID_CHARACTERS)}`;
}

function marked(mark: unknown): JsonObject {
  return isJsonObject(mark) ? { cache_control: mark } : {};
}

/** Empty text is rejected. */
function partsOf(content: unknown): Blocks {
  if (typeof content === 'string')
    return content.trim() === '' ? [] : [{ type: 'text', text: content }];
  return jsonObjects(content).flatMap((part) => {
    const block = blockOf(part);
    return block === undefined ? [] : [{ ...block, ...marked(part['cache_control']) }];
  });
}

function blockOf(part: JsonObject): JsonObject | undefined {
  const { type, text, image_url: image, file } = part;
  if (type === 'text') {
    return typeof text === 'string' && text.trim() !== '' ? { type, text } : undefined;
  }
  if (type === 'image_url' && isJsonObject(image)) {
    return { type: 'image', source: sourceOf(String(image['url'])) };
  }
  if (type === 'file' && isJsonObject(file)) return documentOf(part, file);
  const message = `An engine of this model accepts no content part of type ${String(type)}`;
  throw new Fault('INVALID_REQUEST', { message });
}

function documentOf(
  part: JsonObject,
  { file_data: data, filename: title }: JsonObject,
): JsonObject {
  const source = sourceOf(String(data));
  const isText = source['type'] === 'base64' && String(source['media_type']).startsWith('text/');
  const text = isText ? Buffer.from(String(source['data']), 'base64').toString() : '';
  return {
    type: 'document',
    source: isText ? { type: 'text', media_type: 'text/plain', data: text } : source,
    ...(typeof title === 'string' ? { title } : {}),
    ...(isJsonObject(part['citations']) ? { citations: part['citations'] } : {}),
  };
}

const BASE64 = ';base64,';
const MAX_HEAD_CHARACTERS = 200;

function sourceOf(url: string): JsonObject {
  const head = url.slice(0, MAX_HEAD_CHARACTERS).toLowerCase();
  const end = head.indexOf(',') + 1;
  if (!head.startsWith('data:') || !head.slice(0, end).endsWith(BASE64)) {
    return { type: 'url', url };
  }
  const [media_type = ''] = url.slice('data:'.length, end - 1).split(';');
  return { type: 'base64', media_type, data: url.slice(end) };
}
