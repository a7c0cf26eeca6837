/**
 * Rewrites messages and parts of other APIs (Responses, Anthropic, MCP, older SDKs) to the
 * canonical form. Unknown forms are left to the schema.
 *
 * Invariant: an unchanged message or list keeps its identity, so that its bytes are not serialized
 * again.
 */
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { withoutNulls } from '../../json/json-text.ts';

export function canonicalMessages(messages: unknown): unknown {
  if (!Array.isArray(messages)) return messages;
  const result: unknown[] = [];
  for (const message of messages as readonly unknown[]) {
    for (const one of convertMessage(message)) {
      const last = result.at(-1);
      if (isCallItem(one) && isCallItem(last)) {
        result[result.length - 1] = { ...last, tool_calls: [...callsOf(last), ...callsOf(one)] };
      } else {
        result.push(one);
      }
    }
  }
  const isSame =
    result.length === messages.length && result.every((one, at) => one === messages[at]);
  return isSame ? messages : result;
}

const CALL_ITEM = Symbol('a call item of the Responses interface');

function isCallItem(message: unknown): message is JsonObject {
  return isJsonObject(message) && Object.hasOwn(message, CALL_ITEM);
}

function callsOf(message: JsonObject): readonly unknown[] {
  const calls = message['tool_calls'];
  return Array.isArray(calls) ? calls : [];
}

function convertMessage(message: unknown): readonly unknown[] {
  if (!isJsonObject(message)) return [message];
  const { type } = message;
  if (type === 'reasoning') return [];
  if (type === 'function_call') return [callItem(message)];
  if (type === 'function_call_output') {
    return [toolMessage(message['call_id'], message['output'])];
  }
  const tidy = tidyMessage(message);
  if (tidy['role'] === 'assistant') return [assistantMessage(tidy)];
  if (tidy['role'] === 'user') return userMessages(tidy);
  return [withParts(tidy)];
}

/** `null` means absent, except in `content`. */
function tidyMessage(message: JsonObject): JsonObject {
  const kept = Object.entries(message).filter(([key, value]) => {
    if (value === null) return key === 'content';
    if (key === 'tool_calls') return !Array.isArray(value) || value.length > 0;
    return key !== 'type' || value !== 'message';
  });
  return kept.length === Object.keys(message).length ? message : Object.fromEntries(kept);
}

function withParts(message: JsonObject): JsonObject {
  const content = message['content'];
  if (!Array.isArray(content)) return message;
  const parts: readonly unknown[] = content.map(canonicalPart);
  return parts.every((part, index) => part === content[index])
    ? message
    : { ...message, content: parts };
}

function callItem(item: JsonObject): JsonObject {
  const call = toolCall(firstText(item['call_id'], item['id']), item['name'], item['arguments']);
  return { role: 'assistant', content: null, tool_calls: [call], [CALL_ITEM]: true };
}

function toolCall(id: unknown, name: unknown, argument: unknown): JsonObject {
  const text = typeof argument === 'string' ? argument : JSON.stringify(argument ?? {});
  return { id, type: 'function', function: { name, arguments: text } };
}

function toolMessage(callId: unknown, content: unknown): JsonObject {
  return withParts({ role: 'tool', tool_call_id: callId, content: content ?? '' });
}

/** `tool_result` blocks become tool messages before the other parts. */
function userMessages(message: JsonObject): readonly unknown[] {
  const content = message['content'];
  if (!Array.isArray(content) || !content.some((part) => hasType(part, 'tool_result'))) {
    return [withParts(message)];
  }
  const results: JsonObject[] = [];
  const rest: unknown[] = [];
  for (const part of content as readonly unknown[]) {
    if (!hasType(part, 'tool_result')) rest.push(part);
    else results.push(toolResult(part, rest));
  }
  return rest.length === 0 ? results : [...results, withParts({ ...message, content: rest })];
}

/** Images of a tool result move to the user message that follows. */
function toolResult(block: JsonObject, images: unknown[]): JsonObject {
  const content = block['content'];
  if (!Array.isArray(content)) return toolMessage(block['tool_use_id'], content);
  const parts = content.map(canonicalPart);
  const texts = parts.filter((part) => !hasType(part, 'image_url'));
  images.push(...parts.filter((part) => hasType(part, 'image_url')));
  return toolMessage(block['tool_use_id'], texts.length === 0 ? '' : texts);
}

function hasType(part: unknown, type: string): part is JsonObject {
  return isJsonObject(part) && part['type'] === type;
}

const ASSISTANT_BLOCKS = new Set(['tool_use', 'thinking', 'redacted_thinking']);

function assistantMessage(message: JsonObject): JsonObject {
  const plain = withParts(withTextArguments(message));
  const content = plain['content'];
  if (!Array.isArray(content)) return plain;
  const parts: readonly unknown[] = content;
  if (parts.length === 0) return { ...plain, content: null };
  if (!parts.some((part) => isJsonObject(part) && ASSISTANT_BLOCKS.has(String(part['type'])))) {
    return plain;
  }
  const uses = parts.filter((part) => hasType(part, 'tool_use'));
  const thoughts = parts.filter((part) => hasType(part, 'thinking'));
  const texts = parts.filter((part) => hasType(part, 'text'));
  const calls = uses.map((use) => toolCall(use['id'], use['name'], use['input']));
  const thinking = thoughts.map((part) => firstText(part['thinking']) ?? '').join('');
  return {
    ...plain,
    content: texts.length === 0 ? null : texts,
    ...(thinking === '' ? {} : { reasoning_content: thinking }),
    ...(calls.length === 0 ? {} : { tool_calls: [...callsOf(plain), ...calls] }),
  };
}

