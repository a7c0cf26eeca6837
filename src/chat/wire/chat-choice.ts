/**
 * One choice of an engine's answer, made safe for the SDKs: role, finish reason, tool calls and
 * the name of the reasoning text. Shared by whole answers and by stream chunks.
 *
 * Invariant: a choice that needs no change is given back as the same object.
 */
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';

/** Finish reasons of other interfaces, by ours. */
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

/** The tool calls of a message or delta. */
export function toolCallsOf(message: JsonObject): readonly JsonObject[] {
  const calls = message['tool_calls'];
  return Array.isArray(calls) ? calls.filter(isJsonObject) : [];
}

/** The reasoning text of a message or delta, under either of its names. */
export function reasoningOf(message: JsonObject): string | undefined {
  const text = message['reasoning_content'] ?? message['reasoning'];
  return typeof text === 'string' ? text : undefined;
}

/** `reasoning` (its newer name in some engines) becomes `reasoning_content`. */
export function withReasoningName(message: JsonObject): JsonObject {
  if (!Object.hasOwn(message, 'reasoning')) return message;
  const { reasoning, ...rest } = message;
  if (typeof rest['reasoning_content'] === 'string') return rest;
  return { ...rest, reasoning_content: typeof reasoning === 'string' ? reasoning : null };
}

/** The JSON text of a call's arguments: some engines send an object. */
export function argumentsText(value: unknown): string {
  if (typeof value === 'string') return value;
  return value === undefined || value === null ? '' : JSON.stringify(value);
}
