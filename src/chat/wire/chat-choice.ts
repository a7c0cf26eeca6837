/**
 * Functions for one choice of an engine, of a response or a stream delta: normalizes it for the
 * SDKs, counts its output in UTF-8 bytes (content, `refusal`, reasoning, names and arguments of tool
 * calls) and truncates it at its grant.
 *
 * Invariants: a value that needs no change is returned as the same object; a text counts the same
 * however it is cut into deltas, even within a surrogate pair.
 */
import { bytesAtMost, bytesUsually } from '../../core/token-count.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';

/** Reasons of engines that failed within the completion. */
const INTERRUPTED = new Set([
  'abort',
  'error',
  'insufficient_system_resource',
  'network_error',
  'MALFORMED_FUNCTION_CALL',
]);

const FINISH_REASONS: ReadonlyMap<string, string> = new Map([
  ...Array.from(INTERRUPTED, (reason) => [reason, 'length'] as const),
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
  ['model_context_window_exceeded', 'length'],
  ['pause_turn', 'stop'],
  ['COMPLETE', 'stop'],
  ['refusal', 'content_filter'],
  ['sensitive', 'content_filter'],
  ...['SAFETY', 'RECITATION', 'BLOCKLIST', 'PROHIBITED_CONTENT', 'SPII'].map(
    (reason) => [reason, 'content_filter'] as const,
  ),
]);

export function isInterrupted(reason: unknown): boolean {
  return typeof reason === 'string' && INTERRUPTED.has(reason);
}

/**
 * `tool_calls` if there are tool calls, unless the choice was truncated or blocked. An interrupted
 * completion is truncated, because SDKs know no reason for it.
 */
export function finishReason(reason: unknown, hasToolCalls: boolean): string {
  const known = typeof reason === 'string' ? (FINISH_REASONS.get(reason) ?? reason) : 'stop';
  return hasToolCalls && known === 'stop' ? 'tool_calls' : known;
}

/** The tool calls; TGI streams one as an object instead of a list. */
export function toolCallsOf(message: JsonObject): readonly JsonObject[] {
  const calls = message['tool_calls'];
  if (Array.isArray(calls)) return calls.length > 0 ? calls.filter(isJsonObject) : NO_CALLS;
  return isJsonObject(calls) && isJsonObject(calls['function']) ? [calls] : NO_CALLS;
}

const NO_CALLS: readonly JsonObject[] = [];

export function functionOf(call: JsonObject): JsonObject {
  return isJsonObject(call['function']) ? call['function'] : {};
}

export function functionName(call: JsonObject): string | undefined {
  const { name } = functionOf(call);
  return typeof name === 'string' ? name : undefined;
}

export function reasoningOf(message: JsonObject): string | undefined {
  const text = message['reasoning_content'] ?? message['reasoning'];
  return typeof text === 'string' ? text : undefined;
}

/** An entry of `reasoning_details`, which the next request sends back. */
export interface ReasoningDetail extends JsonObject {
  readonly type: string;
}

const NO_DETAILS: ReasoningDetail[] = [];

export function reasoningDetails({ reasoning_details: details }: JsonObject): ReasoningDetail[] {
  return Array.isArray(details) ? details.filter(isReasoningDetail) : NO_DETAILS;
}

export function isReasoningDetail(value: unknown): value is ReasoningDetail {
  return isJsonObject(value) && typeof value['type'] === 'string';
}

/**
 * Normalizes a message or delta: `reasoning` becomes `reasoning_content`, and a list of content
 * parts becomes text and reasoning.
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

/** Some engines send the arguments as an object. */
export function argumentsText(value: unknown): string {
  if (typeof value === 'string') return value;
  return value === undefined || value === null ? '' : JSON.stringify(value);
}

/** Some engines add usage to the choice; the caller receives the billed usage. */
export function withoutUsage(choice: JsonObject): JsonObject {
  if (!Object.hasOwn(choice, 'usage')) return choice;
  const { usage: _engines, ...others } = choice;
  return others;
}

/**
 * Adds members of log probabilities that SDKs require and some engines omit; returns the same
 * object if none is missing.
 */
export function safeLogprobs(given: unknown): unknown {
  if (!isJsonObject(given) || !Array.isArray(given['content'])) return given;
  const tokens: readonly unknown[] = given['content'];
  const content = tokens.map(safeToken);
  const isSame = given['refusal'] !== undefined && content.every((one, at) => one === tokens[at]);
  return isSame ? given : { ...given, content, refusal: given['refusal'] ?? null };
}

function safeToken(token: unknown): unknown {
  if (!isJsonObject(token)) return token;
  const { bytes = null, top_logprobs: others } = token;
  const isSafe = token['bytes'] !== undefined && Array.isArray(others);
  return isSafe ? token : { ...token, bytes, top_logprobs: Array.isArray(others) ? others : [] };
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

export function tallyOf(message: JsonObject, calls = toolCallsOf(message)): OutputTally {
  const { content, refusal } = message;
  const reasoning = reasoningOf(message);
  let toolBytes = 0;
  for (const call of calls) {
    const made = functionOf(call);
    toolBytes += textBytes(made['name']) + textBytes(argumentsText(made['arguments']));
  }
  return {
    contentBytes: textBytes(content) + (refusal === undefined ? 0 : textBytes(refusal)),
    reasoningBytes: reasoning === undefined ? 0 : textBytes(reasoning),
    toolBytes,
  };
}

/** UTF-8 bytes of a text or of all texts in a value; a lone surrogate counts two. */
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

/** `Buffer.byteLength` counts a lone surrogate as the three bytes of U+FFFD. */
function halvesBytes(text: string): number {
  const lone = text.replaceAll(/[\u{10000}-\u{10FFFF}]/gu, '').match(/[\uD800-\uDFFF]/g) ?? [];
  return Buffer.byteLength(text) - lone.length;
}

/**
 * The maximum bytes of text of a choice with this grant: the longest tokens, or tokens of usual
 * length if there are more deltas than granted tokens. An engine that respects its grant reaches
 * neither.
 */
export function mostBytes(grantedTokens: number, deltas: number): number {
  return deltas > grantedTokens ? bytesUsually(grantedTokens) : bytesAtMost(grantedTokens);
}

/** Truncates to this size: reasoning first, then content, then tool calls. */
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
    const made = functionOf(call);
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

export function cutText(text: string, roomBytes: number): string {
  if (textBytes(text) <= roomBytes) return text;
  const bytes = Buffer.from(text);
  let end = Math.max(0, roomBytes);
  while (end > 0 && isContinuation(bytes[end])) end -= 1;
  return bytes.toString('utf8', 0, end);
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}