/** Some clients send the arguments of a call as an object. */
function withTextArguments(message: JsonObject): JsonObject {
  const calls = callsOf(message);
  const converted = calls.map(withTextArgument);
  return converted.every((call, index) => call === calls[index])
    ? message
    : { ...message, tool_calls: converted };
}

function withTextArgument(call: unknown): unknown {
  if (!isJsonObject(call) || !isJsonObject(call['function'])) return call;
  const argument = call['function']['arguments'];
  if (!isJsonObject(argument)) return call;
  return { ...call, function: { ...call['function'], arguments: JSON.stringify(argument) } };
}

export function isEmptyAssistant(message: JsonObject): boolean {
  if (message['role'] !== 'assistant' || callsOf(message).length > 0) return false;
  const content = message['content'];
  return content === null || content === undefined || content === '';
}

function canonicalPart(part: unknown): unknown {
  if (typeof part === 'string') return textPart(part);
  if (!isJsonObject(part)) return part;
  const converted = convertPart(part);
  if (converted === undefined) return knownPart(part);
  const cacheControl = part['cache_control'];
  return isJsonObject(cacheControl) ? { ...converted, cache_control: cacheControl } : converted;
}

/** A part in the canonical form, whose value is the member named by its type. */
function knownPart(part: JsonObject): JsonObject {
  const given = withoutNulls(part);
  const type = String(given['type']);
  const value = given[type];
  if (!isJsonObject(value)) return given;
  const kept = withoutNulls(value);
  return kept === value ? given : { ...given, [type]: kept };
}

function textPart(text: string): JsonObject {
  return { type: 'text', text };
}

function convertPart(part: JsonObject): JsonObject | undefined {
  switch (part['type']) {
    case undefined:
    case 'input_text':
    case 'output_text':
      return typeof part['text'] === 'string' ? textPart(part['text']) : undefined;
    case 'refusal':
      return typeof part['refusal'] === 'string' ? textPart(part['refusal']) : undefined;
    case 'image_url':
    case 'video_url': {
      const { type } = part;
      const url = part[type];
      return typeof url === 'string' ? { type, [type]: { url } } : undefined;
    }
    case 'image':
    case 'input_image':
      return foreignImage(part);
    case 'file':
      return isJsonObject(part['file']) ? withDataUrl(part, part['file']) : foreignFile(part);
    case 'input_file':
    case 'document':
      return foreignFile(part);
    default:
      return undefined;
  }
}

function foreignImage(part: JsonObject): JsonObject | undefined {
  const { image_url: nested, detail } = part;
  if (isJsonObject(nested)) return { type: 'image_url', image_url: nested };
  const found = firstText(nested, part['url'], part['image']) ?? sourceUrl(part, 'image/png');
  if (found === undefined) return undefined;
  const url = asUrl(found, part, 'image/png');
  return { type: 'image_url', image_url: typeof detail === 'string' ? { url, detail } : { url } };
}

const HAS_SCHEME = /^[a-z][a-z\d+.-]*:/i;

function withDataUrl(part: JsonObject, file: JsonObject): JsonObject | undefined {
  const data = firstText(file['file_data']);
  if (data === undefined || HAS_SCHEME.test(data)) return undefined;
  return { ...part, file: { ...file, file_data: fileUrl(data, file) } };
}

/** The SDK of OpenAI documents bare base64, whose format follows from the file name. */
export function fileUrl(data: string, file: JsonObject): string {
  return asUrl(data, file, FILE_TYPE);
}

const FILE_TYPE = 'application/octet-stream';

function foreignFile(part: JsonObject): JsonObject | undefined {
  const data = firstText(part['file_data'], part['file_url']) ?? sourceUrl(part, FILE_TYPE);
  if (data === undefined) return undefined;
  const filename = firstText(part['filename'], part['title']);
  const file_data = fileUrl(data, part);
  return { type: 'file', file: filename === undefined ? { file_data } : { filename, file_data } };
}

function sourceUrl(part: JsonObject, fallbackType: string): string | undefined {
  const source = isJsonObject(part['source']) ? part['source'] : part;
  const url = firstText(source['url']);
  if (url !== undefined) return url;
  const data = firstText(source['data']);
  if (data === undefined) return undefined;
  return source['type'] === 'text'
    ? `data:text/plain;base64,${Buffer.from(data).toString('base64')}`
    : asUrl(data, source, fallbackType);
}

function asUrl(value: string, typed: JsonObject, fallbackType: string): string {
  if (/^(?:https?|data):/i.test(value)) return value;
  const type = firstText(typed['media_type'], typed['mediaType'], typed['mimeType']);
  return `data:${type ?? fallbackType};base64,${value}`;
}

function firstText(...values: readonly unknown[]): string | undefined {
  for (const value of values) if (typeof value === 'string' && value !== '') return value;
  return undefined;
}
