/**
 * One choice of an engine's answer, whole or a piece of a stream: its parts made safe for the SDKs
 * (finish reason, tool calls, the name of the reasoning text), how much output it holds, and where
 * the grant of its request ends. Output is counted in UTF-8 bytes of text: content, refusals,
 * reasoning, and names and arguments of tool calls. Knows no tokenizer and no money.
 *
 * Invariants: what needs no change is given back as the same object; a text counts the same in one
 * piece and cut anywhere into deltas, between the halves of a surrogate pair too.
 */
import { bytesAtMost, bytesUsually } from '../../core/token-count.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';

const FINISH_REASONS: ReadonlyMap<string, string> = new Map([
  ['eos', 'stop'],
  ['end_turn', 'stop'],
  ['stop_sequence', 'stop'],
  ['eos_token', 'stop'],
  ['STOP', 'stop'],
  ['max_tokens', 'length'],
  ['MAX_TOKENS', 'length'],
  ['model_length', 'length'],
  ['tool_use', 'tool_calls'],
  ['function_call', 'tool_calls'],
  ['SAFETY', 'content_filter'],
]);

/** With tool calls always `tool_calls`, unless the answer was cut or blocked. */
export function finishReason(reason: unknown, hasToolCalls: boolean): string {
  const known = typeof reason === 'string' ? (FINISH_REASONS.get(reason) ?? reason) : 'stop';
  return hasToolCalls && known === 'stop' ? 'tool_calls' : known;
}

export function toolCallsOf(message: JsonObject): readonly JsonObject[] {
  const calls = message['tool_calls'];
  return Array.isArray(calls) && calls.length > 0 ? calls.filter(isJsonObject) : NO_CALLS;
}

const NO_CALLS: readonly JsonObject[] = [];

export function madeBy(call: JsonObject): JsonObject {
  return isJsonObject(call['function']) ? call['function'] : {};
}

/** The name of the called function; engines send it in the first piece of a call. */
export function nameOf(call: JsonObject): string | undefined {
  const { name } = madeBy(call);
  return typeof name === 'string' ? name : undefined;
}

export function reasoningOf(message: JsonObject): string | undefined {
  const text = message['reasoning_content'] ?? message['reasoning'];
  return typeof text === 'string' ? text : undefined;
}

/**
 * The message or delta in the spelling of the protocol: `reasoning` (its newer name in some
 * engines) becomes `reasoning_content`, and content in parts becomes text, with the thinking in it
 * as reasoning.
 */
export function canonicalMessage(message: JsonObject): JsonObject {
  const { content } = message;
  const named = Object.hasOwn(message, 'reasoning') ? withReasoningName(message) : message;
  return Array.isArray(content) ? withTextContent(named, content) : named;
}

function withTextContent(message: JsonObject, parts: readonly unknown[]): JsonObject {
  let thinking = '';
  let content = '';
  for (const part of parts) {
    if (typeof part === 'string') content += part;
    if (!isJsonObject(part)) continue;
    if (part['type'] === 'thinking') thinking += partsText(part['thinking']);
    else content += partsText(part['text']);
  }
  if (thinking === '') return { ...message, content };
  return { ...message, content, reasoning_content: (reasoningOf(message) ?? '') + thinking };
}

function partsText(value: unknown): string {
  if (typeof value === 'string') return value;
  if (!Array.isArray(value)) return '';
  return value.map((part) => (isJsonObject(part) ? partsText(part['text']) : '')).join('');
}

function withReasoningName(message: JsonObject): JsonObject {
  const { reasoning, ...rest } = message;
  if (typeof rest['reasoning_content'] === 'string') return rest;
  return { ...rest, reasoning_content: typeof reasoning === 'string' ? reasoning : null };
}

/** The JSON text of a call's arguments: some engines send an object. */
export function argumentsText(value: unknown): string {
  if (typeof value === 'string') return value;
  return value === undefined || value === null ? '' : JSON.stringify(value);
}

/** The choice without the usage that some engines put into it: the caller gets ours, with its cost. */
export function withoutUsage(choice: JsonObject): JsonObject {
  if (!Object.hasOwn(choice, 'usage')) return choice;
  const { usage: _engines, ...others } = choice;
  return others;
}

