/**
 * Errors of provider packages as error responses of the OpenAI API: status, message and code of the
 * provider, so that the server classifies them as those of any other engine. Known secrets are
 * removed from messages.
 */
import { errorWords, eventStatus } from '../../src/engines/error-meanings.ts';
import { type JsonObject, isJsonObject } from '../../src/json/json-scan.ts';
import { parsedJson } from '../../src/json/json-text.ts';
import { reasonOf } from '../../src/core/log.ts';

export class ProviderFailure extends Error {
  override readonly name = 'ProviderFailure';
  readonly status: number;
  readonly code: string;
  readonly retryAfterSeconds: number | undefined;

  constructor(status: number, message: string, code = '', retryAfterSeconds?: number) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfterSeconds = retryAfterSeconds;
  }
}

/** Errors of provider packages without a response, by the name of the class. */
const STATUS_OF_NAME: Readonly<Record<string, number>> = {
  AI_InvalidArgumentError: 400,
  AI_InvalidPromptError: 400,
  AI_LoadAPIKeyError: 401,
  AI_LoadSettingError: 401,
  AI_NoSuchModelError: 404,
  AI_TooManyEmbeddingValuesForCallError: 400,
  AI_UnsupportedFunctionalityError: 400,
  TimeoutError: 504,
};
const MAX_MESSAGE_CHARACTERS = 2_000;
const NO_RESPONSE = 502;
/** A longer delay is a fault of the provider. */
const MAX_RETRY_AFTER_SECONDS = 86_400;

/** Any error of a call. Errors of the network and unreadable responses are 502. */
export function failureOf(error: unknown): ProviderFailure {
  if (error instanceof ProviderFailure) return error;
  if (!(error instanceof Error)) return failureOfEvent(error);
  const { statusCode, responseBody, responseHeaders, response, status } = error as {
    readonly statusCode?: unknown;
    readonly responseBody?: unknown;
    readonly responseHeaders?: Readonly<Record<string, string>>;
    /** Set by the library that requests tokens from Google. */
    readonly response?: { readonly status?: unknown };
    readonly status?: unknown;
  };
  const given = statusCode ?? response?.status ?? status;
  if (typeof given !== 'number') {
    // A plain error is from the package itself, such as a missing voice.
    const usual = error.name === 'Error' ? 500 : NO_RESPONSE;
    return new ProviderFailure(STATUS_OF_NAME[error.name] ?? usual, reasonOf(error));
  }
  const body = typeof responseBody === 'string' ? parsedJson(responseBody) : undefined;
  const words = errorWords(typeof responseBody === 'string' ? Buffer.from(responseBody) : null);
  // A redirect or a success without the expected content.
  const final = given >= 400 ? given : NO_RESPONSE;
  // The token of the operator's account, not the request, was rejected.
  const isToken = statusCode === undefined && final < 500;
  const message = words.message === '' || given < 400 ? reasonOf(error) : words.message;
  const seconds = retryAfterOf(responseHeaders ?? {}, body);
  return new ProviderFailure(isToken ? 401 : final, message, codeOf(body), seconds);
}

/** An error event within a stream: a text, or an object with type and message. */
function failureOfEvent(error: unknown): ProviderFailure {
  const { message, code } = errorWords(Buffer.from(JSON.stringify(error ?? 'no reason')));
  return new ProviderFailure(eventStatus([code]) ?? NO_RESPONSE, message, code);
}

/** The code as the server looks it up; the words of AWS and of Google are types. */
function codeOf(body: unknown): string {
  const parsed: unknown = Array.isArray(body) ? body[0] : body;
  if (!isJsonObject(parsed)) return '';
  const error = isJsonObject(parsed['error']) ? parsed['error'] : parsed;
  const codes = [error['code'], error['status'], error['type'], error['__type'], parsed['type']];
  return codes.find((code) => typeof code === 'string') ?? '';
}

/** `Retry-After` in seconds or as a date, or `retryDelay` of Google's error details. */
function retryAfterOf(headers: Readonly<Record<string, string>>, body: unknown) {
  const parsed: unknown = Array.isArray(body) ? body[0] : body;
  const error = isJsonObject(parsed) && isJsonObject(parsed['error']) ? parsed['error'] : {};
  const details: readonly unknown[] = Array.isArray(error['details']) ? error['details'] : [];
  const delays = details.map((one) => (isJsonObject(one) ? one['retryDelay'] : undefined));
  const delay = delays.find((one) => typeof one === 'string');
  const given = headers['retry-after'] ?? delay?.replace(/s$/, '');
  if (given === undefined) return undefined;
  const seconds = Number.isNaN(Number(given))
    ? (Date.parse(given) - Date.now()) / 1_000
    : Number(given);
  if (!Number.isFinite(seconds)) return undefined;
  return Math.ceil(Math.min(Math.max(seconds, 1), MAX_RETRY_AFTER_SECONDS));
}

const SECRET_NAME = /key|secret|token|password|private|credential|authorization|headers/i;
const MIN_SECRET_CHARACTERS = 8;

/** Removes the secrets of `settings` from texts. */
export class Redaction {
  readonly #secrets: readonly string[];

  constructor(settings: JsonObject) {
    this.#secrets = secretsIn(settings, false);
  }

  text(text: string): string {
    const clean = this.#secrets.reduce((left, one) => left.replaceAll(one, '[redacted]'), text);
    return clean.slice(0, MAX_MESSAGE_CHARACTERS);
  }

  body({ message, code, status }: ProviderFailure): JsonObject {
    const type = status < 500 ? 'invalid_request_error' : 'server_error';
    return { error: { message: this.text(message), type, code: code === '' ? null : code } };
  }
}

function secretsIn(value: unknown, isSecret: boolean): string[] {
  if (typeof value === 'string') {
    return isSecret && value.length >= MIN_SECRET_CHARACTERS ? [value] : [];
  }
  if (typeof value !== 'object' || value === null) return [];
  return Object.entries(value).flatMap(([name, one]) =>
    secretsIn(one, isSecret || SECRET_NAME.test(name)),
  );
}
