/**
 * The API as the pages call it: paths below the base, JSON both ways, the token of the session on
 * writes, and refusals as `ApiError`. The cookie goes by itself and is never seen here.
 */
import { BASE } from './page-facts.ts';
import { isReachable, untilReachable } from './server-state.ts';

/** Of the session; only in memory. */
let csrfToken: string | undefined;
/** Called when the server says that the session is over. */
let whenSignedOut: (() => void) | undefined;

export function useCsrfToken(token: string | undefined): void {
  csrfToken = token;
}

export function onSignedOut(listener: () => void): void {
  whenSignedOut = listener;
}

/** A refusal in the server's words, or a call that never got there (status 0). */
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | undefined;
  /** Seconds to wait, where the server says so. */
  readonly retryAfter: number | undefined;
  /** What is wrong, by field: `_errors` at each level beside the names of what is below it. */
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
  /** Sent as JSON, or as it is when it is a form or a file. */
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly signal?: AbortSignal | undefined;
}

/** What a write carries beside the cookie. */
export function csrfHeaders(): Readonly<Record<string, string>> {
  return csrfToken === undefined ? {} : { 'x-csrf-token': csrfToken };
}

/** The answer of a path below the base, whatever its status. Throws `ApiError` of status 0. */
export async function send(path: string, options: CallOptions = {}): Promise<Response> {
  const { method = 'GET', body, signal: abort } = options;
  const headers = new Headers({ ...options.headers, ...(method === 'GET' ? {} : csrfHeaders()) });
  const isRaw = body instanceof FormData || body instanceof Blob;
  if (body !== undefined && !isRaw) headers.set('content-type', 'application/json');
  const init: RequestInit = { method, headers, credentials: 'same-origin' };
  if (abort !== undefined) init.signal = abort;
  if (body !== undefined) init.body = isRaw ? body : JSON.stringify(body);
  try {
    const answer = await fetch(BASE + path, init);
    isReachable.value = true;
    return answer;
  } catch (error) {
    if (abort?.aborted === true) throw error;
    isReachable.value = false;
    void untilReachable();
    throw new ApiError(0, 'OFFLINE', 'The server cannot be reached');
  }
}

/** The same, with refusals thrown. */
export async function request(path: string, options: CallOptions = {}): Promise<Response> {
  const answer = await send(path, options);
  if (answer.ok) return answer;
  throw await refusalOf(answer);
}

/** The JSON of an answer. The shape is what the reference says of the path. */
export async function call<T>(path: string, options: CallOptions = {}): Promise<T> {
  const answer = await request(path, options);
  return (await answer.json()) as T; // as the route promises
}

export async function refusalOf(answer: Response): Promise<ApiError> {
  const text = await answer.text();
  const body = parsed(text);
  // Payments have their code in `error`, and the words beside it.
  const error = textOf(body['error']);
  const coded = error !== undefined && CODE.test(error) ? error : undefined;
  const code = textOf(body['code']) ?? coded ?? `HTTP_${answer.status}`;
  const message =
    textOf(body['message']) ?? error ?? `The server answered ${answer.status} ${answer.statusText}`;
  if (answer.status === 401 && csrfToken !== undefined) whenSignedOut?.();
  const retryAfter = answer.headers.get('retry-after');
  return new ApiError(answer.status, code, message, {
    requestId: answer.headers.get('x-request-id') ?? undefined,
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
    // A proxy's page is no answer of the API.
    return {};
  }
}

/** `?a=1&b=2` of what is set; empty texts are left out. */
export function query(values: Readonly<Record<string, string | number | undefined>>): string {
  const search = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== undefined && value !== '') search.set(name, String(value));
  }
  const text = search.toString();
  return text === '' ? '' : `?${text}`;
}
