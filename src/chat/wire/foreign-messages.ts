/**
 * Messages in the spellings of other interfaces, rewritten into the canonical kinds: Anthropic
 * blocks (`tool_use`, `tool_result`, `thinking`), items of the Responses interface, nulls.
 *
 * Invariant: a message that needs no change is the same object in the result, and a list that
 * needs none is the same list, so that its bytes are never written again.
 */
import { canonicalPart, firstText } from './foreign-parts.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';

/** The canonical form of the `messages` member (or of `input`); not a list: given back. */
export function canonicalMessages(messages: unknown): unknown {
  if (typeof messages === 'string') return [{ role: 'user', content: messages }];
  if (!Array.isArray(messages)) return messages;
  const result: unknown[] = [];
  let changed = false;
  for (const message of messages as readonly unknown[]) {
    const converted = convertMessage(message);
    if (converted.length !== 1 || converted[0] !== message) changed = true;
    for (const one of converted) changed = appendMessage(result, one) || changed;
  }
  return changed ? result : messages;
}

/** Calls that arrive as items of their own belong to one assistant message. */
function appendMessage(into: unknown[], message: unknown): boolean {
  const last = into.at(-1);
  if (isCallItem(message) && isCallItem(last)) {
    into[into.length - 1] = { ...last, tool_calls: [...callsOf(last), ...callsOf(message)] };
    return true;
  }
  into.push(message);
  return false;
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
  switch (message['type']) {
    case 'function_call':
      return [callItem(message)];
    case 'function_call_output':
      return [toolMessage(message['call_id'], message['output'])];
    case 'reasoning':
      return [];
    default:
      break;
  }
  const tidy = withoutNulls(message);
  if (tidy['role'] === 'assistant') return [assistantMessage(tidy)];
  if (tidy['role'] === 'user') return userMessages(tidy);
  return [withParts(tidy)];
}

/** `null` means absent everywhere but in `content`, where it is a value of its own. */
function withoutNulls(message: JsonObject): JsonObject {
  const drop = Object.keys(message).filter((key) => mustDrop(key, message[key]));
  if (drop.length === 0) return message;
  const gone = new Set(drop);
  return Object.fromEntries(Object.entries(message).filter(([key]) => !gone.has(key)));
}

function mustDrop(key: string, value: unknown): boolean {
  if (value === null) return key !== 'content';
  if (key === 'tool_calls') return Array.isArray(value) && value.length === 0;
  return key === 'type' && value === 'message';
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

/** `tool_result` blocks become tool messages before what else the user said. */
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

/** A tool answers in text: its images are moved to the user message that follows. */
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

/** Some clients send the arguments of a call as an object; the wire wants their JSON text. */
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

/** Whether an assistant message says nothing at all: such a message is dropped. */
export function isEmptyAssistant(message: JsonObject): boolean {
  if (message['role'] !== 'assistant' || callsOf(message).length > 0) return false;
  const content = message['content'];
  return content === null || content === undefined || content === '';
}
