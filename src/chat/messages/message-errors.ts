/**
 * Errors in the form of Anthropic's API. Its clients decide by status, type and message whether to
 * retry, to end the turn or to compact the conversation, so each fault has the form that triggers
 * the useful reaction.
 */
import { FAULTS, type Fault, type FaultCode } from '../../core/faults.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import type { ErrorForm } from '../../http/request-context.ts';

interface ErrorFrame {
  readonly requestId: string;
  /**
   * An estimate of the prompt, and the context of the model, in tokens; missing until the model is
   * resolved.
   */
  readonly promptTokens?: number;
  readonly contextTokens?: number;
  /** Without an authenticated caller there is no balance that could be too low. */
  readonly isAnonymous?: boolean;
}

/** Clients of this API show the id of this header with an error. */
export const REQUEST_ID_HEADER = 'request-id';

export function messageError(fault: Fault, frame: ErrorFrame): JsonObject {
  const { body } = fault.options;
  // Payment options stay beside the error.
  const beside = isJsonObject(body) ? body : {};
  const isOurs = beside['type'] === 'error' && isJsonObject(beside['error']);
  const error = isOurs
    ? beside['error']
    : { type: errorTypeOf(fault.code), message: sentenceOf(fault, frame) };
  // The code of the error catalogue, since Anthropic's types are few.
  return { ...beside, type: 'error', error, request_id: frame.requestId, code: fault.code };
}

export const messageErrors: ErrorForm = (fault, context) => {
  const { requestId, callerIfKnown } = context;
  const isAnonymous = callerIfKnown === undefined;
  const body = messageError(fault, { requestId, isAnonymous });
  const named = { [REQUEST_ID_HEADER]: requestId };
  const headers = NO_RETRY.has(fault.code) ? { ...named, 'x-should-retry': 'false' } : named;
  return { headers, body };
};

/** Clients would repeat these for minutes without success. */
const NO_RETRY: ReadonlySet<FaultCode> = new Set([
  'INFERENCE_FAILED',
  'MODEL_OFFLINE',
  'UNKNOWN_ERROR',
  'REQUEST_TIMEOUT',
]);

/** Waiting helps: clients retry for minutes and respect `Retry-After`. */
const OVERLOADED: ReadonlySet<FaultCode> = new Set([
  'MODEL_AT_CAPACITY',
  'SERVICE_UNAVAILABLE',
  'SHUTTING_DOWN',
]);

const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  402: 'billing_error',
  403: 'permission_error',
  404: 'not_found_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  504: 'timeout_error',
};

export function errorTypeOf(code: FaultCode): string {
  if (OVERLOADED.has(code)) return 'overloaded_error';
  const { status } = FAULTS[code];
  return TYPES[status] ?? (status >= 500 ? 'api_error' : 'invalid_request_error');
}

function sentenceOf({ code, message, status }: Fault, frame: ErrorFrame): string {
  if (code === 'CONTEXT_LENGTH_EXCEEDED') return tooLong(message, frame);
  // Claude Code shows a message that begins like this at once, and does not retry.
  if (status === 402 && frame.isAnonymous !== true) {
    return `Your credit balance is too low. ${message}`;
  }
  return message;
}

/** Claude Code compacts its conversation if the message has this form. */
function tooLong(message: string, { promptTokens = 0, contextTokens = 0 }: ErrorFrame): string {
  if (contextTokens === 0) return message;
  // An engine rejected the prompt, so its count exceeds the estimate.
  const tokens = Math.max(promptTokens, contextTokens + 1);
  return `prompt is too long: ${tokens} tokens > ${contextTokens} maximum`;
}
