/**
 * The fixed frames of a chat stream: events, the end mark, the keep-alive comment, and an error
 * inside a stream whose headers are out (an error object, because the SDKs need one here).
 */
import type { Fault } from '../../core/faults.ts';

export const CHUNK_OBJECT = 'chat.completion.chunk';
export const DONE = '[DONE]';
export const DONE_EVENT = Buffer.from(`data: ${DONE}\n\n`);

/** Sent while the engine thinks, so that nothing between closes the connection. */
export const KEEP_ALIVE = Buffer.from(': keep-alive\n\n');

/** One event with JSON data. */
export function eventText(value: unknown): string {
  return `data: ${JSON.stringify(value)}\n\n`;
}

/** The events that end a failed stream: the error, then `[DONE]`. */
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
  return Buffer.from(eventText({ error }) + DONE_EVENT.toString());
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
