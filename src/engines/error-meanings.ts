/**
 * The meaning of error responses that the status alone does not show, as model providers and model
 * servers send them. `test/fixtures/providers/` has an example of each.
 */
import { parsedJson } from '../json/json-text.ts';

export type ErrorMeaning =
  /** The content was rejected. */
  | 'moderation'
  /** The prompt is longer than the context of the model. */
  | 'overflow'
  /** The rate limit of this engine is too small for the request. */
  | 'rate-limit'
  /** The key or the balance of the operator. */
  | 'operator'
  /** The model is not available by this path. */
  | 'unsupported'
  /** The model wrote an invalid completion; another attempt may succeed. */
  | 'generation'
  /** The request is at fault, although the status says that the server is. */
  | 'invalid'
  /** The server is at fault, although the status says that the request is. */
  | 'failed';

interface KnownError {
  readonly meaning: ErrorMeaning;
  readonly statuses: readonly number[];
  readonly code?: RegExp;
  readonly message?: RegExp;
}

const INVALID = [400, 413, 422];

function startsWith(...beginnings: readonly string[]): RegExp {
  return new RegExp(`^(?:${beginnings.join('|')})`, 'i');
}

/** The first entry whose status and code or message match applies. */
const KNOWN_ERRORS: readonly KnownError[] = [
  {
    meaning: 'operator',
    statuses: [400, 412, 429],
    code: /^(?:insufficient_quota|billing_\w+|access_terminated|model_decommissioned|organization_restricted|unknown_model)$/,
    // From its beginning: a later part can be an echo of the request.
    message: startsWith(
      'api key (?:not valid|expired)',
      'incorrect api key',
      'your credit balance is too low',
      // Gemini has the same words for a limit per minute, and says when to retry.
      'you exceeded your current quota, please check your plan(?![^]*retry in)',
      'user location is not supported for the api',
      'gemini api free tier is not available',
      'this organization has been disabled',
      'you have reached your specified api usage limits',
      'your (?:newly created )?team \\S+ has (?:either used all|not purchased)',
      'account \\S+ is suspended',
      'budget has been exceeded',
      'model not exist',
      'invalid model: ',
      '\\S+ is not a valid model id',
      '\\S+ invalid model name passed',
      'model \\S+ is enabled only for api versions',
      'the provided model identifier is invalid',
      'invocation of model id \\S+ with on-demand throughput',
    ),
  },
  {
    meaning: 'unsupported',
    statuses: [400, 404],
    code: /^OperationNotSupported$/,
    message: /only supported in v1\/responses|not supported (?:in|with) the v1\/chat\/completions/i,
  },
  {
    meaning: 'operator',
    statuses: [404],
    code: /^(?:DeploymentNotFound|model_not_found|model_not_available)$/,
    message: startsWith(
      '(?:the )?models?[ /](?:not found|\\S{1,300} (?:does not exist|(?:is )?not found))',
    ),
  },
  { meaning: 'rate-limit', statuses: INVALID, code: /^rate_limit_exceeded$/ },
  {
    meaning: 'moderation',
    statuses: [...INVALID, 403, 451],
    code: /content.?(?:policy|filter)|moderation|data_inspection_failed|^invalid_prompt$/i,
    message: /content exists risk|content filtering policy|contentpolicyviolation/i,
  },
  {
    meaning: 'moderation',
    statuses: [403],
    message: /moderation|flagged|violates usage guidelines/i,
  },
  {
    meaning: 'overflow',
    statuses: INVALID,
    code: /^(?:context_length_exceeded|exceed_context_size_error|tokens_limit_reached)$/,
    message:
      /maximum (?:context|model|prompt) length|context ?(?:size|length|window|limit)|too many tokens|(?:prompt|input) is too long|input token count.{1,40}exceeds|inputs?`? (?:tokens \+|must have less than)/i,
  },
  {
    meaning: 'overflow',
    statuses: [500],
    message: startsWith('input (?:\\(\\d+ tokens\\) )?is too large to process'),
  },
  {
    meaning: 'invalid',
    statuses: [500],
    message:
      /^image input is not supported|^tools param requires|^litellm.unsupportedparamserror|error: jinja exception/i,
  },
  {
    meaning: 'failed',
    statuses: [400],
    message: startsWith('the model has crashed', 'model unloaded', 'request aborted'),
  },
  {
    meaning: 'generation',
    statuses: [400],
    code: /^(?:tool_use_failed|json_validate_failed|output_parse_failed)$/,
  },
];

export function errorMeaning(status: number, body: Buffer | null): ErrorMeaning | undefined {
  const { code, message } = errorWords(body);
  return KNOWN_ERRORS.find(
    (known) =>
      known.statuses.includes(status) &&
      (known.code?.test(code) === true || known.message?.test(message) === true),
  )?.meaning;
}

/** Statuses of errors by the names that providers use within a stream, in lower case. */
const STATUS_OF_NAME: Readonly<Record<string, number>> = {
  authentication_error: 401,
  billing_error: 402,
  content_filter: 400,
  context_length_exceeded: 400,
  insufficient_quota: 429,
  invalid_argument: 400,
  invalid_prompt: 400,
  invalid_request_error: 400,
  not_found_error: 404,
  overloaded_error: 529,
  permission_error: 403,
  rate_limit_error: 429,
  rate_limit_exceeded: 429,
  request_too_large: 413,
  resource_exhausted: 429,
  server_is_overloaded: 503,
  serviceunavailableexception: 503,
  service_unavailable: 503,
  service_unavailable_error: 503,
  slow_down: 503,
  throttlingexception: 429,
  timeout_error: 504,
  unavailable: 503,
  validationexception: 400,
};

/** The status that an error within a stream would have as a response; `names`: code and type. */
export function eventStatus(names: readonly (string | undefined)[]): number | undefined {
  for (const name of names) {
    const status = STATUS_OF_NAME[name?.toLowerCase() ?? ''] ?? Number(name);
    if (status >= 400 && status < 600) return status;
  }
  return undefined;
}

export interface ErrorWords {
  readonly message: string;
  readonly code: string;
}

/** Message and code of an error body, in the formats of common engines. */
export function errorWords(body: Buffer | null): ErrorWords {
  const text = body?.toString('utf8').trim() ?? '';
  const json = parsedJson(text);
  if (json === undefined) return { message: text, code: '' };
  // Gemini's compatible API returns a list of one error.
  const parsed: unknown = Array.isArray(json) ? json[0] : json;
  const error = memberOf(parsed, 'error') ?? parsed;
  const reason = memberOf(error, 'message') ?? memberOf(parsed, 'detail') ?? error;
  const message = typeof reason === 'string' ? reason : (JSON.stringify(reason) ?? '');
  // OpenRouter: the error of the provider behind it.
  const raw = memberOf(memberOf(error, 'metadata'), 'raw');
  if (typeof raw === 'string' && message === 'Provider returned error') {
    return errorWords(Buffer.from(raw));
  }
  const coded = memberOf(error, 'code') ?? memberOf(error, 'type');
  const isCode = typeof coded === 'string' || typeof coded === 'number';
  return { message, code: isCode ? String(coded) : '' };
}

function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined;
  return (value as Record<string, unknown>)[name] ?? undefined; // an object, checked above
}
