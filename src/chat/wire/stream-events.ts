/** Events of the streams of engines, and the error and end events of a chat stream. */
import type { Fault } from '../../core/faults.ts';
import { skipValue } from '../../json/json-checker.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import { DEPTH_EXCEEDED } from '../../json/json-skip.ts';
import { parsedJsonObject } from '../../json/json-text.ts';

export const DONE = '[DONE]';
export const DONE_EVENT = `data: ${DONE}\n\n`;

/** `JSON.stringify` fails on some thousands of levels; an event has a few. */
const SAFE_DEPTH = 1_024;

/** Returns the event of a data line; `undefined` if it is no object, or too deep to be written. */
export function parsedEvent(text: string): JsonObject | undefined {
  const event = parsedJsonObject(text);
  // Each level takes two characters.
  if (event === undefined || text.length <= 2 * SAFE_DEPTH) return event;
  const isSafe = skipValue(Buffer.from(text.trim()), 0, SAFE_DEPTH) !== DEPTH_EXCEEDED;
  return isSafe || canBeWritten(event) ? event : undefined;
}

function canBeWritten(event: JsonObject): boolean {
  try {
    // The index keeps V8 from its faster code, which fails later but cannot write every object.
    JSON.stringify({ 1: event });
    return true;
  } catch {
    // The stack is too small.
    return false;
  }
}

export function eventText(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

/** An error of the engine within its stream; only for the log. */
export interface EngineFailure {
  readonly message: string;
  readonly type: string | undefined;
  readonly code: string | undefined;
}

export const BROKEN_STREAM: EngineFailure = {
  message: 'The engine sent a broken stream',
  type: undefined,
  code: 'broken_stream',
};

export const INTERRUPTED_STREAM: EngineFailure = {
  message: 'The engine ended the completion by an error before its first token',
  type: undefined,
  code: 'interrupted',
};

export function engineFailure(error: unknown): EngineFailure {
  if (!isJsonObject(error)) return { message: String(error), type: undefined, code: undefined };
  const text = (value: unknown): string | undefined =>
    typeof value === 'string' || typeof value === 'number' ? String(value) : undefined;
  return {
    message: text(error['message']) ?? 'no message',
    type: text(error['type']),
    code: text(error['code']),
  };
}

export function streamErrorEvents(fault: Fault): Buffer {
  const { type, code } = errorNames(fault);
  const retryAfter = fault.options.retryAfterSeconds;
  const error = {
    message: fault.message,
    type,
    code,
    param: null,
    ...(retryAfter === undefined ? {} : { retry_after: retryAfter }),
  };
  return Buffer.from(eventText({ error }) + DONE_EVENT);
}

function errorNames(fault: Fault): { readonly type: string; readonly code: string } {
  if (fault.code === 'INFERENCE_FAILED') return { type: 'api_error', code: 'upstream_error' };
  if (fault.code === 'CONTENT_POLICY_VIOLATION') {
    return { type: 'content_filter_error', code: 'content_blocked_by_provider' };
  }
  const isCallers = fault.status < 500 && fault.status !== 429;
  const type = isCallers ? 'invalid_request_error' : 'server_error';
  return { type, code: fault.code.toLowerCase() };
}
