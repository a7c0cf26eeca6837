/**
 * Writes the members of a chat request as the body of `POST /responses`. The engine stores nothing
 * and returns its encrypted reasoning, which callers send back in `reasoning_details`.
 *
 * Members without an equivalent are rejected with 400 if they would change the completion; members
 * unknown here are passed on, so that the engine decides.
 */
import { engineWords } from '../../../engines/engine-refusal.ts';
import { refuseMissing, type WriteOptions } from '../upstream.ts';
import { sha256Hex } from '../../../core/ids.ts';
import { isJsonObject, type JsonObject } from '../../../json/json-scan.ts';
import { jsonObjects, stringOrEmpty } from '../../../json/json-text.ts';
import { NO_PARAMETERS } from '../../agents/engine-values.ts';
import { functionOf, toolCallsOf } from '../../wire/chat-choice.ts';
import { reasoningItems } from './reasoning-details.ts';

export const SEALED_REASONING = 'reasoning.encrypted_content';
const LOGPROBS = 'message.output_text.logprobs';
const MAX_CALL_ID_CHARACTERS = 64;

/** Members of a chat that the protocol lacks. */
const MISSING = ['stop', 'n', 'seed', 'logit_bias', 'prediction', 'audio', 'modalities'];

const TRANSLATED = [
  ...MISSING,
  'messages',
  'max_tokens',
  'max_completion_tokens',
  'reasoning_effort',
  'response_format',
  'stream_options',
  'logprobs',
  'verbosity',
];

/** Throws 400 `INVALID_REQUEST` for a member that the protocol lacks. */
export function responsesBody(chat: JsonObject, { refusal }: WriteOptions): JsonObject | undefined {
  if (refusal !== undefined && !isAboutReasoning(refusal.body)) return undefined;
  refuseMissing(chat, MISSING);
  const rest: Record<string, unknown> = { ...chat };
  for (const name of TRANSLATED) delete rest[name];
  const { tools, tool_choice: choice, include, reasoning, text } = chat;
  const messages = jsonObjects(chat['messages']);
  const first = messages.findIndex((message) => !isSystem(message));
  const leading = messages.slice(0, first === -1 ? messages.length : first);
  const instructions = leading.map(({ content }) => textOf(content)).join('\n\n');
  const effort = chat['reasoning_effort'];
  const format = formatOf(chat['response_format']);
  const verbosity = chat['verbosity'];
  const options = chat['stream_options'];
  const obfuscation = isJsonObject(options) ? options['include_obfuscation'] : undefined;
  const included = new Set([...(Array.isArray(include) ? include : []), SEALED_REASONING]);
  if (chat['logprobs'] === true) included.add(LOGPROBS);
  return withoutUndefined({
    ...rest,
    instructions: instructions === '' ? undefined : instructions,
    input: messages
      .slice(leading.length)
      .flatMap(itemsOf)
      .filter(({ type }) => refusal === undefined || type !== 'reasoning'),
    max_output_tokens: chat['max_completion_tokens'] ?? chat['max_tokens'],
    tools: Array.isArray(tools) ? jsonObjects(tools).map(toolOf) : undefined,
    tool_choice: choiceOf(choice),
    reasoning: membersOf(reasoning, { effort }),
    text: membersOf(text, { format, verbosity }),
    stream_options: obfuscation === undefined ? undefined : { include_obfuscation: obfuscation },
    include: [...included],
    store: false,
  });
}

/** Whether an engine rejected encrypted reasoning, which another account or provider made. */
export function isAboutReasoning(body: Buffer | null): boolean {
  const { code, message } = engineWords(body);
  return code === 'invalid_encrypted_content' || /encrypted content/i.test(message);
}

function withoutUndefined(members: JsonObject): JsonObject {
  return Object.fromEntries(Object.entries(members).filter(([, value]) => value !== undefined));
}

function membersOf(given: unknown, more: JsonObject): JsonObject | undefined {
  const members = withoutUndefined({ ...(isJsonObject(given) ? given : {}), ...more });
  return Object.keys(members).length === 0 ? undefined : members;
}

function isSystem({ role }: JsonObject): boolean {
  return role === 'system' || role === 'developer';
}

/** The text of a message; only messages of the user have other parts. */
function textOf(content: unknown): string {
  if (typeof content === 'string') return content;
  return jsonObjects(content)
    .map(({ text }) => stringOrEmpty(text))
    .join('\n');
}

function itemsOf(message: JsonObject): readonly JsonObject[] {
  const { role, content } = message;
  if (role === 'tool') {
    const call_id = callId(message['tool_call_id']);
    return [{ type: 'function_call_output', call_id, output: textOf(content) }];
  }
  if (role !== 'assistant') {
    const parts = typeof content === 'string' ? content : jsonObjects(content).map(inputPart);
    return [{ type: 'message', role, content: parts }];
  }
  const text = textOf(content);
  const refusal = message['refusal'];
  const parts: JsonObject[] = text === '' ? [] : [{ type: 'output_text', text }];
  if (typeof refusal === 'string' && refusal !== '') parts.push({ type: 'refusal', refusal });
  return [
    ...reasoningItems(message['reasoning_details']),
    ...(parts.length === 0 ? [] : [{ type: 'message', role, content: parts }]),
    ...toolCallsOf(message).map((call) => {
      const { name, arguments: given } = functionOf(call);
      return { type: 'function_call', call_id: callId(call['id']), name, arguments: given };
    }),
  ];
}

/** Ids of other engines can be longer than the protocol allows; a hash is the same in every turn. */
function callId(id: unknown): string {
  const text = String(id);
  if (text.length <= MAX_CALL_ID_CHARACTERS) return text;
  return `call_${sha256Hex(text).slice(0, MAX_CALL_ID_CHARACTERS / 2)}`;
}

function inputPart(part: JsonObject): JsonObject {
  const { type, text, image_url: image, video_url: video, file } = part;
  if (type === 'text') return { type: 'input_text', text };
  if (type === 'image_url' && isJsonObject(image)) {
    return { type: 'input_image', image_url: image['url'], detail: image['detail'] ?? 'auto' };
  }
  if (type === 'video_url' && isJsonObject(video)) {
    return { type: 'input_video', video_url: video['url'] };
  }
  if (type === 'file' && isJsonObject(file)) {
    const { file_data: data, filename } = file;
    const isUrl = typeof data === 'string' && /^https?:/i.test(data);
    if (isUrl) return { type: 'input_file', file_url: data };
    return { type: 'input_file', file_data: data, filename: filename ?? 'file' };
  }
  const { cache_control: _mark, ...rest } = part;
  return rest;
}

/** The protocol enforces schemas unless `strict` is false; a chat does not unless it is true. */
function toolOf(tool: JsonObject): JsonObject {
  const { name, description, parameters, strict } = functionOf(tool);
  return withoutUndefined({
    type: 'function',
    name,
    description: description ?? undefined,
    parameters: parameters ?? NO_PARAMETERS,
    strict: strict ?? false,
  });
}

function choiceOf(choice: unknown): unknown {
  if (!isJsonObject(choice)) return choice ?? undefined;
  return { type: 'function', name: functionOf(choice)['name'] };
}

function formatOf(format: unknown): JsonObject | undefined {
  if (!isJsonObject(format) || format['type'] === 'text') return undefined;
  const { type, json_schema: schema } = format;
  return isJsonObject(schema) ? { type, ...schema } : { type };
}
