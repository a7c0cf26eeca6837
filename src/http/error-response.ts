/**
 * Turns everything that was thrown into a response. A Fault shows its public part; any other error
 * is a bug or a lost database, and shows nothing internal.
 */
import { SECOND_MS } from '../core/clock.ts';
import { FAULTS, Fault } from '../core/faults.ts';
import { isJsonObject } from '../json/json-scan.ts';
import { ReadTooLong, StoreUnavailable, isUnstorableText } from '../db/db.ts';
import type { RequestContext } from './request-context.ts';

/** `Retry-After` while the database is unreachable. */
const DATABASE_RETRY_SECONDS = 5;

interface ErrorResponseParts {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
  readonly fault: Fault;
}

/**
 * Uses the error format of the route, else that of OpenAI if `openAiShape` is set. An x402 offer
 * has one format on every route.
 */
export function errorResponse(
  error: unknown,
  openAiShape: boolean,
  context?: RequestContext,
): ErrorResponseParts {
  const fault = asFault(error);
  const { options } = fault;
  const headers: Record<string, string> = { ...options.headers };
  if (options.retryAfterSeconds !== undefined) {
    headers['retry-after'] = String(Math.max(1, Math.ceil(options.retryAfterSeconds)));
  }
  if (!(options.canRetry ?? FAULTS[fault.code].canRetry)) headers['x-should-retry'] = 'false';
  const own = context?.route?.errors?.(fault, context);
  if (own !== undefined) {
    const { status = fault.status } = own;
    const body = status === fault.status && isOffer(fault) ? standardBody(fault) : own.body;
    return { status, headers: { ...headers, ...own.headers }, body, fault };
  }
  const body = openAiShape && !isOffer(fault) ? openAiBody(fault) : standardBody(fault);
  return { status: fault.status, headers, body, fault };
}

/** Returns the public error for anything that was thrown. */
export function asFault(error: unknown): Fault {
  if (error instanceof Fault) return error;
  if (error instanceof StoreUnavailable) {
    return new Fault('SERVICE_UNAVAILABLE', {
      retryAfterSeconds: DATABASE_RETRY_SECONDS,
      cause: error,
    });
  }
  if (error instanceof ReadTooLong) {
    return new Fault('INVALID_REQUEST', {
      message: `The query takes longer than its limit of ${error.limitMs / SECOND_MS} seconds; request less data, such as fewer days`,
      cause: error,
    });
  }
  if (isUnstorableText(error)) {
    return new Fault('INVALID_REQUEST', {
      message: 'A text in the path, the query or the body has a NUL character; leave it out',
      cause: error,
    });
  }
  return new Fault('UNKNOWN_ERROR', { cause: error });
}

/** Whether the body is an x402 offer, which has one format on every route. */
function isOffer({ options: { body } }: Fault): boolean {
  if (!isJsonObject(body) || body['x402Version'] === undefined) return false;
  const { accepts } = body;
  // A server without payments offers nothing.
  return Array.isArray(accepts) && accepts.length > 0;
}

function standardBody({ message, code, options }: Fault): unknown {
  return options.body ?? { error: message, code, details: options.details, ...options.fields };
}

function openAiBody({ message, code, status, options }: Fault): unknown {
  const { body, details, fields } = options;
  return {
    // Keeps the payment objects of a 402 beside the error object.
    ...(typeof body === 'object' ? body : {}),
    error: {
      message,
      type: openAiType(status),
      param: paramOf(options) ?? null,
      code: code.toLowerCase(),
      details,
      ...fields,
    },
  };
}

function paramOf({ body, fields }: Fault['options']): string | undefined {
  const own =
    isJsonObject(body) && isJsonObject(body['error']) ? body['error']['param'] : undefined;
  return typeof own === 'string' ? own : invalidPath(fields);
}

/** The path of the first invalid member of a request. */
export function invalidPath(fields: Fault['options']['fields']): string | undefined {
  const issues = fields?.['issues'];
  const first: unknown = Array.isArray(issues) ? issues[0] : undefined;
  const path = isJsonObject(first) ? first['path'] : undefined;
  return Array.isArray(path) && path.length > 0 ? path.join('.') : undefined;
}

const OPENAI_TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  402: 'insufficient_quota',
  403: 'permission_error',
  429: 'rate_limit_error',
};

function openAiType(status: number): string {
  return OPENAI_TYPES[status] ?? (status >= 500 ? 'server_error' : 'invalid_request_error');
}
