/**
 * Errors in the form of the Responses protocol. Agents decide by status and code whether to retry,
 * so that an error that no retry can help has a form that they do not repeat.
 */
import type { Fault, FaultCode } from '../../core/faults.ts';
import { FAULTS } from '../../core/faults.ts';
import * as z from 'zod';
import type { RouteDescription } from '../../http/describe.ts';
import { invalidPath } from '../../http/error-response.ts';
import type { ErrorForm } from '../../http/request-context.ts';
import { isJsonObject } from '../../json/json-scan.ts';

/** Codex retries a 402 five times, but stops at once at this status with `insufficient_quota`. */
const CODEX = /^codex/i;
const CODEX_MONEY_STATUS = 429;
/** Codex stops retrying after a rate limit without `retry-after`. */
const USUAL_RETRY_SECONDS = '1';

export const responsesErrors: ErrorForm = (fault, context) => {
  const status = statusOf(fault, CODEX.test(context.header('originator') ?? ''));
  const { body, fields, retryAfterSeconds } = fault.options;
  const code = codeOf(fault.code);
  const error = {
    message: fault.message,
    type: typeOf(status, code),
    // Some clients require a string.
    param: invalidPath(fields) ?? '',
    code,
  };
  const isLimited = status === 429 && fault.status === 429 && retryAfterSeconds === undefined;
  return {
    status,
    headers: isLimited ? { 'retry-after': USUAL_RETRY_SECONDS } : {},
    // Payment options stay beside the error.
    body: { ...(isJsonObject(body) ? body : {}), error },
  };
};

/** The error code of `response.failed`. */
export function failureCode(fault: Fault): string {
  if (fault.code === 'INFERENCE_FAILED' || fault.code === 'UNKNOWN_ERROR') return 'server_error';
  if (fault.code === 'INVALID_REQUEST' || fault.code === 'CONTENT_POLICY_VIOLATION') {
    return 'invalid_prompt';
  }
  return codeOf(fault.code);
}

/** Codex repeats a 500 thirty times and a 503 five times. */
function statusOf({ status }: Pick<Fault, 'status'>, isCodex: boolean): number {
  if (status === 402 && isCodex) return CODEX_MONEY_STATUS;
  return status >= 500 ? 503 : status;
}

function codeOf(code: FaultCode): string {
  const { status } = FAULTS[code];
  if (code === 'CONTEXT_LENGTH_EXCEEDED') return 'context_length_exceeded';
  if (code === 'AUTHENTICATION_FAILED' || code === 'AUTHENTICATION_FAILED_INACTIVE_KEY') {
    return 'invalid_api_key';
  }
  if (status === 402) return 'insufficient_quota';
  if (status === 429) return 'rate_limit_exceeded';
  if (status >= 500) return 'server_is_overloaded';
  return code.toLowerCase();
}

const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  402: 'insufficient_quota',
  403: 'permission_error',
  429: 'rate_limit_error',
};

function typeOf(status: number, code: string): string {
  if (code === 'insufficient_quota') return code;
  return TYPES[status] ?? (status >= 500 ? 'server_error' : 'invalid_request_error');
}

export const RESPONSES_ERRORS: NonNullable<RouteDescription['refusalBody']> = {
  schema: z
    .looseObject({
      error: z
        .strictObject({
          message: z.string().describe('Error text.'),
          type: z.string().describe("Error type of OpenAI's API."),
          param: z.string().describe('Path of the invalid member, or empty.'),
          code: z.string().describe('Error code, that of OpenAI if there is one.'),
        })
        .describe('The error; all members are strings.'),
    })
    .describe(
      "OpenAI's error object. A 402 with payment options has the body of x402; for `originator: codex…` a 402 becomes a 429 with `insufficient_quota`.",
    )
    .meta({ id: 'ResponsesError' }),
  example: (message, code) => {
    const said = codeOf(code);
    const type = typeOf(statusOf(FAULTS[code], false), said);
    return { error: { message, type, param: '', code: said } };
  },
  statuses: (code) => {
    const fault = FAULTS[code];
    return fault.status === 402 ? [402, CODEX_MONEY_STATUS] : [statusOf(fault, false)];
  },
};
