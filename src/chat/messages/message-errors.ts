/**
 * Refusals in the words of Anthropic's API. Its clients go by them: which are tried again and how
 * often, which end a turn, which make an agent compact its conversation. So the words and the header
 * against retries are those that make each client do what helps.
 */
import { FAULTS, type Fault, type FaultCode } from '../../core/faults.ts';
import { isJsonObject, type JsonObject } from '../../json/json-scan.ts';
import type { ErrorForm } from '../../http/request-context.ts';

interface ErrorFrame {
  readonly requestId: string;
  /** Of the prompt by our own count, and what the model holds: known once a model is. */
  readonly promptTokens?: number;
  readonly contextTokens?: number;
  /** Nobody is known yet, so that nobody's credit is too low. */
  readonly isStranger?: boolean;
}

/** Where clients of this API look for the id that they show with an error. */
export const REQUEST_ID_HEADER = 'request-id';

export function messageError(fault: Fault, frame: ErrorFrame): JsonObject {
  const { body } = fault.options;
  // Payment offers stay readable beside the error.
  const beside = isJsonObject(body) ? body : {};
  const isOurs = beside['type'] === 'error' && isJsonObject(beside['error']);
  const error = isOurs
    ? beside['error']
    : { type: errorTypeOf(fault.code), message: sentenceOf(fault, frame) };
  // The word of the catalogue, for programs: the types there are few.
  return { ...beside, type: 'error', error, request_id: frame.requestId, code: fault.code };
}

export const messageErrors: ErrorForm = (fault, context) => {
  const { requestId, callerIfKnown } = context;
  const isStranger = callerIfKnown === undefined;
  const body = messageError(fault, { requestId, isStranger });
  const named = { [REQUEST_ID_HEADER]: requestId };
  const headers = NO_RETRY.has(fault.code) ? { ...named, 'x-should-retry': 'false' } : named;
  return { headers, body };
};

/** Faults that a client would repeat for minutes, and that stay when it does. */
const NO_RETRY: ReadonlySet<FaultCode> = new Set([
  'INFERENCE_FAILED',
  'MODEL_OFFLINE',
  'UNKNOWN_ERROR',
  'REQUEST_TIMEOUT',
]);

/** Faults that pass by waiting: clients do so for minutes, by `Retry-After`. */
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
  // By these words the client knows at once that only money helps.
  if (status === 402 && frame.isStranger !== true) {
    return `Your credit balance is too low. ${message}`;
  }
  return message;
}

/** By these words and figures an agent compacts its conversation and goes on. */
function tooLong(message: string, { promptTokens = 0, contextTokens = 0 }: ErrorFrame): string {
  if (contextTokens === 0) return message;
  // An engine that refused a prompt has counted more than we have.
  const tokens = Math.max(promptTokens, contextTokens + 1);
  return `prompt is too long: ${tokens} tokens > ${contextTokens} maximum`;
}
