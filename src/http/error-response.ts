/**
 * The only translator from what was thrown to bytes. A Fault gives its public part; anything else
 * is a bug or a lost database, and gives a sentence that tells nothing of our insides.
 */
import type { Socket } from 'node:net';
import { FAULTS, Fault, type FaultCode } from '../core/faults.ts';
import { StoreUnavailable } from '../db/db.ts';
import { reasonPhrase } from './request-context.ts';

/** How long a caller waits before it asks a server whose database is away again. */
const DATABASE_RETRY_SECONDS = 5;

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: unknown;
  /** Told apart in the log: a refusal, or something that an operator has to look at. */
  readonly fault: Fault;
}

/** `openAiShape` is the opt-in error object of OpenAI's clients. */
export function errorAnswer(error: unknown, openAiShape: boolean): ErrorAnswer {
  const fault = asFault(error);
  const { options } = fault;
  const headers: Record<string, string> = { ...options.headers };
  if (options.retryAfterSeconds !== undefined) {
    headers['retry-after'] = String(Math.max(1, Math.ceil(options.retryAfterSeconds)));
  }
  if (!(options.canRetry ?? FAULTS[fault.code].canRetry)) headers['x-should-retry'] = 'false';
  const body = openAiShape ? openAiBody(fault) : standardBody(fault);
  return { status: fault.status, headers, body, fault };
}

function asFault(error: unknown): Fault {
  if (error instanceof Fault) return error;
  if (error instanceof StoreUnavailable) {
    return new Fault('SERVICE_UNAVAILABLE', {
      retryAfterSeconds: DATABASE_RETRY_SECONDS,
      cause: error,
    });
  }
  return new Fault('UNKNOWN_ERROR', { cause: error });
}

function standardBody(fault: Fault): unknown {
  const { options } = fault;
  if (options.body !== undefined) return options.body;
  return {
    error: fault.message,
    code: fault.code,
    ...(options.details === undefined ? {} : { details: options.details }),
    ...options.fields,
  };
}

function openAiBody(fault: Fault): unknown {
  const { options } = fault;
  const details = options.details === undefined ? {} : { details: options.details };
  return {
    // The payment objects of a 402 stay readable beside the error object.
    ...(isObject(options.body) ? options.body : {}),
    error: {
      message: fault.message,
      type: openAiType(fault.status),
      param: null,
      code: fault.code.toLowerCase(),
      ...details,
      ...options.fields,
    },
  };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}

/** The error types of the OpenAI protocol. */
export function openAiType(status: number): string {
  if (status === 401) return 'authentication_error';
  if (status === 402) return 'insufficient_quota';
  if (status === 403) return 'permission_error';
  if (status === 429) return 'rate_limit_error';
  if (status >= 500) return 'server_error';
  return 'invalid_request_error';
}

/**
 * Answers what is no HTTP request, or one that does not end; `error` is what Node's parser says.
 * There is no context yet, so the bytes are written by hand and the connection is closed.
 */
export function refuseConnection(error: { readonly code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy();
    return;
  }
  const answer = errorAnswer(new Fault(codeOf(error.code), { canRetry: false }), false);
  const body = JSON.stringify(answer.body);
  const head = [
    `HTTP/1.1 ${answer.status} ${reasonPhrase(answer.status)}`,
    'content-type: application/json; charset=utf-8',
    `content-length: ${Buffer.byteLength(body)}`,
    'x-content-type-options: nosniff',
    'connection: close',
  ];
  socket.end(`${head.join('\r\n')}\r\n\r\n${body}`);
}

function codeOf(code: string | undefined): FaultCode {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
      return 'HEADERS_TOO_LARGE';
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return 'REQUEST_TOO_SLOW';
    default:
      return 'MALFORMED_REQUEST';
  }
}