export type TextKind = 'content' | 'reasoning' | 'tool';

export interface OutputTally {
  contentBytes: number;
  reasoningBytes: number;
  toolBytes: number;
}

export function noOutput(): OutputTally {
  return { contentBytes: 0, reasoningBytes: 0, toolBytes: 0 };
}

export function outputBytes(tally: Readonly<OutputTally>): number {
  return tally.contentBytes + tally.reasoningBytes + tally.toolBytes;
}

export function addTally(to: OutputTally, more: Readonly<OutputTally>): void {
  to.contentBytes += more.contentBytes;
  to.reasoningBytes += more.reasoningBytes;
  to.toolBytes += more.toolBytes;
}

/** The text of a message or delta; its reasoning text has the name `reasoning_content`. */
export function tallyOf(message: JsonObject, calls = toolCallsOf(message)): OutputTally {
  const { content, refusal } = message;
  const reasoning = reasoningOf(message);
  let toolBytes = 0;
  for (const call of calls) {
    const made = madeBy(call);
    toolBytes += textBytes(made['name']) + textBytes(argumentsText(made['arguments']));
  }
  return {
    contentBytes: textBytes(content) + (refusal === undefined ? 0 : textBytes(refusal)),
    reasoningBytes: reasoning === undefined ? 0 : textBytes(reasoning),
    toolBytes,
  };
}

/** UTF-8 bytes of a text, or of every text in parts of content; half a surrogate pair has two. */
export function textBytes(value: unknown): number {
  if (typeof value === 'string') {
    return value.isWellFormed() ? Buffer.byteLength(value) : halvesBytes(value);
  }
  if (Array.isArray(value)) return value.reduce((sum: number, part) => sum + textBytes(part), 0);
  if (!isJsonObject(value)) return 0;
  let sizeBytes = 0;
  for (const key in value) if (key !== 'type') sizeBytes += textBytes(value[key]);
  return sizeBytes;
}

/** `Buffer.byteLength` counts a lone half as the three bytes of U+FFFD. */
function halvesBytes(text: string): number {
  const lone = text.replaceAll(/[\u{10000}-\u{10FFFF}]/gu, '').match(/[\uD800-\uDFFF]/g) ?? [];
  return Buffer.byteLength(text) - lone.length;
}

/**
 * The most bytes of text that a choice with a grant of so many tokens may have. What came in more
 * deltas than tokens were granted is held to the usual length of a token, all else to the longest:
 * an engine that keeps to the grant reaches neither.
 */
export function mostBytes(grantedTokens: number, deltas: number): number {
  return deltas > grantedTokens ? bytesUsually(grantedTokens) : bytesAtMost(grantedTokens);
}

/** The message or delta with no more text than so many bytes: reasoning, then content, then calls. */
export function cutMessage(message: JsonObject, roomBytes: number): JsonObject {
  let leftBytes = roomBytes;
  const cut = (text: string): string => {
    const kept = cutText(text, leftBytes);
    leftBytes -= textBytes(kept);
    return kept;
  };
  const shorter: Record<string, unknown> = { ...message };
  for (const key of ['reasoning_content', 'content', 'refusal']) {
    const value = message[key];
    if (typeof value === 'string') shorter[key] = cut(value);
    else if (textBytes(value) > leftBytes) shorter[key] = null;
    else leftBytes -= textBytes(value);
  }
  const calls: JsonObject[] = [];
  for (const call of toolCallsOf(message)) {
    const made = madeBy(call);
    leftBytes -= textBytes(made['name']);
    if (leftBytes <= 0) break;
    calls.push({
      ...call,
      function: { ...made, arguments: cut(argumentsText(made['arguments'])) },
    });
  }
  if (Object.hasOwn(message, 'tool_calls')) shorter['tool_calls'] = calls;
  return shorter;
}

function cutText(text: string, roomBytes: number): string {
  if (textBytes(text) <= roomBytes) return text;
  const bytes = Buffer.from(text);
  let end = Math.max(0, roomBytes);
  while (end > 0 && isContinuation(bytes[end])) end -= 1;
  return bytes.toString('utf8', 0, end);
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
