/**
 * Calls the API: paths below the base, JSON in both directions, the CSRF token on writes, and error
 * responses as `ApiError`. The browser sends the session cookie, which scripts cannot read.
 */
import { BASE } from './page-facts.ts';
import { isReachable, untilReachable } from './server-state.ts';

let csrfToken: string | undefined;
/** Called when the server responds that the session has ended. */
let whenSignedOut: (() => void) | undefined;

export function useCsrfToken(token: string | undefined): void {
  csrfToken = token;
}

export function onSignedOut(listener: () => void): void {
  whenSignedOut = listener;
}

/** An error response, or a call that failed without a response (status 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | undefined;
  /** Seconds, from the header `Retry-After`. */
  readonly retryAfter: number | undefined;
  /** Messages by field: a tree of field names, with `_errors` at each level. */
  readonly details: unknown;

  constructor(status: number, code: string, message: string, more: Partial<ApiError> = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.requestId = more.requestId;
    this.retryAfter = more.retryAfter;
    this.details = more.details;
  }

  static of(error: unknown): ApiError {
    if (error instanceof ApiError) return error;
    return new ApiError(0, 'OFFLINE', error instanceof Error ? error.message : String(error));
  }
}

export interface CallOptions {
  readonly method?: 'GET' | 'POST' | 'PATCH' | 'PUT' | 'DELETE';
  /** Sent as JSON, except forms and files. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
}

export function csrfHeaders(): Readonly<Record<string, string>> {
  return csrfToken === undefined ? {} : { 'x-csrf-token': csrfToken };
}

/** Sends a request and returns the response of any status. Throws `ApiError` with status 0. */
export async function send(path: string, options: CallOptions = {}): Promise<Response> {
  const { method = 'GET', body, signal: abort } = options;
  const headers = new Headers({ ...options.headers, ...(method === 'GET' ? {} : csrfHeaders()) });
  const isRaw = body instanceof FormData || body instanceof Blob;
  if (body !== undefined && !isRaw) headers.set('content-type', 'application/json');
  const init: RequestInit = { method, headers, credentials: 'same-origin' };
  if (abort !== undefined) init.signal = abort;
  if (body !== undefined) init.body = isRaw ? body : JSON.stringify(body);
  try {
    const response = await fetch(BASE + path, init);
    isReachable.value = true;
    return response;
  } catch (error) {
    if (abort?.aborted === true) throw error;
    isReachable.value = false;
    void untilReachable();
    throw new ApiError(0, 'OFFLINE', 'The server cannot be reached');
  }
}

/** Sends a request and throws `ApiError` for an error response. */
export async function request(path: string, options: CallOptions = {}): Promise<Response> {
  const response = await send(path, options);
  if (response.ok) return response;
  throw await errorOf(response);
}

/** Sends a request and returns the JSON of its response, which has the documented shape `T`. */
export async function call<T>(path: string, options: CallOptions = {}): Promise<T> {
  const response = await request(path, options);
  return (await response.json()) as T; // documented by the route
}

/** Keys of requests without a response of the server, by path and body. */
const unanswered = new Map<string, string>();
/** Errors of a repetition that say nothing about the lost request, which may still run. */
const UNDECIDED = new Set([401, 409, 429]);

/**
 * Sends a POST that creates something. If its response was lost, the same request has the same
 * idempotency key, so that the server creates one thing.
 */
export async function callOnce<T>(path: string, body: unknown): Promise<T> {
  const wanted = `${path} ${JSON.stringify(body)}`;
  const lost = unanswered.get(wanted);
  const key = lost ?? randomText();
  unanswered.set(wanted, key);
  try {
    const headers = { 'idempotency-key': key };
    const result = await call<T>(path, { method: 'POST', body, headers });
    unanswered.delete(wanted);
    return result;
  } catch (error) {
    const { status } = ApiError.of(error);
    // Without a status, and after an error of a proxy, the server may have created it.
    const isRejected = status >= 400 && status < 500 && status !== 408;
    const isUndecided = lost !== undefined && UNDECIDED.has(status);
    if (isRejected && !isUndecided) unanswered.delete(wanted);
    throw error;
  }
}

/** 24 random hex digits; `randomUUID` needs HTTPS. */
export function randomText(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** `endsSession`: whether a failed authentication ends the session of the page. */
export async function errorOf(response: Response, endsSession = true): Promise<ApiError> {
  const text = await response.text();
  const body = parsed(text);
  // Payment errors have their code in `error` and the text in `message`.
  const error = textOf(body['error']);
  const coded = error !== undefined && CODE.test(error) ? error : undefined;
  const { status, statusText, headers } = response;
  const code = textOf(body['code']) ?? coded ?? `HTTP_${status}`;
  const message =
    textOf(body['message']) ?? error ?? `The server returned status ${status} ${statusText}`;
  // A model or route that is not for this account also has the status 401.
  const isEnded = status === 401 && code.startsWith('AUTHENTICATION_FAILED');
  if (endsSession && isEnded && csrfToken !== undefined) whenSignedOut?.();
  const retryAfter = headers.get('retry-after');
  return new ApiError(status, code, message, {
    requestId: headers.get('x-request-id') ?? undefined,
    retryAfter: retryAfter === null ? undefined : Number(retryAfter),
    details: body['details'],
  });
}

const CODE = /^[A-Z][A-Z0-9_]+$/;

function textOf(value: unknown): string | undefined {
  return typeof value === 'string' ? value : undefined;
}

function parsed(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === 'object' && value !== null ? { ...value } : {};
  } catch {
    // For example an error page of a proxy.
    return {};
  }
}

/** Returns `?a=1&b=2` without undefined and empty values, or an empty text. */
export function query(values: Readonly<Record<string, string | number | undefined>>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return text === '' ? '' : `?${text}`;
}
