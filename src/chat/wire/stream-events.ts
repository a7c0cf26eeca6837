/** Error and end events of a chat stream. */
import type { Fault } from '../../core/faults.ts';
import { isJsonObject } from '../../json/json-scan.ts';

export const DONE = '[DONE]';
export const DONE_EVENT = `data: ${DONE}\n\n`;

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
